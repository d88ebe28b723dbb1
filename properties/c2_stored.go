package properties

import "github.com/fencepost-sim/fencepost/sim/journal"

var stored = Property{
	ID: "C-II", Name: "stored", Stores: []string{inRedis},
	Statement: "When a handler has succeeded its outcome is stored, and the event is not executed again, unless Redis lost data or could not be reached, or the claim was lost by a pause.",
	New:       func() Checker { return kept{} },
}

type kept struct{}

func (kept) Observe(s *State, event *journal.Event) {
	g := s.Guards
	if g == nil || g.DataLost {
		return
	}
	switch event.Kind {
	case journal.HandlerEnded:
		h := s.Running(event)
		if event.Error != "" || h == nil {
			return
		}
		x := g.OfHandler(event.Task, h.Started)
		if x != nil && !x.Completed && !g.Paused(s, x) && !g.wasHindered(x.Process) {
			s.Violate("the handler of event %s has succeeded, and its outcome is not stored", event.Key)
		}
	case journal.ExecutionStarted:
		now := g.ofHandler[event.Task]
		for _, x := range g.Executions {
			if x != now && x.Completed && x.of(now.Group, now.Topic, now.EventID) {
				s.Violate("event %s is executed again, although its outcome was stored", event.Key)
			}
		}
	}
}

func (kept) Finish(*State) {}
