package properties

import (
	"slices"
	"time"

	"github.com/fencepost-sim/fencepost/sim/journal"
)

var retention = Property{
	ID: "I10", Name: "retention",
	Statement: "Nothing carries an expiry date before its delivery has ended; an ended delivery and its attempts carry the same one, its end plus the retention, soon unless the processes are told to close before.",
	New:       func() Checker { return &dated{} },
}

type dated struct {
	closing time.Duration // when a process was told to close last
}

func (d *dated) Observe(s *State, event *journal.Event) {
	if event.Kind == journal.ProcessClosing {
		d.closing = event.Time
	}
	if c := s.Delivery; c != nil {
		checkExpiry(s, c.Before, c.After)
	}
	if c := s.Attempt; c != nil && c.After.Expires != 0 {
		if delivery := s.DeliveryOf(c.After.DeliveryID); delivery != nil && !delivery.Terminal() {
			s.Violate("attempt %d of delivery %s carries an expiry date, and the delivery is pending", c.After.Number, c.After.DeliveryID)
		}
		if c.After.Status == "pending" {
			s.Violate("attempt %d of delivery %s is pending and carries an expiry date", c.After.Number, c.After.DeliveryID)
		}
	}
}

func checkExpiry(s *State, before, after *Delivery) {
	switch {
	case before != nil && before.Expires != 0 && after.Expires != before.Expires:
		s.Violate("delivery %s had its expiry date, and it is changed or taken away", after.ID)
	case after.Expires == 0:
	case !after.Terminal():
		s.Violate("delivery %s is pending and carries an expiry date", after.ID)
	default:
		kept := time.Duration(after.Expires-after.EndedAt) * time.Millisecond
		if !slices.ContainsFunc(s.Engines, func(e *Engine) bool { return e.Retention == kept }) {
			s.Violate("delivery %s expires %v after its end; no engine has that retention", after.ID, kept)
		}
	}
}

func (d *dated) Finish(s *State) {
	var patience time.Duration
	for _, e := range s.Engines {
		if e.Retention > 0 {
			// The cursor passes the event after the visibility window; where the worker has died, a sweep finds the delivery.
			patience = max(patience, 5*e.LockTimeout+4*e.PollInterval+10*time.Second)
		}
	}
	if patience == 0 {
		return
	}
	for _, delivery := range s.Deliveries {
		if !delivery.Terminal() || delivery.Gone {
			continue
		}
		if delivery.Expires == 0 && max(delivery.Ended, s.LastFault)+patience+s.Forced < d.closing {
			s.Violate("delivery %s has ended and carries no expiry date", delivery.ID)
		}
		for _, attempt := range s.AttemptsOf(delivery.ID) {
			if delivery.Expires != 0 && !attempt.Gone && attempt.Expires != delivery.Expires {
				s.Violate("attempt %d of delivery %s expires at another date than the delivery", attempt.Number, delivery.ID)
			}
		}
	}
}
