package durable_test

import (
	"context"
	"errors"
	"os/exec"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"github.com/fencepost-sim/fencepost/engine/host"
	"github.com/fencepost-sim/fencepost/engine/idempotency"
	"github.com/fencepost-sim/fencepost/engine/idempotency/durable"
	"github.com/fencepost-sim/fencepost/engine/idempotency/durable/pgtest"
	"github.com/fencepost-sim/fencepost/engine/idempotency/internal/testserver"
	"github.com/fencepost-sim/fencepost/engine/idempotency/pgport"
	"github.com/fencepost-sim/fencepost/sim/pgsim"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func modelled() (*pgsim.Server, *pgsim.Client, host.Host) {
	server, h := pgsim.New(), host.New(host.Options{})
	return server, pgsim.NewClient(server, h, time.Now), h
}

func TestR61R62R63R65TheModelKeepsTheContract(t *testing.T) {
	pgtest.Contract(t, func(*testing.T) pgtest.Subject {
		server, client, h := modelled()
		return pgtest.Subject{DB: client, Host: h, Effect: pgsim.Effect, Effects: func(key string) (count int) {
			h.Enter(func() { count = server.Effects(key) })
			return count
		}}
	})
}

// database connects to a real server and empties it.
func database(t *testing.T, connection string) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), connection)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	for _, sql := range []string{"DROP TABLE IF EXISTS consumed_events", "DROP TABLE IF EXISTS effects", "CREATE TABLE effects (id text NOT NULL)"} {
		if _, err := pool.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	return pool
}

func effects(t *testing.T, pool *pgxpool.Pool, key string) (count int) {
	t.Helper()
	if err := pool.QueryRow(context.Background(), "SELECT count(*) FROM effects WHERE id = $1", key).Scan(&count); err != nil {
		t.Error(err)
	}
	return count
}

func TestR61R62R63R65ARealPostgresKeepsTheContract(t *testing.T) {
	connection := testserver.Postgres(t)
	pgtest.Contract(t, func(t *testing.T) pgtest.Subject {
		pool := database(t, connection+"&pool_max_conns=10")
		return pgtest.Subject{DB: durable.Port(pool), Effect: pgsim.Effect, Effects: func(key string) int { return effects(t, pool, key) }}
	})
}

func TestOnARealPostgres(t *testing.T) {
	connection := testserver.Postgres(t)
	t.Run("R65 claim and business write commit or roll back together", func(t *testing.T) { testBusinessWrite(t, database(t, connection)) })
	t.Run("C17 a table of another shape fails the boot", func(t *testing.T) { testShape(t, database(t, connection)) })
	t.Run("a duplicate with a pool of two does not stall", func(t *testing.T) { testSmallPool(t, database(t, connection+"&pool_max_conns=2")) })
	t.Run("a handler of the engine has one effect for each group", func(t *testing.T) { testHandler(t, database(t, connection)) })
	t.Run("R66 sweep by hand", func(t *testing.T) { testSweepByHand(t, database(t, connection)) })
}

var event = durable.Event{ID: "E1", Topic: "orders"}

func testBusinessWrite(t *testing.T, pool *pgxpool.Pool) {
	x, err := durable.NewDurablePgxExecutor(pool, durable.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := durable.Migrate(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	worker, err := x.Worker("orders", func(ctx context.Context, tx pgx.Tx, e durable.Event) error {
		_, err := tx.Exec(ctx, "INSERT INTO effects (id) VALUES ($1)", e.ID)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []durable.Outcome{durable.Consumed, durable.Duplicate, durable.Duplicate} {
		if outcome, err := worker(t.Context(), event); err != nil || outcome != want {
			t.Errorf("got %v, %v; want %v", outcome, err, want)
		}
	}
	tx, err := pool.Begin(t.Context()) // the caller's own transaction
	if err != nil {
		t.Fatal(err)
	}
	other := durable.Event{ID: "E2", Topic: "orders"}
	if claimed, err := durable.ClaimEvent(t.Context(), tx, other); err != nil || !claimed {
		t.Errorf("claim: %v, %v", claimed, err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if outcome, err := worker(t.Context(), other); err != nil || outcome != durable.Consumed {
		t.Errorf("after a rollback: %v, %v", outcome, err)
	}
	if effects(t, pool, "E1") != 1 || effects(t, pool, "E2") != 1 {
		t.Errorf("%d and %d effects", effects(t, pool, "E1"), effects(t, pool, "E2"))
	}
	if _, err := x.Consume(t.Context(), durable.Event{ID: "E3", Topic: "orders"}, func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "INSERT INTO nowhere VALUES (1)")
		return err
	}); !pgport.HasCode(err, "42P01") {
		t.Errorf("an error of the function lost its code: %v", err)
	}
}

func testShape(t *testing.T, pool *pgxpool.Pool) {
	for _, sql := range []string{
		"CREATE TABLE consumed_events (event_id text, topic text, consumed_at timestamptz DEFAULT now(), PRIMARY KEY (event_id))",
		"CREATE TABLE consumed_events (event_id text, topic text, subscriber text, consumed_at timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (event_id, topic))",
		"CREATE TABLE consumed_events (event_id uuid, topic text, consumed_at timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (event_id, topic))",
	} {
		if _, err := pool.Exec(t.Context(), "DROP TABLE IF EXISTS consumed_events"); err != nil {
			t.Fatal(err)
		}
		if _, err := pool.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
		var shape *durable.ShapeError
		if err := durable.Migrate(t.Context(), pool); !errors.As(err, &shape) || shape.Expected == shape.Actual {
			t.Errorf("%s: %v", sql, err)
		}
	}
}

// With two connections, one waits for the other's claim: it must give up, and free its connection, before the holder needs a second one.
func testSmallPool(t *testing.T, pool *pgxpool.Pool) {
	x, err := durable.NewPgxExecutor(pool, durable.Options{LockTimeout: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	if err := x.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	duplicate := make(chan error, 1)
	outcome, err := x.Consume(t.Context(), event, func(ctx context.Context, tx pgx.Tx) error {
		go func() {
			_, err := x.Consume(ctx, event, func(context.Context, pgx.Tx) error { return errors.New("ran twice") })
			duplicate <- err
		}()
		if err := <-duplicate; !errors.Is(err, idempotency.ErrInFlight) {
			t.Errorf("the duplicate got %v", err)
		}
		_, err := pool.Exec(ctx, "SELECT 1") // the second connection
		return err
	})
	if err != nil || outcome != durable.Consumed {
		t.Errorf("got %v, %v", outcome, err)
	}
}

func testSweepByHand(t *testing.T, pool *pgxpool.Pool) {
	if err := durable.Migrate(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	for age, want := range map[string]int64{"31 days": 1, "29 days": 0} {
		if _, err := pool.Exec(t.Context(), "INSERT INTO consumed_events (event_id, topic, consumed_at) VALUES ('old', 't', now() - $1::text::interval)", age); err != nil {
			t.Fatal(err)
		}
		if deleted, err := durable.Sweep(t.Context(), pool, 30*24*time.Hour, 1000); err != nil || deleted != want {
			t.Errorf("%s: deleted %d, %v", age, deleted, err)
		}
		if _, err := pool.Exec(t.Context(), "DELETE FROM consumed_events"); err != nil {
			t.Fatal(err)
		}
	}
}

func consumer(t *testing.T, client *pgsim.Client, options durable.Options) *durable.Consumer {
	t.Helper()
	c, err := durable.Over(client, options)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	return c
}

func write(ctx context.Context, tx pgport.Tx) error {
	_, err := tx.Exec(ctx, pgsim.Effect, event.ID)
	return err
}

// D1: acknowledged means exactly one committed effect, and a redelivery repairs whatever is not acknowledged. Every request is lost in
// turn, before and after the server did it.
func TestC16R64AnAcknowledgedEventHasExactlyOneEffectWhicheverRequestIsLost(t *testing.T) {
	for _, point := range []string{"begin", pgport.LockTimeout.Name, pgport.Claim.Name, pgsim.Effect.Name, pgsim.PointCommit} {
		for _, fault := range []pgsim.Fault{pgsim.LoseRequest, pgsim.LoseReply} {
			server, client, h := modelled()
			c := consumer(t, client, durable.Options{Host: h})
			struck := false
			client.Strike = func(at string) pgsim.Fault {
				if at == point && !struck {
					struck = true
					return fault
				}
				return pgsim.NoFault
			}
			_, err := c.Consume(t.Context(), event, write)
			if !struck || !errors.Is(err, pgport.ErrUnknownOutcome) {
				t.Errorf("%s, fault %d: acknowledged with %v", point, fault, err)
			}
			want := durable.Consumed
			if point == pgsim.PointCommit && fault == pgsim.LoseReply {
				want = durable.Duplicate // it was committed: the row settles it
			}
			if outcome, err := c.Consume(t.Context(), event, write); err != nil || outcome != want || server.Effects(event.ID) != 1 {
				t.Errorf("%s, fault %d: redelivery: %v, %v, %d effects", point, fault, outcome, err, server.Effects(event.ID))
			}
		}
	}
}

// The hole that the one transaction closes: a claim that commits alone loses the event when the process dies behind it.
func TestC16AClaimThatCommitsAloneLosesTheEventAndTheOneTransactionDoesNot(t *testing.T) {
	server, client, h := modelled()
	c := consumer(t, client, durable.Options{Host: h})
	crash := errors.New("the process died")
	if _, err := c.ConsumeAtMostOnce(t.Context(), event, func(context.Context) error { return crash }); !errors.Is(err, crash) {
		t.Error(err)
	}
	outcome, err := c.Consume(t.Context(), event, write)
	if err != nil || outcome != durable.Duplicate || server.Effects(event.ID) != 0 {
		t.Errorf("the event was not lost: %v, %v, %d effects", outcome, err, server.Effects(event.ID))
	}
	twin := durable.Event{ID: "E2", Topic: event.Topic}
	_, err = c.Consume(t.Context(), twin, func(context.Context, pgport.Tx) error { return crash })
	if !errors.Is(err, crash) || server.Claimed(twin.ID, twin.Topic) {
		t.Errorf("the twin: %v, claimed %v", err, server.Claimed(twin.ID, twin.Topic))
	}
}

func TestR67AFailoverThatLosesCommitsLosesTheEffectWithTheClaim(t *testing.T) {
	server, client, h := modelled()
	c := consumer(t, client, durable.Options{Host: h})
	for range 3 {
		if outcome, err := c.Consume(t.Context(), event, write); err != nil || outcome != durable.Consumed || server.Effects(event.ID) != 1 {
			t.Errorf("%v, %v, %d effects", outcome, err, server.Effects(event.ID))
		}
		server.Failover(1)
	}
}

func TestR60C17MigrationIsIdempotentAndChecksTheShapeOnTheModel(t *testing.T) {
	_, client, h := modelled()
	c := consumer(t, client, durable.Options{Host: h})
	if err := c.Migrate(t.Context()); err != nil {
		t.Error(err)
	}
	server, client, h := modelled()
	server.Foreign("event_id uuid not null; key event_id")
	c, err := durable.Over(client, durable.Options{Host: h})
	if err != nil {
		t.Fatal(err)
	}
	var shape *durable.ShapeError
	if err := c.Migrate(t.Context()); !errors.As(err, &shape) || !strings.Contains(err.Error(), "event_id uuid") {
		t.Errorf("got %v", err)
	}
}

func TestR61C19TheDefinitionOfTheTableIsPinned(t *testing.T) {
	const shared = `CREATE TABLE IF NOT EXISTS consumed_events (
  event_id text NOT NULL,
  topic text NOT NULL,
  consumed_at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (event_id, topic)
)`
	if pgport.CreateTable.SQL != shared {
		t.Error("the definition that other libraries share was changed")
	}
	for _, wanted := range []string{"ON CONFLICT (event_id, topic) DO NOTHING"} {
		if !strings.Contains(pgport.Claim.SQL, wanted) {
			t.Errorf("the claim lacks %q", wanted)
		}
	}
	if !strings.Contains(pgport.Sweep.SQL, "SKIP LOCKED") || !strings.Contains(pgport.CreateIndex.SQL, "(consumed_at)") {
		t.Error("the sweep locks what others sweep, or has no index")
	}
}

func TestC18TwoConsumersUnderOneTopicAreRefused(t *testing.T) {
	_, client, h := modelled()
	c := consumer(t, client, durable.Options{Host: h})
	work := func(ctx context.Context, tx pgport.Tx, _ durable.Event) error { return write(ctx, tx) }
	worker, err := c.Worker("orders", work)
	if err != nil {
		t.Fatal(err)
	}
	for _, topic := range []string{"orders", ""} {
		if _, err := c.Worker(topic, work); !errors.Is(err, idempotency.ErrConfiguration) {
			t.Errorf("topic %q: %v", topic, err)
		}
	}
	if _, err := c.Worker("orders#billing", work); err != nil {
		t.Error(err)
	}
	if _, err := worker(t.Context(), durable.Event{ID: "E1", Topic: "payments"}); !errors.Is(err, idempotency.ErrConfiguration) {
		t.Errorf("another topic's event: %v", err)
	}
}

func TestR66TheSweeperRunsAtStartAndOnceADay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, client, h := modelled()
		c := consumer(t, client, durable.Options{Host: h})
		c.Start()
		c.Start()
		time.Sleep(12 * time.Hour) // sweeps come at the half days of the claim's age
		if _, err := c.Consume(t.Context(), event, write); err != nil {
			t.Fatal(err)
		}
		for day := range 32 {
			time.Sleep(24 * time.Hour)
			synctest.Wait()
			var claimed bool
			h.Enter(func() { claimed = server.Claimed(event.ID, event.Topic) })
			if claimed != (day < 30) {
				t.Errorf("after %d days: claimed %v", day+1, claimed)
			}
		}
		if err := c.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestAnEventOlderThanTheRetentionCanBeRefused(t *testing.T) {
	_, client, h := modelled()
	c := consumer(t, client, durable.Options{Host: h, RefuseOlder: true})
	for age, want := range map[time.Duration]error{time.Hour: nil, 31 * 24 * time.Hour: durable.ErrTooOld} {
		e := durable.Event{ID: age.String(), Topic: "t", Time: time.Now().Add(-age)}
		if _, err := c.Consume(t.Context(), e, nil); !errors.Is(err, want) {
			t.Errorf("%v: %v", age, err)
		}
	}
	if _, err := c.Consume(t.Context(), event, nil); !errors.Is(err, idempotency.ErrConfiguration) {
		t.Errorf("an event without a time: %v", err)
	}
}

func TestWrongOptionsOfAConsumerAreRefused(t *testing.T) {
	_, client, _ := modelled()
	for _, o := range []durable.Options{{LockTimeout: time.Hour}, {LockTimeout: -1}, {Tries: -1}, {Retention: time.Minute}, {Isolation: "chaos"}} {
		if _, err := durable.Over(client, o); !errors.Is(err, idempotency.ErrConfiguration) {
			t.Errorf("%+v: %v", o, err)
		}
	}
	if _, err := durable.NewPgxExecutor(nil, durable.Options{}); !errors.Is(err, idempotency.ErrConfiguration) {
		t.Errorf("no pool: %v", err)
	}
	c, _ := durable.Over(client, durable.Options{})
	if _, err := c.Consume(t.Context(), durable.Event{ID: "x"}, nil); !errors.Is(err, idempotency.ErrConfiguration) {
		t.Errorf("no topic: %v", err)
	}
}

func TestR68TheDriverIsOnlyWhereItIsNeeded(t *testing.T) {
	for folder, needs := range map[string]bool{"..": false, "../redisstore": false, "../httpidem": false, "../pgport": false, ".": true} {
		out, err := exec.Command("go", "list", "-deps", folder).Output()
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(string(out), "github.com/jackc/pgx"); got != needs {
			t.Errorf("%s needs pgx: %v", folder, got)
		}
	}
}

func TestASweepThatCannotEndOrWouldDeleteAllIsRefused(t *testing.T) {
	_, client, h := modelled()
	c := consumer(t, client, durable.Options{Host: h})
	for _, batch := range []int{0, -1} {
		if _, err := c.Sweep(t.Context(), time.Hour, batch); !errors.Is(err, idempotency.ErrConfiguration) {
			t.Errorf("batch %d: %v", batch, err)
		}
		if _, err := durable.Sweep(t.Context(), nil, time.Hour, batch); !errors.Is(err, idempotency.ErrConfiguration) {
			t.Errorf("batch %d, once: %v", batch, err)
		}
	}
	if _, err := c.Sweep(t.Context(), -time.Hour, 1); !errors.Is(err, idempotency.ErrConfiguration) {
		t.Errorf("a negative span: %v", err)
	}
}

func TestALockThatTheFunctionWaitsForIsNotTheEvent(t *testing.T) {
	_, client, h := modelled()
	c := consumer(t, client, durable.Options{Host: h})
	_, err := c.Consume(t.Context(), event, func(context.Context, pgport.Tx) error {
		return &pgport.Error{Code: pgport.LockNotAvailable, Message: "a row of the function's"}
	})
	if err == nil || errors.Is(err, idempotency.ErrInFlight) {
		t.Errorf("got %v", err)
	}
}
