package explore

import (
	"iter"
	"slices"

	"github.com/fencepost-sim/fencepost/scenarios"
)

// Crashes runs the base with a crash at each of its windows that are wanted, and, if there are to be two crashes, with each wanted window
// that comes after the first crash. It yields every run whose last crash struck. Wanted may be nil: all are.
func (b Base) Crashes(seed uint64, crashes int, wanted func(Window) bool) iter.Seq2[*scenarios.Run, error] {
	return func(yield func(*scenarios.Run, error) bool) {
		run, err := b.Workload.Run(b.Plan, seed, scenarios.Bug{})
		if err != nil {
			yield(nil, err)
			return
		}
		b.crashes(run, crashes, wanted, yield)
	}
}

func (b Base) crashes(before *scenarios.Run, crashes int, wanted func(Window) bool, yield func(*scenarios.Run, error) bool) (goOn bool) {
	since := lastStrike(before.Journal)
	for _, window := range Windows(before.Journal) {
		if window.Step < since || wanted != nil && !wanted(window) {
			continue
		}
		plan := before.Plan
		crash := window.Crash()
		plan.Faults = append(slices.Clone(plan.Faults), crash)
		run, err := b.Workload.Run(plan, before.Seed, scenarios.Bug{})
		if err != nil {
			return yield(nil, err)
		}
		if slices.Contains(run.Unstruck, crash) {
			continue // the first crash struck here, too
		}
		if !yield(run, nil) {
			return false
		}
		if crashes > 1 && !b.crashes(run, crashes-1, wanted, yield) {
			return false
		}
	}
	return true
}
