package explore

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/fencepost-sim/fencepost/scenarios"
	"github.com/fencepost-sim/fencepost/sim/journal"
)

// Enumeration is what came of crashing everywhere.
type Enumeration struct {
	Windows  int            // places that the bases come to
	Runs     int            // in which all crashes struck
	Steps    int            // of the scheduler, over all runs
	Visited  map[string]int // a chain of cells, as Chain writes it → runs
	Unstruck []string       // crashes that did not find their place again
	Failures []Failure
	Complete bool // false when a limit cut it short
}

// Chain is cells in the order in which crashes strike at them.
func Chain(cells ...Cell) string {
	names := make([]string, len(cells))
	for i, cell := range cells {
		names[i] = cell.Point + " " + string(cell.Position)
	}
	return strings.Join(names, ", then ")
}

// Singles is how many cells were visited by a crash alone.
func (e *Enumeration) Singles() int { return e.Chains(1) }

// Chains is how many different chains of cells were visited, of a length.
func (e *Enumeration) Chains(length int) (count int) {
	for chain := range e.Visited {
		if strings.Count(chain, ", then ") == length-1 {
			count++
		}
	}
	return count
}

// Unvisited lists the declared cells at which no crash struck.
func (e *Enumeration) Unvisited() (cells []Cell) {
	for _, cell := range Cells() {
		if e.Visited[Chain(cell)] == 0 {
			cells = append(cells, cell)
		}
	}
	slices.SortFunc(cells, func(a, b Cell) int { return cmp.Or(cmp.Compare(a.Point, b.Point), cmp.Compare(a.Position, b.Position)) })
	return cells
}

// Exhaustive crashes processes everywhere.
type Exhaustive struct {
	Bases []Base
	Seed  uint64
	Bug   scenarios.Bug
	// Depth is how many crashes there are in a run, at most. Default 1. A crash alone is put at every place of every base, each occurrence of a
	// point being a place of its own. A second crash is put, for each pair of cells that can follow each other, at the first place where it can;
	// and so on.
	Depth int
	// Occurrences is how many places of a point and position are taken of each base but the first; of that, all are. Default 0: all of every base.
	Occurrences int
	// Wanted, if set, says at which places to crash. By default: all.
	Wanted func(Window) bool
	Limits Limits
	// Observe, if set, is shown every run in which all crashes struck, one at a time and in no order.
	Observe func(*Outcome)
}

// Run explores. The error says that a base's plan cannot be.
func (x Exhaustive) Run() (*Enumeration, error) {
	e := &Enumeration{Visited: map[string]int{}}
	tally := newTally(x.Limits)
	tally.observe = x.Observe
	for _, base := range x.Bases {
		if err := x.explore(base, e, tally); err != nil {
			e.Steps = tally.steps
			e.Complete, err = unlessStopped(err)
			return e, err
		}
	}
	e.Steps, e.Complete = tally.steps, true
	return e, nil
}

// branch is what one first crash led to. Branches of a base run beside each other and are put together in order.
type branch struct {
	chains   [][]Cell // of the runs
	unstruck []string
	failures []Failure
}

func (x Exhaustive) explore(base Base, e *Enumeration, tally *tally) error {
	whole, err := base.Subject(x.Bug).Run(base.Plan, x.Seed, nil)
	if err != nil {
		return err
	}
	windows := x.wanted(base, whole.Journal)
	e.Windows += len(windows)
	branches := make([]branch, len(windows))
	first := map[Cell]bool{}
	var leads []bool // whether the window is its cell's first, from which longer chains go on
	for _, window := range windows {
		leads = append(leads, !first[window.Cell()])
		first[window.Cell()] = true
	}
	err = Each(len(windows), func(i int) error {
		depth := 1
		if leads[i] {
			depth = max(1, x.Depth)
		}
		b := &branches[i]
		walk := &walk{x, base, e.Visited, map[string]bool{}, b, tally}
		return walk.crash(nil, windows[i], depth)
	})
	for _, b := range branches {
		e.Runs += len(b.chains)
		for _, chain := range b.chains {
			e.Visited[Chain(chain...)]++
		}
		e.Unstruck = append(e.Unstruck, b.unstruck...)
		e.Failures = append(e.Failures, b.failures...)
	}
	return err
}

func (x Exhaustive) wanted(base Base, j *journal.Journal) []Window {
	seen := map[Cell]int{}
	return slices.DeleteFunc(Windows(j), func(w Window) bool {
		if seen[w.Cell()]++; x.Occurrences > 0 && base.Started && seen[w.Cell()] > x.Occurrences {
			return true
		}
		return x.Wanted != nil && !x.Wanted(w) || base.Started && strings.HasPrefix(w.Point, "startup.")
	})
}

// walk follows one branch.
type walk struct {
	Exhaustive
	base    Base
	before  map[string]int  // chains that earlier bases have visited; only read
	visited map[string]bool // chains of this branch
	branch  *branch
	tally   *tally
}

// crash runs the base with the crashes before and one more, and goes on from there while depth lasts.
func (w *walk) crash(before []Window, last Window, depth int) error {
	windows := append(slices.Clone(before), last)
	plan := w.base.Plan
	plan.Faults = nil
	chain := make([]Cell, len(windows))
	for i, window := range windows {
		plan.Faults = append(plan.Faults, window.Crash())
		chain[i] = window.Cell()
	}
	plan.Faults = append(plan.Faults, w.base.Plan.Faults...) // last, where the base has a fault at the same place
	subject := w.base.Subject(w.Bug)
	outcome, err := subject.Run(plan, w.Seed, nil)
	if err != nil {
		return err
	}
	if i := slices.IndexFunc(windows, func(window Window) bool { return slices.Contains(outcome.Unstruck, window.Crash()) }); i >= 0 {
		w.branch.unstruck = append(w.branch.unstruck, fmt.Sprintf("%s: %s", w.base.Name, windows[i].Crash()))
		return nil
	}
	w.branch.chains = append(w.branch.chains, chain)
	for _, violation := range outcome.Violations {
		w.branch.failures = append(w.branch.failures, Failure{w.base.Name, subject, outcome, violation})
	}
	if err := w.tally.add(outcome); err != nil || depth == 1 {
		return err
	}
	struck := lastStrike(outcome.Journal)
	for _, next := range w.wanted(w.base, outcome.Journal) {
		longer := Chain(append(slices.Clone(chain), next.Cell())...)
		if next.Step <= struck || w.before[longer] > 0 || w.visited[longer] {
			continue
		}
		w.visited[longer] = true
		if err := w.crash(windows, next, depth-1); err != nil {
			return err
		}
	}
	return nil
}

// lastStrike is the step of the last fault.
func lastStrike(j *journal.Journal) int {
	for _, event := range slices.Backward(j.Events) {
		if event.Kind == journal.FaultStruck {
			return event.Step
		}
	}
	return 0
}
