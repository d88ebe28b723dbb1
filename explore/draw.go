package explore

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fencepost-sim/fencepost/engine"
	"github.com/fencepost-sim/fencepost/faults"
	"github.com/fencepost-sim/fencepost/scenarios"
	"github.com/fencepost-sim/fencepost/sim"
	"github.com/fencepost-sim/fencepost/sim/journal"
)

// Source is where drawing gets its numbers from: a seed, or a test library that shrinks what it drew.
type Source interface {
	// Below returns a number from 0 to n-1. The name says what for.
	Below(n int, name string) int
}

func oneOf[T any](s Source, name string, values ...T) T { return values[s.Below(len(values), name)] }

func between(s Source, low, high int, name string) int { return low + s.Below(high-low+1, name) }

func yes(s Source, name string) bool { return s.Below(2, name) == 1 }

// Swarm is what may occur in one run at all: forbidding something lets the rest occur more often, and together (Groce, Zhang, Eide, Chen and Regehr,
// "Swarm Testing", ISSTA 2012).
type Swarm struct {
	Kinds []faults.Kind
}

// Everything allows all faults of the catalogue that break no promise by themselves.
func Everything() (swarm Swarm) {
	for _, entry := range faults.Catalogue {
		if entry.Breaks == "" {
			swarm.Kinds = append(swarm.Kinds, entry.Kind)
		}
	}
	return swarm
}

// DrawSwarm allows each fault with a chance of one half, and one at least.
func DrawSwarm(s Source) (swarm Swarm) {
	all := Everything()
	for _, kind := range all.Kinds {
		if yes(s, "allow "+string(kind)) {
			swarm.Kinds = append(swarm.Kinds, kind)
		}
	}
	if len(swarm.Kinds) == 0 {
		swarm.Kinds = []faults.Kind{oneOf(s, "only", all.Kinds...)}
	}
	return swarm
}

// DrawWorkload draws a load.
func DrawWorkload(s Source) scenarios.Workload {
	w := scenarios.Workload{
		Groups:         oneOf(s, "groups", 1, 1, 1, 2),
		Partial:        yes(s, "partial"),
		Publishers:     between(s, 1, 2, "publishers"),
		Replicas:       between(s, 1, 3, "replicas"),
		Workers:        between(s, 1, 3, "workers"),
		LockTimeout:    oneOf(s, "lock timeout", time.Second, 10*time.Second, 30*time.Second),
		DiscoveryBatch: between(s, 1, 3, "discovery batch"),
		ReconcileBatch: between(s, 1, 3, "reconcile batch"),
	}
	w.RollAt = oneOf(s, "roll at", 0, 0, 500*time.Millisecond, w.LockTimeout)
	if w.Partial {
		w.RollAt = 0 // nobody would be left for a topic
	}
	w.LeaveAt = oneOf(s, "leave at", 0, 0, 0, 300*time.Millisecond, w.LockTimeout)
	w.PollInterval = oneOf(s, "poll interval", w.LockTimeout/5, 3*time.Second)
	w.HistoryRetention = oneOf(s, "history retention", 0, engine.KeepForever, 2*time.Second)
	w.Guard = oneOf(s, "guard", append([]scenarios.Guard{scenarios.Unguarded}, scenarios.Guards...)...)
	w.GuardLease = oneOf(s, "guard lease", w.LockTimeout, 30*time.Second)
	w.SweepEvery = oneOf(s, "sweep every", 0, 0, 2*time.Second)
	for i := range between(s, 1, 2, "topics") {
		w.Topics = append(w.Topics, drawTopic(s, fmt.Sprintf("topic-%d", i+1), w.LockTimeout))
	}
	return w
}

func drawTopic(s Source, name string, lock time.Duration) scenarios.TopicLoad {
	topic := scenarios.TopicLoad{
		Name:   name,
		Events: between(s, 1, 4, "events"),
		Pause:  oneOf(s, "pause", 0, 0, 700*time.Millisecond),
		Options: engine.SubscribeOptions{
			Unordered:       yes(s, "unordered"),
			MaxRetries:      oneOf(s, "retries", engine.NoRetries, 1, 2, 3),
			RetryDelay:      oneOf(s, "retry delay", engine.NoDelay, 10*time.Millisecond, 2*time.Second),
			RetryMultiplier: 2,
			MaxConcurrency:  between(s, 1, 3, "limit"),
		},
		Do: scenarios.Work{
			Time:      oneOf(s, "work", 0, 0, lock/5, 2*lock),
			FailFirst: oneOf(s, "failures", 0, 0, 1, 2, 9),
			Stubborn:  yes(s, "stubborn"),
			Publish:   oneOf(s, "publish", 0, 0, 0, 1, 3),
		},
	}
	if yes(s, "at most once") {
		topic.Options.Delivery, topic.Options.MaxRetries = engine.AtMostOnce, 0
	}
	return topic
}

// DrawPlan draws up to four faults for the load, and a schedule.
func DrawPlan(s Source, w scenarios.Workload, swarm Swarm) faults.Plan {
	return DrawPlanIn(s, terrainOf(w), swarm)
}

// DrawPlanIn draws up to four faults, and a schedule.
func DrawPlanIn(s Source, t Terrain, swarm Swarm) faults.Plan {
	plan := faults.Plan{Schedule: oneOf(s, "schedule", faults.Listed, faults.Seeded, faults.Slow)}
	for range between(s, 0, 4, "faults") {
		plan.Faults = append(plan.Faults, drawFault(s, t, swarm))
	}
	return plan
}

// Terrain is where faults can strike in a run, and how long its timeouts are.
type Terrain struct {
	Processes  []string
	Points     []string
	Lock, Poll time.Duration
	Redis      bool // there is a Redis that can fail over
}

// terrainOf is the terrain of a load.
func terrainOf(w scenarios.Workload) Terrain {
	t := Terrain{Processes: processesOf(w), Lock: w.LockTimeout, Poll: w.PollInterval, Redis: w.Guard == scenarios.Redis}
	t.Points = protocolPoints()
	switch w.Guard {
	case scenarios.Redis:
		t.Points = append(t.Points, sim.RedisPoints...)
	case scenarios.Postgres, scenarios.PostgresClaimAlone:
		t.Points = append(t.Points, sim.PostgresPoints...)
	}
	return t
}

// TerrainOf is what a run has shown of its terrain.
func TerrainOf(j *journal.Journal) Terrain {
	t := Terrain{Processes: append([]string{faults.AnyProcess}, j.Processes...)}
	for _, event := range j.Events {
		switch event.Kind {
		case journal.EngineOpened:
			t.Lock, t.Poll = max(t.Lock, event.Span), max(t.Poll, time.Duration(event.Number)*time.Millisecond)
		case journal.Issued:
			if !strings.HasPrefix(event.Point, "startup.") && !slices.Contains(t.Points, event.Point) {
				t.Points = append(t.Points, event.Point)
			}
		case journal.GuardOpened:
			t.Redis = t.Redis || event.Name == string(scenarios.Redis)
		}
	}
	return t
}

func processesOf(w scenarios.Workload) []string {
	processes := []string{faults.AnyProcess, "publisher"}
	if w.Publishers > 1 {
		processes = append(processes, "publisher-2")
	}
	for i := range w.Replicas {
		processes = append(processes, fmt.Sprintf("worker-%d", i+1))
	}
	if w.Groups > 1 {
		processes = append(processes, "shipping-worker-1")
	}
	return processes
}

func drawFault(s Source, t Terrain, swarm Swarm) faults.Fault {
	kinds := swarm.Kinds
	if t.Redis { // it breaks nothing that the engine promises, and the guard's properties know what it excuses
		kinds = append(slices.Clone(kinds), faults.RedisFailover)
	}
	entry, _ := faults.Lookup(oneOf(s, "fault", kinds...))
	fault := faults.Fault{
		Kind:       entry.Kind,
		Process:    oneOf(s, "process", t.Processes...),
		Occurrence: between(s, 1, 4, "occurrence"),
	}
	if entry.Stream {
		fault.Count = oneOf(s, "count", 1, 2, faults.All)
	} else {
		fault.Position = oneOf(s, "position", entry.Positions...)
		fault.Point = oneOf(s, "point", t.pointsFor(entry.Kind)...)
	}
	if entry.Span != "" {
		fault.Span = oneOf(s, "span", 10*time.Millisecond, t.Poll, t.Lock/2, t.Lock, 2*t.Lock+3*t.Poll)
	}
	if fault.Kind == faults.RedisFailover {
		fault.Count = oneOf(s, "lost writes", 0, 1, 2, 5, faults.All)
		fault.Span = oneOf(s, "redis clock", 0, 0, -time.Second, time.Minute)
	}
	if fault.Kind == faults.SetClock {
		fault.Span = oneOf(s, "clock", -5*time.Minute, -time.Second, time.Second, 5*time.Minute)
	}
	if fault.Kind == faults.Drift {
		fault.Span = oneOf(s, "drift", -5*time.Minute, -time.Second, time.Second, 5*time.Minute)
	}
	if fault.Kind == faults.Gap {
		// Only the publication is stamped by $currentDate and read by its stamp; a gap longer than the window is not promised.
		fault.Point, fault.Span = string(engine.PointPublish), min(fault.Span, 4*time.Second)
	}
	return fault
}

// protocolPoints are the steps of the engine. Startup is left to the enumeration: it is long, and would swallow most draws.
func protocolPoints() (points []string) {
	for _, step := range engine.Points() {
		if !strings.HasPrefix(string(step.Point), "startup.") {
			points = append(points, string(step.Point))
		}
	}
	return points
}

// pointsFor lists where a fault makes sense.
func (t Terrain) pointsFor(kind faults.Kind) []string {
	switch kind {
	case faults.LoseCall, faults.LoseReply, faults.Refuse:
		return t.Points
	case faults.Crash:
		return slices.Concat(t.Points, sim.HandlerPoints)
	}
	// A pause between the last look at the lease and the handler's first instruction is what no engine can close: the
	// residual that package engine documents.
	return slices.Concat(t.Points, []string{sim.PointEffect, sim.PointHandlerEnd})
}
