package properties_test

import (
	"slices"
	"testing"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/fencepost-sim/fencepost/explore"
	"github.com/fencepost-sim/fencepost/faults"
	"github.com/fencepost-sim/fencepost/properties"
	"github.com/fencepost-sim/fencepost/scenarios"
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
		workload := explore.DrawWorkload(drawn{t})
		plan := explore.DrawPlan(drawn{t}, workload, explore.Everything())
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
		return err == nil && violates(again, f.found.Property)
	})
}

func violates(run *scenarios.Run, property string) bool {
	return slices.ContainsFunc(properties.Violations(run.Journal), func(v properties.Violation) bool { return v.Property == property })
}

// drawn lets rapid choose, so that it can shrink.
type drawn struct{ *rapid.T }

func (d drawn) Below(n int, name string) int { return rapid.IntRange(0, n-1).Draw(d.T, name) }
