package engine_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/fencepost-sim/fencepost/engine"
	"github.com/fencepost-sim/fencepost/faults"
	"github.com/fencepost-sim/fencepost/internal/document"
	"github.com/fencepost-sim/fencepost/sim"
	"github.com/fencepost-sim/fencepost/sim/journal"
)

// awayFor lets the only worker of a group die after a minute and come back later, publishes an event meanwhile, and returns what was reported.
func awayFor(t *testing.T, away, retention time.Duration) (reports []string, handled int, w *sim.World) {
	t.Helper()
	w, err := sim.New(sim.Config{Limit: time.Hour, Plan: faults.Plan{Faults: []faults.Fault{{
		Kind: faults.Crash, Process: "worker", Point: string(engine.PointReconcileScan), Position: faults.After, Occurrence: 20, Span: away,
	}}}})
	if err != nil {
		t.Fatal(err)
	}
	options := engine.Options{ConsumerGroup: "billing", EventRetention: retention}
	w.Add("worker", func(ctx context.Context, p *sim.Process) error {
		eng, err := p.Open(ctx, options)
		if err != nil {
			return err
		}
		_, err = sim.Subscribe(ctx, p, eng, orders, engine.SubscribeOptions{OffsetReset: engine.Earliest}, handle)
		return err
	})
	w.Add("publisher", func(ctx context.Context, p *sim.Process) error {
		eng, err := p.Open(ctx, options)
		if err == nil {
			err = p.Sleep(ctx, 2*time.Minute)
		}
		if err == nil {
			_, err = orders.Publish(ctx, eng, 1)
		}
		return err
	})
	for _, event := range w.Run().Events {
		switch event.Kind {
		case journal.ErrorReported:
			reports = append(reports, event.Error)
		case journal.HandlerEnded:
			handled++
		}
	}
	return reports, handled, w
}

func TestAGroupThatWasAwayForLongerThanEventsAreKeptIsTold(t *testing.T) {
	reports, handled, w := awayFor(t, 20*time.Minute, 5*time.Minute)
	if handled != 0 || len(reports) != 1 || !strings.Contains(reports[0], "from 2026-01-01T00:00:") ||
		!strings.Contains(reports[0], "may have expired before group billing has seen them") {
		t.Errorf("%d handled, reported %q", handled, reports)
	}
	stored := w.Model().Documents(sim.Database, "orionjs.pulse.subscriptions")
	if !document.Has(stored[0], "undiscovered") {
		t.Errorf("stored is %v", stored)
	}
}

func TestAGroupThatWasAwayForLessIsToldNothing(t *testing.T) {
	if reports, handled, _ := awayFor(t, 3*time.Minute, 5*time.Minute); handled != 1 || len(reports) != 0 {
		t.Errorf("%d handled, reported %q", handled, reports)
	}
}
