package properties

import "github.com/fencepost-sim/fencepost/sim/journal"

var confirmed = Property{
	ID: "U6", Name: "confirmed", Stores: []string{inRedis, inPostgres, inPostgresAlone},
	Statement: "Nothing that is guarded runs without a claim that its store has confirmed.",
	New:       func() Checker { return answeredFirst{} },
}

type answeredFirst struct{}

func (answeredFirst) Observe(s *State, event *journal.Event) {
	g := s.Guards
	if event.Kind != journal.ExecutionStarted || g == nil {
		return
	}
	asked, x := g.asked[event.Task], g.ofHandler[event.Task]
	if asked == nil || !asked.answered || !g.Granted(asked.reply) || asked.token != x.Token {
		s.Violate("%s runs what is guarded for event %s without a confirmed claim", s.Journal.ProcessName(event.Process), event.Key)
	}
}

func (answeredFirst) Finish(*State) {}
