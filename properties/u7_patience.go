package properties

import "github.com/fencepost-sim/fencepost/sim/journal"

var patient = Property{
	ID: "U7", Name: "patience", Stores: []string{inRedis, inPostgres},
	Statement: "No attempt fails because another execution of its event is under way, or because the claim cannot be asked for: it waits, so that retries are spent on the handler's failures only.",
	New:       func() Checker { return waits{} },
}

type waits struct{}

func (waits) Observe(s *State, event *journal.Event) {
	g := s.Guards
	if g == nil || event.Kind != journal.HandlerEnded || event.Error == "" {
		return
	}
	h := s.Running(event)
	if h == nil || h.Cancelled || g.OfHandler(event.Task, h.Started) != nil {
		return
	}
	if g.Store == inPostgres && g.hindered[anyProcess] {
		return // PostgreSQL refuses what it will refuse again
	}
	s.Violate("attempt %d of event %s fails before anything was executed: %s", event.Number, event.Key, event.Error)
}

func (waits) Finish(*State) {}
