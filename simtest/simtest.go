// Package simtest runs your own handlers through every crash window: the engine, your handlers, and what they do, in a simulated world that kills
// processes at every step, and then in worlds with random faults.
//
//	func TestChargesOnce(t *testing.T) {
//		simtest.Check(t, simtest.Options{}, func(w *simtest.World) {
//			bank := newFakeBank() // outside the processes: it survives their crashes
//			w.Add("shop", func(ctx context.Context, p *sim.Process) error { … p.Open … Publish … })
//			w.Add("worker-1", func(ctx context.Context, p *sim.Process) error { … sim.Subscribe(ctx, p, eng, orders, …, chargeWith(bank)) })
//			w.Finally("every order is charged once", bank.chargedOnce)
//		})
//	}
//
// The function builds one world; it is called again for every run, so what it makes must not be shared between runs. Inside a process, code asks the simulated
// world: p.Open opens an engine, sim.Subscribe subscribes, and in handlers sim.Call calls another system, sim.Sleep takes time,
// and sim/mongodriver gives a real *mongo.Client. A handler must not use the clock, goroutines or random numbers of its own.
//
// What holds for every engine (package properties) is checked on every run, and what the world's Finally functions say at its end. What fails is shrunk to the smallest
// plan, printed with a timeline, and can be given back as Options.Plan.
//
// Package sim itself cannot offer this: the properties are about the worlds that it makes, and import it.
package simtest

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/fencepost-sim/fencepost/explore"
	"github.com/fencepost-sim/fencepost/faults"
	"github.com/fencepost-sim/fencepost/reports"
	"github.com/fencepost-sim/fencepost/sim"
)

// Options adjusts Check. The zero value crashes a process at every place to which the run without faults leads, and then runs 100 random plans.
type Options struct {
	// Seed is what is drawn from. Default 1.
	Seed uint64
	// Runs is how many random plans are run after the crashes. Default 100; NoRuns for none.
	Runs int
	// Pairs puts, after every first crash, a second one at every kind of place that can follow: minutes instead of seconds.
	Pairs bool
	// Plan, if set, is the only plan that is run: what a failure printed.
	Plan string
	// Limit is the virtual time after which a run must be over. Default 4 hours.
	Limit time.Duration
	// Through is the engines' way to the database; see sim.Config.
	Through func(w *sim.World) func(p *sim.Process) Store
}

// NoRuns, as Options.Runs, leaves the random plans out.
const NoRuns = -1

func (o Options) withDefaults() Options {
	if o.Seed == 0 {
		o.Seed = 1
	}
	switch o.Runs {
	case 0:
		o.Runs = 100
	case NoRuns:
		o.Runs = 0
	}
	if o.Limit == 0 {
		o.Limit = 4 * time.Hour
	}
	return o
}

// Report is what came of an exploration.
type Report struct {
	Windows  int // places at which a process can die in the run without faults
	Runs     int
	Failures []explore.Failure
}

// Check explores and fails the test with everything that is needed to see what went wrong.
func Check(t testing.TB, options Options, build func(w *World)) {
	t.Helper()
	report, err := Explore(options, build)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d runs; %d places at which a process can die", report.Runs, report.Windows)
	for _, failure := range explore.PerProperty(report.Failures) {
		t.Error(Describe(failure.Shrink()))
	}
}

// Describe writes a failure: what was violated, the plan that shows it, and what happened.
func Describe(failure *explore.Failure) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\nOptions{Seed: %d, Plan: `\n%s`}\n\n", failure.Violation, failure.Outcome.Seed, failure.Outcome.Plan)
	if err := reports.Timeline(&b, failure.Outcome.Journal); err != nil {
		fmt.Fprintln(os.Stderr, err) // a strings.Builder does not fail
	}
	return b.String()
}

// Explore is Check without a test. The error says that the plan in the options cannot be.
func Explore(options Options, build func(w *World)) (*Report, error) {
	options = options.withDefaults()
	subject := subject{options, build}
	if options.Plan != "" {
		return subject.single()
	}
	base := explore.Base{Name: "a crash", Other: subject}
	depth := 1
	if options.Pairs {
		depth = 2
	}
	crashes, err := explore.Exhaustive{Bases: []explore.Base{base}, Seed: options.Seed, Depth: depth, Limits: explore.Limits{Failures: mostFailures}}.Run()
	if err != nil {
		return nil, err
	}
	report := &Report{Windows: crashes.Windows, Runs: 1 + crashes.Runs, Failures: crashes.Failures}
	whole, err := subject.Run(faults.Plan{}, options.Seed, nil)
	if err != nil {
		return nil, err
	}
	for _, violation := range whole.Violations {
		report.Failures = append([]explore.Failure{{Name: "no fault", Subject: subject, Outcome: whole, Violation: violation}}, report.Failures...)
	}
	if len(report.Failures) > 0 {
		return report, nil
	}
	search, err := explore.Plans{
		Subject: subject, Terrain: explore.TerrainOf(whole.Journal), Seed: options.Seed, Runs: options.Runs, Limits: explore.Limits{Failures: mostFailures},
	}.Run()
	if err != nil {
		return nil, err
	}
	report.Runs += search.Runs
	report.Failures = search.Failures
	return report, nil
}

// mostFailures is enough to see what is wrong.
const mostFailures = 10

func (s subject) single() (*Report, error) {
	plan, err := faults.Parse(s.options.Plan)
	if err != nil {
		return nil, fmt.Errorf("simtest: Options.Plan: %w", err)
	}
	outcome, err := s.Run(plan, s.options.Seed, nil)
	if err != nil {
		return nil, err
	}
	report := &Report{Runs: 1}
	for _, violation := range outcome.Violations {
		report.Failures = append(report.Failures, explore.Failure{Name: "the plan", Subject: s, Outcome: outcome, Violation: violation})
	}
	return report, nil
}
