package scenarios_test

import (
	"errors"
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/fencepost-sim/fencepost/engine"
	"github.com/fencepost-sim/fencepost/faults"
	"github.com/fencepost-sim/fencepost/properties"
	"github.com/fencepost-sim/fencepost/scenarios"
	"github.com/fencepost-sim/fencepost/sim"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// seeds is how many seeds each scenario and variant is run with. The sweep of 10,000 that the README
// speaks of is opt-in: go test ./scenarios -seeds 10000 -timeout 3h
var seeds = flag.Int("seeds", 10, "seeds for each scenario and variant")

func TestEveryScenarioComesOutAsItSaysInEveryVariant(t *testing.T) {
	for i := range scenarios.All {
		scenario := &scenarios.All[i]
		for _, variant := range scenarios.Variants() {
			t.Run(scenario.Name+"/"+variant.String(), func(t *testing.T) {
				t.Parallel()
				for seed := range uint64(*seeds) {
					schedule := faults.Seeded
					if seed == 0 {
						schedule = faults.Listed
					}
					check(t, scenario, variant, schedule, seed+1)
				}
			})
		}
	}
}

func check(t *testing.T, scenario *scenarios.Scenario, variant scenarios.Variant, schedule faults.Schedule, seed uint64) {
	t.Helper()
	plan := scenario.Plan(schedule)
	run, err := scenario.Run(scenarios.Options{Variant: variant, Seed: seed, Plan: &plan})
	if err != nil {
		t.Fatal(err)
	}
	for _, difference := range run.Unexpected() {
		t.Errorf("seed %d, %s: %s", seed, schedule, difference)
	}
	for _, violation := range properties.Violations(run.Journal) {
		t.Errorf("seed %d, %s: %s", seed, schedule, violation)
	}
}

func TestTheCrashTableNamesRealPoints(t *testing.T) {
	var points []string
	for _, step := range engine.Points() {
		points = append(points, string(step.Point))
	}
	points = append(points, sim.HandlerPoints...)
	rows := 0
	for _, scenario := range scenarios.All {
		if scenario.Row == nil {
			continue
		}
		rows++
		for _, point := range []string{scenario.Row.After, scenario.Row.Before} {
			if !slices.Contains(points, point) {
				t.Errorf("%s: %q is no point", scenario.Name, point)
			}
		}
		expected := scenario.Expect(scenarios.DefaultVariant)
		if again := expected.Starts > 1 || len(expected.Attempts) > 1; again != scenario.Row.RunsAgain {
			t.Errorf("%s: the row says that the handler may run again: %v; the expectation says %v", scenario.Name, scenario.Row.RunsAgain, again)
		}
	}
	if rows != 5 {
		t.Errorf("the crash table has %d rows, want 5", rows)
	}
}

func TestAWrongExpectationIsNoticed(t *testing.T) {
	scenario, err := scenarios.Lookup("no-faults")
	if err != nil {
		t.Fatal(err)
	}
	wrong := *scenario
	wrong.Expect = func(scenarios.Variant) scenarios.Expectation {
		return scenarios.Expectation{Starts: 2, Effects: 3, Attempts: []string{"worker_lost"}, Status: "error", Fenced: true}
	}
	run, err := wrong.Run(scenarios.Options{Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Join(run.Unexpected(), "\n")
	for _, want := range []string{"handler starts: 1, expected 2", "side effects: 1, expected 3", "attempts", "delivery: success, expected error", "stale outcome"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not among\n%s", want, text)
		}
	}
}

func TestUnknownNamesSayWhatIsAllowed(t *testing.T) {
	if _, err := scenarios.Lookup("crash-on-monday"); !errors.Is(err, scenarios.ErrUnknown) || !strings.Contains(err.Error(), "crash-after-side-effect") {
		t.Errorf("Lookup: %v", err)
	}
	if _, err := scenarios.ParseVariant("sometimes"); !errors.Is(err, scenarios.ErrUnknown) || !strings.Contains(err.Error(), "at-least-once,ordered,3") {
		t.Errorf("ParseVariant: %v", err)
	}
}

func TestShrinkLeavesNothingThatCanBeTakenAway(t *testing.T) {
	needed := faults.Fault{Kind: faults.Crash, Process: "a", Point: "p", Position: faults.After, Occurrence: 3}
	plan := faults.Plan{Faults: []faults.Fault{{Kind: faults.Crash, Process: "b", Point: "p", Position: faults.After, Occurrence: 1}, needed}}
	for step := 1; step <= 100; step++ {
		plan.Choices = append(plan.Choices, faults.Choice{Step: step, Take: 1})
	}
	runs := 0
	small := scenarios.Shrink(plan, func(p faults.Plan) bool {
		runs++
		fault := slices.ContainsFunc(p.Faults, func(f faults.Fault) bool { return f.Process == "a" })
		return fault && slices.Contains(p.Choices, faults.Choice{Step: 17, Take: 1}) && slices.Contains(p.Choices, faults.Choice{Step: 64, Take: 1})
	})
	want := "fault crash process=a point=p position=after occurrence=1\nchoose step=17 take=1\nchoose step=64 take=1\n"
	if small.String() != want {
		t.Errorf("shrunk to\n%s\nwant\n%s", small, want)
	}
	if runs > 500 {
		t.Errorf("shrinking took %d runs", runs)
	}
}

func TestASeededRunCanBeSaidAsAListedPlan(t *testing.T) {
	scenario, err := scenarios.Lookup("crash-after-history-error")
	if err != nil {
		t.Fatal(err)
	}
	for seed := range uint64(20) {
		plan := scenario.Plan(faults.Slow)
		seeded, err := scenario.Run(scenarios.Options{Seed: seed, Plan: &plan})
		if err != nil {
			t.Fatal(err)
		}
		listed := seeded.Listed()
		again, err := scenario.Run(scenarios.Options{Seed: seed, Plan: &listed})
		if err != nil {
			t.Fatal(err)
		}
		if err := again.Journal.Compare(seeded.Journal.Lines()); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}

func ExampleLookup() {
	scenario, _ := scenarios.Lookup("crash-after-side-effect")
	run, _ := scenario.Run(scenarios.Options{Seed: 1})
	for _, outcome := range scenarios.Outcomes(run.Journal) {
		fmt.Printf("handler starts: %d, side effects: %d, attempts: %v, delivery: %s\n",
			outcome.Starts, outcome.Effects, outcome.Attempts, outcome.Status)
	}
	// Output: handler starts: 2, side effects: 2, attempts: [worker_lost success], delivery: success
}
