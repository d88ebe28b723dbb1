package properties

import "github.com/fencepost-sim/fencepost/sim/journal"

var numbering = Property{
	ID: "I6", Name: "numbering",
	Statement: "Attempts are numbered from 1 without gaps, to at most one more than the retries; each follows a failed one, and none is made after the delivery has ended.",
	New:       func() Checker { return &numbers{} },
}

type numbers struct {
	// leftovers are attempts made for deliveries that retention had removed, by a process that was paused since it read
	// them. No database can refuse them without a transaction; they must be ended without a run.
	leftovers []*Attempt
}

func (n *numbers) Observe(s *State, _ *journal.Event) {
	if s.Attempt == nil || s.Attempt.Before != nil {
		return
	}
	now := s.Attempt.After
	delivery := s.DeliveryOf(now.DeliveryID)
	if delivery != nil && delivery.Gone {
		n.leftovers = append(n.leftovers, now)
		return
	}
	earlier := s.AttemptsOf(now.DeliveryID)
	earlier = earlier[:len(earlier)-1]
	if int(now.Number) != len(earlier)+1 {
		s.Violate("delivery %s has %d attempts and gets one with number %d", now.DeliveryID, len(earlier), now.Number)
	} else if len(earlier) > 0 && earlier[len(earlier)-1].Status != "error" {
		s.Violate("delivery %s gets attempt %d although attempt %d is %s", now.DeliveryID, now.Number, now.Number-1, earlier[len(earlier)-1].Status)
	}
	if subscription := s.SubscriptionOf(now.Group, now.Topic); subscription != nil && now.Number > subscription.MaxRetries+1 {
		s.Violate("delivery %s gets attempt %d; %d retries are allowed", now.DeliveryID, now.Number, subscription.MaxRetries)
	}
	if delivery == nil {
		s.Violate("attempt %d is made for delivery %s, which never was", now.Number, now.DeliveryID)
	} else if delivery.Terminal() {
		s.Violate("attempt %d is made for delivery %s, which has ended as %s", now.Number, now.DeliveryID, delivery.Status)
	}
}

func (n *numbers) Finish(s *State) {
	for _, leftover := range n.leftovers {
		for _, h := range s.Handlers {
			if h.DeliveryID == leftover.DeliveryID && h.Number == leftover.Number && h.Started > s.DeliveryOf(h.DeliveryID).Ended {
				s.Violate("the handler ran for attempt %d of delivery %s, which was gone", leftover.Number, leftover.DeliveryID)
			}
		}
	}
}
