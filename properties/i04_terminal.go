package properties

import "github.com/fencepost-sim/fencepost/sim/journal"

var terminal = Property{
	ID: "I4", Name: "terminal",
	Statement: "A terminal status, of a delivery or an attempt, never changes.",
	New:       func() Checker { return unchanging{} },
}

type unchanging struct{}

func (unchanging) Observe(s *State, _ *journal.Event) {
	if c := s.Delivery; c != nil && c.Before.Terminal() && c.Before.Status != c.After.Status {
		s.Violate("delivery %s had ended as %s and becomes %s", c.After.ID, c.Before.Status, c.After.Status)
	}
	if c := s.Attempt; c != nil && c.Before != nil && c.Before.Status != "pending" &&
		(c.Before.Status != c.After.Status || c.Before.Code != c.After.Code) {
		s.Violate("attempt %d of delivery %s had ended as %s %s and becomes %s %s",
			c.After.Number, c.After.DeliveryID, c.Before.Status, c.Before.Code, c.After.Status, c.After.Code)
	}
}

func (unchanging) Finish(*State) {}
