package properties

import (
	"github.com/fencepost-sim/fencepost/sim/journal"
)

var fairness = Property{
	ID: "I12", Name: "fairness",
	Statement: "While an attempt of an unordered topic is due, a process with a free slot for it starts only a bounded number of other topics' handlers first.",
	New:       func() Checker { return &fair{} },
}

// fair counts, for each process and topic, how many handlers of other topics started while the topic waited.
type fair struct {
	queues []*queue
}

type queue struct {
	process, life int
	limit         Limit
	group         string
	passed        int
}

// patience is how many handlers of every other topic and worker may go first.
const patience = 16

func (f *fair) Observe(s *State, event *journal.Event) {
	if event.Kind != journal.HandlerStarted {
		return
	}
	f.grow(s)
	others := len(s.Subscriptions)
	for _, q := range f.queues {
		switch {
		case q.process != event.Process || q.life != s.Life(event.Process) || q.group != event.Group:
		case q.limit.Topic == event.Name, !q.waits(s):
			q.passed = 0
		default:
			if q.passed++; q.passed > patience*others {
				s.Violate("%s started %d handlers of other topics while an attempt of topic %s was due",
					s.Journal.ProcessName(event.Process), q.passed, q.limit.Topic)
				q.passed = 0
			}
		}
	}
}

// grow adds a queue for each new engine and topic.
func (f *fair) grow(s *State) {
	known := 0
	for _, engine := range s.Engines {
		for _, limit := range engine.Limits {
			if known++; known > len(f.queues) {
				f.queues = append(f.queues, &queue{process: engine.Process, life: engine.Life, limit: limit, group: engine.Group})
			}
		}
	}
}

// waits tells whether an attempt of the queue's topic is due and the process has a free slot for it.
func (q *queue) waits(s *State) bool {
	if subscription := s.SubscriptionOf(q.group, q.limit.Topic); subscription == nil || subscription.Ordered {
		return false
	}
	running := 0
	for _, h := range s.Handlers {
		if !h.Ended && h.Process == q.process && h.Topic == q.limit.Topic {
			running++
		}
	}
	if running >= q.limit.Most {
		return false
	}
	for _, attempt := range s.Attempts {
		if attempt.Topic == q.limit.Topic && attempt.Group == q.group && attempt.Status == "pending" &&
			attempt.Token == "" && attempt.Due <= s.Now && !attempt.Gone {
			return true
		}
	}
	return false
}

func (f *fair) Finish(*State) {}
