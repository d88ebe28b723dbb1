package idempotency

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Op is what must happen once.
type Op struct {
	Key Key
	// Fingerprint tells requests that misuse one key apart; empty if there is nothing to compare, or not yet.
	Fingerprint Fingerprint
}

// Stored is the outcome of an earlier execution.
type Stored struct {
	Fingerprint Fingerprint
	Result      Result
}

// Execution is a claim in the hands of its owner. The guard renews its lease until Complete or Release, one of which must be
// called once.
type Execution struct {
	guard    *Guard
	claim    Claim
	takeover bool
	caller   context.Context // of Begin, then of Complete or Release, without its end
	context  claimContext
	cancel   context.CancelCauseFunc

	fingerprint Fingerprint // of the request, then to store
	result      Result      // to store
	found       ClaimResult
	err         error // of the last step

	begun    time.Duration // on the host's monotonic clock, as all below
	deadline time.Duration // until when this process may act on the claim
	next     time.Duration // when to renew
	renewing bool
	lost     bool
	finished bool
}

// Attempts at storing an outcome, and the pause after the first of them; it doubles.
const (
	outcomeTries = 3
	outcomePause = 50 * time.Millisecond
)

// Begin claims the key. It returns an execution, or the outcome of an earlier one, or an error that tells why neither: an
// *InFlightError, ErrBodyMismatch, ErrOutcomeUnknown, ErrCompensated, or ErrUnavailable.
//
// It is for adapters; Do and its siblings call it for everybody else.
func (g *Guard) Begin(ctx context.Context, op Op) (*Execution, *Stored, error) {
	if op.Key == "" {
		return nil, nil, &ConfigurationError{"Op.Key", op.Key, "a key that is not empty"}
	}
	x := &Execution{guard: g, claim: Claim{Key: op.Key}, caller: ctx, fingerprint: op.Fingerprint}
	g.host.Enter(x.begin)
	switch {
	case x.err != nil:
		return nil, nil, x.err
	case x.found.State == Replay:
		return nil, &Stored{x.found.Fingerprint, x.found.Result}, nil
	}
	return x, nil, nil
}

// begin claims the key, and holds it or sets err.
func (x *Execution) begin() {
	g := x.guard
	if g.closing {
		x.err = ErrClosed
		return
	}
	x.claim.Token = g.newToken()
	x.begun = g.host.Monotonic()
	g.host.GiveWay(x.sendClaim)
	if x.err != nil {
		g.stats.Unavailable++
		x.err = unavailable(x.err)
		return
	}
	switch x.found.State {
	case Claimed, Takeover:
		x.claim.Fence, x.takeover = x.found.Fence, x.found.State == Takeover
		x.hold()
	case Replay:
		g.stats.Replayed++
	case InFlight:
		g.stats.InFlight++
		x.err = &InFlightError{RetryAfter: x.found.LeaseLeft}
	case Mismatch:
		g.stats.Mismatched++
		x.err = ErrBodyMismatch
	case Pinned:
		x.err = ErrOutcomeUnknown
	case Tombstoned:
		x.err = ErrCompensated
	default:
		x.err = fmt.Errorf("%w: the store answered a claim with state %d", ErrUnavailable, x.found.State)
	}
}

// sendClaim asks for the key. If the answer does not come the key may be held in our name all the same, so one attempt is made
// to give it back; if that fails too, the lease bounds the damage.
func (x *Execution) sendClaim() {
	config := &x.guard.config
	x.found, x.err = config.Store.Claim(x.caller, x.claim.Key, ClaimRequest{
		Token: x.claim.Token, Lease: config.Lease, TTL: config.TTL, Fingerprint: x.fingerprint, Pin: config.Stale == Pin,
	})
	var refused *VersionError
	if x.err != nil && !errors.As(x.err, &refused) {
		_ = config.Store.Release(context.WithoutCancel(x.caller), x.claim)
	}
}

type claimKey struct{}

// claimContext is the context of a guarded function: it carries the execution.
type claimContext struct {
	context.Context
	execution *Execution
}

// Value implements context.Context.
func (c *claimContext) Value(key any) any {
	if key == (claimKey{}) {
		return c.execution
	}
	return c.Context.Value(key)
}

// ClaimFromContext returns the claim under which the function with this context runs. Its Key, or its Fence, is for the
// receivers of side effects.
func ClaimFromContext(ctx context.Context) (Claim, bool) {
	x, ok := ctx.Value(claimKey{}).(*Execution)
	if !ok {
		return Claim{}, false
	}
	return x.claim, true
}

// hold begins to renew the claim. The lease is measured from the moment before it was asked for.
func (x *Execution) hold() {
	g := x.guard
	x.deadline, x.next = x.begun+g.config.Lease, x.begun+g.config.Lease/renewals
	x.context.execution = x
	x.context.Context, x.cancel = context.WithCancelCause(x.caller)
	g.stats.Claimed++
	if x.takeover {
		g.stats.TakenOver++
	}
	g.held = append(g.held, x)
	if !g.watching {
		g.watching = true
		g.host.Go("idempotency watch", g.watch)
	}
}

// Context is for the guarded function. It carries the claim, and is cancelled with ErrLostClaim as its cause before
// somebody else can take the claim over.
func (x *Execution) Context() context.Context { return &x.context }

// Claim returns what the store confirmed.
func (x *Execution) Claim() Claim { return x.claim }

// Takeover tells whether an earlier execution died; it may have done its work.
func (x *Execution) Takeover() bool { return x.takeover }

// Complete stores the result, whatever became of ctx. On ErrLostClaim somebody else has taken the key over. On any other error
// the store did not answer several times; the claim is kept until its lease runs out, since what was done must
// not be given free.
func (x *Execution) Complete(ctx context.Context, fingerprint Fingerprint, result Result) error {
	x.caller, x.fingerprint, x.result = context.WithoutCancel(ctx), fingerprint, result
	x.guard.host.Enter(x.complete)
	return x.err
}

func (x *Execution) complete() {
	stats := &x.guard.stats
	switch x.settle(x.sendComplete); {
	case x.err == nil:
		stats.Completed++
	case errors.Is(x.err, ErrLostClaim):
		stats.Lost++
	default:
		stats.Unstored++
		x.err = unavailable(x.err)
	}
}

func (x *Execution) sendComplete() {
	x.err = x.guard.config.Store.Complete(x.caller, x.claim, x.fingerprint, x.result, x.guard.config.TTL)
}

// Release frees the key, since nothing happened that must not happen again, whatever became of ctx. It is
// called after the guarded function has returned.
func (x *Execution) Release(ctx context.Context) error {
	x.caller = context.WithoutCancel(ctx)
	x.guard.host.Enter(x.release)
	return x.err
}

func (x *Execution) release() {
	if x.settle(x.sendRelease); x.err == nil {
		x.guard.stats.Released++
	}
}

// Abandon ends an execution whose outcome nobody knows, because a part of the caller's panicked between the function and Complete or Release:
// what was done must not be given free, so the claim stays until its lease runs out, and is not renewed. After Complete or Release it
// does nothing.
func (x *Execution) Abandon() {
	if !x.finished { // only its owner sets it
		x.guard.host.Enter(x.finish)
	}
}

func (x *Execution) sendRelease() { x.err = x.guard.config.Store.Release(x.caller, x.claim) }

// settle ends the heartbeat and tries a last step a few times. It can be repeated, since it carries the token.
func (x *Execution) settle(step func()) {
	x.finish()
	pause := outcomePause
	for try := 1; ; try++ {
		x.guard.host.GiveWay(step)
		if x.err == nil || errors.Is(x.err, ErrLostClaim) || try == outcomeTries {
			break
		}
		_ = x.guard.host.Sleep(context.Background(), pause)
		pause *= 2
	}
	if x.err != nil {
		x.err = fmt.Errorf("key %s, fence %d: %w", x.claim.Key, x.claim.Fence, x.err)
		x.guard.report(x.err)
	}
}

// finish ends the heartbeat, and waits for a renewal that is under way: no step follows the last one.
func (x *Execution) finish() {
	g := x.guard
	x.finished = true
	for x.renewing {
		g.changed.Wait(context.Background(), -1)
	}
	if i := slices.Index(g.held, x); i >= 0 {
		g.held = slices.Delete(g.held, i, i+1)
	}
	x.cancel(nil)
	if g.closing {
		g.changed.Broadcast()
	}
}
