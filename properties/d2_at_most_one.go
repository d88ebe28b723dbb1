package properties

import "github.com/fencepost-sim/fencepost/sim/journal"

var atMostOne = Property{
	ID: "D2", Name: "at-most-one", Stores: []string{inPostgresAlone},
	Statement: "An event whose claim commits alone has one effect at the most: it may have none, and is lost then.",
	New:       func() Checker { return lossy{} },
}

type lossy struct{}

func (lossy) Observe(s *State, event *journal.Event) {
	switch {
	case s.Guards == nil:
	case event.Kind == journal.EffectPerformed:
		if n := s.effectsOf(event.Delivery); n > 1 {
			s.Violate("event %s has effect number %d", event.Key, n)
		}
	case event.Kind == journal.HandlerEnded && event.Error == "":
		if s.effectsOf(event.Delivery) == 0 {
			s.Note("event %s is acknowledged without an effect: it is lost", event.Key)
		}
	}
}

func (lossy) Finish(*State) {}
