package properties

import (
	"time"

	"github.com/fencepost-sim/fencepost/sim/journal"
)

var owned = Property{
	ID: "U1", Name: "owner", Stores: []string{inRedis},
	Statement: "Nobody but its owner changes a claim: heartbeats, COMPLETE and RELEASE come from the process that claimed; only a lapsed claim is swept or taken over; a result is never changed. The fence grows with every owner, also when Redis has forgotten the last one.",
	New:       func() Checker { return &ownership{last: map[string]fencedAt{}} },
}

type ownership struct {
	last map[string]fencedAt // by key
}

// fencedAt is the fence that an owner was given, and when.
type fencedAt struct {
	token string
	fence int64
	at    time.Duration
}

func (o *ownership) Observe(s *State, event *journal.Event) {
	g := s.Guards
	if g != nil && g.Script != nil && g.Script.Name == "claim" && g.Granted(g.Script.Reply) {
		o.checkFence(s, event)
	}
	if g == nil || g.Claim == nil || event.Process == 0 {
		return // what the world itself does is a fault
	}
	before, who := g.Claim.Before, s.Journal.ProcessName(event.Process)
	lapsed := before.LeaseUntil <= s.Now || g.clockSet
	switch step := g.last; {
	case before.State == "C":
		s.Violate("%s changes the result under %s (%s)", who, step.Key, event.Point)
	case before.State == "":
		if step.Name != "claim" {
			s.Violate("%s writes a record under %s that nobody has claimed (%s)", who, step.Key, event.Point)
		}
	case step.Name == "claim" && before.Token != g.Claim.After.Token && !lapsed:
		s.Violate("%s takes the claim of %s over, whose lease ends in %v", who, step.Key, before.LeaseUntil-s.Now)
	case step.Name == "sweep" && !lapsed:
		s.Violate("%s sweeps the claim of %s, whose lease ends in %v", who, step.Key, before.LeaseUntil-s.Now)
	case step.Name == "extend" || step.Name == "complete" || step.Name == "release":
		if o := g.owners[before.Token]; o == nil || o.Process != event.Process || o.Life != s.Life(event.Process) {
			s.Violate("%s changes the claim of %s (%s), which is not its own", who, step.Key, event.Point)
		}
	}
}

// checkFence compares the fence that a claim is given with that of the owner before. A server whose clock was set back may repeat one: that is
// stated.
func (o *ownership) checkFence(s *State, event *journal.Event) {
	claim, before := s.Guards.Script, o.last[s.Guards.Script.Key]
	// Fences are microseconds, and calls take no time here: a key can be freed and claimed again within one.
	sameInstant := claim.Fence == before.fence && s.Now.Truncate(time.Microsecond) == before.at.Truncate(time.Microsecond)
	asked := claim.Token == before.token && claim.Fence == before.fence // again, by the same owner
	if claim.Fence <= before.fence && !sameInstant && !asked && !s.Guards.clockSet {
		s.Violate("%s gets the claim of %s with fence %d; the owner before had %d", s.Journal.ProcessName(event.Process), claim.Key, claim.Fence, before.fence)
	}
	o.last[claim.Key] = fencedAt{claim.Token, claim.Fence, s.Now}
}

func (*ownership) Finish(*State) {}
