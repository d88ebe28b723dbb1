package properties

import (
	"time"

	"github.com/fencepost-sim/fencepost/sim/journal"
)

var retention = Property{
	ID: "I10", Name: "retention",
	Statement: "Nothing carries an expiry date before its delivery has ended; an ended delivery and its attempts carry the same one, soon unless the processes are told to close before.",
	New:       func() Checker { return &dated{} },
}

type dated struct {
	closing time.Duration // when a process was told to close last
}

func (d *dated) Observe(s *State, event *journal.Event) {
	if event.Kind == journal.ProcessClosing {
		d.closing = event.Time
	}
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

func (d *dated) Finish(s *State) {
	var patience time.Duration
	for _, e := range s.Engines {
		if e.Retention {
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
