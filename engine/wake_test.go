package engine_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/fencepost-sim/fencepost/engine"
	"github.com/fencepost-sim/fencepost/faults"
	"github.com/fencepost-sim/fencepost/sim"
	"github.com/fencepost-sim/fencepost/sim/journal"
)

// starts runs a process that consumes, and publishes one event 10 s later from the process with the name publisher, which may be
// the same. It returns how long after the publication each handler started.
func starts(t *testing.T, publisher string, streams engine.ChangeStreams, options engine.SubscribeOptions, handler engine.Handler[int]) (delays []time.Duration) {
	t.Helper()
	w, err := sim.New(sim.Config{Limit: 5 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	publish := func(ctx context.Context, p *sim.Process, eng *engine.Engine) error {
		if err := p.Sleep(ctx, 10*time.Second); err != nil {
			return err
		}
		_, err := orders.Publish(ctx, eng, 1)
		return err
	}
	settings := engine.Options{ConsumerGroup: "billing", ChangeStreams: streams, PollInterval: 7 * time.Second}
	w.Add("consumer", func(ctx context.Context, p *sim.Process) error {
		eng, err := p.Open(ctx, settings)
		if err != nil {
			return err
		}
		if _, err := sim.Subscribe(ctx, p, eng, orders, options, handler); err != nil || publisher != "consumer" {
			return err
		}
		return publish(ctx, p, eng)
	})
	if publisher != "consumer" {
		w.Add(publisher, func(ctx context.Context, p *sim.Process) error {
			eng, err := p.Open(ctx, settings)
			if err != nil {
				return err
			}
			return publish(ctx, p, eng)
		})
	}
	for _, event := range w.Run().Events {
		if event.Kind == journal.HandlerStarted {
			delays = append(delays, event.Time-10*time.Second)
		}
	}
	return delays
}

func TestWhatWakesAnEventUp(t *testing.T) {
	for _, c := range []struct {
		name      string
		publisher string
		streams   engine.ChangeStreams
		want      time.Duration
	}{
		{"a publication in the same process", "consumer", engine.ChangeStreamsDisabled, 0},
		{"a change stream", "publisher", engine.ChangeStreamsRequired, 0},
		{"polling, with nothing else", "publisher", engine.ChangeStreamsDisabled, 4 * time.Second}, // polls at 7 s and 14 s
	} {
		t.Run(c.name, func(t *testing.T) {
			delays := starts(t, c.publisher, c.streams, engine.SubscribeOptions{}, handle)
			if len(delays) != 1 || delays[0] != c.want {
				t.Errorf("started after %v, want %v", delays, c.want)
			}
		})
	}
}

func TestARetryDoesNotWaitForAPoll(t *testing.T) {
	fails := 0
	delays := starts(t, "consumer", engine.ChangeStreamsDisabled, engine.SubscribeOptions{RetryDelay: 100 * time.Millisecond},
		func(context.Context, engine.Event[int]) error {
			if fails++; fails < 4 {
				return errors.New("not yet")
			}
			return nil
		})
	want := []time.Duration{0, 100 * time.Millisecond, 300 * time.Millisecond, 700 * time.Millisecond}
	if len(delays) != len(want) {
		t.Fatalf("started after %v, want %v", delays, want)
	}
	for i := range want {
		if delays[i] != want[i] {
			t.Errorf("started after %v, want %v", delays, want)
		}
	}
}

// oneMinute runs a world of one process that publishes an event, and whose handler takes a minute under a lease of 30 s.
func oneMinute(t *testing.T, config sim.Config) *journal.Journal {
	t.Helper()
	config.Limit = 5 * time.Minute
	w, err := sim.New(config)
	if err != nil {
		t.Fatal(err)
	}
	w.Add("process", func(ctx context.Context, p *sim.Process) error {
		eng, err := p.Open(ctx, engine.Options{ConsumerGroup: "billing", LockTimeout: 30 * time.Second})
		if err != nil {
			return err
		}
		_, err = sim.Subscribe(ctx, p, eng, orders, engine.SubscribeOptions{}, func(ctx context.Context, _ engine.Event[int]) error {
			return sim.Sleep(ctx, time.Minute)
		})
		if err == nil {
			_, err = orders.Publish(ctx, eng, 1)
		}
		return err
	})
	return w.Run()
}

func TestAHandlerIsToldAtItsNextHeartbeatThatItsLeaseIsGone(t *testing.T) {
	unlock := faults.Fault{
		Kind: faults.Unlock, Process: "process", Point: sim.PointHandlerStart, Position: faults.After, Occurrence: 1,
	}
	for _, event := range oneMinute(t, sim.Config{Plan: faults.Plan{Faults: []faults.Fault{unlock}}}).Events {
		if event.Kind == journal.HandlerCancelled {
			if event.Time != 10*time.Second || !strings.Contains(event.Error, engine.ErrLeaseLost.Error()) {
				t.Errorf("told at %v: %s; want the lost lease at the first heartbeat, after 10 s", event.Time, event.Error)
			}
			return
		}
	}
	t.Error("the handler was not told")
}

func TestABrokenStreamIsOpenedAgainAfterThePollInterval(t *testing.T) {
	broken := faults.Fault{Kind: faults.FailWatch, Process: "consumer", Occurrence: 1, Count: 1}
	w, err := sim.New(sim.Config{Limit: time.Minute, Plan: faults.Plan{Faults: []faults.Fault{broken}}})
	if err != nil {
		t.Fatal(err)
	}
	settings := engine.Options{ConsumerGroup: "billing", PollInterval: 7 * time.Second}
	w.Add("consumer", func(ctx context.Context, p *sim.Process) error {
		eng, err := p.Open(ctx, settings)
		if err == nil {
			_, err = sim.Subscribe(ctx, p, eng, orders, engine.SubscribeOptions{Unordered: true}, handle)
		}
		return err
	})
	w.Add("publisher", func(ctx context.Context, p *sim.Process) error {
		eng, err := p.Open(ctx, settings)
		for _, wait := range []time.Duration{time.Second, 7500 * time.Millisecond} { // the stream is opened at 8 s; polls are at 7 s and 14 s
			if err == nil {
				err = p.Sleep(ctx, wait)
			}
			if err == nil {
				_, err = orders.Publish(ctx, eng, 1)
			}
		}
		return err
	})
	var started []time.Duration
	for _, event := range w.Run().Events {
		if event.Kind == journal.HandlerStarted {
			started = append(started, event.Time)
		}
	}
	if len(started) != 2 || started[1] != 8500*time.Millisecond {
		t.Errorf("the handlers started at %v; want the second at once, at 8.5s", started)
	}
}
