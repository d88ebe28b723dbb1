package durable

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-sim/fencepost/engine"
	"github.com/fencepost-sim/fencepost/engine/idempotency/pgport"
)

// EventOf names an event of the engine for its consumer group: the topic is "topic#group", since several groups may share the database.
func EventOf[T any](event engine.Event[T]) Event {
	return Event{ID: event.ID, Topic: event.Topic + "#" + event.ConsumerGroup}
}

// Handler makes a handler for the engine of one whose effect is a write in PostgreSQL: claim, write and COMMIT are one transaction, so the
// effect happens exactly once for each event of the consumer group that the engine delivers at least once.
func Handler[T any](c *Consumer, handler func(ctx context.Context, tx pgport.Tx, event engine.Event[T]) error) engine.Handler[T] {
	return func(ctx context.Context, event engine.Event[T]) error {
		_, err := c.Consume(ctx, EventOf(event), func(ctx context.Context, tx pgport.Tx) error { return handler(ctx, tx, event) })
		return err
	}
}

// PgxHandler is Handler with pgx's transaction.
func PgxHandler[T any](x *Executor, handler func(ctx context.Context, tx pgx.Tx, event engine.Event[T]) error) engine.Handler[T] {
	return Handler(x.Consumer, func(ctx context.Context, tx pgport.Tx, event engine.Event[T]) error {
		return serverError(handler(ctx, tx.(*pgxTx).Tx, event))
	})
}
