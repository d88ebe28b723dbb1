package idempotency_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencepost-sim/fencepost/engine/idempotency"
	"github.com/fencepost-sim/fencepost/engine/idempotency/idemtest"
)

// litter leaves lapsed claims of the dead behind.
func litter(t *testing.T, store idempotency.Store, count int) {
	t.Helper()
	for i := range count {
		_, err := store.Claim(t.Context(), idempotency.Key(fmt.Sprintf("req:dead:%05d", i)), idempotency.ClaimRequest{
			Token: idempotency.Token{byte(i), byte(i >> 8), 1}, Lease: time.Second, TTL: 24 * time.Hour,
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(2 * time.Second)
}

func TestR05TheDefaultIntervalIsFiveMinutesWithAFifthOfJitter(t *testing.T) {
	g := open(t, idempotency.Config{DisableSweeper: true})
	if s := g.Config().Sweeper; s.Interval != 5*time.Minute || s.IntervalJitterRatio != 0.2 {
		t.Errorf("got %+v", s)
	}
}

func TestR06TheCursorPersistsAcrossPassesSoThatEveryStaleKeyIsReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const live, stale, batch, batches = 100, 1000, 10, 7
		store, truncated := &idemtest.Memory{}, 0
		for i := range live { // before the others in the walk, and there to stay: whoever begins anew never comes to the end
			_, err := store.Claim(t.Context(), idempotency.Key(fmt.Sprintf("req:alive:%05d", i)), idempotency.ClaimRequest{
				Token: idempotency.Token{2}, Lease: time.Hour, TTL: 24 * time.Hour,
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		litter(t, store, stale)
		passes := 0
		for store.Len() > live && passes < 1000 {
			// Each pass is another process: the cursor lies in the store, beside the sweeper's lease.
			g := open(t, idempotency.Config{Store: store, DisableSweeper: true, Sweeper: idempotency.SweeperConfig{
				BatchSize: batch, MaxBatchesPerPass: batches, OnTruncated: func(idempotency.SweepStats) { truncated++ },
			}})
			if err := g.Sweep(t.Context()); err != nil {
				t.Fatal(err)
			}
			passes++
		}
		if most := (live + stale + batch*batches - 1) / (batch * batches); passes > most || truncated < passes-1 {
			t.Errorf("%d passes, %d of them truncated; want at most %d passes", passes, truncated, most)
		}
	})
}

func TestR06EveryPassEventuallyWraps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &idemtest.Memory{}
		litter(t, store, 95)
		g := open(t, idempotency.Config{Store: store, DisableSweeper: true, Sweeper: idempotency.SweeperConfig{BatchSize: 10, MaxBatchesPerPass: 4}})
		for range 3 {
			if err := g.Sweep(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if s := g.Stats().Sweep; s.Cycles != 1 || s.Truncated != 2 || s.Released != 95 || s.Matched != 95 {
			t.Errorf("got %+v", s)
		}
	})
}

func TestR08OneSweeperOfAServiceRunsAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &idemtest.Memory{}
		litter(t, store, 5)
		held, err := store.SweepTurn(t.Context(), idempotency.SweepRequest{Token: idempotency.Token{9}, Lease: time.Minute})
		if err != nil || !held.Held {
			t.Fatal(held, err)
		}
		g := open(t, idempotency.Config{Store: store, DisableSweeper: true})
		if err := g.Sweep(t.Context()); err != nil || store.Len() != 5 || g.Stats().Sweep.Skipped != 1 {
			t.Errorf("%v, %+v", err, g.Stats().Sweep)
		}
		time.Sleep(time.Minute) // the other one died
		if err := g.Sweep(t.Context()); err != nil || store.Len() != 0 {
			t.Errorf("%v, %+v", err, g.Stats().Sweep)
		}
	})
}

func TestAFailingPassIsReportedGivesItsTurnBackAndKeepsItsCursor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := &idemtest.Memory{}
		litter(t, memory, 100)
		store := &idemtest.Failing{Store: memory, Script: map[idemtest.Step][]idemtest.Failure{
			idemtest.StepSweep: {idemtest.None, idemtest.None, idemtest.BeforeApply},
		}}
		var reported []error
		g := open(t, idempotency.Config{Store: store, OnError: func(err error) { reported = append(reported, err) }, Sweeper: idempotency.SweeperConfig{
			Interval: time.Minute, IntervalJitterRatio: idempotency.Exact, BatchSize: 10,
		}})
		time.Sleep(90 * time.Second)
		synctest.Wait()
		if len(reported) != 1 || !errors.Is(reported[0], idemtest.ErrInjected) || memory.Len() != 80 {
			t.Errorf("reported %v, %d left", reported, memory.Len())
		}
		time.Sleep(time.Minute)
		if s := g.Stats().Sweep; memory.Len() != 0 || s.Scanned != 100 {
			t.Errorf("%+v, %d left", s, memory.Len())
		}
	})
}

func TestASweepUnderAContextThatIsDoneStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &idemtest.Memory{}
		litter(t, store, 5)
		g := open(t, idempotency.Config{Store: store, DisableSweeper: true})
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := g.Sweep(ctx); !errors.Is(err, context.Canceled) || store.Len() != 5 {
			t.Errorf("got %v, %d left", err, store.Len())
		}
	})
}
