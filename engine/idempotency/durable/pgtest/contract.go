// Package pgtest is the contract between the de-duplication of events and a database: what package durable relies on. It runs on the model
// of sim/pgsim and on a real PostgreSQL: a test that the real server fails is wrong, and one that only the model fails is a bug of the model.
package pgtest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/fencepost-sim/fencepost/engine/host"
	"github.com/fencepost-sim/fencepost/engine/idempotency"
	"github.com/fencepost-sim/fencepost/engine/idempotency/durable"
	"github.com/fencepost-sim/fencepost/engine/idempotency/pgport"
)

// Subject is a database under the contract, without the table of claims.
type Subject struct {
	DB   pgport.DB
	Host host.Host
	// Effect is a business write: a row for the key $1.
	Effect *pgport.Statement
	// Effects counts the committed rows of a key.
	Effects func(key string) int
}

// Contract checks what is relied on. Each test opens an empty database.
func Contract(t *testing.T, open func(t *testing.T) Subject) {
	for _, test := range contract {
		t.Run(test.sentence, func(t *testing.T) {
			f := &fixture{T: t, Subject: open(t)}
			f.consumer = f.over(durable.Options{})
			f.succeeds(f.consumer.Migrate(t.Context()))
			test.check(f)
		})
	}
}

type fixture struct {
	*testing.T
	Subject
	consumer *durable.Consumer
}

func (f *fixture) over(options durable.Options) *durable.Consumer {
	f.Helper()
	options.Host = f.Host
	c, err := durable.Over(f.DB, options)
	f.succeeds(err)
	return c
}

func (f *fixture) succeeds(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

var event = durable.Event{ID: "E1", Topic: "orders"}

func (f *fixture) begin(isolation pgport.Isolation) pgport.Tx {
	f.Helper()
	tx, err := f.DB.Begin(f.Context(), isolation)
	f.succeeds(err)
	f.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	return tx
}

func (f *fixture) claims(tx pgport.Tx, e durable.Event, want bool) {
	f.Helper()
	if claimed, err := durable.Claim(f.Context(), tx, e); err != nil || claimed != want {
		f.Fatalf("claim of %v: %v, %v; want %v", e, claimed, err, want)
	}
}

// effect is a function that writes once.
func (f *fixture) effect(ctx context.Context, tx pgport.Tx) error {
	_, err := tx.Exec(ctx, f.Effect, event.ID)
	return err
}

func (f *fixture) consumes(c *durable.Consumer, want durable.Outcome) {
	f.Helper()
	if outcome, err := c.Consume(f.Context(), event, f.effect); err != nil || outcome != want {
		f.Fatalf("consume: %v, %v; want %v", outcome, err, want)
	}
}

func (f *fixture) effects(want int) {
	f.Helper()
	if got := f.Effects(event.ID); got != want {
		f.Fatalf("%d effects, want %d", got, want)
	}
}

var contract = []struct {
	sentence string
	check    func(f *fixture)
}{
	{"migrating again and by many at once changes nothing", func(f *fixture) {
		failures := make(chan error, 8)
		for range cap(failures) {
			go func() { failures <- f.over(durable.Options{}).Migrate(f.Context()) }()
		}
		for range cap(failures) {
			if err := <-failures; err != nil {
				f.Error(err)
			}
		}
	}},
	{"the first claim is true and later ones are false", func(f *fixture) {
		first := f.begin("")
		f.claims(first, event, true)
		f.claims(first, event, false)
		f.succeeds(first.Commit(f.Context()))
		f.claims(f.begin(""), event, false)
	}},
	{"one event on two topics is claimed on both", func(f *fixture) {
		tx := f.begin("")
		f.claims(tx, event, true)
		f.claims(tx, durable.Event{ID: event.ID, Topic: "orders#billing"}, true)
	}},
	{"a claim that is rolled back never was", func(f *fixture) {
		tx := f.begin("")
		f.claims(tx, event, true)
		f.succeeds(tx.Rollback(f.Context()))
		f.succeeds(tx.Rollback(f.Context()))
		f.claims(f.begin(""), event, true)
	}},
	{"a claim waits for the holder no longer than lock_timeout", func(f *fixture) {
		f.claims(f.begin(""), event, true)
		second := f.begin("")
		_, err := second.Text(f.Context(), pgport.LockTimeout, "30")
		f.succeeds(err)
		if _, err := durable.Claim(f.Context(), second, event); !errors.Is(err, idempotency.ErrInFlight) {
			f.Fatalf("got %v", err)
		}
		if _, err := durable.Claim(f.Context(), second, event); !pgport.HasCode(err, pgport.InFailedTransaction) {
			f.Errorf("the failed transaction goes on: %v", err)
		}
		if err := second.Commit(f.Context()); err == nil || errors.Is(err, pgport.ErrUnknownOutcome) {
			f.Errorf("the failed transaction commits: %v", err)
		}
	}},
	{"a claim that waited sees how the holder ended", func(f *fixture) {
		for name, commit := range map[string]bool{"committed": true, "rolled-back": false} {
			e := durable.Event{ID: name, Topic: "t"}
			holder, second := f.begin(""), f.begin("")
			f.claims(holder, e, true)
			claimed := make(chan bool)
			go func() {
				is, err := durable.Claim(f.Context(), second, e)
				if err != nil {
					f.Error(err)
				}
				claimed <- is
			}()
			if commit {
				f.succeeds(holder.Commit(f.Context()))
			} else {
				f.succeeds(holder.Rollback(f.Context()))
			}
			if is := <-claimed; is == commit {
				f.Errorf("%s: claimed %v", name, is)
			}
			f.succeeds(second.Rollback(f.Context()))
		}
	}},
	{"above read committed a commit behind the snapshot is a serialization failure and no duplicate", func(f *fixture) {
		for _, isolation := range []pgport.Isolation{pgport.RepeatableRead, pgport.Serializable} {
			e := durable.Event{ID: string(isolation), Topic: "t"}
			late, first := f.begin(isolation), f.begin("")
			_, err := late.Text(f.Context(), pgport.LockTimeout, "1000") // takes the snapshot
			f.succeeds(err)
			f.claims(first, e, true)
			f.succeeds(first.Commit(f.Context()))
			if _, err := durable.Claim(f.Context(), late, e); !errors.Is(err, durable.ErrRetry) {
				f.Errorf("%s: got %v", isolation, err)
			}
			f.claims(f.begin(isolation), e, false) // its snapshot shows the row
		}
	}},
	{"two transactions that wait for each other do not wait for ever", func(f *fixture) {
		a, b := durable.Event{ID: "a", Topic: "t"}, durable.Event{ID: "b", Topic: "t"}
		one, other := f.begin(""), f.begin("")
		f.claims(one, a, true)
		f.claims(other, b, true)
		results := make(chan error, 2)
		finish := func(tx pgport.Tx, e durable.Event) {
			_, err := durable.Claim(f.Context(), tx, e)
			_ = tx.Rollback(f.Context()) // frees the other
			results <- err
		}
		go finish(one, b)
		go finish(other, a)
		first, second := <-results, <-results
		if errors.Is(first, durable.ErrRetry) == errors.Is(second, durable.ErrRetry) {
			f.Errorf("got %v and %v, want one deadlock", first, second)
		}
	}},
	{"an event is consumed once, and its duplicate is none of the function's business", func(f *fixture) {
		f.consumes(f.consumer, durable.Consumed)
		f.consumes(f.consumer, durable.Duplicate)
		f.effects(1)
	}},
	{"an error of the function rolls claim and effect back", func(f *fixture) {
		failure := errors.New("no stock")
		_, err := f.consumer.Consume(f.Context(), event, func(ctx context.Context, tx pgport.Tx) error {
			return errors.Join(f.effect(ctx, tx), failure)
		})
		if !errors.Is(err, failure) {
			f.Errorf("got %v", err)
		}
		f.effects(0)
		f.consumes(f.consumer, durable.Consumed)
		f.effects(1)
	}},
	{"a panic of the function rolls back and goes on", func(f *fixture) {
		func() {
			defer func() {
				if value := recover(); value != "boom" {
					f.Errorf("recovered %v", value)
				}
			}()
			_, _ = f.consumer.Consume(f.Context(), event, func(ctx context.Context, tx pgport.Tx) error {
				f.succeeds(f.effect(ctx, tx))
				panic("boom")
			})
		}()
		f.consumes(f.consumer, durable.Consumed)
		f.effects(1)
	}},
	{"many who consume one event at once have one effect", func(f *fixture) {
		for i, isolation := range []pgport.Isolation{"", pgport.ReadCommitted, pgport.RepeatableRead, pgport.Serializable} {
			e := durable.Event{ID: fmt.Sprint("many", i), Topic: "t"}
			c := f.over(durable.Options{Isolation: isolation, Tries: 20, LockTimeout: 10 * time.Second})
			outcomes := make(chan durable.Outcome, 6)
			for range cap(outcomes) {
				go func() {
					outcome, err := c.Consume(f.Context(), e, func(ctx context.Context, tx pgport.Tx) error {
						_, err := tx.Exec(ctx, f.Effect, e.ID)
						return err
					})
					if err != nil {
						f.Errorf("%q: %v", isolation, err)
					}
					outcomes <- outcome
				}()
			}
			consumed := 0
			for range cap(outcomes) {
				if <-outcomes == durable.Consumed {
					consumed++
				}
			}
			if consumed != 1 || f.Effects(e.ID) != 1 {
				f.Errorf("%q: consumed %d times with %d effects", isolation, consumed, f.Effects(e.ID))
			}
		}
	}},
	{"at most once: a function that fails is not run again, and its event is lost", func(f *fixture) {
		runs, failure := 0, errors.New("no connection")
		for range 2 {
			_, err := f.consumer.ConsumeAtMostOnce(f.Context(), event, func(context.Context) error { runs++; return failure })
			if runs == 1 && err != nil && !errors.Is(err, failure) {
				f.Errorf("got %v", err)
			}
		}
		if runs != 1 {
			f.Errorf("%d runs", runs)
		}
	}},
	{"a sweep deletes old claims in batches and leaves young ones", func(f *fixture) {
		for i := range 7 {
			_, err := f.consumer.Consume(f.Context(), durable.Event{ID: fmt.Sprint(i), Topic: "t"}, nil)
			f.succeeds(err)
		}
		if deleted, err := f.consumer.Sweep(f.Context(), time.Hour, 3); err != nil || deleted != 0 {
			f.Errorf("young claims: %d, %v", deleted, err)
		}
		if deleted, err := f.consumer.Sweep(f.Context(), 0, 3); err != nil || deleted != 7 {
			f.Errorf("old claims: %d, %v", deleted, err)
		}
		if outcome, err := f.consumer.Consume(f.Context(), durable.Event{ID: "1", Topic: "t"}, nil); err != nil || outcome != durable.Consumed {
			f.Errorf("a swept event: %v, %v", outcome, err)
		}
	}},
	{"two sweeps at once do not wait for each other", func(f *fixture) {
		f.consumes(f.consumer, durable.Consumed)
		first, second := f.begin(""), f.begin("")
		for i, tx := range []pgport.Tx{first, second} {
			rows, err := tx.Exec(f.Context(), pgport.Sweep, int64(0), int64(10))
			if err != nil || rows != int64(1-i) {
				f.Errorf("sweep %d: %d, %v", i, rows, err)
			}
		}
		f.succeeds(first.Rollback(f.Context()))
		f.claims(f.begin(""), event, false)
	}},
}
