package main

import (
	"bufio"
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"

	"github.com/fencepost-sim/fencepost/explore"
	"github.com/fencepost-sim/fencepost/scenarios"
)

// The command selfcheck looks for leaks of determinism: the same runs, in processes of their own under different settings of the Go runtime, must
// write the same journals.

const selfcheckUsage = `  simrun selfcheck               the same random runs in different processes must have the same journals
      --runs N                   how many (default 200)
      --seed N                   what is drawn (default 1)
      --with FILE                compare also with this build of simrun, for example one made with go build -race
`

// settings are the environments in which the runs are repeated.
var settings = [][]string{
	{"GOMAXPROCS=1"},
	{"GOMAXPROCS=2", "GOGC=5"},
	{"GOMAXPROCS=4", "GOGC=off", "GODEBUG=asyncpreemptoff=1"},
}

// planted is what every run of a child does besides; tests put leaks there.
var planted scenarios.Bug

// witness repeats the runs in a process of its own.
type witness struct {
	binary      string
	environment []string
}

func (w witness) String() string {
	return strings.Join(append([]string{w.binary}, w.environment...), " ")
}

// lines runs the binary and returns what it prints.
func (w witness) lines(arguments ...string) ([]string, error) {
	command := exec.Command(w.binary, arguments...)
	command.Env = append(os.Environ(), w.environment...)
	var problems bytes.Buffer
	command.Stderr = &problems
	out, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %s", w, err, strings.TrimSpace(problems.String()))
	}
	return strings.Split(strings.TrimSpace(string(out)), "\n"), nil
}

func runSelfcheck(args []string, out io.Writer) (holds bool, err error) {
	flags := flag.NewFlagSet("simrun selfcheck", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	runs, seed := 200, uint64(1)
	wholeNumber(flags, "runs", &runs, 1, mostRuns)
	seedNumber(flags, &seed)
	with := flags.String("with", "", "")
	if err := parseFlags(flags, args); err != nil {
		return false, err
	}
	witnesses, err := witnessesFor(*with)
	if err != nil {
		return false, err
	}
	var hashes [][]string
	for _, w := range witnesses {
		seen, err := w.lines("testify", "hashes", strconv.FormatUint(seed, 10), strconv.Itoa(runs))
		if err != nil {
			return false, err
		}
		hashes = append(hashes, seen)
		for run := range hashes[0] {
			if run >= len(seen) || seen[run] != hashes[0][run] {
				return false, differing(out, witnesses[0], w, seed, run)
			}
		}
	}
	_, err = fmt.Fprintf(out, "selfcheck, seed %d: %d runs in %d processes, no difference\n", seed, runs, len(witnesses))
	return true, err
}

func witnessesFor(other string) (witnesses []witness, err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	binaries := []string{self}
	if other != "" {
		if _, err := os.Stat(other); err != nil {
			return nil, fmt.Errorf("%w: --with: %w", errUsage, err)
		}
		binaries = append(binaries, other)
	}
	for _, binary := range binaries {
		for _, environment := range settings {
			witnesses = append(witnesses, witness{binary, environment})
		}
	}
	return witnesses, nil
}

// differing says at which step two processes go different ways.
func differing(out io.Writer, a, b witness, seed uint64, run int) error {
	arguments := []string{"testify", "journal", strconv.FormatUint(seed, 10), strconv.Itoa(run)}
	one, errOne := a.lines(arguments...)
	other, errOther := b.lines(arguments...)
	if err := errors.Join(errOne, errOther); err != nil {
		return err
	}
	fmt.Fprintf(out, "run %d of seed %d is not the same in\n  %s\n  %s\n", run, seed, a, b)
	for i := range max(len(one), len(other)) {
		left, right := line(one, i), line(other, i)
		if left != right {
			fmt.Fprintf(out, "first difference, line %d of the journal:\n  %s\n  %s\n", i+1, left, right)
			return nil
		}
	}
	fmt.Fprintln(out, "when they were run again for comparing, they were the same: what leaks is rare")
	return nil
}

func line(lines []string, i int) string {
	if i < len(lines) {
		return lines[i]
	}
	return "(the journal ends)"
}

// testify is what a child does: it prints the hash of each run, or the journal of one.
func testify(args []string, out io.Writer) error {
	if len(args) != 3 {
		return fmt.Errorf("%w: %q", errUsage, args)
	}
	seed, errSeed := strconv.ParseUint(args[1], 10, 64)
	n, errNumber := strconv.Atoi(args[2])
	if err := errors.Join(errSeed, errNumber); err != nil {
		return fmt.Errorf("%w: %w", errUsage, err)
	}
	w := bufio.NewWriter(out)
	random := explore.Random{Seed: seed}
	if args[0] == "journal" {
		run, err := random.Case(n).Run(planted)
		if err != nil {
			return err
		}
		for _, line := range run.Journal.Lines() {
			fmt.Fprintln(w, line)
		}
		return w.Flush()
	}
	hashes := make([]string, n)
	err := explore.Each(n, func(i int) error {
		run, err := random.Case(i).Run(planted)
		if err == nil {
			hashes[i] = run.Journal.Hash()
		}
		return err
	})
	fmt.Fprintln(w, strings.Join(hashes, "\n"))
	return errors.Join(err, w.Flush())
}
