package properties

import "github.com/fencepost-sim/fencepost/sim/journal"

var acknowledged = Property{
	ID: "I11", Name: "acknowledged",
	Statement: "No handler starts for a group and event whose success was recorded.",
	New:       func() Checker { return &done{succeeded: map[string]bool{}} },
}

type done struct {
	succeeded map[string]bool // by group and event; looked up only
}

func (d *done) Observe(s *State, event *journal.Event) {
	if c := s.Attempt; c != nil && c.After.Status == "success" {
		d.succeeded[c.After.Group+"\x00"+c.After.EventID] = true
	}
	if event.Kind == journal.HandlerStarted && d.succeeded[event.Group+"\x00"+event.Key] {
		s.Violate("the handler of group %s starts for event %s, whose success was recorded", event.Group, event.Key)
	}
}

func (d *done) Finish(*State) {}
