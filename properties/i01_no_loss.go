package properties

import "github.com/fencepost-sim/fencepost/sim/journal"

var noLoss = Property{
	ID: "I1", Name: "no-loss",
	Statement: "A publication that is acknowledged is stored, and every such event reaches a terminal delivery in every subscribed group.",
	New:       func() Checker { return lossless{} },
}

type lossless struct{}

func (lossless) Observe(s *State, event *journal.Event) {
	if s.Unstored {
		s.Violate("a publication of %s is acknowledged, and nothing was stored", s.Journal.ProcessName(event.Process))
	}
}

func (lossless) Finish(s *State) {
	for _, event := range s.Events {
		if !event.Acknowledged {
			continue
		}
		for _, subscription := range s.Subscriptions {
			if s.Deserves(subscription, event) && !delivered(s, subscription.Group, event.ID) {
				s.Violate("event %s was acknowledged, and group %s has no ended delivery of it", event.ID, subscription.Group)
			}
		}
	}
}

func delivered(s *State, group, event string) bool {
	for _, delivery := range s.Deliveries {
		if delivery.Group == group && delivery.EventID == event && delivery.Terminal() {
			return true
		}
	}
	return false
}
