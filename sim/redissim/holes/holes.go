// Package holes holds the weaknesses of the specification's section 3 that live in what Redis is asked to do, planted to prove that the
// invariants find them: each lets a server run one script as if the hole were not closed.
package holes

import (
	"time"

	"github.com/fencepost-sim/fencepost/engine/idempotency/record"
	"github.com/fencepost-sim/fencepost/engine/idempotency/redisport"
	"github.com/fencepost-sim/fencepost/sim/redissim"
)

// Hole is a weakness. The zero value is none.
type Hole string

// The holes.
const (
	CompleteByAnyone  Hole = "complete-by-anyone"  // hole 3: COMPLETE without a look at the token
	ReleaseByAnyone   Hole = "release-by-anyone"   // hole 4: RELEASE by a stale owner frees another's claim
	ExtendByAnyone    Hole = "extend-by-anyone"    // hole 10: a heartbeat renews another's lease
	SweepIgnoresLease Hole = "sweep-ignores-lease" // hole 1: a live handler's claim is swept
	SweepIgnoresState Hole = "sweep-ignores-state" // hole 2: a result is swept
	NoHeartbeat       Hole = "no-heartbeat"        // hole 1: staleness by age
	LeaseOfADay       Hole = "lease-of-a-day"      // the wedge that R4 forbids
	LeaseAndAHalf     Hole = "lease-and-a-half"    // a smaller one
	TakeoverAtOnce    Hole = "takeover-at-once"    // the lease is not looked at
	ReleaseOnSuccess  Hole = "release-on-success"  // the result is thrown away
	StoreNothing      Hole = "store-nothing"       // COMPLETE is answered and not applied
	EvictResults      Hole = "evict-results"       // hole 20: the server makes room
	ResultsIgnored    Hole = "results-ignored"     // a completed key can be claimed again
	OneKey            Hole = "one-key"             // hole 15: what tells events apart is not part of the key
	HeartbeatReleases Hole = "heartbeat-releases"  // hole 4: somebody gives a claim back while its handler runs
	InFlightIsDone    Hole = "in-flight-is-done"   // a claim is taken for a result
	FenceResets       Hole = "fence-resets"        // hole 13: the fence is a counter, and is lost with the record
)

// byAnyone are scripts that look as if the caller held the claim.
var byAnyone = map[Hole]*redisport.Script{
	CompleteByAnyone: redisport.Complete, ReleaseByAnyone: redisport.Release, ExtendByAnyone: redisport.Extend,
}

// Run lets the server run a call, with the hole if there is one. The lease is that of all claims. The call may be changed.
func (h Hole) Run(server *redissim.Server, now time.Time, lease time.Duration, call *redisport.Call) (redisport.Reply, error) {
	found := server.Record(now, call.Key)
	argument := func(i int, value string) {
		call.Args = append([]string(nil), call.Args...)
		call.Args[i] = value
	}
	switch {
	case byAnyone[h] == call.Script && found.State != record.Absent:
		argument(0, found.Token.String())
	case h == SweepIgnoresLease && call.Script == redisport.Sweep && found.State == record.Claimed,
		h == SweepIgnoresState && call.Script == redisport.Sweep && found.State == record.Completed:
		server.Evict(call.Key)
		return redisport.Reply{"released"}, nil
	case h == NoHeartbeat && call.Script == redisport.Extend, h == StoreNothing && call.Script == redisport.Complete:
		return redisport.Reply{"held"}, nil
	case h == LeaseOfADay && call.Script == redisport.Claim:
		argument(1, redisport.Milliseconds(24*time.Hour))
	case h == LeaseAndAHalf && call.Script == redisport.Claim:
		argument(1, redisport.Milliseconds(lease+lease/2))
	case h == TakeoverAtOnce && call.Script == redisport.Claim:
		now = now.Add(2 * lease)
	case h == ReleaseOnSuccess && call.Script == redisport.Complete, h == HeartbeatReleases && call.Script == redisport.Extend:
		*call = redisport.Call{Script: redisport.Release, Key: call.Key, Args: call.Args[:1]}
	case h == ResultsIgnored && call.Script == redisport.Claim && found.State == record.Completed,
		h == EvictResults && call.Script != redisport.Lease && found.State == record.Completed:
		server.Evict(call.Key)
	case h == OneKey && call.Script != redisport.Lease:
		call.Key = "idem:one"
	case h == InFlightIsDone && call.Script == redisport.Claim && found.State == record.Claimed:
		return redisport.Reply{"replay", "0", "0", "", "1", ""}, nil
	}
	replies, err := server.Run(now, *call)
	if err != nil {
		return nil, err
	}
	if h == FenceResets && call.Script == redisport.Claim && found.State == record.Absent {
		replies[0][1] = "1"
	}
	return replies[0], nil
}
