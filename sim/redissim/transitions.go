package redissim

import (
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/fencepost-sim/fencepost/engine/idempotency"
	"github.com/fencepost-sim/fencepost/engine/idempotency/record"
	"github.com/fencepost-sim/fencepost/engine/idempotency/redisport"
)

// transitions are the scripts, as the model understands them.
var transitions = map[string]func(s *Server, now time.Time, call redisport.Call) (redisport.Reply, error){
	redisport.Claim.Name: onRecord(5, func(now time.Time, r *record.Record, a *arguments) redisport.Reply {
		request := idempotency.ClaimRequest{
			Token: a.token(0), Lease: a.span(1), TTL: a.span(2), Fingerprint: idempotency.Fingerprint(a.text(3)), Pin: a.text(4) == "1",
		}
		return claimReply(r.Claim(now, request))
	}),
	redisport.Extend.Name: onRecord(2, func(now time.Time, r *record.Record, a *arguments) redisport.Reply {
		return held(r.Extend(now, a.token(0), a.span(1)))
	}),
	redisport.Complete.Name: onRecord(5, func(now time.Time, r *record.Record, a *arguments) redisport.Reply {
		result := idempotency.Result{Kind: idempotency.ResultKind(a.number(2)), Payload: []byte(a.text(3))}
		return held(r.Complete(now, a.token(0), idempotency.Fingerprint(a.text(1)), result, a.span(4)))
	}),
	redisport.Release.Name: onRecord(1, func(_ time.Time, r *record.Record, a *arguments) redisport.Reply {
		return held(r.Release(a.token(0)))
	}),
	redisport.Tombstone.Name: onRecord(1, func(now time.Time, r *record.Record, a *arguments) redisport.Reply {
		switch found := r.Tombstone(now, a.span(0)); {
		case found.Held:
			return redisport.Reply{"in flight", redisport.Milliseconds(found.LeaseLeft)}
		case found.Ran:
			return redisport.Reply{"ran"}
		}
		return redisport.Reply{"never"}
	}),
	redisport.Sweep.Name: onRecord(0, func(now time.Time, r *record.Record, _ *arguments) redisport.Reply {
		if r.Sweep(now) {
			return redisport.Reply{"released"}
		}
		return redisport.Reply{"kept"}
	}),
	redisport.Lease.Name: leaseStep,
}

// claimWords are the words of the script for the answers to a claim.
var claimWords = [...]string{
	idempotency.Claimed: "claimed", idempotency.Takeover: "takeover", idempotency.InFlight: "in flight", idempotency.Replay: "replay",
	idempotency.Mismatch: "mismatch", idempotency.Pinned: "pinned", idempotency.Tombstoned: "tombstoned",
}

func claimReply(result idempotency.ClaimResult) redisport.Reply {
	kind := ""
	if result.State == idempotency.Replay {
		kind = strconv.Itoa(int(result.Result.Kind))
	}
	return redisport.Reply{
		claimWords[result.State], strconv.FormatUint(result.Fence, 10), redisport.Milliseconds(result.LeaseLeft),
		string(result.Fingerprint), kind, string(result.Result.Payload),
	}
}

func held(is bool) redisport.Reply {
	if is {
		return redisport.Reply{"held"}
	}
	return redisport.Reply{"lost"}
}

// onRecord lifts a transition on a record to the keyspace. Nothing is written when nothing changed, so that the undo log holds
// writes only.
func onRecord(arity int, transition func(now time.Time, r *record.Record, a *arguments) redisport.Reply) func(*Server, time.Time, redisport.Call) (redisport.Reply, error) {
	return func(s *Server, now time.Time, call redisport.Call) (redisport.Reply, error) {
		v := s.get(call.Key, now)
		if v.foreign {
			return nil, fmt.Errorf("WRONGTYPE Operation against a key holding the wrong kind of value: %s", call.Key)
		}
		if v.version != "" {
			return redisport.Reply{"version", v.version}, nil
		}
		a := &arguments{list: call.Args}
		if len(call.Args) != arity {
			return nil, fmt.Errorf("got %d arguments, want %d", len(call.Args), arity)
		}
		r := v.record
		reply := transition(now, &r, a)
		if a.err != nil {
			return nil, a.err
		}
		switch {
		case same(r, v.record):
		case r.State == record.Absent:
			s.drop(call.Key)
		default:
			s.put(call.Key, value{record: r})
		}
		return reply, nil
	}
}

func same(a, b record.Record) bool {
	payloads := slices.Equal(a.Result.Payload, b.Result.Payload)
	a.Result.Payload, b.Result.Payload = nil, nil
	return payloads && a.State == b.State && a.Token == b.Token && a.Fence == b.Fence && a.LeaseUntil == b.LeaseUntil &&
		a.Fingerprint == b.Fingerprint && a.Result.Kind == b.Result.Kind && a.Pin == b.Pin && a.Ran == b.Ran && a.Expires == b.Expires
}

func leaseStep(s *Server, now time.Time, call redisport.Call) (redisport.Reply, error) {
	v := s.get(call.Key, now)
	if v.foreign || v.record.State != record.Absent {
		return nil, fmt.Errorf("WRONGTYPE Operation against a key holding the wrong kind of value: %s", call.Key)
	}
	a := &arguments{list: call.Args}
	l, token, ttl := v.lease, a.token(1), a.span(2)
	var cursor *string
	if text := a.text(4); a.text(3) == "1" {
		cursor = &text
	}
	ours, left := false, time.Duration(0)
	switch verb := redisport.LeaseVerb(a.text(0)); verb {
	case redisport.Acquire:
		ours, left = l.Acquire(now, token, ttl)
	case redisport.Renew:
		ours = l.Renew(now, token, ttl, cursor)
	case redisport.GiveUp:
		ours = l.Release(now, token, cursor)
	default:
		return nil, fmt.Errorf("the verb %q is none of a lease's", verb)
	}
	if a.err != nil {
		return nil, a.err
	}
	if ours {
		s.put(call.Key, value{lease: l})
	}
	return redisport.Reply{held(ours)[0], redisport.Milliseconds(left), strconv.FormatUint(l.Fence, 10), l.Cursor}, nil
}

// arguments reads what a script gets. The first error is kept.
type arguments struct {
	list []string
	err  error
}

func (a *arguments) text(i int) string {
	if i >= len(a.list) {
		a.err = fmt.Errorf("argument %d is missing", i)
		return ""
	}
	return a.list[i]
}

func (a *arguments) number(i int) int64 {
	n, err := strconv.ParseInt(a.text(i), 10, 64)
	if err != nil && a.err == nil {
		a.err = fmt.Errorf("argument %d: %w", i, err)
	}
	return n
}

func (a *arguments) span(i int) time.Duration { return time.Duration(a.number(i)) * time.Millisecond }

func (a *arguments) token(i int) (token idempotency.Token) {
	if n, err := hex.Decode(token[:], []byte(a.text(i))); (err != nil || n != len(token)) && a.err == nil {
		a.err = fmt.Errorf("argument %d: %q is no token", i, a.text(i))
	}
	return token
}

// rebuild hashes all keys with the seed of this life of the server. Their order is that of their names first, so that nothing depends on
// the order of a Go map.
func (s *Server) rebuild() {
	s.table = newTable(s.options.Seed + s.life*0x9E3779B97F4A7C15)
	for _, key := range slices.Sorted(maps.Keys(s.values)) {
		s.table.add(key)
	}
}
