package scenarios_test

import (
	"flag"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/fencepost-sim/fencepost/explore"
	"github.com/fencepost-sim/fencepost/faults"
	"github.com/fencepost-sim/fencepost/properties"
	"github.com/fencepost-sim/fencepost/scenarios"
	"github.com/fencepost-sim/fencepost/sim/journal"
	"github.com/fencepost-sim/fencepost/sim/mongodriver"
)

// plans is how many random plans are run on both ways: go test ./scenarios -run Driver -through-plans 1000
var plans = flag.Int("through-plans", 50, "random plans to run straight to the model and through the driver")

// onTheWire are the faults that the driver sees, and does something about.
var onTheWire = []faults.Kind{faults.LoseCall, faults.LoseReply, faults.Partition, faults.FailWatch, faults.Failover, faults.Rollback}

// troubled tells whether a request, a reply or a change stream was lost in the run. So is the reply to a write that becomes visible while the members
// lag: nobody is left that could wait.
func troubled(j *journal.Journal) bool {
	gap, lag := false, false
	for i := range j.Events {
		event := &j.Events[i]
		if event.Kind != journal.FaultStruck && event.Kind != journal.Withheld {
			continue
		}
		name, _, _ := strings.Cut(event.Name, " ")
		gap, lag = gap || name == string(faults.Gap), lag || name == string(faults.Lag)
		if slices.Contains(onTheWire, faults.Kind(name)) || gap && lag {
			return true
		}
	}
	return false
}

// compare holds a run through the driver against the run straight to the model: step by step, with every operation and every document, unless
// the driver had to do something about a fault on the wire.
func compare(t *testing.T, model, driver *scenarios.Run) (same bool) {
	t.Helper()
	for _, violation := range properties.Violations(driver.Journal) {
		t.Errorf("through the driver: %s", violation)
	}
	for _, violation := range properties.Violations(model.Journal) {
		t.Errorf("straight to the model, so that it is not about the driver: %s", violation)
	}
	if troubled(model.Journal) {
		return false
	}
	if err := driver.Journal.Compare(model.Journal.Lines()); err != nil {
		t.Errorf("the way through the driver is another one: %v", err)
	}
	return true
}

// TestEveryScenarioGoesThroughTheDriverAsItGoesStraightToTheModel runs each variant in one of two orders of tasks, so that each scenario is run in both.
func TestEveryScenarioGoesThroughTheDriverAsItGoesStraightToTheModel(t *testing.T) {
	schedules := []faults.Schedule{faults.Listed, faults.Slow}
	for i := range scenarios.All {
		scenario := &scenarios.All[i]
		for j, variant := range scenarios.Variants() {
			plan := scenario.Plan(schedules[(j+j/2)%2]) // one replica and three in both
			t.Run(scenario.Name+"/"+variant.String(), func(t *testing.T) {
				t.Parallel()
				options := scenarios.Options{Variant: variant, Seed: uint64(j) + 1, Plan: &plan}
				model, err := scenario.Run(options)
				if err != nil {
					t.Fatal(err)
				}
				options.Through = scenarios.ThroughDriver
				driver, err := scenario.Run(options)
				if err != nil {
					t.Fatal(err)
				}
				compare(t, model, driver)
				for _, difference := range driver.Unexpected() {
					t.Errorf("%s through the driver: %s", plan.Schedule, difference)
				}
			})
		}
	}
}

// seeded draws from a seed.
type seeded struct{ *rand.Rand }

func (s seeded) Below(n int, _ string) int { return s.IntN(n) }

func TestRandomPlansGoThroughTheDriverAsTheyGoStraightToTheModel(t *testing.T) {
	var same, different atomic.Int64
	t.Run("plans", func(t *testing.T) {
		for seed := range uint64(*plans) {
			t.Run("", func(t *testing.T) {
				t.Parallel()
				source := seeded{rand.New(rand.NewPCG(seed, 1))}
				workload := explore.DrawWorkload(source)
				plan := explore.DrawPlan(source, workload, explore.Everything())
				model, err := workload.Run(plan, seed, scenarios.Bug{})
				if err != nil {
					t.Fatal(err)
				}
				workload.Through = scenarios.ThroughDriver
				driver, err := workload.Run(plan, seed, scenarios.Bug{})
				if err != nil {
					t.Fatal(err)
				}
				if compare(t, model, driver) {
					same.Add(1)
				} else {
					different.Add(1)
				}
				if t.Failed() {
					t.Logf("seed %d, workload %s\n%s", seed, workload, plan)
				}
			})
		}
	})
	t.Logf("%d plans were the same step by step; in %d the driver saw a fault", same.Load(), different.Load())
	if same.Load() < int64(*plans/4) || different.Load() < int64(*plans/10) {
		t.Errorf("%d and %d of %d plans are too few to say something", same.Load(), different.Load(), *plans)
	}
}

// TestTheDriverSendsALostCommandAgain shows that the driver takes part: what the engine gets to see of a lost reply on the shortest way, it does
// not see here, and the command is applied once.
func TestTheDriverSendsALostCommandAgain(t *testing.T) {
	for _, kind := range []faults.Kind{faults.LoseCall, faults.LoseReply} {
		entry, _ := faults.Lookup(kind)
		plan := faults.Plan{Faults: []faults.Fault{{
			Kind: kind, Process: faults.AnyProcess, Point: "attempt.create", Position: entry.Positions[0], Occurrence: 1,
		}}}
		scenario, err := scenarios.Lookup("no-faults")
		if err != nil {
			t.Fatal(err)
		}
		run, err := scenario.Run(scenarios.Options{Plan: &plan, Through: scenarios.ThroughDriver})
		if err != nil {
			t.Fatal(err)
		}
		compare(t, run, run)
		sent, wrote, reported := 0, 0, 0
		for i := range run.Journal.Events {
			event := &run.Journal.Events[i]
			switch {
			case event.Kind == journal.Issued && event.Point == "attempt.create":
				sent++
			case event.Kind == journal.Wrote && event.Point == "attempt.create":
				wrote++
			case event.Kind == journal.ErrorReported:
				reported++
			}
		}
		if sent != 2 || wrote != 1 || reported != 0 {
			t.Errorf("%s: sent %d times, written %d times, %d errors reported; want 2, 1, 0", kind, sent, wrote, reported)
		}
	}
}

func TestTheDriverResumesAChangeStreamAndMissesNothing(t *testing.T) {
	scenario, err := scenarios.Lookup("no-faults")
	if err != nil {
		t.Fatal(err)
	}
	lost := func(kind faults.Kind, position faults.Position) faults.Fault {
		return faults.Fault{Kind: kind, Process: "worker-1", Point: mongodriver.PointGetMore, Position: position, Occurrence: 1}
	}
	for name, fault := range map[string]faults.Fault{
		"lost request":  lost(faults.LoseCall, faults.Before),
		"lost reply":    lost(faults.LoseReply, faults.Unanswered),
		"broken stream": {Kind: faults.FailWatch, Process: "worker-1", Occurrence: 1, Count: 1},
	} {
		t.Run(name, func(t *testing.T) {
			plan := faults.Plan{Faults: []faults.Fault{fault}}
			run, err := scenario.Run(scenarios.Options{
				Variant: scenarios.Variant{Delivery: "at-least-once", Replicas: 1}, Plan: &plan, Through: scenarios.ThroughDriver,
			})
			if err != nil {
				t.Fatal(err)
			}
			watched, notified, failed := 0, 0, 0
			for i := range run.Journal.Events {
				switch event := &run.Journal.Events[i]; {
				case event.Kind == journal.Issued && event.Name == "watch":
					watched++
				case event.Kind == journal.Notified:
					notified++
				case event.Kind == journal.StreamFailed:
					failed++
				}
			}
			if watched != 2 || notified != 1 || failed != 0 || len(run.Unstruck) > 0 {
				t.Errorf("opened %d times, %d notifications, %d failures, %d faults did not strike; want 2, 1, 0, 0",
					watched, notified, failed, len(run.Unstruck))
			}
		})
	}
}

func TestARunThroughTheDriverIsTheSameEveryTime(t *testing.T) {
	scenario, err := scenarios.Lookup("partition")
	if err != nil {
		t.Fatal(err)
	}
	plan := scenario.Plan(faults.Slow)
	hash := func() string {
		run, err := scenario.Run(scenarios.Options{Seed: 7, Plan: &plan, Through: scenarios.ThroughDriver})
		if err != nil {
			t.Fatal(err)
		}
		return run.Journal.Hash()
	}
	first := hash()
	for range 20 {
		if again := hash(); again != first {
			t.Fatalf("the journal is %s, and then %s", first, again)
		}
	}
}
