package crashes

import (
	"time"

	"github.com/fencepost-sim/fencepost/engine/idempotency/record"
	"github.com/fencepost-sim/fencepost/engine/idempotency/redisport"
)

// Mutant is a hole of the specification's section 3, planted to prove that the invariants find it.
type Mutant string

// The mutants.
const (
	CompleteByAnyone    Mutant = "complete-by-anyone"    // hole 3: COMPLETE without a look at the token
	ReleaseByAnyone     Mutant = "release-by-anyone"     // hole 4: RELEASE by a stale owner frees another's claim
	ExtendByAnyone      Mutant = "extend-by-anyone"      // hole 10: a heartbeat renews another's lease
	SweepIgnoresLease   Mutant = "sweep-ignores-lease"   // hole 1: a live handler's claim is swept
	SweepIgnoresState   Mutant = "sweep-ignores-state"   // hole 2: a result is swept
	NoHeartbeat         Mutant = "no-heartbeat"          // hole 1: staleness by age
	RunOnUnknownClaim   Mutant = "run-on-unknown-claim"  // hole 6: the handler runs although nobody confirmed the claim
	LeaseOfADay         Mutant = "lease-of-a-day"        // the wedge that R4 forbids
	TakeoverAtOnce      Mutant = "takeover-at-once"      // the lease is not looked at
	ReplyBeforeComplete Mutant = "reply-before-complete" // C8: the client sees a success that is not stored yet
	ReleaseOnSuccess    Mutant = "release-on-success"    // the result is thrown away
)

// Mutants lists them all.
var Mutants = []Mutant{
	CompleteByAnyone, ReleaseByAnyone, ExtendByAnyone, SweepIgnoresLease, SweepIgnoresState, NoHeartbeat, RunOnUnknownClaim, LeaseOfADay,
	TakeoverAtOnce, ReplyBeforeComplete, ReleaseOnSuccess,
}

// apply lets the server run a script, with the hole if there is one.
func (m Mutant) apply(w *world, now time.Time, call redisport.Call) (redisport.Reply, error) {
	found := w.server.Record(now, call.Key)
	swap := func(i int, value string) {
		call.Args = append([]string(nil), call.Args...)
		call.Args[i] = value
	}
	byAnyone := map[Mutant]*redisport.Script{
		CompleteByAnyone: redisport.Complete, ReleaseByAnyone: redisport.Release, ExtendByAnyone: redisport.Extend,
	}
	switch {
	case byAnyone[m] == call.Script && found.State != record.Absent:
		swap(0, found.Token.String())
	case m == SweepIgnoresLease && call.Script == redisport.Sweep && found.State == record.Claimed,
		m == SweepIgnoresState && call.Script == redisport.Sweep && found.State == record.Completed:
		w.server.Evict(call.Key)
		return redisport.Reply{"released"}, nil
	case m == NoHeartbeat && call.Script == redisport.Extend:
		return redisport.Reply{"held"}, nil
	case m == LeaseOfADay && call.Script == redisport.Claim:
		swap(1, redisport.Milliseconds(24*time.Hour))
	case m == TakeoverAtOnce && call.Script == redisport.Claim:
		now = now.Add(2 * lease)
	case m == ReleaseOnSuccess && call.Script == redisport.Complete:
		call = redisport.Call{Script: redisport.Release, Key: call.Key, Args: call.Args[:1]}
	}
	replies, err := w.server.Run(now, call)
	if err != nil {
		return nil, err
	}
	return replies[0], nil
}
