package properties

import "github.com/fencepost-sim/fencepost/sim/journal"

var ordering = Property{
	ID: "I7", Name: "ordering",
	Statement: "In an ordered topic a handler starts only when every earlier event that was visible before it has ended, also while one waits for its retry, and never beside another that holds its lease.",
	New:       func() Checker { return ordered{} },
}

type ordered struct{}

func (ordered) Observe(s *State, event *journal.Event) {
	if event.Kind != journal.HandlerStarted {
		return
	}
	subscription := s.SubscriptionOf(event.Group, event.Name)
	if subscription == nil || !subscription.Ordered {
		return
	}
	started := s.Handlers[len(s.Handlers)-1]
	// A handler whose lease is over is a zombie: it can no longer record an outcome, and no database can stop it.
	for _, other := range s.Handlers {
		if other != started && !other.Ended && other.Group == event.Group && other.Topic == event.Name && s.HoldsLease(other) {
			s.Violate("the handler for event %s starts beside the one for event %s, which holds its lease", event.Key, other.EventID)
		}
	}
	this := s.EventOf(event.Key)
	for _, earlier := range s.Events {
		if earlier == this {
			break // the rest became visible later, whatever their sequence: nobody could have waited for them
		}
		if this == nil || !s.Deserves(subscription, earlier) || !earlier.Sequence.Before(this.Sequence) {
			continue
		}
		if !delivered(s, event.Group, earlier.ID) {
			s.Violate("the handler for event %s starts although the earlier event %s has not ended", event.Key, earlier.ID)
		}
	}
}

func (ordered) Finish(*State) {}
