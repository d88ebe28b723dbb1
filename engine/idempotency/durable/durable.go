// Package durable de-duplicates events in PostgreSQL: claim, business writes and COMMIT are one transaction, so an event has its effect
// exactly once whatever crashes, as long as the effect is a write in that transaction.
//
//	x, err := durable.NewPgxExecutor(pool, durable.Options{})
//	err = x.Migrate(ctx)
//	...
//	outcome, err := x.Consume(ctx, durable.Event{ID: e.ID, Topic: e.Topic}, func(ctx context.Context, tx pgx.Tx) error {
//		_, err := tx.Exec(ctx, "UPDATE accounts SET …", …)
//		return err
//	})
//
// Acknowledge the event if and only if err is nil: also when the reply to COMMIT was lost, the redelivery finds the row, or does not, and is
// right in both cases.
//
// # What is promised, and what is not
//
// Unlike a claim in Redis, a row survives a flush, an eviction and a failover of Redis. It does not survive the loss of PostgreSQL's
// own last commits (a failover to an asynchronous replica): then the business writes of that transaction are lost with it. A
// redelivery repairs both; an event that was acknowledged before the failover is not delivered again. What the function does outside of its
// transaction can happen again. Claims are deleted after the retention: an event that is redelivered later is consumed again (see Options.RefuseOlder).
//
// The table has no column for the consumer. If more than one consumes a topic in one database, each appends its name to the topic: "orders#billing".
package durable

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/fencepost-sim/fencepost/engine/host"
	"github.com/fencepost-sim/fencepost/engine/idempotency"
	"github.com/fencepost-sim/fencepost/engine/idempotency/pgport"
)

var (
	// ErrRetry means that the transaction lost against another one and can be made again: serialization failure or deadlock.
	ErrRetry = errors.New("durable: transaction must be retried")
	// ErrTooOld means that an event is older than its claim would have been kept, so that nobody knows whether it was consumed.
	ErrTooOld = errors.New("durable: event is older than the retention of claims")
	// ErrShape means that the table is there and is not what this package needs.
	ErrShape = errors.New("durable: table consumed_events has another shape")
)

// Event names an event.
type Event struct {
	ID    string
	Topic string    // or "topic#subscriber", if more than one consumer shares the database
	Time  time.Time // when it was published; only for Options.RefuseOlder
}

func (e Event) check() error {
	if e.ID == "" || e.Topic == "" {
		return &idempotency.ConfigurationError{Field: "Event", Value: e, Allowed: "an ID and a Topic that are not empty"}
	}
	return nil
}

// Outcome tells what became of an event.
type Outcome uint8

// The outcomes. Both are to be acknowledged, if there is no error.
const (
	Consumed  Outcome = iota + 1 // the function ran, and its writes are committed
	Duplicate                    // it was consumed before: the function did not run
)

// Options configures a Consumer. The zero value is the default.
type Options struct {
	// LockTimeout is how long a claim waits for another transaction that consumes the same event; then the error is ErrInFlight. A
	// waiting claim holds a connection. It is lock_timeout of the whole transaction: the function may set another one for its own statements. Default 1 s, at most 1 minute.
	LockTimeout time.Duration
	// Isolation of the transactions. Default: the database's.
	Isolation pgport.Isolation
	// Tries is how often a transaction is made that fails with a serialization failure or a deadlock. Default 3.
	Tries int
	// Retention is how long claims are kept. It must exceed the time after which the broker stops redelivering. Default 30 days.
	Retention time.Duration
	// RefuseOlder makes Consume refuse events whose Time is older than Retention, with ErrTooOld.
	RefuseOlder bool
	// OnError gets every error of the sweeper, and errors for which a Handler waits. It must not block.
	OnError func(error)
	// Host is the machine. Default host.New.
	Host host.Host
}

func (o Options) withDefaults() (Options, error) {
	if o.LockTimeout == 0 {
		o.LockTimeout = time.Second
	}
	if o.Tries == 0 {
		o.Tries = 3
	}
	if o.Retention == 0 {
		o.Retention = 30 * 24 * time.Hour
	}
	if o.OnError == nil {
		o.OnError = func(error) {}
	}
	if o.Host == nil {
		o.Host = host.New(host.Options{})
	}
	switch {
	case o.LockTimeout < time.Millisecond || o.LockTimeout > time.Minute:
		return o, &idempotency.ConfigurationError{Field: "Options.LockTimeout", Value: o.LockTimeout, Allowed: "1ms to 1m"}
	case o.Tries < 1 || o.Tries > 100:
		return o, &idempotency.ConfigurationError{Field: "Options.Tries", Value: o.Tries, Allowed: "1 to 100"}
	case o.Retention < time.Hour || o.Retention > 10*366*24*time.Hour:
		return o, &idempotency.ConfigurationError{Field: "Options.Retention", Value: o.Retention, Allowed: "1h to 10 years"}
	}
	switch o.Isolation {
	case "", pgport.ReadCommitted, pgport.RepeatableRead, pgport.Serializable:
		return o, nil
	}
	return o, &idempotency.ConfigurationError{Field: "Options.Isolation", Value: o.Isolation, Allowed: "empty, read committed, repeatable read or serializable"}
}

// Consumer consumes events over a port. NewPgxExecutor makes one for pgx. It is safe for concurrent use.
type Consumer struct {
	db      pgport.DB
	options Options
	host    host.Host
	topics  map[string]bool
	changed host.Signal
	stop    context.CancelCauseFunc
	running bool
}

// Over returns a consumer over a port.
func Over(db pgport.DB, options Options) (*Consumer, error) {
	options, err := options.withDefaults()
	if err != nil {
		return nil, err
	}
	if db == nil {
		return nil, &idempotency.ConfigurationError{Field: "db", Value: nil, Allowed: "a database"}
	}
	return &Consumer{db: db, options: options, host: options.Host, topics: map[string]bool{}, changed: options.Host.NewSignal()}, nil
}

// Consume claims the event, runs the function and commits, in one transaction. A duplicate is no error.
//
// The function runs again, in a new transaction, when its transaction failed with a serialization failure or a deadlock. Its
// error, and its panic, roll everything back. ErrInFlight means that another transaction consumes the event: do not
// acknowledge. So does every other error.
func (c *Consumer) Consume(ctx context.Context, e Event, function func(ctx context.Context, tx pgport.Tx) error) (outcome Outcome, err error) {
	if err := c.admit(e); err != nil {
		return 0, err
	}
	for try := 1; ; try++ {
		outcome, err = c.consumeOnce(ctx, e, function)
		if !errors.Is(err, ErrRetry) || try == c.options.Tries || ctx.Err() != nil {
			return outcome, err
		}
	}
}

func (c *Consumer) consumeOnce(ctx context.Context, e Event, function func(ctx context.Context, tx pgport.Tx) error) (Outcome, error) {
	tx, err := c.db.Begin(ctx, c.options.Isolation)
	if err != nil {
		return 0, fmt.Errorf("durable: begin: %w", err)
	}
	committed := false
	defer func() {
		if !committed { // an error, a duplicate, a panic or runtime.Goexit
			_ = tx.Rollback(context.WithoutCancel(ctx))
		}
	}()
	claimed, err := c.claim(ctx, tx, e)
	if err != nil {
		return 0, err
	}
	if !claimed {
		return Duplicate, nil
	}
	if function != nil {
		if err := function(ctx, tx); err != nil {
			return 0, retryable(err)
		}
	}
	if err := tx.Commit(ctx); err != nil {
		return 0, classify(fmt.Errorf("durable: commit: %w", err))
	}
	committed = true
	return Consumed, nil
}

// claim claims within the transaction, waiting for others no longer than LockTimeout.
func (c *Consumer) claim(ctx context.Context, tx pgport.Tx, e Event) (claimed bool, err error) {
	timeout := strconv.FormatInt(c.options.LockTimeout.Milliseconds(), 10)
	if _, err := tx.Text(ctx, pgport.LockTimeout, timeout); err != nil {
		return false, classify(fmt.Errorf("durable: lock timeout: %w", err))
	}
	return Claim(ctx, tx, e)
}

// Claim claims the event within the caller's transaction: it is claimed if and only if that transaction commits. It is false if
// the event was consumed before. ErrInFlight if another transaction holds the event for longer than lock_timeout; ErrRetry if the transaction's
// snapshot is older than the other's commit.
func Claim(ctx context.Context, tx pgport.Executor, e Event) (claimed bool, err error) {
	if err := e.check(); err != nil {
		return false, err
	}
	rows, err := tx.Exec(ctx, pgport.Claim, e.ID, e.Topic)
	if err != nil {
		return false, classify(fmt.Errorf("durable: claim: %w", err))
	}
	return rows == 1, nil
}

// classify adds what an error of the server means that comes from a step of the claim.
func classify(err error) error {
	if pgport.HasCode(err, pgport.LockNotAvailable) {
		return fmt.Errorf("%w: %w", idempotency.ErrInFlight, err)
	}
	return retryable(err)
}

// retryable marks what a new transaction may not meet again. That a function waited too long for a lock of its own says nothing about the event.
func retryable(err error) error {
	if pgport.HasCode(err, pgport.SerializationFailure, pgport.DeadlockDetected) {
		return fmt.Errorf("%w: %w", ErrRetry, err)
	}
	return err
}

// ConsumeAtMostOnce commits the claim alone, and then runs the function. If the process dies in between, or the function fails, the event is
// lost: its redelivery is a duplicate. Use it only where running twice is worse than not at all, and the effect cannot
// be part of a transaction.
func (c *Consumer) ConsumeAtMostOnce(ctx context.Context, e Event, function func(ctx context.Context) error) (Outcome, error) {
	outcome, err := c.Consume(ctx, e, nil)
	if err != nil || outcome == Duplicate {
		return outcome, err
	}
	return outcome, function(ctx)
}

func (c *Consumer) admit(e Event) error {
	if err := e.check(); err != nil {
		return err
	}
	if !c.options.RefuseOlder {
		return nil
	}
	if e.Time.IsZero() {
		return &idempotency.ConfigurationError{Field: "Event.Time", Value: e.Time, Allowed: "a time, since Options.RefuseOlder is set"}
	}
	var now time.Time
	c.host.Enter(func() { now = c.host.Now() })
	if age := now.Sub(e.Time); age > c.options.Retention {
		return fmt.Errorf("%w: %s of %s is %v old", ErrTooOld, e.ID, e.Topic, age)
	}
	return nil
}

// Worker registers the only consumer of a topic in this process and returns what consumes its events. Two consumers under one
// topic would take each other's events for duplicates: the second gets an error.
func (c *Consumer) Worker(topic string, function func(ctx context.Context, tx pgport.Tx, e Event) error) (func(ctx context.Context, e Event) (Outcome, error), error) {
	if topic == "" {
		return nil, &idempotency.ConfigurationError{Field: "topic", Value: topic, Allowed: "a name that is not empty"}
	}
	taken := false
	c.host.Enter(func() {
		taken = c.topics[topic]
		c.topics[topic] = true
	})
	if taken {
		return nil, &idempotency.ConfigurationError{Field: "topic", Value: topic, Allowed: `a topic without a consumer; write "topic#subscriber" if there are more`}
	}
	return func(ctx context.Context, e Event) (Outcome, error) {
		if e.Topic != topic {
			return 0, &idempotency.ConfigurationError{Field: "Event.Topic", Value: e.Topic, Allowed: topic}
		}
		return c.Consume(ctx, e, func(ctx context.Context, tx pgport.Tx) error { return function(ctx, tx, e) })
	}, nil
}
