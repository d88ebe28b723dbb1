package lease

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"github.com/fencepost-sim/fencepost/engine/host"
	"github.com/fencepost-sim/fencepost/engine/idempotency"
	"github.com/fencepost-sim/fencepost/engine/idempotency/redisport"
)

// Handle is a lease in the hands of its holder.
type Handle struct {
	lease   *Single
	token   idempotency.Token
	fence   uint64
	context context.Context
	cancel  context.CancelCauseFunc
	changed host.Signal

	asked    time.Duration // monotonic, before the last successful step was sent
	renewing bool          // the task runs
	released bool
	lost     bool
}

// mix makes 128 bits of two ids.
func mix(one, two string) (token idempotency.Token) {
	sum := sha256.Sum256([]byte(one + two))
	copy(token[:], sum[:])
	return token
}

// Fence is larger than that of every earlier holder, also if Redis lost the lease's record, unless its clock was set back by
// more than it was away.
func (h *Handle) Fence() uint64 { return h.fence }

// Context is for the work. Its cause is ErrLost when the lease is about to end, ErrReleased after Release.
func (h *Handle) Context() context.Context { return h.context }

func (h *Handle) step(ctx context.Context, verb redisport.LeaseVerb) (state redisport.LeaseState, err error) {
	s := h.lease
	s.host.GiveWay(func() {
		state, err = redisport.LeaseStep{Verb: verb, Key: "idem-lease:" + s.name, Token: h.token, TTL: s.options.TTL}.Run(ctx, s.port)
	})
	return state, err
}

// keep renews the lease every half of its time, and when that fails again and again within the rest of it. At the margin it tells
// the work to stop.
func (h *Handle) keep() {
	s := h.lease
	defer func() {
		h.renewing = false
		h.changed.Broadcast()
	}()
	next := h.asked + s.options.TTL/2
	for !h.released && !h.lost && h.context.Err() == nil {
		end := h.asked + s.options.TTL - s.options.Margin
		now := s.host.Monotonic()
		if now >= end {
			h.lose()
			return
		}
		if now < next {
			h.changed.Wait(h.context, min(next, end)-now)
			continue
		}
		if h.renew(end - now) {
			next = h.asked + s.options.TTL/2
		} else {
			next = s.host.Monotonic() + s.options.TTL/20
		}
	}
}

// renew extends the lease once, in a task of its own, so that a call that hangs does not keep the work from being told.
func (h *Handle) renew(patience time.Duration) (renewed bool) {
	s := h.lease
	asked, done := s.host.Monotonic(), false
	s.host.Go("lease renewal "+s.name, func() {
		state, err := h.step(context.WithoutCancel(h.context), redisport.Renew)
		done = true
		switch {
		case h.released: // the answer is to what came before
		case err != nil:
			h.report(fmt.Errorf("renewing lease %s: %w", s.name, err))
		case !state.Held:
			h.lose()
		default:
			renewed = true
			h.asked = max(h.asked, asked)
		}
		h.changed.Broadcast()
	})
	for end := asked + patience; !done && !h.released && h.context.Err() == nil && s.host.Monotonic() < end; {
		h.changed.Wait(h.context, end-s.host.Monotonic())
	}
	return renewed
}

func (h *Handle) lose() {
	h.lost = true
	h.cancel(ErrLost)
}

// Release stops renewing and gives the lease back. Call it after the work has returned: another process may begin at once. It
// returns ErrLost if the lease was no longer held. Releasing again does nothing.
func (h *Handle) Release(ctx context.Context) (err error) {
	s := h.lease
	s.host.Enter(func() {
		if h.released {
			return
		}
		h.released = true
		h.changed.Broadcast()
		for h.renewing {
			h.changed.Wait(context.Background(), -1)
		}
		h.cancel(ErrReleased)
		var state redisport.LeaseState
		state, err = h.step(ctx, redisport.GiveUp)
		switch {
		case err != nil:
			err = fmt.Errorf("releasing lease %s: %w", s.name, err)
		case !state.Held || h.lost:
			err = fmt.Errorf("%w: %s", ErrLost, s.name)
		}
	})
	if err != nil && !errors.Is(err, ErrLost) {
		s.options.OnError(err)
	}
	return err
}

// report passes an error that no caller gets to OnError, which may do what it likes.
func (h *Handle) report(err error) {
	h.lease.host.GiveWay(func() {
		defer func() { host.Rethrow(recover()) }()
		h.lease.options.OnError(err)
	})
}
