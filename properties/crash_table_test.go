package properties_test

import (
	"flag"
	"fmt"
	"testing"

	"github.com/fencepost-sim/fencepost/faults"
	"github.com/fencepost-sim/fencepost/properties"
	"github.com/fencepost-sim/fencepost/scenarios"
)

// seeds is how many orders of tasks each row and variant of the crash table is run with. The sweep of 10,000 is opt-in:
// go test ./properties -run CrashTable -seeds 10000 -timeout 1h
var seeds = flag.Int("seeds", 25, "seeds for each row and variant of the crash table")

// TestTheCrashTableHoldsInEveryVariant kills a worker in each of the five windows of the specification's crash table, for every kind
// of consumer and under many orders of tasks. Each run must come out as its row says, and keep every invariant.
func TestTheCrashTableHoldsInEveryVariant(t *testing.T) {
	rows := 0
	for i := range scenarios.All {
		scenario := &scenarios.All[i]
		if scenario.Row == nil {
			continue
		}
		rows++
		for _, variant := range scenarios.Variants() {
			t.Run(fmt.Sprintf("%s/%s", scenario.Name, variant), func(t *testing.T) {
				t.Parallel()
				for seed := range uint64(*seeds) {
					crashTableRun(t, scenario, variant, seed+1)
				}
			})
		}
	}
	if rows != 5 {
		t.Errorf("the crash table has %d rows, want 5", rows)
	}
}

func crashTableRun(t *testing.T, scenario *scenarios.Scenario, variant scenarios.Variant, seed uint64) {
	t.Helper()
	plan := scenario.Plan(faults.Seeded)
	run, err := scenario.Run(scenarios.Options{Variant: variant, Seed: seed, Plan: &plan})
	if err != nil {
		t.Fatal(err)
	}
	for _, difference := range run.Unexpected() {
		t.Errorf("seed %d: %s", seed, difference)
	}
	if found := properties.Violations(run.Journal); len(found) > 0 {
		t.Errorf("%s\nshrunk plan, seed %d:\n%s", found[0], seed, shrinkScenario(scenario, run, found[0]))
	}
	if t.Failed() {
		t.FailNow() // one failing order of tasks is enough to read
	}
}

// shrinkScenario reduces a failing run of a scenario to the smallest plan that violates the same property.
func shrinkScenario(scenario *scenarios.Scenario, run *scenarios.Run, found properties.Violation) faults.Plan {
	return scenarios.Shrink(run.Listed(), func(plan faults.Plan) bool {
		again, err := scenario.Run(scenarios.Options{Variant: run.Variant, Seed: run.Seed, Plan: &plan})
		return err == nil && violates(again, found.Property)
	})
}
