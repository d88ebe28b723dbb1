package explore

import (
	"slices"

	"github.com/fencepost-sim/fencepost/faults"
	"github.com/fencepost-sim/fencepost/scenarios"
	"github.com/fencepost-sim/fencepost/sim/journal"
)

// Schedules tries every order of tasks that deviates from the default at up to Bound steps, each deviation giving its turn to a task that waits. A
// deviation is passed over when the task's step commutes with every step that it would overtake: the same would
// happen, only in another order (the reduction of Mazurkiewicz traces, with dependence read off the journal: steps of one process depend on each
// other, as do a write and any other command on the same collection; the clock, faults, and starts and ends of processes depend on everything).
type Schedules struct {
	Bases  []Base
	Seed   uint64
	Bug    scenarios.Bug
	Bound  int // default 1
	Limits Limits
}

// Orders is what came of trying orders.
type Orders struct {
	Total    int // deviations that there are, from every run that was visited
	Pruned   int // of them, those that change nothing
	Runs     int
	Steps    int
	Failures []Failure
	Complete bool
}

// Run explores.
func (s Schedules) Run() (*Orders, error) {
	orders := &Orders{}
	tally := newTally(s.Limits)
	var err error
	for _, base := range s.Bases {
		if err = s.explore(base, base.Plan, max(1, s.Bound), orders, tally); err != nil {
			break
		}
	}
	orders.Runs, orders.Steps = tally.runs, tally.steps
	orders.Complete, err = unlessStopped(err)
	return orders, err
}

// explore runs the plan, then every deviation from it that comes after those it has.
func (s Schedules) explore(base Base, plan faults.Plan, bound int, orders *Orders, tally *tally) error {
	var ready []choicePoint
	outcome, err := base.Subject(s.Bug).Run(plan, s.Seed, func(step int, tasks []int) {
		ready = append(ready, choicePoint{step, tasks})
	})
	if err != nil {
		return err
	}
	for _, violation := range outcome.Violations {
		orders.Failures = append(orders.Failures, Failure{base.Name, base.Subject(s.Bug), outcome, violation})
	}
	if err := tally.add(outcome); err != nil || bound == 0 {
		return err
	}
	deviations, total := worthwhile(outcome.Journal, ready, lastChoice(plan))
	orders.Total += total
	orders.Pruned += total - len(deviations)
	results := make([]Orders, len(deviations))
	err = Each(len(deviations), func(i int) error {
		longer := plan
		longer.Choices = append(slices.Clone(plan.Choices), deviations[i])
		return s.explore(base, longer, bound-1, &results[i], tally)
	})
	for _, result := range results {
		orders.Total += result.Total
		orders.Pruned += result.Pruned
		orders.Failures = append(orders.Failures, result.Failures...)
	}
	return err
}

func lastChoice(plan faults.Plan) int {
	if len(plan.Choices) == 0 {
		return 0
	}
	return plan.Choices[len(plan.Choices)-1].Step
}

// choicePoint is a step at which several tasks are ready.
type choicePoint struct {
	step  int
	tasks []int
}

// worthwhile lists the deviations after a step that do not merely swap steps that commute, and counts all.
func worthwhile(j *journal.Journal, points []choicePoint, after int) (deviations []faults.Choice, total int) {
	steps := footprints(j)
	for _, point := range points {
		if point.step <= after {
			continue
		}
		for take := 1; take < len(point.tasks); take++ {
			total++
			if steps.overtakesDependent(point.step, point.tasks[take]) {
				deviations = append(deviations, faults.Choice{Step: point.step, Take: take})
			}
		}
	}
	return deviations, total
}

// footprint is what a step of a run touched.
type footprint struct {
	task, process int
	reads, writes []string // collections
	everything    bool     // it moved the clock, or something befell a process
}

type footprintList []footprint // by step, from 1

func footprints(j *journal.Journal) footprintList {
	steps := make(footprintList, j.Steps()+2)
	collection := map[int]string{} // of the command that a task has under way; looked up only
	for _, event := range j.Events {
		f := &steps[event.Step]
		switch event.Kind {
		case journal.Resumed:
			f.task, f.process = event.Task, event.Process
		case journal.Wrote, journal.Deleted, journal.Expired:
			f.writes = append(f.writes, event.Collection)
		case journal.Applied:
			f.reads = append(f.reads, collection[event.Task])
		case journal.Issued:
			collection[event.Task] = event.Collection
		case journal.Advanced, journal.FaultStruck, journal.ProcessStarted, journal.ProcessDied, journal.ProcessFrozen, journal.ProcessThawed,
			journal.ProcessClosing, journal.ProcessClosed, journal.StreamOpened, journal.StreamFailed:
			f.everything = true
		}
	}
	return steps
}

// overtakesDependent tells whether the task's next step, taken at the step instead, would overtake one that it depends on.
func (l footprintList) overtakesDependent(step int, task int) bool {
	at := step
	for at < len(l) && l[at].task != task {
		at++
	}
	if at == len(l) {
		return true // it never had its turn: nothing is known
	}
	for _, overtaken := range l[step:at] {
		if overtaken.depends(&l[at]) {
			return true
		}
	}
	return false
}

func (f *footprint) depends(other *footprint) bool {
	return f.everything || other.everything || f.process == other.process ||
		touch(f.writes, other.writes) || touch(f.writes, other.reads) || touch(f.reads, other.writes)
}

func touch(a, b []string) bool {
	return slices.ContainsFunc(a, func(collection string) bool { return slices.Contains(b, collection) })
}
