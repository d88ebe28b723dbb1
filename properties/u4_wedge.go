package properties

import "github.com/fencepost-sim/fencepost/sim/journal"

var unwedged = Property{
	ID: "U4", Name: "no-wedge", Stores: []string{inRedis},
	Statement: "A claim under which nobody works blocks its key for one lease at the most.",
	New:       func() Checker { return free{} },
}

type free struct{}

func (free) Observe(s *State, event *journal.Event) {
	g := s.Guards
	if g == nil || g.Script == nil || g.Script.Name != "claim" || g.Script.Reply != "in flight" || g.clockSet {
		return
	}
	o := g.owners[g.records[g.Script.Key].Token]
	if o != nil && !o.working && s.Now > o.left+g.Lease {
		s.Violate("%s is refused %s, under which nobody has worked for %v; the lease is %v",
			s.Journal.ProcessName(event.Process), g.Script.Key, s.Now-o.left, g.Lease)
	}
}

func (free) Finish(*State) {}
