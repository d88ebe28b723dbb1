package durable_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-sim/fencepost/engine"
	"github.com/fencepost-sim/fencepost/engine/idempotency/durable"
	"github.com/fencepost-sim/fencepost/engine/idempotency/pgport"
	"github.com/fencepost-sim/fencepost/sim/pgsim"
)

var delivered = engine.Event[string]{ID: "E1", Topic: "orders", ConsumerGroup: "billing", Attempt: 2}

// counting returns a handler with an effect, which counts its calls.
func counting(c *durable.Consumer, calls *int) engine.Handler[string] {
	return durable.Handler(c, func(ctx context.Context, tx pgport.Tx, _ engine.Event[string]) error {
		*calls++
		return write(ctx, tx)
	})
}

func TestR64AnAttemptWaitsForAnOpenTransactionAndSpendsNoRetry(t *testing.T) {
	for _, commit := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			server, client, h := modelled()
			c, calls := consumer(t, client, durable.Options{Host: h}), 0
			holder, err := client.Begin(t.Context(), "")
			if err != nil {
				t.Fatal(err)
			}
			if claimed, err := durable.Claim(t.Context(), holder, durable.EventOf(delivered)); err != nil || !claimed {
				t.Fatal(claimed, err)
			}
			ended := make(chan error)
			go func() { ended <- counting(c, &calls)(t.Context(), delivered) }()
			time.Sleep(10 * time.Second) // many times lock_timeout
			end := holder.Rollback
			if commit {
				end = holder.Commit
			}
			if err := end(t.Context()); err != nil {
				t.Error(err)
			}
			want := 1
			if commit {
				want = 0 // a duplicate
			}
			if err := <-ended; err != nil || calls != want || server.Effects(delivered.ID) != want {
				t.Errorf("commit %v: %d calls, %v", commit, calls, err)
			}
		})
	}
}

func TestAnAttemptThatCannotReachPostgresWaitsUntilItsHandlerWasCalled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, client, h := modelled()
		reported := 0
		c, calls := consumer(t, client, durable.Options{Host: h, OnError: func(error) { reported++ }}), 0
		lost := map[string]int{"begin": 1, pgport.LockTimeout.Name: 1, pgport.Claim.Name: 1, pgsim.PointCommit: 1}
		client.Strike = func(point string) pgsim.Fault {
			if lost[point] == 0 {
				return pgsim.NoFault
			}
			lost[point]--
			return pgsim.LoseReply
		}
		if err := counting(c, &calls)(t.Context(), delivered); !errors.Is(err, pgport.ErrUnknownOutcome) || calls != 1 || reported != 2 {
			t.Errorf("%d calls, %v, %d reports", calls, err, reported)
		}
		if err := counting(c, &calls)(t.Context(), delivered); err != nil || calls != 1 || server.Effects(delivered.ID) != 1 {
			t.Errorf("redelivery: %d calls, %v, %d effects", calls, err, server.Effects(delivered.ID))
		}
	})
}

func TestWhatPostgresRefusesFailsTheAttempt(t *testing.T) {
	_, client, h := modelled()
	c, err := durable.Over(client, durable.Options{Host: h}) // and nobody has migrated
	if err != nil {
		t.Fatal(err)
	}
	calls := 0
	if err := counting(c, &calls)(t.Context(), delivered); !pgport.HasCode(err, "42P01") || calls != 0 {
		t.Errorf("%d calls, %v", calls, err)
	}
}

func testHandler(t *testing.T, pool *pgxpool.Pool) {
	x, err := durable.NewPgxExecutor(pool, durable.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := x.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	handler := durable.PgxHandler(x, func(ctx context.Context, tx pgx.Tx, event engine.Event[string]) error {
		_, err := tx.Exec(ctx, "INSERT INTO effects (id) VALUES ($1)", event.ID)
		return err
	})
	mail := delivered
	mail.ConsumerGroup = "mail"
	for _, event := range []engine.Event[string]{delivered, delivered, mail} {
		if err := handler(t.Context(), event); err != nil {
			t.Error(err)
		}
	}
	if n := effects(t, pool, delivered.ID); n != 2 {
		t.Errorf("%d effects; want one for each of two groups", n)
	}
}

func TestAnEventOfTheEngineHasATimeThatCanBeTooOld(t *testing.T) {
	_, client, h := modelled()
	c := consumer(t, client, durable.Options{Host: h, RefuseOlder: true})
	handler := durable.Handler(c, func(context.Context, pgport.Tx, engine.Event[string]) error { return nil })
	for age, want := range map[time.Duration]error{time.Hour: nil, 31 * 24 * time.Hour: durable.ErrTooOld} {
		e := engine.Event[string]{ID: age.String(), Topic: "t", ConsumerGroup: "g", CreatedAt: time.Now().Add(-age)}
		if err := handler(t.Context(), e); !errors.Is(err, want) {
			t.Errorf("%v: %v", age, err)
		}
	}
}
