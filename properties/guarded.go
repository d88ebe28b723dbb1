package properties

import (
	"iter"
	"slices"
	"time"

	"github.com/fencepost-sim/fencepost/faults"
	"github.com/fencepost-sim/fencepost/scenarios"
	"github.com/fencepost-sim/fencepost/sim/journal"
)

// crashAt kills the process of the window there, and restarts it 5 s later.
func crashAt(w Window) faults.Fault {
	return faults.Fault{
		Kind: faults.Crash, Process: w.Process, Point: w.Point, Occurrence: w.Occurrence, Position: w.Position, Span: 5 * time.Second,
	}
}

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
	since := lastFault(before.Journal)
	for _, window := range Windows(before.Journal) {
		if window.Step < since || wanted != nil && !wanted(window) {
			continue
		}
		plan := before.Plan
		crash := crashAt(window)
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

// lastFault is the step of the last fault that struck.
func lastFault(j *journal.Journal) (step int) {
	for i := range j.Events {
		if j.Events[i].Kind == journal.FaultStruck {
			step = j.Events[i].Step
		}
	}
	return step
}
