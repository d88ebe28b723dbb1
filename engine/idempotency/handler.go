package idempotency

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fencepost-sim/fencepost/engine"
)

// askAgain is how often an attempt asks for a claim that it cannot have yet.
const askAgain = time.Second

// Handler guards a handler of the engine: its effect happens once for each event of the consumer group, although the event is
// delivered again. The key is the consumer group, the topic and the event's ID.
//
// An attempt that finds another one in flight, or does not reach the store, waits and asks again, as long as its context lasts: neither is
// the handler's failure, so no retry is spent on it. That the store cannot be reached is reported, at growing distances. (If it were, an event whose first attempt died could run out of retries
// before the dead attempt's claim has lapsed, and never have its effect.) The engine renews the attempt's lease meanwhile.
func Handler[T any](g *Guard, handler engine.Handler[T]) engine.Handler[T] {
	return func(ctx context.Context, event engine.Event[T]) error {
		key := Event{Group: event.ConsumerGroup, Topic: event.Topic, ID: event.ID}
		for asked := 1; ; asked++ {
			called := false
			_, err := ConsumerWorker(ctx, g, key, func(ctx context.Context) error {
				called = true
				return handler(ctx, event)
			})
			wait := worthWaiting(err)
			if called || wait == 0 || !g.pause(ctx, wait) {
				return err
			}
			if errors.Is(err, ErrUnavailable) && asked&(asked-1) == 0 {
				g.host.Enter(func() { g.report(fmt.Errorf("idempotency: event %s waits: %w", event.ID, err)) })
			}
		}
	}
}

// worthWaiting says after what time a claim that was not granted may be, or zero if asking again makes no sense.
func worthWaiting(err error) time.Duration {
	var held *InFlightError
	var version *VersionError
	switch {
	case errors.As(err, &held):
		return max(time.Millisecond, min(held.RetryAfter, askAgain))
	case errors.Is(err, ErrUnavailable) && !errors.Is(err, ErrClosed) && !errors.As(err, &version):
		return askAgain
	}
	return 0
}

// pause waits, unless ctx is done first or the guard is shut down.
func (g *Guard) pause(ctx context.Context, wait time.Duration) bool {
	g.host.Enter(func() {
		until := g.host.Monotonic() + wait
		for ctx.Err() == nil && !g.closing {
			left := until - g.host.Monotonic()
			if left <= 0 {
				break
			}
			g.changed.Wait(ctx, left)
		}
	})
	return ctx.Err() == nil
}
