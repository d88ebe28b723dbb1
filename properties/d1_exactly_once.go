package properties

import "github.com/fencepost-sim/fencepost/sim/journal"

var exactlyOnce = Property{
	ID: "D1", Name: "exactly-once", Stores: []string{inPostgres},
	Statement: "An event that is acknowledged has exactly one committed effect, and no event ever has two, if claim and effect are one transaction.",
	New:       func() Checker { return exact{} },
}

type exact struct{}

func (exact) Observe(s *State, event *journal.Event) {
	switch {
	case s.Guards == nil:
	case event.Kind == journal.EffectPerformed:
		if n := s.effectsOf(event.Delivery); n > 1 {
			s.Violate("effect %d of event %s is committed", n, event.Key)
		}
	case event.Kind == journal.HandlerEnded && event.Error == "":
		if n := s.effectsOf(event.Delivery); n != 1 {
			s.Violate("event %s is acknowledged with %d committed effects", event.Key, n)
		}
	}
}

// effectsOf counts the effects that handlers of the delivery have had.
func (s *State) effectsOf(delivery string) (count int) {
	for _, h := range s.Handlers {
		if h.DeliveryID == delivery {
			count += h.Effects
		}
	}
	return count
}

func (exact) Finish(*State) {}
