package properties

import "github.com/fencepost-sim/fencepost/sim/journal"

var oneEffect = Property{
	ID: "C-III", Name: "one-effect", Stores: []string{inRedis},
	Statement: "An event has one effect at the most, unless a process dies between the effect and COMPLETE, the handler fails after its effect, or what excuses C-I or C-II did.",
	New:       func() Checker { return once{} },
}

type once struct{}

func (once) Observe(s *State, event *journal.Event) {
	g := s.Guards
	if event.Kind != journal.EffectPerformed || g == nil {
		return
	}
	now := g.ofHandler[event.Task]
	for _, x := range g.Executions {
		if x == now || x.Effects == 0 || now == nil || !x.of(now.Group, now.Topic, now.EventID) {
			continue
		}
		if window := g.window(s, x, now); window != "" {
			s.Note("event %s has a second effect: %s %s", event.Key, s.Journal.ProcessName(x.Process), window)
		} else {
			s.Violate("%s performs another effect of event %s, without excuse", s.Journal.ProcessName(event.Process), event.Key)
		}
	}
}

// The windows in which a claim in Redis cannot keep an effect from happening again.
const (
	WindowCrash    = "died between the effect and COMPLETE"
	WindowFailed   = "failed after the effect, and said that nothing had happened"
	WindowDataLost = "had its claim or its outcome forgotten by Redis"
	WindowPaused   = "was paused beyond its lease"
	WindowTold     = "was told that its claim is lost, and went on"
	WindowUnstored = "could not reach Redis to store its outcome"
)

// window names why the effect of one execution could not keep another from having its own; empty if there is no reason.
func (g *Guards) window(s *State, had, now *Execution) string {
	switch {
	case had.Returned && had.Error != "":
		return WindowFailed
	case had.Died && !had.Completed:
		return WindowCrash
	case g.DataLost:
		return WindowDataLost
	case g.Paused(s, had) || g.Paused(s, now):
		return WindowPaused
	case had.Cancelled || now.Cancelled:
		return WindowTold
	case !had.Completed && g.wasHindered(had.Process):
		return WindowUnstored
	}
	return ""
}

func (once) Finish(*State) {}
