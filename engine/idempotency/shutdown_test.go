package idempotency_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencepost-sim/fencepost/engine/idempotency"
	"github.com/fencepost-sim/fencepost/engine/idempotency/idemtest"
)

func TestR01InitIsTheWholeBootstrapAndArmsTheSweeper(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &idemtest.Memory{}
		dies(t, store, idempotency.Reexecute)
		g, err := idempotency.Init(t.Context(), idempotency.Config{Store: store})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(7 * time.Minute) // more than 5 minutes and a fifth
		if store.Len() != 0 || g.Stats().Sweep.Released != 1 {
			t.Errorf("the stale claim is still there: %+v", g.Stats().Sweep)
		}
		if err := g.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestR02TheSweeperCanBeSwitchedOffAndTuned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &idemtest.Memory{}
		dies(t, store, idempotency.Reexecute)
		off := open(t, idempotency.Config{Store: store, DisableSweeper: true})
		time.Sleep(time.Hour)
		if store.Len() != 1 || off.Stats().Sweep.Passes != 0 {
			t.Errorf("a switched-off sweeper swept: %+v", off.Stats().Sweep)
		}
		tuned := open(t, idempotency.Config{Store: store, Sweeper: idempotency.SweeperConfig{
			Interval: time.Second, IntervalJitterRatio: idempotency.Exact, BatchSize: 1, MaxBatchesPerPass: 1,
		}})
		time.Sleep(1500 * time.Millisecond)
		if store.Len() != 0 || tuned.Stats().Sweep.Passes != 1 {
			t.Errorf("after an interval: %+v", tuned.Stats().Sweep)
		}
	})
}

func TestR03ShutdownStopsTheSweeperReleasesItsLeaseAndWaitsForRunningCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := &idemtest.Memory{}
		store := &idemtest.Failing{Store: memory}
		g, err := idempotency.Init(t.Context(), idempotency.Config{Store: store})
		if err != nil {
			t.Fatal(err)
		}
		finished := make(chan idempotency.Outcome, 1)
		go func() {
			_, outcome, err := do(t, g, func(ctx context.Context) (int, error) {
				time.Sleep(2 * time.Minute) // heartbeats go on during the shutdown
				return 1, ctx.Err()
			})
			if err != nil {
				t.Errorf("the running call was cut off: %v", err)
			}
			finished <- outcome
		}()
		synctest.Wait()
		short, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := g.Shutdown(short); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a bounded shutdown returned %v", err)
		}
		if _, _, err := do(t, g, func(context.Context) (int, error) { return 0, nil }); !errors.Is(err, idempotency.ErrClosed) {
			t.Errorf("a call after shutdown: %v", err)
		}
		for range 2 {
			if err := g.Shutdown(t.Context()); err != nil {
				t.Error(err)
			}
		}
		if outcome := <-finished; !outcome.Stored {
			t.Errorf("%+v", outcome)
		}
		turn, err := memory.SweepTurn(t.Context(), idempotency.SweepRequest{Lease: time.Minute})
		if err != nil || !turn.Held {
			t.Errorf("the sweeper's lease was not released: %+v, %v", turn, err)
		}
	})
}

// slowSweep lets a pass be under way when the guard is shut down.
type slowSweep struct{ *idemtest.Memory }

func (s slowSweep) Sweep(ctx context.Context, cursor idempotency.Cursor, limit int) (idempotency.SweepPage, error) {
	select {
	case <-time.After(10 * time.Second):
		return s.Memory.Sweep(ctx, cursor, limit)
	case <-ctx.Done():
		return idempotency.SweepPage{}, context.Cause(ctx)
	}
}

func TestR03ShutdownInTheMiddleOfAPassReleasesTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := &idemtest.Memory{}
		g, err := idempotency.Init(t.Context(), idempotency.Config{Store: slowSweep{memory}, Sweeper: idempotency.SweeperConfig{
			Interval: time.Minute, IntervalJitterRatio: idempotency.Exact,
		}})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute + time.Second)
		if turn, err := memory.SweepTurn(t.Context(), idempotency.SweepRequest{Token: idempotency.Token{1}, Lease: time.Minute}); err != nil || turn.Held {
			t.Fatalf("no pass is under way: %+v, %v", turn, err)
		}
		began := time.Now()
		if err := g.Shutdown(t.Context()); err != nil || time.Since(began) != 0 {
			t.Errorf("shutdown took %v: %v", time.Since(began), err)
		}
		if turn, err := memory.SweepTurn(t.Context(), idempotency.SweepRequest{Token: idempotency.Token{1}, Lease: time.Minute}); err != nil || !turn.Held {
			t.Errorf("the lease was not released: %+v, %v", turn, err)
		}
	})
}
