package properties

import "github.com/fencepost-sim/fencepost/sim/journal"

var replayed = Property{
	ID: "U2", Name: "replay", Stores: []string{inRedis},
	Statement: "What is replayed is the stored outcome of one execution that succeeded; a handler succeeds without an execution only by a replay.",
	New:       func() Checker { return faithful{} },
}

type faithful struct{}

func (faithful) Observe(s *State, event *journal.Event) {
	g := s.Guards
	switch {
	case g == nil:
	case g.Claim != nil && g.Claim.After.State == "C" && g.Claim.Before.State != "C":
		if x := g.byToken(g.Claim.After.Token); x == nil || !x.Returned || x.Error != "" {
			s.Violate("an outcome is stored under %s that no execution had", g.last.Key)
		}
	case g.Script != nil && g.Script.Name == "claim" && g.Script.Reply == "replay":
		if g.records[g.Script.Key].State != "C" {
			s.Violate("%s gets a replay of %s, where no outcome is stored", s.Journal.ProcessName(event.Process), g.Script.Key)
		}
	case event.Kind == journal.HandlerEnded && event.Error == "":
		h, asked := s.Running(event), g.asked[event.Task]
		if h != nil && g.OfHandler(event.Task, h.Started) == nil && (asked == nil || asked.reply != "replay") {
			s.Violate("the handler of event %s succeeds without an execution and without a replay", event.Key)
		}
	}
}

func (faithful) Finish(*State) {}
