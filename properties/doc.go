// Package properties holds the invariants of event delivery, one in a file, as folds over the journal of a run. They are checked on every
// run, with faults or without.
//
// A property reads only the journal: what was written, by whom, when handlers started and ended, and what they did. It
// never asks the engine. For each there is a mutant, a planted bug that it catches (package mutants).
package properties

import (
	"fmt"
	"time"

	"github.com/fencepost-sim/fencepost/sim/journal"
)

// Property is one invariant.
type Property struct {
	ID        string // "I1" … "I14", "U1" … "U7", "D1", "D2", "C-I" … "C-III", as in the specifications
	Name      string
	Statement string
	// Stores are the guards' stores that promise it; none for what the engine promises.
	Stores []string
	New    func() Checker
}

// Checker folds one journal. It is told of every event, after the state has taken it in, and of the end.
type Checker interface {
	Observe(s *State, event *journal.Event)
	Finish(s *State)
}

// Violation is a place where an invariant does not hold.
type Violation struct {
	Property string // "I3 fencing"
	Step     int
	Time     time.Duration
	What     string
}

func (v Violation) String() string {
	return fmt.Sprintf("%s, at step %d (%v): %s", v.Property, v.Step, v.Time, v.What)
}

// All is every property of the engine, in order.
var All = []Property{
	noLoss, uniqueness, fencing, terminal, atMostOnce, numbering, ordering, recovery, concurrency, retention, acknowledged,
	fairness, closing, truth,
}

// Verdict is what one property said of a run.
type Verdict struct {
	Property   Property
	Violations []Violation
	// Notes say which excuse was taken where a property holds conditionally.
	Notes []string
}

// Check checks all properties, those of the guard included if handlers are guarded, in one pass over the journal and returns a verdict for each, in order.
func Check(j *journal.Journal) []Verdict { return check(j, applicable(j)) }

// Violations checks all properties and returns what they found.
func Violations(j *journal.Journal) (found []Violation) {
	for _, verdict := range Check(j) {
		found = append(found, verdict.Violations...)
	}
	return found
}

// Fold takes in the journal and calls observe after each event, with the state that the properties see.
func Fold(j *journal.Journal, observe func(*State, *journal.Event)) {
	state := newState(j)
	for i := range j.Events {
		state.apply(&j.Events[i])
		observe(state, &j.Events[i])
		state.settle(&j.Events[i])
	}
}

func check(j *journal.Journal, properties []Property) []Verdict {
	state := newState(j)
	verdicts := make([]Verdict, len(properties))
	checkers := make([]Checker, len(properties))
	for i, property := range properties {
		verdicts[i].Property = property
		checkers[i] = property.New()
	}
	each := func(tell func(Checker)) {
		for i, checker := range checkers {
			state.verdict = &verdicts[i]
			tell(checker)
		}
	}
	for i := range j.Events {
		event := &j.Events[i]
		state.apply(event)
		each(func(c Checker) { c.Observe(state, event) })
		state.settle(event)
	}
	each(func(c Checker) { c.Finish(state) })
	return verdicts
}
