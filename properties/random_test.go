package properties_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/fencepost-sim/fencepost/engine"
	"github.com/fencepost-sim/fencepost/faults"
	"github.com/fencepost-sim/fencepost/properties"
	"github.com/fencepost-sim/fencepost/scenarios"
	"github.com/fencepost-sim/fencepost/sim"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// failure is what a random plan found.
type failure struct {
	workload scenarios.Workload
	run      *scenarios.Run
	found    properties.Violation
}

// TestRandomPlansKeepEveryInvariant draws the load, the faults, where they strike, and the schedule. What fails
// is shrunk by rapid first, then as a plan.
func TestRandomPlansKeepEveryInvariant(t *testing.T) {
	var last *failure
	t.Cleanup(func() {
		if last != nil {
			t.Logf("%s\nworkload %+v\nseed %d\nplan\n%s", last.found, last.workload, last.run.Seed, shrunk(last))
		}
	})
	rapid.Check(t, func(t *rapid.T) {
		workload := drawWorkload(t)
		plan := drawPlan(t, workload)
		seed := rapid.Uint64Range(1, 1<<32).Draw(t, "seed")
		run, err := workload.Run(plan, seed, scenarios.Bug{})
		if err != nil {
			t.Fatal(err)
		}
		if found := properties.Violations(run.Journal); len(found) > 0 {
			last = &failure{workload, run, found[0]}
			t.Fatal(found[0])
		}
	})
}

// shrunk reduces a failing run to the smallest plan that violates the same property.
func shrunk(f *failure) faults.Plan {
	return scenarios.Shrink(f.run.Listed(), func(plan faults.Plan) bool {
		again, err := f.workload.Run(plan, f.run.Seed, scenarios.Bug{})
		return err == nil && slices.ContainsFunc(properties.Violations(again.Journal), func(v properties.Violation) bool {
			return v.Property == f.found.Property
		})
	})
}

func drawWorkload(t *rapid.T) scenarios.Workload {
	w := scenarios.Workload{
		Publishers:     rapid.IntRange(1, 2).Draw(t, "publishers"),
		Replicas:       rapid.IntRange(1, 3).Draw(t, "replicas"),
		Workers:        rapid.IntRange(1, 3).Draw(t, "workers"),
		LockTimeout:    rapid.SampledFrom([]time.Duration{time.Second, 10 * time.Second, 30 * time.Second}).Draw(t, "lock timeout"),
		DiscoveryBatch: rapid.IntRange(1, 3).Draw(t, "discovery batch"),
		ReconcileBatch: rapid.IntRange(1, 3).Draw(t, "reconcile batch"),
	}
	w.RollAt = rapid.SampledFrom([]time.Duration{0, 0, 500 * time.Millisecond, w.LockTimeout}).Draw(t, "roll at")
	w.PollInterval = rapid.SampledFrom([]time.Duration{w.LockTimeout / 5, 3 * time.Second}).Draw(t, "poll interval")
	w.HistoryRetention = rapid.SampledFrom([]time.Duration{0, engine.KeepForever, 2 * time.Second}).Draw(t, "history retention")
	w.Guard = rapid.SampledFrom(append([]scenarios.Guard{scenarios.Unguarded}, scenarios.Guards...)).Draw(t, "guard")
	w.GuardLease = rapid.SampledFrom([]time.Duration{w.LockTimeout, 30 * time.Second}).Draw(t, "guard lease")
	w.SweepEvery = rapid.SampledFrom([]time.Duration{0, 0, 2 * time.Second}).Draw(t, "sweep every")
	for i := range rapid.IntRange(1, 2).Draw(t, "topics") {
		w.Topics = append(w.Topics, drawTopic(t, fmt.Sprintf("topic-%d", i+1), w.LockTimeout))
	}
	return w
}

func drawTopic(t *rapid.T, name string, lock time.Duration) scenarios.TopicLoad {
	topic := scenarios.TopicLoad{
		Name:   name,
		Events: rapid.IntRange(1, 4).Draw(t, "events"),
		Pause:  rapid.SampledFrom([]time.Duration{0, 0, 700 * time.Millisecond}).Draw(t, "pause"),
		Options: engine.SubscribeOptions{
			Unordered:       rapid.Bool().Draw(t, "unordered"),
			MaxRetries:      rapid.SampledFrom([]int{engine.NoRetries, 1, 2, 3}).Draw(t, "retries"),
			RetryDelay:      rapid.SampledFrom([]time.Duration{engine.NoDelay, 10 * time.Millisecond, 2 * time.Second}).Draw(t, "retry delay"),
			RetryMultiplier: 2,
			MaxConcurrency:  rapid.IntRange(1, 3).Draw(t, "limit"),
		},
		Do: scenarios.Work{
			Time:      rapid.SampledFrom([]time.Duration{0, 0, lock / 5, 2 * lock}).Draw(t, "work"),
			FailFirst: rapid.SampledFrom([]int{0, 0, 1, 2, 9}).Draw(t, "failures"),
			Stubborn:  rapid.Bool().Draw(t, "stubborn"),
			Publish:   rapid.SampledFrom([]int{0, 0, 0, 1, 3}).Draw(t, "publish"),
		},
	}
	if rapid.Bool().Draw(t, "at most once") {
		topic.Options.Delivery, topic.Options.MaxRetries = engine.AtMostOnce, 0
	}
	return topic
}

func drawPlan(t *rapid.T, w scenarios.Workload) faults.Plan {
	plan := faults.Plan{Schedule: rapid.SampledFrom([]faults.Schedule{faults.Listed, faults.Seeded, faults.Slow}).Draw(t, "schedule")}
	processes := []string{faults.AnyProcess, "publisher"}
	if w.Publishers > 1 {
		processes = append(processes, "publisher-2")
	}
	for i := range w.Replicas {
		processes = append(processes, fmt.Sprintf("worker-%d", i+1))
	}
	for range rapid.IntRange(0, 4).Draw(t, "faults") {
		plan.Faults = append(plan.Faults, drawFault(t, w, processes))
	}
	return plan
}

// harmless are the faults that break no promise by themselves.
var harmless = slices.DeleteFunc(slices.Clone(faults.Catalogue), func(e faults.Entry) bool { return e.Breaks != "" })

func drawFault(t *rapid.T, w scenarios.Workload, processes []string) faults.Fault {
	kinds := harmless
	if w.Guard == scenarios.Redis { // it breaks nothing that the engine promises, and the guard's properties know what it excuses
		failover, _ := faults.Lookup(faults.RedisFailover)
		kinds = append(slices.Clone(kinds), failover)
	}
	entry := rapid.SampledFrom(kinds).Draw(t, "fault")
	fault := faults.Fault{
		Kind:       entry.Kind,
		Process:    rapid.SampledFrom(processes).Draw(t, "process"),
		Occurrence: rapid.IntRange(1, 4).Draw(t, "occurrence"),
	}
	if entry.Stream {
		fault.Count = rapid.SampledFrom([]int{1, 2, faults.All}).Draw(t, "count")
	} else {
		fault.Position = rapid.SampledFrom(entry.Positions).Draw(t, "position")
		fault.Point = rapid.SampledFrom(pointsFor(entry.Kind, w.Guard)).Draw(t, "point")
	}
	if entry.Span != "" {
		fault.Span = rapid.SampledFrom([]time.Duration{
			10 * time.Millisecond, w.PollInterval, w.LockTimeout / 2, w.LockTimeout, 2*w.LockTimeout + 3*w.PollInterval,
		}).Draw(t, "span")
	}
	if fault.Kind == faults.RedisFailover {
		fault.Count = rapid.SampledFrom([]int{0, 1, 2, 5, faults.All}).Draw(t, "lost writes")
		fault.Span = rapid.SampledFrom([]time.Duration{0, 0, -time.Second, time.Minute}).Draw(t, "redis clock")
	}
	if fault.Kind == faults.SetClock {
		fault.Span = rapid.SampledFrom([]time.Duration{-5 * time.Minute, -time.Second, time.Second, 5 * time.Minute}).Draw(t, "clock")
	}
	if fault.Kind == faults.Gap {
		// Only the publication is stamped by $currentDate and read by its stamp; a gap longer than the window is not promised.
		fault.Point, fault.Span = string(engine.PointPublish), min(fault.Span, 4*time.Second)
	}
	return fault
}

// pointsFor lists where a fault makes sense. Startup is left to the enumeration: it is long, and would swallow most draws.
func pointsFor(kind faults.Kind, guard scenarios.Guard) (points []string) {
	for _, step := range engine.Points() {
		if !strings.HasPrefix(string(step.Point), "startup.") {
			points = append(points, string(step.Point))
		}
	}
	switch guard {
	case scenarios.Redis:
		points = append(points, sim.RedisPoints...)
	case scenarios.Postgres, scenarios.PostgresClaimAlone:
		points = append(points, sim.PostgresPoints...)
	}
	switch kind {
	case faults.LoseCall, faults.LoseReply, faults.Refuse:
		return points
	case faults.Crash:
		return append(points, sim.HandlerPoints...)
	}
	// A pause between the last look at the lease and the handler's first instruction is what no engine can close: the
	// residual that package engine documents.
	return append(points, sim.PointEffect, sim.PointHandlerEnd)
}
