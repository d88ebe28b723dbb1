package sim

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/fencepost-sim/fencepost/engine/host"
	"github.com/fencepost-sim/fencepost/engine/idempotency/pgport"
	"github.com/fencepost-sim/fencepost/sim/journal"
	"github.com/fencepost-sim/fencepost/sim/pgsim"
)

// PostgresCollection is under what name the journal keeps the claims in PostgreSQL, by "event topic".
const PostgresCollection = "postgres." + pgport.Table

// PostgresPoints are the points at which guards ask PostgreSQL. The effect itself, a row in the guard's transaction, is PointEffect.
var PostgresPoints = []string{
	"postgres.begin", postgresPoint(pgport.MigrationLock), postgresPoint(pgport.CreateTable), postgresPoint(pgport.Shape),
	postgresPoint(pgport.CreateIndex), postgresPoint(pgport.LockTimeout), postgresPoint(pgport.Claim), "postgres.commit", "postgres.rollback",
	"postgres.commit-migration",
}

// postgresPoint is the statement's name as a word of a plan.
func postgresPoint(statement *pgport.Statement) string {
	if statement == pgsim.Effect {
		return PointEffect
	}
	return "postgres." + strings.ReplaceAll(statement.Name, " ", "-")
}

// Postgres returns the connections of this process to PostgreSQL, with the world's decoration. When the process dies they are closed, and
// what is not committed is rolled back.
func (p *Process) Postgres() pgport.DB {
	w := p.world
	if p.postgres == nil {
		p.postgres = pgsim.NewClient(w.postgres, p.Host(), w.ServerNow)
	}
	var db pgport.DB = &simulatedPostgres{p, p.instance, p.postgres}
	if w.config.DecoratePostgres != nil {
		db = w.config.DecoratePostgres(p.name, db)
	}
	return db
}

// disconnect is what servers do about the connections of a process that has died.
func (p *Process) disconnect() {
	if p.postgres != nil {
		p.postgres.Disconnect()
	}
}

// simulatedPostgres is what one life of a process sees of PostgreSQL.
type simulatedPostgres struct {
	process *Process
	life    *instance
	client  *pgsim.Client
}

var _ pgport.DB = (*simulatedPostgres)(nil)

var postgresPeer = &peer{pgport.ErrUnknownOutcome, func(kind string) error {
	return &pgport.Error{Code: "42501", Message: "permission denied: " + kind} // insufficient_privilege
}}

// ask is one round trip.
func (d *simulatedPostgres) ask(ctx context.Context, point string, apply func() (concerned int64, err error)) error {
	if d.life.over {
		panic(host.Killed{})
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	c := call{d.process.world, d.process.world.current, point, postgresPeer}
	return c.exchange(strings.TrimPrefix(point, "postgres."), "", func() error {
		concerned, err := apply()
		c.applied(int(concerned), err)
		return err
	})
}

// Begin implements pgport.DB.
func (d *simulatedPostgres) Begin(ctx context.Context, isolation pgport.Isolation) (pgport.Tx, error) {
	t := &simulatedTx{db: d, commit: "postgres.commit"}
	err := d.ask(ctx, "postgres.begin", func() (_ int64, err error) {
		t.tx, err = d.client.Open(ctx, isolation)
		return 0, err
	})
	if err != nil {
		t.drop(err)
		return nil, err
	}
	return t, nil
}

// simulatedTx is one transaction.
type simulatedTx struct {
	db      *simulatedPostgres
	tx      *pgsim.Tx
	effects []journal.Event // made in it, to be told when it is committed
	commit  string          // the point of its COMMIT
}

var _ pgport.Tx = (*simulatedTx)(nil)

// drop closes a connection on which a message was lost.
func (t *simulatedTx) drop(err error) {
	if t.tx != nil && errors.Is(err, pgport.ErrUnknownOutcome) {
		t.tx.Drop()
	}
}

// Exec implements pgport.Tx.
func (t *simulatedTx) Exec(ctx context.Context, statement *pgport.Statement, args ...any) (rows int64, err error) {
	if statement == pgport.MigrationLock {
		t.commit += "-migration"
	}
	err = t.db.ask(ctx, postgresPoint(statement), func() (int64, error) {
		rows, err = t.tx.Exec(ctx, statement, args...)
		return rows, err
	})
	if t.drop(err); err != nil {
		return 0, err
	}
	if statement == pgsim.Effect {
		err = t.performed(ctx, fmt.Sprint(args...))
	}
	return rows, err
}

// performed remembers an effect: it has happened if and when the transaction is committed.
func (t *simulatedTx) performed(ctx context.Context, key string) error {
	r, err := fromContext(ctx)
	if err != nil {
		return err
	}
	effect := r.as(journal.EffectPerformed)
	effect.Name, effect.Key, effect.Point = "row", key, "postgres.commit"
	t.effects = append(t.effects, effect)
	return nil
}

// Text implements pgport.Tx.
func (t *simulatedTx) Text(ctx context.Context, statement *pgport.Statement, args ...any) (text string, err error) {
	err = t.db.ask(ctx, postgresPoint(statement), func() (int64, error) {
		text, err = t.tx.Text(ctx, statement, args...)
		return 1, err
	})
	t.drop(err)
	return text, err
}

// Commit implements pgport.Tx.
func (t *simulatedTx) Commit(ctx context.Context) error {
	err := t.db.ask(ctx, t.commit, func() (int64, error) {
		claims := t.tx.Claims()
		err := t.tx.Commit(ctx)
		if err == nil {
			t.committed(claims)
		}
		return int64(len(claims)), err
	})
	t.drop(err)
	return err
}

// committed tells the journal what a transaction has changed.
func (t *simulatedTx) committed(claims []pgsim.Claim) {
	w := t.db.process.world
	for _, claim := range claims {
		w.record(journal.Event{
			Kind: journal.Wrote, Process: t.db.process.index, Task: w.current.id, Point: "postgres.commit",
			Collection: PostgresCollection, Key: claim.Event + " " + claim.Topic,
			Document: bson.D{{Key: "event", Value: claim.Event}, {Key: "topic", Value: claim.Topic}, {Key: "at", Value: bson.NewDateTimeFromTime(claim.At)}},
		})
	}
	for _, effect := range t.effects {
		w.record(effect)
	}
}

// Rollback implements pgport.Tx. Like a driver it sends nothing if the connection is gone, and a pool keeps no connection whose rollback
// failed.
func (t *simulatedTx) Rollback(ctx context.Context) error {
	if t.db.life.over {
		panic(host.Killed{})
	}
	if t.tx.Over() {
		return nil
	}
	err := t.db.ask(ctx, "postgres.rollback", func() (int64, error) { return 0, t.tx.Rollback(ctx) })
	t.tx.Drop()
	return err
}
