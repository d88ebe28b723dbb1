package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"strings"

	"github.com/fencepost-sim/fencepost/faults"
	"github.com/fencepost-sim/fencepost/reports"
	"github.com/fencepost-sim/fencepost/scenarios"
	"github.com/fencepost-sim/fencepost/sim/journal"
)

// request is what the command line asks for.
type request struct {
	scenario *scenarios.Scenario
	variants []scenarios.Variant
	guard    scenarios.Guard
	seed     uint64
	runs     int
	schedule faults.Schedule
	through  scenarios.Through
	json     bool
	save     string
}

// mostRuns is how many seeds one sweep takes; more would not fit into memory.
const mostRuns = 1_000_000

func parseRequest(args []string) (*request, error) {
	flags := flag.NewFlagSet("simrun", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	r := &request{seed: 1, runs: 1}
	name := flags.String("scenario", "", "")
	variant := flags.String("variant", scenarios.DefaultVariant.String(), "")
	guard := flags.String("guard", "", "")
	seedNumber(flags, &r.seed)
	wholeNumber(flags, "runs", &r.runs, 1, mostRuns)
	flags.StringVar((*string)(&r.schedule), "schedule", "", "")
	through := flags.String("through", "model", "")
	switchFlag(flags, "json", &r.json)
	flags.StringVar(&r.save, "save", "", "")
	if err := flags.Parse(args); err == flag.ErrHelp {
		return nil, err
	} else if err != nil {
		return nil, fmt.Errorf("%w: %v", errUsage, withAllowed(err, flags))
	}
	if flags.NArg() > 0 {
		return nil, fmt.Errorf("%w: %q; allowed: %s", errUsage, flags.Arg(0), commands)
	}
	var err error
	if r.scenario, err = scenarios.Lookup(*name); err != nil {
		return nil, err
	}
	if r.variants, err = parseVariants(*variant); err != nil {
		return nil, err
	}
	if r.runs*len(r.variants) > mostRuns {
		return nil, fmt.Errorf("%w: --runs %d in %d variants; allowed: %d in all", errUsage, r.runs, len(r.variants), mostRuns)
	}
	if r.seed+uint64(r.runs-1) < r.seed {
		return nil, fmt.Errorf("%w: --seed %d with --runs %d goes beyond the largest seed, %d", errUsage, r.seed, r.runs, uint64(math.MaxUint64))
	}
	if *guard != "" {
		if r.guard, err = scenarios.ParseGuard(*guard); err != nil {
			return nil, fmt.Errorf("--guard: %w", err)
		}
	}
	if r.through, err = scenarios.ParseThrough(*through); err != nil {
		return nil, err
	}
	switch {
	case r.schedule == "" && r.many():
		r.schedule = faults.Seeded
	case r.schedule == "":
		r.schedule = faults.Listed
	}
	if err := r.scenario.Plan(r.schedule).Validate(); err != nil {
		return nil, fmt.Errorf("%w: --schedule: %v", errUsage, err)
	}
	if err := checkWritable(r.save); err != nil {
		return nil, fmt.Errorf("%w: --save: %w", errUsage, err)
	}
	return r, nil
}

// withAllowed adds the flags that there are to the complaint about one that there is not.
func withAllowed(err error, flags *flag.FlagSet) error {
	if !strings.HasPrefix(err.Error(), "flag provided but not defined") {
		return err
	}
	var names []string
	flags.VisitAll(func(f *flag.Flag) { names = append(names, "--"+f.Name) })
	return fmt.Errorf("%w; allowed: %s", err, strings.Join(names, ", "))
}

// checkWritable says before a long run, rather than after it, that the file cannot be written. What it creates for that it removes again.
func checkWritable(path string) error {
	if path == "" {
		return nil
	}
	info, missing := os.Lstat(path)
	if missing == nil {
		if info.Mode()&os.ModeSymlink != 0 {
			info, missing = os.Stat(path)
			if missing != nil {
				return fmt.Errorf("%s is a link to nothing", path)
			}
		}
		if !info.Mode().IsRegular() {
			return fmt.Errorf("%s is not a regular file", path)
		}
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	if err := file.Close(); err != nil || missing == nil {
		return err
	}
	return os.Remove(path)
}

func parseVariants(text string) ([]scenarios.Variant, error) {
	if text == "all" {
		return scenarios.Variants(), nil
	}
	variant, err := scenarios.ParseVariant(text)
	return []scenarios.Variant{variant}, err
}

// many tells whether more than one run is asked for.
func (r *request) many() bool { return r.runs > 1 || len(r.variants) > 1 }

func runScenario(args []string, out, problems io.Writer) (holds bool, err error) {
	r, err := parseRequest(args)
	if err != nil {
		return false, err
	}
	if r.many() {
		return r.sweep(out, problems)
	}
	run, err := r.run(r.variants[0], r.seed)
	if err != nil {
		return false, err
	}
	summary := reports.Summarize(run)
	if err := r.saveRun(run); err != nil {
		return false, err
	}
	if r.json {
		return summary.Holds, summary.WriteJSON(out)
	}
	fmt.Fprintf(out, "%s: %s\n%s, seed %d\n\n%s\n\n", r.scenario.Name, r.scenario.Title, run.Variant, run.Seed, wrap(r.scenario.Story, 100))
	if row := r.scenario.Row; row != nil {
		fmt.Fprintf(out, "crash table: the worker dies after %s and before %s; %s; the handler %s\n\n", row.After, row.Before, row.Recovery, again(row.RunsAgain))
	}
	if err := reports.Timeline(out, run.Journal); err != nil {
		return false, err
	}
	fmt.Fprintln(out)
	return summary.Holds, summary.WriteText(out)
}

func again(runs bool) string {
	if runs {
		return "may run again"
	}
	return "does not run again"
}

func (r *request) run(variant scenarios.Variant, seed uint64) (*scenarios.Run, error) {
	plan := r.scenario.Plan(r.schedule)
	return r.scenario.Run(scenarios.Options{Variant: variant, Guard: r.guard, Seed: seed, Plan: &plan, Through: r.through})
}

func (r *request) saveRun(run *scenarios.Run) error {
	if r.save == "" {
		return nil
	}
	return writeReplay(r.save, run)
}

func writeReplay(path string, run *scenarios.Run) (err error) {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() {
		if closed := file.Close(); err == nil {
			err = closed
		}
	}()
	return reports.NewReplay(run).Write(file)
}

// look is what of a replayed run is to be shown.
type look struct{ at, from, to int }

func parseLook(args []string) (path string, l look, err error) {
	if len(args) == 0 || strings.HasPrefix(args[0], "-") {
		return "", l, fmt.Errorf("%w: replay takes one file, then flags; got %q", errUsage, args)
	}
	flags := flag.NewFlagSet("replay FILE", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	wholeNumber(flags, "at", &l.at, 0, math.MaxInt32)
	wholeNumber(flags, "from", &l.from, 0, math.MaxInt32)
	wholeNumber(flags, "to", &l.to, 1, math.MaxInt32)
	if err := parseFlags(flags, args[1:]); err != nil {
		return "", l, err
	}
	given := map[string]bool{}
	flags.Visit(func(f *flag.Flag) { given[f.Name] = true })
	switch {
	case given["from"] != given["to"], given["at"] && given["to"]:
		return "", l, fmt.Errorf("%w: replay: allowed: --at STEP, or --from STEP with --to STEP", errUsage)
	case l.to > 0 && l.from >= l.to:
		return "", l, fmt.Errorf("%w: replay: --from %d --to %d; allowed: from less than to", errUsage, l.from, l.to)
	}
	return args[0], l, nil
}

// show writes what is asked for. It reports whether there was something.
func (l look) show(out io.Writer, run *scenarios.Run) (shown bool, err error) {
	last := run.Journal.Steps()
	switch {
	case max(l.at, l.to) > last:
		return true, fmt.Errorf("%w: step %d; allowed: up to %d, the last of this run", errUsage, max(l.at, l.to), last)
	case l.at > 0:
		return true, reports.Moment(out, run.Journal, l.at)
	case l.to > 0:
		return true, reports.Changes(out, run.Journal, l.from, l.to)
	}
	return false, nil
}

func replay(args []string, out io.Writer) (holds bool, err error) {
	path, look, err := parseLook(args)
	if err != nil {
		return false, err
	}
	file, err := os.Open(path)
	if err != nil {
		return false, fmt.Errorf("%w: %w", errUsage, err)
	}
	defer file.Close()
	recorded, err := reports.ReadReplay(file)
	if err != nil {
		return false, fmt.Errorf("%w: %w", errUsage, err)
	}
	run, err := recorded.Again()
	var difference *journal.Difference
	if errors.As(err, &difference) {
		return false, fmt.Errorf("%w: %w", errDiffers, err)
	} else if err != nil {
		return false, err
	}
	if hash := run.Journal.Hash(); recorded.Hash != "" && hash != recorded.Hash {
		return false, fmt.Errorf("%w: the file says its hash is %s; its journal has %s: the file was changed", errDiffers, recorded.Hash, hash)
	}
	if shown, err := look.show(out, run); shown || err != nil {
		return err == nil, err
	}
	summary := reports.Summarize(run)
	compared := "the steps are not recorded, so that nothing is compared"
	if recorded.Hash != "" {
		compared = fmt.Sprintf("all %d steps are the same", run.Journal.Steps())
	}
	fmt.Fprintf(out, "replayed %s, seed %d: %s\n\n", strings.Trim(summary.Scenario+", "+summary.Variant, ", "), recorded.Seed, compared)
	return summary.Holds, summary.WriteText(out)
}

// sweepResult is the result of many runs, for machines.
type sweepResult struct {
	Scenario  string             `json:"scenario"`
	Variants  []string           `json:"variants"`
	Seeds     [2]uint64          `json:"seeds"` // first and last
	Runs      int                `json:"runs"`
	Steps     int                `json:"steps"`
	Hash      string             `json:"hash"` // over the hashes of all runs, in order
	Failed    int                `json:"failed"`
	Holds     bool               `json:"holds"`
	Schedule  faults.Schedule    `json:"schedule"`
	Reproduce string             `json:"reproduce"`
	First     []*reports.Summary `json:"failures"` // the first few
}

func (s *sweepResult) writeJSON(out io.Writer) error {
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	return encoder.Encode(s)
}
