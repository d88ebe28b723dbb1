// Package engine delivers events, durably and recoverably, on nothing but MongoDB.
//
// A publisher stores an event once. Every consumer group that subscribes to its topic gets one delivery of it, and every
// delivery one or more numbered attempts, each a record in the history collection:
//
//	event → delivery (pending) → attempt (pending) → attempt (leased) → handler
//	      → attempt (success or error) → delivery (success, next attempt, or error)
//
// Workers lease attempts, renew the lease while the handler runs, and complete an attempt only with the fencing token
// that they got with the lease. Whatever a crash leaves behind, any replica of the group repairs: an expired lease
// is reaped ([CodeWorkerLost]), and five kinds of half-written state are reconciled. Points lists every step
// at which a crash can strike.
//
// # Start here
//
//	orders := engine.NewTopic[OrderCreated]("order.created")
//
//	eng, err := engine.Open(ctx, engine.Options{Store: mongostore.New(database), ConsumerGroup: "billing"})
//	...
//	_, err = orders.Subscribe(ctx, eng, engine.SubscribeOptions{}, func(ctx context.Context, order engine.Event[OrderCreated]) error {
//		return charge(ctx, order.ID, order.Data) // order.ID is the idempotency key
//	})
//	_, err = orders.Publish(ctx, eng, OrderCreated{…})
//	...
//	err = eng.Close(ctx)
//
// # What is promised, and what is not
//
// Delivery is at least once unless the subscription asks for at most once. At-least-once delivery cannot know whether an
// external side effect happened before a machine disappeared: the handler runs again, with the same event ID. Effects
// that must happen once need a receiver that refuses the second one; see engine/idempotency.
//
// A handler's context is cancelled, with [ErrLeaseLost] as its cause, before the lease can pass to another worker. A
// handler that ignores its context, or a process that is frozen and thawed, can still run beside its successor
// for a while. No database can prevent that; what it cannot do is record an outcome.
//
// # Clocks
//
// Every lease is set and compared by the database's clock ($$NOW); a worker measures what is left of its own lease on its
// monotonic clock, from the moment before it asked. The wall clocks of workers therefore never decide who owns
// what. Only the publication date of an event comes from its publisher.
//
// # Compatibility
//
// Collections, documents and indexes are those of Pulse 4.4.3 (TypeScript), so that replicas of both kinds can drain
// one database. Events without a sequence, which only replicas older than 4.4 publish, are not delivered: let
// their own replicas drain them first. Two fields are additions that Pulse ignores: eventSequence on deliveries, which
// orders them, and the index that serves it.
package engine
