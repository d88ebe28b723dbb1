package scenarios

import (
	"iter"
	"slices"

	"github.com/fencepost-sim/fencepost/faults"
)

// pass is a named way to make a plan simpler. It yields simpler candidates one by one, the most promising first.
type pass struct {
	name       string
	candidates func(faults.Plan) iter.Seq[faults.Plan]
}

// passes are tried in this order, from the coarsest, until none makes the plan simpler.
var passes = []pass{
	{"default-order", defaultOrder},
	{"drop-fault", dropFault},
	{"drop-choices", dropChoices},
	{"first-occurrence", firstOccurrence},
}

// defaultOrder drops every scheduling decision.
func defaultOrder(p faults.Plan) iter.Seq[faults.Plan] {
	return func(yield func(faults.Plan) bool) {
		if len(p.Choices) > 0 {
			p.Choices = nil
			yield(p)
		}
	}
}

func dropFault(p faults.Plan) iter.Seq[faults.Plan] {
	return func(yield func(faults.Plan) bool) {
		for i := range p.Faults {
			candidate := p
			candidate.Faults = slices.Delete(slices.Clone(p.Faults), i, i+1)
			if !yield(candidate) {
				return
			}
		}
	}
}

// dropChoices drops scheduling decisions in ever smaller pieces, down to single ones.
func dropChoices(p faults.Plan) iter.Seq[faults.Plan] {
	return func(yield func(faults.Plan) bool) {
		for size := (len(p.Choices) + 1) / 2; size > 0; size /= 2 {
			for at := 0; at < len(p.Choices); at += size {
				candidate := p
				candidate.Choices = slices.Delete(slices.Clone(p.Choices), at, min(at+size, len(p.Choices)))
				if !yield(candidate) {
					return
				}
			}
		}
	}
}

func firstOccurrence(p faults.Plan) iter.Seq[faults.Plan] {
	return func(yield func(faults.Plan) bool) {
		for i, fault := range p.Faults {
			if fault.Occurrence == 1 {
				continue
			}
			candidate := p
			candidate.Faults = slices.Clone(p.Faults)
			candidate.Faults[i].Occurrence = 1
			if !yield(candidate) {
				return
			}
		}
	}
}

// Shrink makes a failing plan as small as it can: in the end it fails, and removing any one fault or
// scheduling decision makes it pass. fails runs a plan and says whether it still fails in the same way. The plan must
// be Listed; see Run.Listed.
func Shrink(plan faults.Plan, fails func(faults.Plan) bool) faults.Plan {
	for again := true; again; {
		again = false
		for _, pass := range passes {
			for simpler, found := firstFailing(pass.candidates(plan), fails); found; simpler, found = firstFailing(pass.candidates(plan), fails) {
				plan, again = simpler, true
			}
		}
	}
	return plan
}

func firstFailing(candidates iter.Seq[faults.Plan], fails func(faults.Plan) bool) (faults.Plan, bool) {
	for candidate := range candidates {
		if fails(candidate) {
			return candidate, true
		}
	}
	return faults.Plan{}, false
}

// Listed is the run's plan with its scheduling decisions spelled out, and without the faults that did not strike: it
// repeats the run without drawing anything for the schedule.
func (r *Run) Listed() faults.Plan {
	plan := faults.Plan{Choices: r.Deviations, Schedule: faults.Listed}
	for _, fault := range r.Plan.Faults {
		if !slices.Contains(r.Unstruck, fault) {
			plan.Faults = append(plan.Faults, fault)
		}
	}
	return plan
}
