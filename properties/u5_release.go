package properties

import "github.com/fencepost-sim/fencepost/sim/journal"

var releasedLate = Property{
	ID: "U5", Name: "release", Stores: []string{inRedis},
	Statement: "A claim is released only after what it protects has returned.",
	New:       func() Checker { return returnedFirst{} },
}

type returnedFirst struct{}

func (returnedFirst) Observe(s *State, event *journal.Event) {
	g := s.Guards
	if g == nil || g.Claim == nil || event.Process == 0 || g.last.Name != "release" {
		return
	}
	if x := g.byToken(g.Claim.Before.Token); x != nil && !x.Over() {
		s.Violate("%s releases the claim of event %s while its execution runs", s.Journal.ProcessName(event.Process), x.EventID)
	}
}

func (returnedFirst) Finish(*State) {}
