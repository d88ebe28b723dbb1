package main

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"sync"

	"github.com/fencepost-sim/fencepost/properties"
	"github.com/fencepost-sim/fencepost/reports"
	"github.com/fencepost-sim/fencepost/scenarios"
)

// shownFailures is how many failed runs a sweep describes.
const shownFailures = 3

// finished is one run of a sweep.
type finished struct {
	index  int
	hash   string
	steps  int
	failed *scenarios.Run
	err    error
}

// sweep runs every variant with every seed, a world on each core, and reads the results in order, so that
// what it prints does not depend on the number of cores.
func (r *request) sweep(out, problems io.Writer) (holds bool, err error) {
	result := &sweepResult{
		Scenario: r.scenario.Name, Seeds: [2]uint64{r.seed, r.seed + uint64(r.runs) - 1}, Schedule: r.schedule, First: []*reports.Summary{},
		Reproduce: r.commandLine(),
	}
	for _, variant := range r.variants {
		result.Variants = append(result.Variants, variant.String())
	}
	total := r.runs * len(r.variants)
	progress := newProgress(problems, total)
	digest := sha256.New()
	var first *scenarios.Run
	for one := range r.inOrder(total) {
		if one.err != nil {
			return false, one.err
		}
		result.Runs++
		result.Steps += one.steps
		io.WriteString(digest, one.hash)
		if one.failed != nil {
			result.Failed++
			if len(result.First) < shownFailures {
				result.First = append(result.First, reports.Summarize(one.failed))
			}
			if first == nil {
				first = one.failed
			}
		}
		progress.show(result.Runs, result.Failed)
	}
	progress.clear()
	result.Holds = result.Failed == 0
	result.Hash = hex.EncodeToString(digest.Sum(nil))
	if first != nil {
		if err := r.saveRun(first); err != nil {
			return false, err
		}
	}
	if r.json {
		return result.Failed == 0, result.writeJSON(out)
	}
	return result.Failed == 0, result.writeText(out)
}

// commandLine repeats the sweep.
func (r *request) commandLine() string {
	variant := "all"
	if len(r.variants) == 1 {
		variant = r.variants[0].String()
	}
	return fmt.Sprintf("go run ./cmd/simrun --scenario %s --variant %s --seed %d --runs %d --schedule %s", r.scenario.Name, variant, r.seed, r.runs, r.schedule)
}

// window is how many runs may be ahead of the one that is read next.
const window = 1024

// inOrder starts a worker on each core and yields the runs in the order of variant and seed.
func (r *request) inOrder(total int) func(yield func(finished) bool) {
	return func(yield func(finished) bool) {
		order := make(chan chan finished, window)
		jobs := make(chan job)
		stop := make(chan struct{})
		var group sync.WaitGroup
		for range runtime.GOMAXPROCS(0) {
			group.Go(func() {
				for next := range jobs {
					next.done <- r.one(next.index)
				}
			})
		}
		group.Go(func() {
			defer close(jobs)
			for i := range total {
				done := make(chan finished, 1)
				select {
				case order <- done:
				case <-stop:
					return
				}
				select {
				case jobs <- job{i, done}:
				case <-stop:
					return
				}
			}
		})
		defer group.Wait()
		defer close(stop)
		for range total {
			if !yield(<-<-order) {
				return
			}
		}
	}
}

// job is a run to be made, and where to put it.
type job struct {
	index int
	done  chan finished
}

func (r *request) one(index int) finished {
	variant, seed := r.variants[index/r.runs], r.seed+uint64(index%r.runs)
	run, err := r.run(variant, seed)
	if err != nil {
		return finished{index: index, err: err}
	}
	result := finished{index: index, hash: run.Journal.Hash(), steps: run.Journal.Steps()}
	if len(run.Unexpected()) > 0 || len(properties.Violations(run.Journal)) > 0 {
		result.failed = run
	}
	return result
}

func (s *sweepResult) writeText(out io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %d runs (seeds %d to %d of %s), %d steps, %d failed\n",
		s.Scenario, s.Runs, s.Seeds[0], s.Seeds[1], strings.Join(s.Variants, " "), s.Steps, s.Failed)
	if s.Holds {
		fmt.Fprintf(&b, "all properties held in every run, and all came out as the scenario expects\n")
	}
	fmt.Fprintf(&b, "hash of all journals %s\nreproduce %s\n", s.Hash, s.Reproduce)
	for _, failure := range s.First {
		fmt.Fprintf(&b, "\nFAILED %s seed %d\n", failure.Variant, failure.Seed)
		if err := failure.WriteText(&b); err != nil {
			return err
		}
	}
	_, err := io.WriteString(out, b.String())
	return err
}

// progress shows how far a sweep is, on a terminal only.
type progress struct {
	out   io.Writer
	total int
	shown int
}

func newProgress(out io.Writer, total int) *progress {
	file, ok := out.(*os.File)
	if !ok {
		return &progress{}
	}
	info, err := file.Stat()
	if err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return &progress{}
	}
	return &progress{out: out, total: total}
}

func (p *progress) show(done, failed int) {
	if p.out == nil || done*100/p.total == p.shown {
		return
	}
	p.shown = done * 100 / p.total
	fmt.Fprintf(p.out, "\r%3d %%  %d of %d runs, %d failed ", p.shown, done, p.total, failed)
}

func (p *progress) clear() {
	if p.out != nil {
		fmt.Fprintf(p.out, "\r%60s\r", "")
	}
}

// wrap breaks a text into lines.
func wrap(text string, width int) string {
	var b strings.Builder
	length := 0
	for _, word := range strings.Fields(text) {
		if length > 0 && length+1+len(word) > width {
			b.WriteString("\n")
			length = 0
		} else if length > 0 {
			b.WriteString(" ")
			length++
		}
		b.WriteString(word)
		length += len(word)
	}
	return b.String()
}
