package properties

import "github.com/fencepost-sim/fencepost/sim/journal"

var numbering = Property{
	ID: "I6", Name: "numbering",
	Statement: "Attempts are numbered from 1 without gaps, to at most one more than the retries; each follows a failed one, and none is made after the delivery has ended.",
	New:       func() Checker { return numbers{} },
}

type numbers struct{}

func (numbers) Observe(s *State, _ *journal.Event) {
	if s.Attempt == nil || s.Attempt.Before != nil {
		return
	}
	now := s.Attempt.After
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
	if delivery := s.DeliveryOf(now.DeliveryID); delivery == nil || delivery.Gone {
		s.Violate("attempt %d is made for delivery %s, which does not exist", now.Number, now.DeliveryID)
	} else if delivery.Terminal() {
		s.Violate("attempt %d is made for delivery %s, which has ended as %s", now.Number, now.DeliveryID, delivery.Status)
	}
}

func (numbers) Finish(*State) {}
