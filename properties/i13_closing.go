package properties

import "github.com/fencepost-sim/fencepost/sim/journal"

var closing = Property{
	ID: "I13", Name: "closing",
	Statement: "Closing waits for the handlers that run, lets nothing run afterwards, and does not hang.",
	New:       func() Checker { return &drained{} },
}

type drained struct {
	closed []Claimer // processes and lives that have closed
}

func (d *drained) Observe(s *State, event *journal.Event) {
	switch event.Kind {
	case journal.ProcessClosed:
		d.closed = append(d.closed, Claimer{Process: event.Process, Life: s.Life(event.Process)})
		for _, h := range s.Handlers {
			if !h.Ended && h.Process == event.Process {
				s.Violate("%s has closed, and the handler for event %s still runs", s.Journal.ProcessName(event.Process), h.EventID)
			}
		}
	case journal.HandlerStarted, journal.Issued:
		for _, closed := range d.closed {
			if closed.Process == event.Process && closed.Life == s.Life(event.Process) {
				s.Violate("%s has closed, and goes on: %s %s", s.Journal.ProcessName(event.Process), event.Kind, event.Point)
			}
		}
	case journal.RunEnded:
		if event.Name == "close limit" {
			s.Violate("the processes were told to close, and had not done so in time")
		}
	}
}

func (d *drained) Finish(*State) {}
