package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fencepost-sim/fencepost/explore"
	"github.com/fencepost-sim/fencepost/properties/mutants"
	"github.com/fencepost-sim/fencepost/reports"
	"github.com/fencepost-sim/fencepost/scenarios"
)

// The command explore searches for runs that violate a property.

const exploreUsage = `  simrun explore                 search for runs in which something is violated
      --strategy S               exhaustive: a crash at every place, then every second one that can follow (--depth)
                                 orders: every order of tasks that deviates at a few steps (--preemptions)
                                 random: loads, faults and orders are drawn, each run forbids some faults altogether
                                 pct: random, scheduled by priorities, with a stated chance to find a bug (--depth)
                                 coverage: like random, but goes on from what reached something new (default random)
      --runs N                   at most so many runs of random, pct, coverage (default 10000)
      --budget D                 at most so long, for example 60s (default: no limit)
      --depth N                  exhaustive: crashes in a run (default 2); pct: ordering constraints of a bug (default 3)
      --preemptions N            orders: steps that deviate (default 1)
      --seed N                   what is drawn (default 1)
      --mutant NAME              plant a bug first (see simrun mutants), to see it found
      --save DIR                 where runs that fail are written (default .)
      --json                     the result as JSON
`

// exploration is what the command line of explore asks for.
type exploration struct {
	strategy     string
	runs         int
	depth        int
	preemptions  int
	seed         uint64
	bug          scenarios.Bug
	mutant, save string
	json         bool
	limits       explore.Limits
}

// strategies are the names of the strategies, with what runs them.
var strategies = []struct {
	name string
	run  func(*exploration) (*explored, error)
}{
	{"exhaustive", (*exploration).exhaustive},
	{"orders", (*exploration).orders},
	{"random", (*exploration).random},
	{"pct", (*exploration).random},
	{"coverage", (*exploration).coverage},
}

func strategyNames() string {
	var names []string
	for _, s := range strategies {
		names = append(names, s.name)
	}
	return strings.Join(names, ", ")
}

// mostFailures ends a search: what is found after so many is mostly the same again.
const mostFailures = 20

func parseExplore(args []string) (*exploration, error) {
	x := &exploration{strategy: "random", runs: 10000, preemptions: 1, seed: 1, save: "."}
	flags := flag.NewFlagSet("simrun explore", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.StringVar(&x.strategy, "strategy", x.strategy, "")
	wholeNumber(flags, "runs", &x.runs, 1, mostRuns)
	wholeNumber(flags, "depth", &x.depth, 1, 5)
	wholeNumber(flags, "preemptions", &x.preemptions, 1, 5)
	seedNumber(flags, &x.seed)
	flags.Func("budget", "", func(text string) (err error) {
		if x.limits.Budget, err = time.ParseDuration(text); err != nil || x.limits.Budget <= 0 {
			return fmt.Errorf("allowed: a duration above zero, like 60s")
		}
		return nil
	})
	flags.StringVar(&x.mutant, "mutant", "", "")
	flags.StringVar(&x.save, "save", x.save, "")
	switchFlag(flags, "json", &x.json)
	if err := parseFlags(flags, args); err != nil {
		return nil, err
	}
	if !slices.Contains(strings.Split(strategyNames(), ", "), x.strategy) {
		return nil, fmt.Errorf("%w: --strategy %q; allowed: %s", errUsage, x.strategy, strategyNames())
	}
	if info, err := os.Stat(x.save); err != nil || !info.IsDir() {
		return nil, fmt.Errorf("%w: --save %q is not a folder", errUsage, x.save)
	}
	x.limits.Failures = mostFailures
	return x, x.plant()
}

// plant looks the mutant up.
func (x *exploration) plant() error {
	if x.mutant == "" {
		return nil
	}
	at := slices.Index(mutants.Names(), x.mutant)
	if at < 0 {
		return fmt.Errorf("%w: --mutant %q; allowed: %s", errUsage, x.mutant, strings.Join(mutants.Names(), ", "))
	}
	x.bug = mutants.All[at].Bug()
	return nil
}

// explored is what came of it.
type explored struct {
	Strategy string   `json:"strategy"`
	Seed     uint64   `json:"seed"`
	Runs     int      `json:"runs"`
	Steps    int      `json:"steps"`
	Complete bool     `json:"complete"`
	Words    []string `json:"findings"` // sentences
	Failed   int      `json:"failed"`
	Found    []found  `json:"failures"`

	failures []explore.Failure
}

// found is one failure, shrunk.
type found struct {
	Violation string   `json:"violation"`
	Where     string   `json:"where"`
	Plan      []string `json:"plan"`
	File      string   `json:"file"`

	outcome *explore.Outcome
}

func runExplore(args []string, out, problems io.Writer) (holds bool, err error) {
	x, err := parseExplore(args)
	if err != nil {
		return false, err
	}
	bar := newProgress(problems, x.runs)
	x.limits.Progress = bar.show
	at := slices.IndexFunc(strategies, func(s struct {
		name string
		run  func(*exploration) (*explored, error)
	}) bool {
		return s.name == x.strategy
	})
	result, err := strategies[at].run(x)
	bar.clear()
	if err != nil {
		return false, err
	}
	result.Strategy, result.Seed, result.Failed = x.strategy, x.seed, len(result.failures)
	if err := x.shrink(result); err != nil {
		return false, err
	}
	if x.json {
		encoder := json.NewEncoder(out)
		encoder.SetIndent("", "  ")
		return result.Failed == 0, encoder.Encode(result)
	}
	return result.Failed == 0, result.writeText(out)
}

// shrink makes the first failure of each property small and writes it to a file.
func (x *exploration) shrink(result *explored) error {
	for _, failure := range explore.PerProperty(result.failures) {
		smallest := failure.Shrink()
		outcome, plan := smallest.Outcome, smallest.Outcome.Plan
		id, _, _ := strings.Cut(failure.Violation.Property, " ")
		path := filepath.Join(x.save, fmt.Sprintf("fencepost-%s-%s.txt", id, outcome.Journal.Hash()[:8]))
		if err := writeReplay(path, outcome.Run); err != nil {
			return err
		}
		result.Found = append(result.Found, found{
			Violation: smallest.Violation.String(), Where: failure.Name, Plan: strings.Split(strings.TrimSpace(plan.String()), "\n"),
			File: path, outcome: outcome,
		})
	}
	return nil
}

func (r *explored) writeText(out io.Writer) error {
	var b strings.Builder
	for _, f := range r.Found {
		fmt.Fprintf(&b, "FAIL  %s\n      found in: %s; shrunk to %d faults and %d choices:\n", f.Violation, f.Where, len(f.outcome.Plan.Faults), len(f.outcome.Plan.Choices))
		fmt.Fprintf(&b, "      %s\n\n", strings.Join(f.Plan, "\n      "))
		if err := reports.Timeline(&b, f.outcome.Journal); err != nil {
			return err
		}
		fmt.Fprintf(&b, "\nreproduce go run ./cmd/simrun replay %s\n\n", f.File)
	}
	fmt.Fprintf(&b, "%s, seed %d: %d runs, %d steps, %d violations", r.Strategy, r.Seed, r.Runs, r.Steps, r.Failed)
	if !r.Complete {
		b.WriteString("; a limit cut it short")
	}
	b.WriteString("\n")
	for _, sentence := range r.Words {
		fmt.Fprintf(&b, "  %s\n", sentence)
	}
	_, err := io.WriteString(out, b.String())
	return err
}

func (x *exploration) exhaustive() (*explored, error) {
	depth := x.depth
	if depth == 0 {
		depth = 2
	}
	e, err := explore.Exhaustive{Bases: explore.Bases(), Seed: x.seed, Bug: x.bug, Depth: depth, Limits: x.limits}.Run()
	if err != nil {
		return nil, err
	}
	cells := len(explore.Cells())
	words := []string{
		fmt.Sprintf("%d places in %d base runs; a crash at each, every occurrence of a point being a place of its own", e.Windows, len(explore.Bases())),
		fmt.Sprintf("point × position: %d of %d", e.Singles(), cells),
	}
	if depth > 1 {
		words = append(words, fmt.Sprintf("ordered pairs of them: %d of %d; the others do not follow each other in these runs", e.Chains(2), cells*cells))
	}
	for n := 3; n <= depth; n++ {
		words = append(words, fmt.Sprintf("chains of %d: %d", n, e.Chains(n)))
	}
	if len(e.Unstruck) > 0 {
		words = append(words, fmt.Sprintf("crashes that did not find their place again: %d", len(e.Unstruck)))
	}
	return &explored{Runs: e.Runs, Steps: e.Steps, Complete: e.Complete, Words: words, failures: e.Failures}, nil
}

func (x *exploration) orders() (*explored, error) {
	o, err := explore.Schedules{Bases: explore.Bases(), Seed: x.seed, Bug: x.bug, Bound: x.preemptions, Limits: x.limits}.Run()
	if err != nil {
		return nil, err
	}
	return &explored{Runs: o.Runs, Steps: o.Steps, Complete: o.Complete, failures: o.Failures, Words: []string{
		fmt.Sprintf("orders that deviate at up to %d steps: %d, of which %d change nothing but the order of steps that commute, and were passed over",
			x.preemptions, o.Total, o.Pruned),
	}}, nil
}

func (x *exploration) random() (*explored, error) {
	depth := 0
	if x.strategy == "pct" {
		if depth = x.depth; depth == 0 {
			depth = 3
		}
	}
	s, err := explore.Random{Seed: x.seed, Runs: x.runs, Depth: depth, Bug: x.bug, Limits: x.limits}.Run()
	if err != nil {
		return nil, err
	}
	result := searched(s)
	if depth > 0 {
		result.Words = append(result.Words, fmt.Sprintf("a bug of depth %d is found by a run with a chance of at least %.2g, for up to %d tasks and %d steps",
			depth, s.Guarantee(depth), s.Most, s.Longest))
	}
	return result, nil
}

func (x *exploration) coverage() (*explored, error) {
	s, err := explore.Coverage{Seed: x.seed, Runs: x.runs, Bug: x.bug, Limits: x.limits}.Run()
	if err != nil {
		return nil, err
	}
	return searched(s), nil
}

func searched(s *explore.Search) *explored {
	declared := explore.Declared()
	reached := 0
	for _, place := range declared {
		if s.Covered.Places[place] > 0 {
			reached++
		}
	}
	return &explored{Runs: s.Runs, Steps: s.Steps, Complete: s.Complete, failures: s.Failures, Words: []string{
		fmt.Sprintf("fault × point × position: %d of %d declared", reached, len(declared)),
		fmt.Sprintf("fault × state of the protocol: %d different", len(s.Covered.States)),
	}}
}
