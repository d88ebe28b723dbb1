package properties

import (
	"slices"

	"github.com/fencepost-sim/fencepost/sim/journal"
)

var retention = Property{
	ID: "I10", Name: "retention",
	Statement: "Nothing carries an expiry date before its delivery has ended, and an ended delivery and its attempts carry the same one.",
	New:       func() Checker { return dated{} },
}

type dated struct{}

func (dated) Observe(s *State, _ *journal.Event) {
	if c := s.Delivery; c != nil && c.After.Expires != 0 {
		if !c.After.Terminal() {
			s.Violate("delivery %s is pending and carries an expiry date", c.After.ID)
		}
	}
	if c := s.Attempt; c != nil && c.After.Expires != 0 {
		if delivery := s.DeliveryOf(c.After.DeliveryID); delivery != nil && !delivery.Terminal() {
			s.Violate("attempt %d of delivery %s carries an expiry date, and the delivery is pending", c.After.Number, c.After.DeliveryID)
		}
	}
}

func (dated) Finish(s *State) {
	if !slices.ContainsFunc(s.Engines, func(e *Engine) bool { return e.Retention }) {
		return
	}
	for _, delivery := range s.Deliveries {
		if !delivery.Terminal() || delivery.Gone {
			continue
		}
		if delivery.Expires == 0 {
			s.Violate("delivery %s has ended and carries no expiry date", delivery.ID)
		}
		for _, attempt := range s.AttemptsOf(delivery.ID) {
			if !attempt.Gone && attempt.Expires != delivery.Expires {
				s.Violate("attempt %d of delivery %s expires at another date than the delivery", attempt.Number, delivery.ID)
			}
		}
	}
}
