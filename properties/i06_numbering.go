package properties

import (
	"time"

	"github.com/fencepost-sim/fencepost/sim/journal"
)

var numbering = Property{
	ID: "I6", Name: "numbering",
	Statement: "Attempts are numbered from 1 without gaps, to at most one more than the retries; each follows a failed one after the wait that the policy says, and none is made after the delivery has ended.",
	New:       func() Checker { return &numbers{} },
}

type numbers struct {
	// leftovers are attempts made for deliveries that retention had removed, by a process that was paused since it read
	// them. No database can refuse them without a transaction; they must be ended without a run.
	leftovers []*Attempt
}

func (n *numbers) Observe(s *State, _ *journal.Event) {
	if s.Attempt == nil {
		return
	}
	now := s.Attempt.After
	if before := s.Attempt.Before; before != nil {
		if before.Token == "" && now.Token != "" && s.Now < now.Due {
			s.Violate("attempt %d of delivery %s is claimed %v before it is due", now.Number, now.DeliveryID, now.Due-s.Now)
		}
		return
	}
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
	if subscription := s.SubscriptionOf(now.Group, now.Topic); subscription != nil {
		checkPolicy(s, subscription, earlier, now)
	}
	if delivery == nil {
		s.Violate("attempt %d is made for delivery %s, which never was", now.Number, now.DeliveryID)
	} else if delivery.Terminal() {
		s.Violate("attempt %d is made for delivery %s, which has ended as %s", now.Number, now.DeliveryID, delivery.Status)
	}
}

// checkPolicy compares a new attempt with what the group's policy says: how many there may be, and how long to wait.
func checkPolicy(s *State, subscription *Subscription, earlier []*Attempt, now *Attempt) {
	if now.Number > subscription.MaxRetries+1 {
		s.Violate("delivery %s gets attempt %d; %d retries are allowed", now.DeliveryID, now.Number, subscription.MaxRetries)
	}
	if len(earlier) == 0 {
		return
	}
	n := len(earlier)
	wait := subscription.delays(n) - subscription.delays(n-1)
	if due := earlier[n-1].EndedAt + wait; now.Due != due.Truncate(time.Millisecond) {
		s.Violate("attempt %d of delivery %s is due at %v; attempt %d ended at %v, and the wait is %v",
			now.Number, now.DeliveryID, now.Due, n, earlier[n-1].EndedAt, wait)
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
