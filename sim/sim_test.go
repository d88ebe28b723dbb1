package sim_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fencepost-sim/fencepost/engine"
	"github.com/fencepost-sim/fencepost/faults"
	"github.com/fencepost-sim/fencepost/sim"
	"github.com/fencepost-sim/fencepost/sim/journal"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var orders = engine.NewTopic[int]("order.created")

// world runs one worker and one publisher with the handler, and returns the journal.
func world(t *testing.T, config sim.Config, options engine.SubscribeOptions, handler func(*sim.Process) engine.Handler[int]) *journal.Journal {
	t.Helper()
	if config.Limit == 0 {
		config.Limit = 2 * time.Minute
	}
	w, err := sim.New(config)
	if err != nil {
		t.Fatal(err)
	}
	options.OffsetReset = engine.Earliest
	w.Add("worker", func(ctx context.Context, p *sim.Process) error {
		eng, err := p.Open(ctx, engine.Options{ConsumerGroup: "billing", Workers: 2})
		if err != nil {
			return err
		}
		_, err = sim.Subscribe(ctx, p, eng, orders, options, handler(p))
		return err
	})
	published := false
	w.Add("publisher", func(ctx context.Context, p *sim.Process) error {
		eng, err := p.Open(ctx, engine.Options{ConsumerGroup: "billing"})
		if err != nil || published {
			return err
		}
		if err := p.Sleep(ctx, time.Second); err != nil { // until the worker listens
			return err
		}
		_, err = orders.Publish(ctx, eng, 7)
		published = err == nil
		return err
	})
	return w.Run()
}

func quiet(*sim.Process) engine.Handler[int] {
	return func(context.Context, engine.Event[int]) error { return nil }
}

func count(j *journal.Journal, kind journal.Kind) (n int) {
	for _, event := range j.Events {
		if event.Kind == kind {
			n++
		}
	}
	return n
}

// attempts returns the final status or error code of each attempt, in the order of creation.
func attempts(j *journal.Journal) (results []string) {
	for _, document := range j.At(-1).Documents("orionjs.pulse.history") {
		result := ""
		for _, field := range document {
			if field.Key == "status" && result == "" {
				result, _ = field.Value.(string)
			}
			if field.Key == "error" {
				result = fmt.Sprint(field.Value)
			}
		}
		results = append(results, result)
	}
	return results
}

func TestTheSameSeedGivesTheSameJournalAtAnyGOMAXPROCS(t *testing.T) {
	config := sim.Config{Seed: 42, Plan: faults.Plan{Schedule: faults.Slow}}
	want := world(t, config, engine.SubscribeOptions{}, quiet)
	for _, procs := range []int{1, 2, 8} {
		previous := runtime.GOMAXPROCS(procs)
		got := world(t, config, engine.SubscribeOptions{}, quiet)
		runtime.GOMAXPROCS(previous)
		if err := got.Compare(want.Lines()); err != nil {
			t.Errorf("GOMAXPROCS %d: %v", procs, err)
		}
	}
}

func TestDifferentSeedsGiveDifferentSchedules(t *testing.T) {
	seen := map[string]bool{}
	for seed := range uint64(20) {
		j := world(t, sim.Config{Seed: seed, Plan: faults.Plan{Schedule: faults.Seeded}}, engine.SubscribeOptions{}, quiet)
		seen[j.Hash()] = true
	}
	if len(seen) != 20 {
		t.Errorf("20 seeds gave %d journals", len(seen))
	}
}

func TestALeakOfDeterminismIsFoundAndItsFirstStepIsNamed(t *testing.T) {
	leak := 0
	handler := func(*sim.Process) engine.Handler[int] {
		return func(ctx context.Context, _ engine.Event[int]) error {
			leak++ // outlives the run: what a clock or a global random source would be
			return sim.Effect(ctx, "leak", fmt.Sprint(leak))
		}
	}
	first := world(t, sim.Config{}, engine.SubscribeOptions{}, handler)
	second := world(t, sim.Config{}, engine.SubscribeOptions{}, handler)
	var difference *journal.Difference
	if err := second.Compare(first.Lines()); !errors.As(err, &difference) {
		t.Fatalf("got %v, want a difference", err)
	}
	leaked := first.Events[difference.Index]
	if leaked.Kind != journal.EffectPerformed || difference.Step != leaked.Step {
		t.Errorf("the difference is at %v, step %d; want the leaking effect", leaked.Kind, difference.Step)
	}
	if !strings.Contains(difference.Error(), fmt.Sprintf("differ at step %d", leaked.Step)) {
		t.Errorf("the message does not name the step: %v", difference)
	}
}

func TestWorldsShareNothingAndRunInParallel(t *testing.T) {
	want := world(t, sim.Config{Seed: 3}, engine.SubscribeOptions{}, quiet).Hash()
	for range 4 {
		t.Run("world", func(t *testing.T) {
			t.Parallel()
			if got := world(t, sim.Config{Seed: 3}, engine.SubscribeOptions{}, quiet).Hash(); got != want {
				t.Errorf("hash %s, want %s", got, want)
			}
		})
	}
}

func TestTheDeadDoNotWrite(t *testing.T) {
	plan := faults.Plan{Faults: []faults.Fault{{Kind: faults.Crash, Process: "worker", Point: sim.PointEffect, Position: faults.Before, Occurrence: 1}}}
	deferred := 0
	j := world(t, sim.Config{Plan: plan, Limit: time.Minute}, engine.SubscribeOptions{}, func(p *sim.Process) engine.Handler[int] {
		return func(ctx context.Context, _ engine.Event[int]) (err error) {
			defer func() {
				deferred++
				_ = sim.Effect(ctx, "from the grave", "x")
			}()
			return sim.Effect(ctx, "charge", "x")
		}
	})
	if deferred != 1 {
		t.Errorf("deferred functions ran %d times, want once", deferred)
	}
	if n := count(j, journal.EffectPerformed); n != 0 {
		t.Errorf("%d effects, want none", n)
	}
	died := false
	for _, event := range j.Events {
		died = died || event.Kind == journal.ProcessDied
		if died && event.Process == 1 && event.Kind != journal.ProcessDied {
			t.Errorf("after its death the worker did: %s", j.Line(&event))
		}
	}
}

func TestAHandlerThatEndsItsGoroutineIsAFailedAttempt(t *testing.T) {
	j := world(t, sim.Config{}, engine.SubscribeOptions{MaxRetries: engine.NoRetries}, func(*sim.Process) engine.Handler[int] {
		return func(context.Context, engine.Event[int]) error {
			runtime.Goexit()
			return nil
		}
	})
	results := attempts(j)
	if len(results) != 1 || !strings.Contains(results[0], engine.CodeHandlerError) || !strings.Contains(results[0], "Goexit") {
		t.Errorf("attempts: %v, want one handler_error that tells of Goexit", results)
	}
	if last := j.Events[len(j.Events)-1]; last.Name != sim.EndedClosed {
		t.Errorf("the run ended with %q", last.Name)
	}
}

type hostile struct{}

func (hostile) Error() string { panic(hostile{}) }

func TestHostileErrorsAndPanicsAreRecorded(t *testing.T) {
	var none *nilError
	for name, fail := range map[string]func() error{
		"panic with a string":        func() error { panic("boom") },
		"panic with nil":             func() error { panic(nil) },
		"panic with a hostile value": func() error { panic(hostile{}) },
		"error whose Error panics":   func() error { return hostile{} },
		"typed nil error":            func() error { return none },
		"huge error":                 func() error { return errors.New(strings.Repeat("é", 9_000_000)) },
		"not UTF-8":                  func() error { return errors.New("\xff\xfe") },
	} {
		t.Run(name, func(t *testing.T) {
			j := world(t, sim.Config{}, engine.SubscribeOptions{MaxRetries: engine.NoRetries}, func(*sim.Process) engine.Handler[int] {
				return func(context.Context, engine.Event[int]) error { return fail() }
			})
			results := attempts(j)
			if len(results) != 1 || !strings.Contains(results[0], engine.CodeHandlerError) {
				t.Errorf("attempts: %.300v, want one handler_error", results)
			}
			if len(results) == 1 && len(results[0]) > 8192 {
				t.Errorf("the error record has %d bytes", len(results[0]))
			}
		})
	}
}

type nilError struct{ text string }

func (e *nilError) Error() string { return e.text }

func TestAPanickingOnErrorChangesNothing(t *testing.T) {
	plan := faults.Plan{Faults: []faults.Fault{{Kind: faults.FailWatch, Process: "worker", Occurrence: 1, Count: 1}}}
	w, err := sim.New(sim.Config{Plan: plan, Limit: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	w.Add("worker", func(ctx context.Context, p *sim.Process) error {
		eng, err := p.Open(ctx, engine.Options{
			ConsumerGroup: "billing", OnError: func(error) { panic("OnError") },
		})
		if err != nil {
			return err
		}
		_, err = sim.Subscribe(ctx, p, eng, orders, engine.SubscribeOptions{OffsetReset: engine.Earliest}, quiet(p))
		if err == nil {
			err = p.Sleep(ctx, time.Second)
		}
		if err == nil {
			_, err = orders.Publish(ctx, eng, 7)
		}
		return err
	})
	j := w.Run()
	reported := count(j, journal.ErrorReported)
	if reported != 1 {
		t.Errorf("%d errors were reported, want that of the broken stream", reported)
	}
	if results := attempts(j); len(results) != 1 || results[0] != "success" {
		t.Errorf("attempts: %v", results)
	}
}

func TestEveryFaultOfTheCatalogueStrikesAndShows(t *testing.T) {
	for _, entry := range faults.Catalogue {
		t.Run(string(entry.Kind), func(t *testing.T) {
			fault := faults.Fault{Kind: entry.Kind, Process: "worker", Occurrence: 1}
			if entry.Stream {
				fault.Count = 1
			} else {
				fault.Point, fault.Position = string(engine.PointEventRead), entry.Positions[0]
			}
			if entry.Span != "" {
				fault.Span = 5 * time.Second
			}
			plan := faults.Plan{Faults: []faults.Fault{fault}}
			j := world(t, sim.Config{Plan: plan}, engine.SubscribeOptions{}, quiet)
			if n := count(j, journal.FaultStruck) + count(j, journal.Withheld); n != 1 {
				t.Errorf("it struck %d times, want once", n)
			}
			if results := attempts(j); len(results) == 0 || results[len(results)-1] != "success" {
				t.Errorf("attempts: %v; the last must be a success", results)
			}
			healthy := world(t, sim.Config{}, engine.SubscribeOptions{}, quiet)
			if healthy.Hash() == j.Hash() {
				t.Error("the journal is that of a run without the fault")
			}
		})
	}
}

func TestFrozenProcessesDoNothingUntilTheyThaw(t *testing.T) {
	plan := faults.Plan{Faults: []faults.Fault{{
		Kind: faults.Freeze, Process: "worker", Point: sim.PointEffect, Position: faults.Before, Occurrence: 1, Span: 20 * time.Second,
	}}}
	j := world(t, sim.Config{Plan: plan}, engine.SubscribeOptions{}, func(*sim.Process) engine.Handler[int] {
		return func(ctx context.Context, event engine.Event[int]) error { return sim.Effect(ctx, "charge", event.ID) }
	})
	frozen := false
	for _, event := range j.Events {
		switch event.Kind {
		case journal.ProcessFrozen:
			frozen = true
		case journal.ProcessThawed:
			if frozen = false; event.Time != 21*time.Second {
				t.Errorf("thawed at %v, want 21s", event.Time)
			}
		default:
			if frozen && event.Process == 1 {
				t.Errorf("while frozen the worker did: %s", j.Line(&event))
			}
		}
	}
	if n := count(j, journal.ProcessThawed); n != 1 {
		t.Errorf("thawed %d times", n)
	}
}

func TestThePanicOfAHandlerIsRecordedAlikeInEveryRun(t *testing.T) {
	run := func() *journal.Journal {
		return world(t, sim.Config{}, engine.SubscribeOptions{MaxRetries: engine.NoRetries}, func(*sim.Process) engine.Handler[int] {
			return func(context.Context, engine.Event[int]) error { panic("boom") }
		})
	}
	first, again := run(), run()
	if err := again.Compare(first.Lines()); err != nil {
		t.Error(err)
	}
	text := strings.Join(first.Lines(), "\n")
	if !strings.Contains(text, "sim_test.go:") || strings.Contains(text, "goroutine") {
		t.Error("the stack does not name the line that panicked, or names a goroutine")
	}
}

func TestABusyLoopEndsAtTheStepLimit(t *testing.T) {
	w, err := sim.New(sim.Config{MaxSteps: 1000})
	if err != nil {
		t.Fatal(err)
	}
	w.Add("spinner", func(ctx context.Context, p *sim.Process) error {
		for {
			if err := p.Sleep(ctx, 0); err != nil {
				return err
			}
		}
	})
	j := w.Run()
	if last := j.Events[len(j.Events)-1]; last.Kind != journal.RunEnded || last.Name != sim.EndedStepLimit {
		t.Errorf("the run ended with %q", last.Name)
	}
}

func TestEffectAndSleepOutsideAHandlerSaySo(t *testing.T) {
	if err := sim.Effect(context.Background(), "charge", "x"); !errors.Is(err, sim.ErrNotInHandler) {
		t.Errorf("Effect: %v", err)
	}
	if err := sim.Sleep(context.Background(), time.Second); !errors.Is(err, sim.ErrNotInHandler) {
		t.Errorf("Sleep: %v", err)
	}
}

func TestAPlanThatCannotBeIsRefused(t *testing.T) {
	_, err := sim.New(sim.Config{Plan: faults.Plan{Faults: []faults.Fault{{Kind: "explode"}}}})
	if !errors.Is(err, faults.ErrInvalid) {
		t.Errorf("got %v", err)
	}
}

func TestARunIsNotOverWhileAProcessThatFailedIsToStartAgain(t *testing.T) {
	lives := 0
	w, err := sim.New(sim.Config{Seed: 1, Limit: time.Minute, Done: func(w *sim.World) bool { return w.Mains() == 0 }})
	if err != nil {
		t.Fatal(err)
	}
	w.Add("worker", func(context.Context, *sim.Process) error {
		if lives++; lives == 1 {
			return errors.New("not yet")
		}
		return nil
	})
	w.Run()
	if lives != 2 {
		t.Errorf("%d lives, want 2", lives)
	}
}
