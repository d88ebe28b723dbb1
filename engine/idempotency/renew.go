package idempotency

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// renewals is how often a lease is renewed while it would last: two heartbeats may fail.
const renewals = 3

// watch is one task for all executions of the guard, so that short ones cost no goroutine. It renews what is due and cancels
// what was lost, and ends when it has found nothing to do for a while.
func (g *Guard) watch() {
	defer func() {
		g.watching = false
		g.changed.Broadcast()
	}()
	interval := g.config.Lease / renewals
	idle := false
	for {
		if len(g.held) == 0 {
			if idle || g.closing {
				return
			}
			idle = !g.changed.Wait(context.Background(), interval)
			continue
		}
		idle = false
		g.changed.Wait(context.Background(), max(0, g.attend(interval)-g.host.Monotonic()))
	}
}

// attend does what is due now, and returns when to look again.
func (g *Guard) attend(interval time.Duration) (next time.Duration) {
	now := g.host.Monotonic()
	next = now + interval
	for _, x := range g.held {
		if x.finished || x.lost {
			continue
		}
		if now >= x.deadline {
			x.lose()
			continue
		}
		next = min(next, x.deadline)
		if x.renewing || now-x.begun >= g.config.MaxHold {
			continue
		}
		if now < x.next {
			next = min(next, x.next)
			continue
		}
		x.renewing = true
		g.host.Go("idempotency renew", x.renew)
	}
	return next
}

// renew extends the lease once. An error that is no refusal proves nothing: the next heartbeat comes sooner, and the deadline
// decides.
func (x *Execution) renew() {
	g := x.guard
	asked := g.host.Monotonic()
	err := g.ask(func() error {
		return g.config.Store.Extend(context.WithoutCancel(&x.context), x.claim, g.config.Lease)
	})
	switch {
	case errors.Is(err, ErrLostClaim):
		if !x.finished {
			x.lose()
		}
	case err != nil:
		x.next = g.host.Monotonic() + g.config.Lease/(4*renewals)
		g.report(fmt.Errorf("idempotency: heartbeat of %s: %w", x.claim.Key, err))
	default:
		x.deadline, x.next = asked+g.config.Lease, asked+g.config.Lease/renewals
	}
	x.renewing = false
	g.changed.Broadcast()
}

// lose tells the guarded function that the claim is somebody else's, or is about to be.
func (x *Execution) lose() {
	x.lost = true
	x.guard.stats.Lost++
	x.cancel(ErrLostClaim)
}
