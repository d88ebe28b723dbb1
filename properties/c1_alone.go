package properties

import "github.com/fencepost-sim/fencepost/sim/journal"

var alone = Property{
	ID: "C-I", Name: "alone", Stores: []string{inRedis, inPostgres, inPostgresAlone},
	Statement: "No two executions for one event run at once, unless one was paused beyond its lease, Redis lost data, a transaction was cut off from PostgreSQL, or what was told to stop did not.",
	New:       func() Checker { return overlap{} },
}

type overlap struct{}

func (overlap) Observe(s *State, event *journal.Event) {
	g := s.Guards
	if event.Kind != journal.ExecutionStarted || g == nil || g.DataLost {
		return
	}
	now := g.ofHandler[event.Task]
	for _, x := range g.Executions {
		if x == now || x.Over() || !x.of(now.Group, now.Topic, now.EventID) || x.Cancelled || g.Paused(s, x) {
			continue
		}
		if g.Store != inRedis && g.wasHindered(x.Process) {
			continue // its transaction is gone
		}
		s.Violate("%s begins to execute event %s while %s does", s.Journal.ProcessName(event.Process), event.Key, s.Journal.ProcessName(x.Process))
	}
}

func (overlap) Finish(*State) {}
