package explore

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/fencepost-sim/fencepost/faults"
	"github.com/fencepost-sim/fencepost/scenarios"
)

// Search is what came of random runs.
type Search struct {
	Runs     int
	Steps    int
	Longest  int // steps of the longest run
	Most     int // tasks of the run that had most
	Covered  *Covered
	Failures []Failure
	Complete bool // false when a limit cut it short
}

// Guarantee is what a schedule of priorities promises: the chance that a single run finds a bug that needs depth ordering constraints, for
// the most tasks and steps that were seen. It is a lower bound, for the faults and the load that lead to the bug.
func (s *Search) Guarantee(depth int) float64 {
	chance := 1 / float64(max(1, s.Most))
	for range depth - 1 {
		chance /= float64(max(1, s.Longest))
	}
	return chance
}

// Random draws a load and a plan for each run, from a seed of its own.
type Random struct {
	Seed uint64
	Runs int
	// Depth, if it is not zero, schedules by priorities, for bugs that need so many ordering constraints. Otherwise the order is drawn.
	Depth  int
	Bug    scenarios.Bug
	Limits Limits
}

// seeded draws from a seed.
type seeded struct{ generator *rand.PCG }

func (s seeded) Below(n int, _ string) int { return int(s.generator.Uint64() % uint64(n)) }

func newSeeded(seed uint64, run int) seeded { return seeded{rand.NewPCG(seed, uint64(run))} }

// Case is a load with a plan and a seed: all that a run is made of.
type Case struct {
	Workload scenarios.Workload
	Plan     faults.Plan
	Seed     uint64
}

func drawCase(s Source) Case {
	w := DrawWorkload(s)
	return Case{w, DrawPlan(s, w, DrawSwarm(s)), uint64(s.Below(1<<32, "seed"))}
}

// expectedSteps is about how long a random run is, for schedules of priorities.
const expectedSteps = 2000

// Run runs the case, with a bug planted or the zero Bug.
func (c Case) Run(bug scenarios.Bug) (*scenarios.Run, error) {
	return c.Workload.Run(c.Plan, c.Seed, bug)
}

// Case is what the run with the number is made of, from 0.
func (r Random) Case(run int) Case {
	c := drawCase(newSeeded(r.Seed, run))
	if r.Depth > 0 {
		c.Plan.Schedule, c.Plan.Depth, c.Plan.Steps = faults.Priorities, r.Depth, expectedSteps
	}
	return c
}

// round is how many runs go beside each other before what they found is put together, in order: the result does not depend on the number of cores.
const round = 64

// Run explores. Runs is the limit, or Limits.Budget if that is less.
func (r Random) Run() (*Search, error) {
	search := &Search{Covered: NewCovered()}
	tally := newTally(r.Limits)
	var err error
	for at := 0; at < r.Runs && err == nil; at += round {
		err = search.round(tally, r.Bug, min(round, r.Runs-at), func(i int) Case { return r.Case(at + i) }, func(int, int) {})
	}
	search.Runs, search.Steps = tally.runs, tally.steps
	search.Complete, err = unlessStopped(err)
	return search, err
}

// round runs some cases. learn is told, in order, how many new cells each reached.
func (s *Search) round(tally *tally, bug scenarios.Bug, n int, draw func(i int) Case, learn func(i, fresh int)) error {
	return s.run(tally, n, func(i int) (Subject, faults.Plan, uint64) {
		c := draw(i)
		return Load{c.Workload, bug}, c.Plan, c.Seed
	}, learn)
}

// run runs what is drawn, on all cores.
func (s *Search) run(tally *tally, n int, draw func(i int) (Subject, faults.Plan, uint64), learn func(i, fresh int)) error {
	outcomes := make([]*Outcome, n)
	subjects := make([]Subject, n)
	err := Each(n, func(i int) (err error) {
		subject, plan, seed := draw(i)
		if outcomes[i], err = subject.Run(plan, seed, nil); err != nil {
			return fmt.Errorf("%s: %w", plan, err)
		}
		subjects[i] = subject
		return tally.add(outcomes[i])
	})
	for i, outcome := range outcomes {
		if outcome == nil {
			continue
		}
		learn(i, s.Covered.Add(outcome.Journal))
		s.Longest = max(s.Longest, outcome.Journal.Steps())
		s.Most = max(s.Most, outcome.Journal.Tasks())
		for _, violation := range outcome.Violations {
			s.Failures = append(s.Failures, Failure{fmt.Sprintf("seed %d", outcome.Seed), subjects[i], outcome, violation})
		}
	}
	return err
}

// Coverage begins with random cases and goes on with changed copies of those that reached a place or a protocol state that none before had.
type Coverage struct {
	Seed   uint64
	Runs   int
	Bug    scenarios.Bug
	Limits Limits
}

// Run explores. Runs is the limit, or Limits.Budget if that is less.
func (c Coverage) Run() (*Search, error) {
	search := &Search{Covered: NewCovered()}
	tally := newTally(c.Limits)
	var corpus []Case
	var err error
	for at := 0; at < c.Runs && err == nil; at += round {
		known := slices.Clip(corpus)
		n := min(round, c.Runs-at)
		drawn := make([]Case, n)
		err = search.round(tally, c.Bug, n, func(i int) Case {
			source := newSeeded(c.Seed, at+i)
			if len(known) == 0 || source.Below(4, "afresh") == 0 {
				drawn[i] = drawCase(source)
			} else {
				drawn[i] = changed(source, known[source.Below(len(known), "parent")])
			}
			return drawn[i]
		}, func(i, fresh int) {
			if fresh > 0 {
				corpus = append(corpus, drawn[i])
			}
		})
	}
	search.Runs, search.Steps = tally.runs, tally.steps
	search.Complete, err = unlessStopped(err)
	return search, err
}

// mostFaults bounds what changing adds up to.
const mostFaults = 6

// changed is a case like the other, but for one thing.
func changed(s Source, c Case) Case {
	all := slices.Clone(c.Plan.Faults)
	at := 0
	if len(all) > 0 {
		at = s.Below(len(all), "which")
	}
	switch what := s.Below(5, "change"); {
	case what == 0 || len(all) == 0:
		c.Seed = uint64(s.Below(1<<32, "seed"))
		all = append(all, drawFault(s, terrainOf(c.Workload), Everything()))
	case what == 1:
		all = slices.Delete(all, at, at+1)
	case what == 2:
		all[at].Occurrence = between(s, 1, 12, "occurrence")
	case what == 3:
		all[at] = drawFault(s, terrainOf(c.Workload), Everything())
	default:
		all = append(all, drawFault(s, terrainOf(c.Workload), Everything()))
	}
	c.Plan.Faults = all[:min(len(all), mostFaults)]
	return c
}

// Plans draws a plan for each run of one subject.
type Plans struct {
	Subject Subject
	Terrain Terrain
	Seed    uint64
	Runs    int
	Limits  Limits
}

// Run explores.
func (p Plans) Run() (*Search, error) {
	search := &Search{Covered: NewCovered()}
	tally := newTally(p.Limits)
	var err error
	for at := 0; at < p.Runs && err == nil; at += round {
		err = search.run(tally, min(round, p.Runs-at), func(i int) (Subject, faults.Plan, uint64) {
			source := newSeeded(p.Seed, at+i)
			return p.Subject, DrawPlanIn(source, p.Terrain, DrawSwarm(source)), uint64(source.Below(1<<32, "seed"))
		}, func(int, int) {})
	}
	search.Runs, search.Steps = tally.runs, tally.steps
	search.Complete, err = unlessStopped(err)
	return search, err
}
