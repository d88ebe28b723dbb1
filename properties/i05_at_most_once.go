package properties

import "github.com/fencepost-sim/fencepost/sim/journal"

var atMostOnce = Property{
	ID: "I5", Name: "at-most-once",
	Statement: "Under at-most-once a handler starts at most once for each group and event.",
	New:       func() Checker { return single{} },
}

type single struct{}

func (single) Observe(s *State, event *journal.Event) {
	if event.Kind != journal.HandlerStarted {
		return
	}
	subscription := s.SubscriptionOf(event.Group, event.Name)
	if subscription == nil || !subscription.AtMostOnce {
		return
	}
	starts := 0
	for _, h := range s.Handlers {
		if h.Group == event.Group && h.EventID == event.Key {
			starts++
		}
	}
	if starts > 1 {
		s.Violate("group %s starts the handler for event %s for the %d. time", event.Group, event.Key, starts)
	}
}

func (single) Finish(*State) {}
