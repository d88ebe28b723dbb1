package idemtest_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fencepost-sim/fencepost/engine/idempotency"
	"github.com/fencepost-sim/fencepost/engine/idempotency/idemtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestR70TheStoreInMemoryKeepsTheContract(t *testing.T) {
	idemtest.Contract(t, func(*testing.T) idemtest.Subject {
		var passed atomic.Int64
		start := time.Now()
		now := func() time.Time { return start.Add(time.Duration(passed.Add(int64(time.Microsecond)))) }
		return idemtest.Subject{
			Store: &idemtest.Memory{Now: now},
			Pass:  func(d time.Duration) { passed.Add(int64(d)) },
		}
	})
}

// The zero value works on the machine's clock.
func TestR70TheZeroValueOfTheStoreInMemoryWorks(t *testing.T) {
	var m idemtest.Memory
	result, err := m.Claim(t.Context(), "req:1", idempotency.ClaimRequest{Lease: time.Hour, TTL: time.Hour})
	if err != nil || result.State != idempotency.Claimed || m.Len() != 1 {
		t.Errorf("got %+v, %v", result, err)
	}
	if m.Flush(); m.Len() != 0 {
		t.Error("the flushed store has records")
	}
}

func TestR70TheFailingStoreFailsBeforeAndAfterApply(t *testing.T) {
	request := idempotency.ClaimRequest{Lease: time.Hour, TTL: time.Hour}
	for failure, records := range map[idemtest.Failure]int{idemtest.BeforeApply: 0, idemtest.AfterApply: 1} {
		memory := &idemtest.Memory{}
		f := &idemtest.Failing{Store: memory, Script: map[idemtest.Step][]idemtest.Failure{idemtest.StepClaim: {failure}}}
		if _, err := f.Claim(t.Context(), "req:1", request); !errors.Is(err, idemtest.ErrInjected) {
			t.Errorf("got %v", err)
		}
		if memory.Len() != records {
			t.Errorf("failure %d left %d records", failure, memory.Len())
		}
		if _, err := f.Claim(t.Context(), "req:1", request); err != nil {
			t.Errorf("the script is used up, and the claim fails: %v", err)
		}
	}
}

// Each method fails by its own script, with the rest of the store working.
func TestR70EveryStepCanFail(t *testing.T) {
	ctx := context.Background()
	claim := idempotency.Claim{Key: "req:1"}
	steps := map[idemtest.Step]func(s idempotency.Store) error{
		idemtest.StepClaim: func(s idempotency.Store) error {
			_, err := s.Claim(ctx, "req:1", idempotency.ClaimRequest{Lease: time.Hour, TTL: time.Hour})
			return err
		},
		idemtest.StepExtend: func(s idempotency.Store) error { return s.Extend(ctx, claim, time.Hour) },
		idemtest.StepComplete: func(s idempotency.Store) error {
			return s.Complete(ctx, claim, "", idempotency.Result{Kind: idempotency.NotStored}, time.Hour)
		},
		idemtest.StepRelease: func(s idempotency.Store) error { return s.Release(ctx, claim) },
		idemtest.StepTombstone: func(s idempotency.Store) error {
			_, err := s.Tombstone(ctx, "req:2", time.Hour)
			return err
		},
		idemtest.StepSweep: func(s idempotency.Store) error {
			_, err := s.Sweep(ctx, "", 10)
			return err
		},
		idemtest.StepSweepTurn: func(s idempotency.Store) error {
			_, err := s.SweepTurn(ctx, idempotency.SweepRequest{Lease: time.Hour})
			return err
		},
	}
	for step := range steps {
		f := &idemtest.Failing{Store: &idemtest.Memory{}, Always: map[idemtest.Step]idemtest.Failure{step: idemtest.AfterApply}}
		for other, also := range steps {
			if err := also(f); errors.Is(err, idemtest.ErrInjected) != (other == step) {
				t.Errorf("with %s failing, %s returned %v", step, other, err)
			}
		}
		if f.Calls(step) != 1 {
			t.Errorf("%s was counted %d times", step, f.Calls(step))
		}
	}
}
