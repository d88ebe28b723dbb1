package properties

import "github.com/fencepost-sim/fencepost/sim/journal"

var concurrency = Property{
	ID: "I9", Name: "concurrency",
	Statement: "No process runs more handlers of a topic at once than its MaxConcurrency.",
	New:       func() Checker { return limited{} },
}

type limited struct{}

func (limited) Observe(s *State, event *journal.Event) {
	if event.Kind != journal.HandlerStarted {
		return
	}
	running := 0
	for _, h := range s.Handlers {
		if !h.Ended && h.Process == event.Process && h.Topic == event.Name && h.Group == event.Group {
			running++
		}
	}
	if most, known := s.limit(event); known && running > most {
		s.Violate("%s runs %d handlers of topic %s; the limit is %d", s.Journal.ProcessName(event.Process), running, event.Name, most)
	}
}

// limit finds how many handlers of the event's topic may run in its process.
func (s *State) limit(event *journal.Event) (most int, known bool) {
	for _, engine := range s.Engines {
		if engine.Process != event.Process || engine.Life != s.Life(event.Process) || engine.Group != event.Group {
			continue
		}
		for _, limit := range engine.Limits {
			if limit.Topic == event.Name {
				most, known = limit.Most, true
			}
		}
	}
	return most, known
}

func (limited) Finish(*State) {}
