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
const replayVersion = "fencepost-replay 1"

// ErrReplayFile is wrapped by every error about a replay file that cannot be read.
var ErrReplayFile = errors.New("reports: replay file")

// Replay is a recorded run: everything that it is made of, and its journal.
type Replay struct {
	Scenario string
	Variant  scenarios.Variant
	Guard    scenarios.Guard // that replaced the scenario's own; empty if none did
	Seed     uint64
	Plan     faults.Plan
	Hash     string
	Lines    []string // the journal in its stable encoding
}

// NewReplay records a run of a scenario.
func NewReplay(run *scenarios.Run) *Replay {
	return &Replay{
		Scenario: run.Scenario.Name, Variant: run.Variant, Guard: run.Guard, Seed: run.Seed, Plan: run.Plan,
		Hash: run.Journal.Hash(), Lines: run.Journal.Lines(),
	}
}

// Write writes the file.
func (r *Replay) Write(out io.Writer) error {
	w := bufio.NewWriter(out)
	guard := ""
	if r.Guard != "" {
		guard = fmt.Sprintf("guard %s\n", r.Guard)
	}
	fmt.Fprintf(w, "%s\nscenario %s\nvariant %s\n%sseed %d\nhash %s\n%sjournal\n",
		replayVersion, r.Scenario, r.Variant, guard, r.Seed, r.Hash, r.Plan)
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
	for number := 2; scanner.Scan(); number++ {
		if scanner.Text() == "journal" {
			break
		}
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
	if r.Scenario == "" || r.Variant == (scenarios.Variant{}) || r.Hash == "" || len(r.Lines) == 0 {
		return nil, fmt.Errorf("%w: it is cut short: scenario, variant, hash and journal are needed", ErrReplayFile)
	}
	return r, nil
}

func (r *Replay) readHeader(line string, plan *strings.Builder) (err error) {
	key, value, _ := strings.Cut(line, " ")
	switch key {
	case "scenario":
		r.Scenario = value
	case "variant":
		r.Variant, err = scenarios.ParseVariant(value)
	case "guard":
		r.Guard, err = scenarios.ParseGuard(value)
	case "seed":
		r.Seed, err = strconv.ParseUint(value, 10, 64)
	case "hash":
		r.Hash = value
	default:
		plan.WriteString(line + "\n")
	}
	return err
}

// Again runs the recorded run again. The error is a *journal.Difference naming the first step at which
// it goes another way.
func (r *Replay) Again() (*scenarios.Run, error) {
	scenario, err := scenarios.Lookup(r.Scenario)
	if err != nil {
		return nil, err
	}
	run, err := scenario.Run(scenarios.Options{Variant: r.Variant, Guard: r.Guard, Seed: r.Seed, Plan: &r.Plan})
	if err != nil {
		return nil, err
	}
	return run, run.Journal.Compare(r.Lines)
}
