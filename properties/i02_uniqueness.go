package properties

import "github.com/fencepost-sim/fencepost/sim/journal"

var uniqueness = Property{
	ID: "I2", Name: "uniqueness",
	Statement: "At any time there is at most one subscription of a group to a topic, one delivery for a group and event, and one attempt for a delivery and number.",
	New:       func() Checker { return unique{} },
}

type unique struct{}

func (unique) Observe(s *State, _ *journal.Event) {
	if s.Delivery != nil && s.Delivery.Before == nil {
		now := s.Delivery.After
		for _, other := range s.Deliveries {
			if other != now && other.Group == now.Group && other.EventID == now.EventID && !other.Gone {
				s.Violate("group %s has a second delivery of event %s", now.Group, now.EventID)
			}
		}
	}
	if s.Subscription != nil && s.Subscription.Before == nil {
		now := s.Subscription.After
		for _, other := range s.Subscriptions {
			if other != now && other.Group == now.Group && other.Topic == now.Topic {
				s.Violate("group %s has a second subscription to topic %s", now.Group, now.Topic)
			}
		}
	}
	if s.Attempt != nil && s.Attempt.Before == nil {
		now := s.Attempt.After
		for _, other := range s.AttemptsOf(now.DeliveryID) {
			if other != now && other.Number == now.Number && !other.Gone {
				s.Violate("delivery %s has a second attempt %d", now.DeliveryID, now.Number)
			}
		}
	}
}

func (unique) Finish(*State) {}
