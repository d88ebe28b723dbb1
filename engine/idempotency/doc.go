// Package idempotency makes a side effect happen once although its request comes twice.
//
// At-least-once delivery runs handlers again, clients repeat requests whose answer was lost, and providers send a webhook until
// they hear a 2xx. A [Guard] claims a key before the work and stores the outcome after it; whoever comes with the same key
// gets the stored outcome, or is told that the work is under way:
//
//	CLAIM key → work (the lease is renewed meanwhile) → COMPLETE with the outcome, or RELEASE if nothing happened
//
// A claim is a lease with a random token and a growing fence number. Only the token's owner can extend, complete or release it. A
// claim whose owner died lapses, and the next request takes it over: a crash blocks a key for one lease at the most.
//
// # Start here
//
//	guard, err := redisstore.Init(ctx, client, "billing", idempotency.Config{}) // also arms the sweeper
//	...
//	receipt, outcome, err := idempotency.Do(ctx, guard, idempotency.Op{Key: key}, idempotency.JSON[Receipt](),
//		func(ctx context.Context) (Receipt, error) { return charge(ctx, order) })
//	...
//	err = guard.Shutdown(ctx)
//
// [SagaStep], [Webhook], [ConsumerWorker] and [Handler] are Do with the key that fits; sub-packages guard HTTP (httpidem) and gRPC
// (grpcidem), and de-duplicate events inside a PostgreSQL transaction (durable).
//
// # What is promised, and what is not
//
// Always: nobody but its owner writes a claim's record; a replay is one stored execution of the same key and the same request; a key
// is not blocked for longer than a lease by a dead process; a handler does not run without a confirmed claim (unless
// Config.FailOpen).
//
// Only while no process is paused for longer than its lease, and while the store loses no data: two executions of one key do not
// overlap, and a client that saw a success gets it replayed. Only if, besides, nobody crashes between the effect and its
// COMPLETE: at most one effect. For that last window nothing but the receiver of the effect can help: pass [Claim.Key] or
// [Claim.Fence] on ([ClaimFromContext]), or write effect and claim in one transaction (package durable).
//
// # Turns
//
// A Guard asks its [host.Host] for time, ids and tasks. Its exported functions take the host's turn themselves, so they are called
// by whoever does not hold it: requests, handlers, main.
package idempotency
