package explore

import (
	"iter"
	"slices"

	"github.com/fencepost-sim/fencepost/faults"
	"github.com/fencepost-sim/fencepost/properties"
	"github.com/fencepost-sim/fencepost/scenarios"
)

// Simpler is a subject that knows simpler ones.
type Simpler interface {
	Subject
	// Simpler yields subjects that do less, the most promising first.
	Simpler() iter.Seq[Subject]
}

// How much shrinking tries.
const (
	reseeds    = 6         // seeds for each simpler load: what a schedule draws means something else there
	otherSeeds = 40        // when priorities are given up for decisions that stand for themselves
	mostSteps  = 3_000_000 // of the scheduler, for one failure
)

// shrinking is the state of making one failure small.
type shrinking struct {
	property string
	subject  Subject
	smallest *Outcome
	steps    int
}

// try tells whether the property is violated, too, by another run, and takes it if it is.
func (s *shrinking) try(subject Subject, plan faults.Plan, seed uint64) bool {
	if s.steps > mostSteps {
		return false
	}
	outcome, err := subject.Run(plan, seed, nil)
	if err != nil {
		return false
	}
	if s.steps += outcome.Journal.Steps(); !outcome.Violates(s.property) {
		return false
	}
	s.subject, s.smallest = subject, outcome
	return true
}

// Shrink returns a small failure of the same property. First the load becomes simpler and faults are dropped, while orders are drawn as
// before, from a few seeds; then the scheduling decisions are spelled out and dropped. In the end removing any one fault or scheduling decision makes the
// run hold, unless shrinking took too many steps.
func (f *Failure) Shrink() *Failure {
	s := &shrinking{property: f.Violation.Property, subject: f.Subject, smallest: f.Outcome}
	for s.simplifyLoad() || s.dropFault() {
	}
	subject, seed := s.subject, s.smallest.Seed
	listed := s.smallest.Listed()
	if s.try(subject, listed, seed) { // it does, or the world is not deterministic
		scenarios.Shrink(listed, func(plan faults.Plan) bool { return s.try(subject, plan, seed) })
	}
	i := slices.IndexFunc(s.smallest.Violations, func(v properties.Violation) bool { return v.Property == s.property })
	return &Failure{f.Name, s.subject, s.smallest, s.smallest.Violations[i]}
}

// anySeed tries a run with the seed that failed, and with others.
func (s *shrinking) anySeed(subject Subject, plan faults.Plan) bool {
	seed := s.smallest.Seed
	for i := range uint64(reseeds) {
		if s.try(subject, plan, seed+i) {
			return true
		}
		if plan.Schedule == "" || plan.Schedule == faults.Listed {
			return false // nothing of the order is drawn
		}
	}
	return false
}

func (s *shrinking) simplifyLoad() bool {
	load, ok := s.subject.(Simpler)
	if !ok {
		return false
	}
	for simpler := range load.Simpler() {
		if s.anySeed(simpler, s.smallest.Plan) {
			return true
		}
	}
	return false
}

func (s *shrinking) dropFault() bool {
	plan := s.smallest.Plan
	for i := range plan.Faults {
		fewer := plan
		fewer.Faults = slices.Delete(slices.Clone(plan.Faults), i, i+1)
		if s.anySeed(s.subject, fewer) {
			return true
		}
	}
	if plan.Schedule != "" && plan.Schedule != faults.Listed {
		plain := plan
		plain.Schedule, plain.Depth, plain.Steps = faults.Listed, 0, 0
		return s.try(s.subject, plain, s.smallest.Seed) || plan.Schedule == faults.Priorities && s.otherOrders(plain)
	}
	return false
}

// otherOrders looks for the failure among orders of which each decision stands for itself: priorities decide almost every step, and no decision can be
// left out alone.
func (s *shrinking) otherOrders(plan faults.Plan) bool {
	plan.Schedule = faults.Seeded
	for seed := range uint64(otherSeeds) {
		if s.try(s.subject, plan, seed) {
			return true
		}
	}
	return false
}

// Simpler implements Simpler: fewer topics, events, processes, and less that handlers do.
func (l Load) Simpler() iter.Seq[Subject] {
	return func(yield func(Subject) bool) {
		for _, change := range simplifications {
			w := l.Workload
			w.Topics = slices.Clone(w.Topics)
			if change(&w) && !yield(Load{w, l.Bug}) {
				return
			}
		}
	}
}

// simplifications each make a load simpler, or return false where it is so simple already.
var simplifications = []func(*scenarios.Workload) bool{
	func(w *scenarios.Workload) bool { return shorter(&w.Topics, 0) },
	func(w *scenarios.Workload) bool { return shorter(&w.Topics, 1) },
	func(w *scenarios.Workload) bool { return lower(&w.Publishers, 1) },
	eachTopic(func(t *scenarios.TopicLoad) bool { return lower(&t.Do.Publish, 0) }),
	eachTopic(func(t *scenarios.TopicLoad) bool { return lower(&t.Events, 1) }),
	func(w *scenarios.Workload) bool { return lower(&w.Groups, 1) },
	func(w *scenarios.Workload) bool {
		was := w.Guard
		w.Guard = ""
		return was != "" && was != scenarios.Unguarded
	},
	func(w *scenarios.Workload) bool { return lower(&w.SweepEvery, 0) },
	func(w *scenarios.Workload) bool { was := w.Partial; w.Partial = false; return was },
	func(w *scenarios.Workload) bool { return lower(&w.LeaveAt, 0) },
	func(w *scenarios.Workload) bool {
		was := w.Guard
		w.Guard = scenarios.Unguarded
		return was != w.Guard && was != ""
	},
	func(w *scenarios.Workload) bool { return lower(&w.SweepEvery, 0) },
	func(w *scenarios.Workload) bool { return fewer(&w.Replicas) },
	func(w *scenarios.Workload) bool { return fewer(&w.Workers) },
	func(w *scenarios.Workload) bool { return lower(&w.RollAt, 0) },
	func(w *scenarios.Workload) bool { return lower(&w.StayFor, 0) },
	eachTopic(func(t *scenarios.TopicLoad) bool { return lower(&t.Do.Time, 0) }),
	eachTopic(func(t *scenarios.TopicLoad) bool { return lower(&t.Do.FailFirst, 0) }),
	eachTopic(func(t *scenarios.TopicLoad) bool { return lower(&t.Pause, 0) }),
	eachTopic(func(t *scenarios.TopicLoad) bool { return fewer(&t.Events) }),
}

func shorter(topics *[]scenarios.TopicLoad, without int) bool {
	if len(*topics) < 2 {
		return false
	}
	*topics = slices.Delete(*topics, without, without+1)
	return true
}

func lower[N ~int | ~int64](value *N, least N) bool {
	if *value <= least {
		return false
	}
	*value = least
	return true
}

func fewer(value *int) bool {
	if *value <= 1 {
		return false
	}
	*value--
	return true
}

func eachTopic(change func(*scenarios.TopicLoad) bool) func(*scenarios.Workload) bool {
	return func(w *scenarios.Workload) (changed bool) {
		for i := range w.Topics {
			changed = change(&w.Topics[i]) || changed
		}
		return changed
	}
}
