package idemtest

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/fencepost-sim/fencepost/engine/idempotency"
)

// Step names a method of a store.
type Step string

// The steps.
const (
	StepClaim     Step = "claim"
	StepExtend    Step = "extend"
	StepComplete  Step = "complete"
	StepRelease   Step = "release"
	StepTombstone Step = "tombstone"
	StepSweep     Step = "sweep"
	StepSweepTurn Step = "sweep turn"
)

// Failure says when a call fails.
type Failure uint8

// The failures. A caller cannot tell them apart.
const (
	None        Failure = iota
	BeforeApply         // the request was lost: nothing happened
	AfterApply          // the reply was lost: it happened
)

// ErrInjected is what a Failing store answers.
var ErrInjected = errors.New("idemtest: injected failure")

// Failing is a store that fails by a script.
type Failing struct {
	Store idempotency.Store
	// Always fails every call of a step.
	Always map[Step]Failure
	// Script fails the next calls of a step, in order; when it is used up, Always decides.
	Script map[Step][]Failure

	mu    sync.Mutex
	calls map[Step]int
}

var _ idempotency.Store = (*Failing)(nil)

// Calls tells how often a step was asked for.
func (f *Failing) Calls(step Step) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls[step]
}

func (f *Failing) next(step Step) Failure {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.calls == nil {
		f.calls = map[Step]int{}
	}
	f.calls[step]++
	if script := f.Script[step]; len(script) > 0 {
		f.Script[step] = script[1:]
		return script[0]
	}
	return f.Always[step]
}

func failing[T any](f *Failing, step Step, call func() (T, error)) (answer T, err error) {
	switch f.next(step) {
	case BeforeApply:
		return answer, ErrInjected
	case AfterApply:
		_, _ = call()
		return answer, ErrInjected
	}
	return call()
}

func failingStep(f *Failing, step Step, call func() error) error {
	_, err := failing(f, step, func() (struct{}, error) { return struct{}{}, call() })
	return err
}

// Claim implements idempotency.Store.
func (f *Failing) Claim(ctx context.Context, key idempotency.Key, request idempotency.ClaimRequest) (idempotency.ClaimResult, error) {
	return failing(f, StepClaim, func() (idempotency.ClaimResult, error) { return f.Store.Claim(ctx, key, request) })
}

// Extend implements idempotency.Store.
func (f *Failing) Extend(ctx context.Context, claim idempotency.Claim, lease time.Duration) error {
	return failingStep(f, StepExtend, func() error { return f.Store.Extend(ctx, claim, lease) })
}

// Complete implements idempotency.Store.
func (f *Failing) Complete(ctx context.Context, claim idempotency.Claim, fingerprint idempotency.Fingerprint, result idempotency.Result, ttl time.Duration) error {
	return failingStep(f, StepComplete, func() error { return f.Store.Complete(ctx, claim, fingerprint, result, ttl) })
}

// Release implements idempotency.Store.
func (f *Failing) Release(ctx context.Context, claim idempotency.Claim) error {
	return failingStep(f, StepRelease, func() error { return f.Store.Release(ctx, claim) })
}

// Tombstone implements idempotency.Store.
func (f *Failing) Tombstone(ctx context.Context, key idempotency.Key, ttl time.Duration) (idempotency.TombstoneResult, error) {
	return failing(f, StepTombstone, func() (idempotency.TombstoneResult, error) { return f.Store.Tombstone(ctx, key, ttl) })
}

// Sweep implements idempotency.Store.
func (f *Failing) Sweep(ctx context.Context, cursor idempotency.Cursor, limit int) (idempotency.SweepPage, error) {
	return failing(f, StepSweep, func() (idempotency.SweepPage, error) { return f.Store.Sweep(ctx, cursor, limit) })
}

// SweepTurn implements idempotency.Store.
func (f *Failing) SweepTurn(ctx context.Context, request idempotency.SweepRequest) (idempotency.SweepTurn, error) {
	return failing(f, StepSweepTurn, func() (idempotency.SweepTurn, error) { return f.Store.SweepTurn(ctx, request) })
}
