package properties

import (
	"slices"

	"github.com/fencepost-sim/fencepost/sim/journal"
)

var closing = Property{
	ID: "I13", Name: "closing",
	Statement: "Closing waits for the handlers that run, lets nothing run afterwards, and does not hang.",
	New:       func() Checker { return &drained{} },
}

type drained struct {
	closed []Claimer // processes and lives that have closed
	tasks  []live
}

// live is a task that has not ended.
type live struct {
	process, task int
	name          string
}

func (d *drained) Observe(s *State, event *journal.Event) {
	switch event.Kind {
	case journal.TaskStarted:
		d.tasks = append(d.tasks, live{event.Process, event.Task, event.Name})
	case journal.TaskEnded:
		d.tasks = slices.DeleteFunc(d.tasks, func(t live) bool { return t.task == event.Task })
	case journal.ProcessDied:
		d.tasks = slices.DeleteFunc(d.tasks, func(t live) bool { return t.process == event.Process })
	case journal.ProcessClosed:
		d.checkTasks(s, event)
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

// checkTasks looks whether the engine has left tasks behind, where the process has opened only one.
func (d *drained) checkTasks(s *State, event *journal.Event) {
	opened := 0
	for _, engine := range s.Engines {
		if engine.Process == event.Process && engine.Life == s.Life(event.Process) {
			opened++
		}
	}
	for _, t := range d.tasks {
		if opened == 1 && event.Error == "" && t.process == event.Process && t.task != event.Task && t.name != "main" && t.name != "close" {
			s.Violate("%s has closed, and its task %q goes on", s.Journal.ProcessName(event.Process), t.name)
		}
	}
}

func (d *drained) Finish(*State) {}
