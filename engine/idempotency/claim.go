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
	context  context.Context
	cancel   context.CancelCauseFunc

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
func (g *Guard) Begin(ctx context.Context, op Op) (execution *Execution, stored *Stored, err error) {
	g.host.Enter(func() { execution, stored, err = g.begin(ctx, op) })
	return execution, stored, err
}

func (g *Guard) begin(ctx context.Context, op Op) (*Execution, *Stored, error) {
	if op.Key == "" {
		return nil, nil, &ConfigurationError{"Op.Key", op.Key, "a key that is not empty"}
	}
	if g.closing {
		return nil, nil, ErrClosed
	}
	asked := g.host.Monotonic()
	claim := Claim{Key: op.Key, Token: g.newToken()}
	found, err := g.claim(ctx, claim, op.Fingerprint)
	if err != nil {
		g.stats.Unavailable++
		return nil, nil, unavailable(err)
	}
	switch found.State {
	case Claimed, Takeover:
		claim.Fence = found.Fence
		return g.hold(ctx, claim, found.State == Takeover, asked), nil, nil
	case Replay:
		g.stats.Replayed++
		return nil, &Stored{found.Fingerprint, found.Result}, nil
	case InFlight:
		g.stats.InFlight++
		return nil, nil, &InFlightError{RetryAfter: found.LeaseLeft}
	case Mismatch:
		g.stats.Mismatched++
		return nil, nil, ErrBodyMismatch
	case Pinned:
		return nil, nil, ErrOutcomeUnknown
	case Tombstoned:
		return nil, nil, ErrCompensated
	}
	return nil, nil, fmt.Errorf("%w: the store answered a claim with state %d", ErrUnavailable, found.State)
}

// claim asks for the key. If the answer does not come the key may be held in our name all the same, so one attempt is made
// to give it back; if that fails too, the lease bounds the damage.
func (g *Guard) claim(ctx context.Context, claim Claim, fingerprint Fingerprint) (found ClaimResult, err error) {
	err = g.ask(func() error {
		found, err = g.config.Store.Claim(ctx, claim.Key, ClaimRequest{
			Token: claim.Token, Lease: g.config.Lease, TTL: g.config.TTL,
			Fingerprint: fingerprint, Pin: g.config.Stale == Pin,
		})
		var refused *VersionError
		if err != nil && !errors.As(err, &refused) {
			_ = g.config.Store.Release(context.WithoutCancel(ctx), claim)
		}
		return err
	})
	return found, err
}

type claimKey struct{}

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
func (g *Guard) hold(ctx context.Context, claim Claim, takeover bool, asked time.Duration) *Execution {
	x := &Execution{
		guard: g, claim: claim, takeover: takeover,
		begun: asked, deadline: asked + g.config.Lease, next: asked + g.config.Lease/renewals,
	}
	x.context, x.cancel = context.WithCancelCause(context.WithValue(ctx, claimKey{}, x))
	g.stats.Claimed++
	if takeover {
		g.stats.TakenOver++
	}
	g.held = append(g.held, x)
	if !g.watching {
		g.watching = true
		g.host.Go("idempotency watch", g.watch)
	}
	return x
}

// Context is for the guarded function. It carries the claim, and is cancelled with ErrLostClaim as its cause before
// somebody else can take the claim over.
func (x *Execution) Context() context.Context { return x.context }

// Claim returns what the store confirmed.
func (x *Execution) Claim() Claim { return x.claim }

// Takeover tells whether an earlier execution died; it may have done its work.
func (x *Execution) Takeover() bool { return x.takeover }

// Complete stores the result, whatever became of ctx. On ErrLostClaim somebody else has taken the key over. On any other error
// the store did not answer several times; the claim is kept until its lease runs out, since what was done must
// not be given free.
func (x *Execution) Complete(ctx context.Context, fingerprint Fingerprint, result Result) (err error) {
	g := x.guard
	g.host.Enter(func() {
		x.finish()
		ctx := context.WithoutCancel(ctx)
		err = x.settle(func() error {
			return g.config.Store.Complete(ctx, x.claim, fingerprint, result, g.config.TTL)
		})
		switch {
		case err == nil:
			g.stats.Completed++
		case errors.Is(err, ErrLostClaim):
			g.stats.Lost++
		default:
			g.stats.Unstored++
			err = unavailable(err)
		}
	})
	return err
}

// Release frees the key, since nothing happened that must not happen again, whatever became of ctx. It is
// called after the guarded function has returned.
func (x *Execution) Release(ctx context.Context) (err error) {
	g := x.guard
	g.host.Enter(func() {
		x.finish()
		ctx := context.WithoutCancel(ctx)
		err = x.settle(func() error { return g.config.Store.Release(ctx, x.claim) })
		if err == nil {
			g.stats.Released++
		}
	})
	return err
}

// settle tries a last step a few times. It can be repeated, since it carries the token.
func (x *Execution) settle(step func() error) (err error) {
	pause := outcomePause
	for try := 1; ; try++ {
		err = x.guard.ask(step)
		if err == nil || errors.Is(err, ErrLostClaim) || try == outcomeTries {
			break
		}
		_ = x.guard.host.Sleep(context.Background(), pause)
		pause *= 2
	}
	if err != nil {
		err = fmt.Errorf("key %s, fence %d: %w", x.claim.Key, x.claim.Fence, err)
		x.guard.report(err)
	}
	return err
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
