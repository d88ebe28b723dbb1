package scenarios

import (
	"slices"

	"github.com/fencepost-sim/fencepost/faults"
)

// pass is a named way to make a plan simpler. It returns the simplest plan that it came to and that still fails.
type pass struct {
	name     string
	simplify func(plan faults.Plan, fails func(faults.Plan) bool) faults.Plan
}

// passes are tried in this order, from the coarsest, until none makes the plan simpler.
var passes = []pass{
	{"default-order", defaultOrder},
	{"drop-fault", dropFaults},
	{"drop-choices", dropChoices},
	{"drop-and-shift", dropAndShift},
	{"first-occurrence", firstOccurrence},
}

// defaultOrder drops every scheduling decision.
func defaultOrder(p faults.Plan, fails func(faults.Plan) bool) faults.Plan {
	if simpler := p; len(p.Choices) > 0 {
		simpler.Choices = nil
		if fails(simpler) {
			return simpler
		}
	}
	return p
}

func dropFaults(p faults.Plan, fails func(faults.Plan) bool) faults.Plan {
	for i := 0; i < len(p.Faults); {
		candidate := p
		candidate.Faults = slices.Delete(slices.Clone(p.Faults), i, i+1)
		if fails(candidate) {
			p = candidate
		} else {
			i++
		}
	}
	return p
}

// dropChoices drops scheduling decisions in ever smaller pieces, down to single ones, the last first: those decide least.
func dropChoices(p faults.Plan, fails func(faults.Plan) bool) faults.Plan {
	for size := (len(p.Choices) + 1) / 2; size > 0; size /= 2 {
		for end := len(p.Choices); end > 0; end -= size {
			candidate := p
			candidate.Choices = slices.Delete(slices.Clone(p.Choices), max(0, end-size), end)
			if fails(candidate) {
				p = candidate
			}
		}
	}
	return p
}

// farthestShift is how many steps dropAndShift moves decisions by.
const farthestShift = 4

// dropAndShift drops one scheduling decision and moves the later ones by a few steps: without it the same things happen, a little earlier or later.
func dropAndShift(p faults.Plan, fails func(faults.Plan) bool) faults.Plan {
	for i := len(p.Choices) - 1; i >= 0; i-- {
		for shift := -farthestShift; shift <= farthestShift; shift++ {
			candidate := p
			candidate.Choices = slices.Delete(slices.Clone(p.Choices), i, i+1)
			for later := i; later < len(candidate.Choices); later++ {
				candidate.Choices[later].Step += shift
			}
			if shift != 0 && ascending(candidate.Choices) && fails(candidate) {
				p = candidate
				break
			}
		}
	}
	return p
}

// ascending tells whether each decision comes after the one before, as a plan has them.
func ascending(choices []faults.Choice) bool {
	last := 0
	for _, choice := range choices {
		if choice.Step <= last {
			return false
		}
		last = choice.Step
	}
	return true
}

func firstOccurrence(p faults.Plan, fails func(faults.Plan) bool) faults.Plan {
	for i, fault := range p.Faults {
		candidate := p
		candidate.Faults = slices.Clone(p.Faults)
		candidate.Faults[i].Occurrence = 1
		if fault.Occurrence != 1 && fails(candidate) {
			p = candidate
		}
	}
	return p
}

// Shrink makes a failing plan as small as it can: in the end it fails, and removing any one fault or
// scheduling decision makes it pass. fails runs a plan and says whether it still fails in the same way. The plan must
// be Listed; see Run.Listed.
func Shrink(plan faults.Plan, fails func(faults.Plan) bool) faults.Plan {
	for {
		before := plan.String()
		for _, pass := range passes {
			plan = pass.simplify(plan, fails)
		}
		if plan.String() == before {
			return plan
		}
	}
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
