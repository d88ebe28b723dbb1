package properties

import "github.com/fencepost-sim/fencepost/sim/journal"

var scoped = Property{
	ID: "U3", Name: "scope", Stores: []string{inRedis},
	Statement: "A handler gets the replay of its own event, topic and consumer group only.",
	New:       func() Checker { return ownScope{} },
}

type ownScope struct{}

func (ownScope) Observe(s *State, event *journal.Event) {
	g := s.Guards
	if g == nil || g.Script == nil || g.Script.Name != "claim" || g.Script.Reply != "replay" {
		return
	}
	h, x := s.Running(event), g.byToken(g.records[g.Script.Key].Token)
	if h != nil && x != nil && !x.of(h.Group, h.Topic, h.EventID) {
		s.Violate("the handler of event %s gets the replay of event %s", h.EventID, x.EventID)
	}
}

func (ownScope) Finish(*State) {}
