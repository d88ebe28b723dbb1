package durable

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-sim/fencepost/engine"
	"github.com/fencepost-sim/fencepost/engine/idempotency"
	"github.com/fencepost-sim/fencepost/engine/idempotency/pgport"
)

// EventOf names an event of the engine for its consumer group: the topic is "topic#group", since several groups may share the database.
func EventOf[T any](event engine.Event[T]) Event {
	return Event{ID: event.ID, Topic: event.Topic + "#" + event.ConsumerGroup, Time: event.CreatedAt}
}

// Handler makes a handler for the engine of one whose effect is a write in PostgreSQL: claim, write and COMMIT are one transaction, so the
// effect happens exactly once for each event of the consumer group that the engine delivers at least once.
//
// An attempt that finds another one's transaction open, or cannot reach PostgreSQL to claim, waits, asks again every LockTimeout, and holds
// no connection meanwhile: no retry is spent on what is not the handler's failure. That it waits is reported, at growing distances. Once the handler was called, its attempt ends with whatever
// Consume says.
func Handler[T any](c *Consumer, handler func(ctx context.Context, tx pgport.Tx, event engine.Event[T]) error) engine.Handler[T] {
	return func(ctx context.Context, event engine.Event[T]) error {
		for asked := 1; ; asked++ {
			called := false
			_, err := c.Consume(ctx, EventOf(event), func(ctx context.Context, tx pgport.Tx) error {
				called = true
				return handler(ctx, tx, event)
			})
			if called || !worthWaiting(err) || !c.pause(ctx) {
				return err
			}
			if asked&(asked-1) == 0 {
				c.options.OnError(fmt.Errorf("durable: event %s waits: %w", event.ID, err))
			}
		}
	}
}

// worthWaiting tells whether the claim may succeed later: somebody else holds the event, or the server is away. What the server refuses for
// other reasons it will refuse again.
func worthWaiting(err error) bool {
	var refused *pgport.Error
	switch {
	case err == nil, errors.Is(err, idempotency.ErrConfiguration), errors.Is(err, ErrTooOld):
		return false
	case errors.Is(err, idempotency.ErrInFlight), errors.Is(err, ErrRetry), !errors.As(err, &refused):
		return true
	}
	class := refused.Code[:min(2, len(refused.Code))]
	return class == "08" || class == "53" || class == "57" // connection, resources, shutdown (PostgreSQL's manual, appendix A)
}

// pause waits, unless ctx is done first.
func (c *Consumer) pause(ctx context.Context) bool {
	c.host.Enter(func() { _ = c.host.Sleep(ctx, c.options.LockTimeout) })
	return ctx.Err() == nil
}

// PgxHandler is Handler with pgx's transaction.
func PgxHandler[T any](x *Executor, handler func(ctx context.Context, tx pgx.Tx, event engine.Event[T]) error) engine.Handler[T] {
	return Handler(x.Consumer, func(ctx context.Context, tx pgport.Tx, event engine.Event[T]) error {
		return serverError(handler(ctx, tx.(*pgxTx).Tx, event))
	})
}
