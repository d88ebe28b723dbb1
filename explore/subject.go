package explore

import (
	"fmt"
	"slices"

	"github.com/fencepost-sim/fencepost/faults"
	"github.com/fencepost-sim/fencepost/properties"
	"github.com/fencepost-sim/fencepost/scenarios"
)

// Watch is told of every step at which more than one task is ready; see sim.Config.
type Watch func(step int, ready []int)

// Subject is what is explored. Run runs a plan in a new world; it is called on several goroutines at once. watch may be nil. The error says what is
// wrong with the plan.
type Subject interface {
	Run(plan faults.Plan, seed uint64, watch Watch) (*Outcome, error)
}

// Outcome is a finished run and what it violated.
type Outcome struct {
	*scenarios.Run
	Violations []properties.Violation
}

// Violates tells whether the property is among the violations.
func (o *Outcome) Violates(property string) bool {
	return slices.ContainsFunc(o.Violations, func(v properties.Violation) bool { return v.Property == property })
}

// Load is a workload as a subject, with a bug planted in it or the zero Bug.
type Load struct {
	Workload scenarios.Workload
	Bug      scenarios.Bug
}

// Run implements Subject.
func (l Load) Run(plan faults.Plan, seed uint64, watch Watch) (*Outcome, error) {
	world, err := l.Workload.World(plan, seed, l.Bug, watch)
	if err != nil {
		return nil, err
	}
	run := l.Workload.Finished(world, plan, seed)
	return &Outcome{run, properties.Violations(run.Journal)}, nil
}

// Failure is a run that violated a property.
type Failure struct {
	Name      string // of the base or of the run
	Subject   Subject
	Outcome   *Outcome
	Violation properties.Violation // the first
}

func (f *Failure) String() string { return fmt.Sprintf("%s: %s", f.Name, f.Violation) }

// PerProperty is the first failure of each property.
func PerProperty(failures []Failure) (first []Failure) {
	for _, failure := range failures {
		if !slices.ContainsFunc(first, func(f Failure) bool { return f.Violation.Property == failure.Violation.Property }) {
			first = append(first, failure)
		}
	}
	return first
}
