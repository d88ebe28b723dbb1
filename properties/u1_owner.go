package properties

import (
	"github.com/fencepost-sim/fencepost/sim/journal"
)

var owned = Property{
	ID: "U1", Name: "owner", Stores: []string{inRedis},
	Statement: "Nobody but its owner changes a claim: heartbeats, COMPLETE and RELEASE come from the process that claimed; only a lapsed claim is swept or taken over; a result is never changed.",
	New:       func() Checker { return ownership{} },
}

type ownership struct{}

func (ownership) Observe(s *State, event *journal.Event) {
	g := s.Guards
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
		if o := g.owners[before.Token]; o == nil || o.Process != event.Process || o.Life != s.Life(event.Process) || step.Name != "extend" && o.Task != event.Task {
			s.Violate("%s changes the claim of %s (%s), which is not its own", who, step.Key, event.Point)
		}
	}
}

func (ownership) Finish(*State) {}
