package idempotency_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencepost-sim/fencepost/engine"
	"github.com/fencepost-sim/fencepost/engine/idempotency"
	"github.com/fencepost-sim/fencepost/engine/idempotency/idemtest"
)

var delivered = engine.Event[string]{ID: "E1", Topic: "orders", ConsumerGroup: "billing", Attempt: 2}

// claimOfTheDead leaves a claim of the event behind, under which nobody works.
func claimOfTheDead(t *testing.T, store idempotency.Store) {
	t.Helper()
	key := idempotency.Event{Group: delivered.ConsumerGroup, Topic: delivered.Topic, ID: delivered.ID}.Key()
	request := idempotency.ClaimRequest{Token: idempotency.Token{1}, Lease: 30 * time.Second, TTL: time.Hour}
	if found, err := store.Claim(t.Context(), key, request); err != nil || found.State != idempotency.Claimed {
		t.Fatal(found, err)
	}
}

// counting returns a guarded handler that counts its calls and returns the error.
func counting(g *idempotency.Guard, calls *int, err error) engine.Handler[string] {
	return idempotency.Handler(g, func(context.Context, engine.Event[string]) error {
		*calls++
		return err
	})
}

func TestC15AnAttemptThatFindsAnotherInFlightWaitsAndSpendsNoRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &idemtest.Memory{}
		claimOfTheDead(t, store)
		g, calls, began := open(t, idempotency.Config{Store: store, DisableSweeper: true}), 0, time.Now()
		if err := counting(g, &calls, nil)(t.Context(), delivered); err != nil || calls != 1 {
			t.Errorf("%d calls, %v", calls, err)
		}
		if waited := time.Since(began); waited != 30*time.Second {
			t.Errorf("it waited for %v; the lease lasts 30s", waited)
		}
	})
}

func TestC10AnAttemptThatCannotReachTheStoreWaitsAndReports(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lost := []idemtest.Failure{idemtest.BeforeApply, idemtest.AfterApply, idemtest.BeforeApply} // the first two are reported, then the fourth
		store := &idemtest.Failing{Store: &idemtest.Memory{}, Script: map[idemtest.Step][]idemtest.Failure{idemtest.StepClaim: lost}}
		calls, reported := 0, 0
		g := open(t, idempotency.Config{Store: store, DisableSweeper: true, OnError: func(err error) {
			if reported++; !errors.Is(err, idempotency.ErrUnavailable) {
				t.Errorf("reported: %v", err)
			}
		}})
		if err := counting(g, &calls, nil)(t.Context(), delivered); err != nil || calls != 1 || reported != 2 {
			t.Errorf("%d calls, %v, %d reports", calls, err, reported)
		}
	})
}

func TestAnAttemptWaitsNoLongerThanItsContextOrItsGuard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &idemtest.Memory{}
		claimOfTheDead(t, store)
		g, calls := open(t, idempotency.Config{Store: store, DisableSweeper: true}), 0
		ctx, cancel := context.WithTimeout(t.Context(), 2500*time.Millisecond)
		defer cancel()
		began := time.Now()
		if err := counting(g, &calls, nil)(ctx, delivered); !errors.Is(err, idempotency.ErrInFlight) || time.Since(began) != 2500*time.Millisecond {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		ended := make(chan error)
		go func() { ended <- counting(g, &calls, nil)(t.Context(), delivered) }()
		synctest.Wait()
		if err := g.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		if err := <-ended; !errors.Is(err, idempotency.ErrClosed) || calls != 0 {
			t.Errorf("after the shutdown: %v, %d calls", err, calls)
		}
	})
}

// What a handler returns is its own, whatever it looks like: it is not called again within the attempt.
func TestAHandlerThatWasCalledIsNotWaitedFor(t *testing.T) {
	for _, failure := range []error{&idempotency.InFlightError{RetryAfter: time.Second}, idempotency.ErrUnavailable} {
		synctest.Test(t, func(t *testing.T) {
			g, calls := open(t, idempotency.Config{}), 0
			if err := counting(g, &calls, failure)(t.Context(), delivered); err != failure || calls != 1 {
				t.Errorf("%d calls, %v", calls, err)
			}
		})
	}
}
