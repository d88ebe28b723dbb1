package reports

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/fencepost-sim/fencepost/faults"
	"github.com/fencepost-sim/fencepost/scenarios"
)

// replayVersion is the version of the file. A file of another version is refused, not misread: the journal's encoding and
// the meaning of steps go with it.
const replayVersion = "fencepost-replay 2"

// ErrReplayFile is wrapped by every error about a replay file that cannot be read.
var ErrReplayFile = errors.New("reports: replay file")

// Replay is a recorded run: everything that it is made of, and perhaps its journal.
type Replay struct {
	// Scenario and Variant are what is run; if Scenario is empty, Workload is.
	Scenario string
	Variant  scenarios.Variant
	Workload scenarios.Workload
	Guard    scenarios.Guard   // that replaced the scenario's own; empty if none did
	Through  scenarios.Through // of a scenario; a workload says it itself
	Seed     uint64
	Plan     faults.Plan
	// Hash and Lines are the journal in its stable encoding. Both are empty in a regression, which must hold whatever the steps are.
	Hash  string
	Lines []string
}

// NewReplay records a run with its journal.
func NewReplay(run *scenarios.Run) *Replay {
	r := NewRegression(run)
	r.Hash, r.Lines = run.Journal.Hash(), run.Journal.Lines()
	return r
}

// NewRegression records what a run is made of, without its journal.
func NewRegression(run *scenarios.Run) *Replay {
	r := &Replay{Seed: run.Seed, Plan: run.Plan}
	if run.Scenario != nil {
		r.Scenario, r.Variant, r.Guard, r.Through = run.Scenario.Name, run.Variant, run.Guard, run.Workload.Through
	} else {
		r.Workload = run.Workload
	}
	return r
}

// Write writes the file.
func (r *Replay) Write(out io.Writer) error {
	w := bufio.NewWriter(out)
	fmt.Fprintln(w, replayVersion)
	if r.Scenario != "" {
		fmt.Fprintf(w, "scenario %s\nvariant %s\n", r.Scenario, r.Variant)
		if r.Through != scenarios.ThroughModel {
			fmt.Fprintf(w, "through %s\n", r.Through)
		}
	} else {
		fmt.Fprintf(w, "workload %s\n", r.Workload)
	}
	if r.Guard != "" {
		fmt.Fprintf(w, "guard %s\n", r.Guard)
	}
	fmt.Fprintf(w, "seed %d\n%s", r.Seed, r.Plan)
	if len(r.Lines) > 0 {
		fmt.Fprintf(w, "hash %s\njournal\n", r.Hash)
	}
	for _, line := range r.Lines {
		fmt.Fprintln(w, line)
	}
	return w.Flush()
}

// ReadReplay reads a file that Write wrote. Errors name the line.
func ReadReplay(in io.Reader) (*Replay, error) {
	scanner := bufio.NewScanner(in)
	scanner.Buffer(nil, 64<<20)
	if !scanner.Scan() || scanner.Text() != replayVersion {
		return nil, fmt.Errorf("%w: line 1 is %.60q; allowed: %q", ErrReplayFile, scanner.Text(), replayVersion)
	}
	r := &Replay{}
	var plan strings.Builder
	seen := map[string]bool{}
	for number := 2; scanner.Scan(); number++ {
		if scanner.Text() == "journal" {
			break
		}
		key, _, _ := strings.Cut(scanner.Text(), " ")
		seen[key] = true
		if err := r.readHeader(scanner.Text(), &plan); err != nil {
			return nil, fmt.Errorf("%w: line %d: %w", ErrReplayFile, number, err)
		}
	}
	for scanner.Scan() {
		r.Lines = append(r.Lines, scanner.Text())
	}
	var err error
	if r.Plan, err = faults.Parse(plan.String()); err != nil {
		return nil, fmt.Errorf("%w: plan: %w", ErrReplayFile, err)
	}
	if err := scanner.Err(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrReplayFile, err)
	}
	if (!seen["workload"] && !(seen["scenario"] && seen["variant"])) || !seen["seed"] {
		return nil, fmt.Errorf("%w: it is cut short: scenario and variant, or workload, and a seed are needed", ErrReplayFile)
	}
	if (r.Hash == "") != (len(r.Lines) == 0) {
		return nil, fmt.Errorf("%w: it is cut short: the hash and the journal go together", ErrReplayFile)
	}
	return r, nil
}

func (r *Replay) readHeader(line string, plan *strings.Builder) (err error) {
	key, value, _ := strings.Cut(line, " ")
	switch key {
	case "scenario":
		r.Scenario = value
	case "workload":
		r.Workload, err = scenarios.ParseWorkload(value)
	case "variant":
		r.Variant, err = scenarios.ParseVariant(value)
	case "guard":
		r.Guard, err = scenarios.ParseGuard(value)
	case "through":
		r.Through, err = scenarios.ParseThrough(value)
	case "seed":
		if r.Seed, err = strconv.ParseUint(value, 10, 64); err != nil {
			err = fmt.Errorf("seed %q; allowed: a whole number from 0 to 18446744073709551615", value)
		}
	case "hash":
		r.Hash = value
	default:
		plan.WriteString(line + "\n")
	}
	return err
}

// Again runs the recorded run again. The error is a *journal.Difference naming the first step at which
// it goes another way than the recorded journal, if there is one.
func (r *Replay) Again() (*scenarios.Run, error) {
	run, err := r.run()
	if err != nil || len(r.Lines) == 0 {
		return run, err
	}
	return run, run.Journal.Compare(r.Lines)
}

func (r *Replay) run() (*scenarios.Run, error) {
	if r.Scenario == "" {
		return r.Workload.Run(r.Plan, r.Seed, scenarios.Bug{})
	}
	scenario, err := scenarios.Lookup(r.Scenario)
	if err != nil {
		return nil, err
	}
	return scenario.Run(scenarios.Options{Variant: r.Variant, Guard: r.Guard, Seed: r.Seed, Plan: &r.Plan, Through: r.Through})
}
