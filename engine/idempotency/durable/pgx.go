package durable

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-sim/fencepost/engine/idempotency"
	"github.com/fencepost-sim/fencepost/engine/idempotency/pgport"
)

// Execer runs SQL: a pgx pool, connection or transaction.
type Execer interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

// Executor consumes events with pgx. It is safe for concurrent use.
type Executor struct{ *Consumer }

// NewPgxExecutor returns an executor on the pool, which stays the caller's to close. Each Consume holds one connection; a function that
// takes a second one from the same pool can starve it.
func NewPgxExecutor(pool *pgxpool.Pool, options Options) (*Executor, error) {
	if pool == nil {
		return nil, &idempotency.ConfigurationError{Field: "pool", Value: nil, Allowed: "a pgx pool"}
	}
	consumer, err := Over(Port(pool), options)
	if err != nil {
		return nil, err
	}
	return &Executor{consumer}, nil
}

// NewDurablePgxExecutor is NewPgxExecutor, under the name that other libraries of this contract give it.
var NewDurablePgxExecutor = NewPgxExecutor

// Consume is Consumer.Consume with pgx's transaction.
func (x *Executor) Consume(ctx context.Context, e Event, function func(ctx context.Context, tx pgx.Tx) error) (Outcome, error) {
	return x.Consumer.Consume(ctx, e, func(ctx context.Context, tx pgport.Tx) error {
		return serverError(function(ctx, tx.(*pgxTx).Tx))
	})
}

// Worker is Consumer.Worker with pgx's transaction.
func (x *Executor) Worker(topic string, function func(ctx context.Context, tx pgx.Tx, e Event) error) (func(ctx context.Context, e Event) (Outcome, error), error) {
	return x.Consumer.Worker(topic, func(ctx context.Context, tx pgport.Tx, e Event) error {
		return serverError(function(ctx, tx.(*pgxTx).Tx, e))
	})
}

// Migrate is Consumer.Migrate on a pool.
func Migrate(ctx context.Context, pool *pgxpool.Pool) error {
	x, err := NewPgxExecutor(pool, Options{})
	if err != nil {
		return err
	}
	return x.Migrate(ctx)
}

// ClaimEvent is Claim in a transaction of pgx. On a pool or a connection, where no transaction is open, the claim commits at
// once: see ConsumeAtMostOnce for what that means.
func ClaimEvent(ctx context.Context, tx Execer, e Event) (claimed bool, err error) {
	return Claim(ctx, pgxExecutor{tx}, e)
}

// Sweep deletes up to batch claims that are older than the span, and returns how many.
func Sweep(ctx context.Context, db Execer, olderThan time.Duration, batch int) (int64, error) {
	if err := checkSweep(olderThan, batch); err != nil {
		return 0, err
	}
	return pgxExecutor{db}.Exec(ctx, pgport.Sweep, olderThan.Microseconds(), int64(batch))
}

// Port returns the pool as a port.
func Port(pool *pgxpool.Pool) pgport.DB { return pgxDB{pool} }

type pgxDB struct{ pool *pgxpool.Pool }

func (d pgxDB) Begin(ctx context.Context, isolation pgport.Isolation) (pgport.Tx, error) {
	tx, err := d.pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.TxIsoLevel(isolation)})
	if err != nil {
		return nil, serverError(err)
	}
	return &pgxTx{pgxExecutor{tx}, tx}, nil
}

type pgxExecutor struct{ db Execer }

func (x pgxExecutor) Exec(ctx context.Context, statement *pgport.Statement, args ...any) (int64, error) {
	tag, err := x.db.Exec(ctx, statement.SQL, args...)
	return tag.RowsAffected(), serverError(err)
}

type pgxTx struct {
	pgxExecutor
	pgx.Tx
}

func (t *pgxTx) Exec(ctx context.Context, statement *pgport.Statement, args ...any) (int64, error) {
	return t.pgxExecutor.Exec(ctx, statement, args...)
}

func (t *pgxTx) Text(ctx context.Context, statement *pgport.Statement, args ...any) (text string, err error) {
	err = t.Tx.QueryRow(ctx, statement.SQL, args...).Scan(&text)
	return text, serverError(err)
}

// Commit tells a refusal, after which nothing is committed, from a connection that was lost, after which nobody knows.
func (t *pgxTx) Commit(ctx context.Context) error {
	err := t.Tx.Commit(ctx)
	if err == nil {
		return nil
	}
	var refused *pgconn.PgError
	broken := errors.As(err, &refused) && (strings.HasPrefix(refused.Code, "08") || strings.HasPrefix(refused.Code, "57")) // connection, shutdown
	if (refused != nil && !broken) || errors.Is(err, pgx.ErrTxCommitRollback) || errors.Is(err, pgx.ErrTxClosed) {
		return serverError(err)
	}
	return fmt.Errorf("%w: %w", pgport.ErrUnknownOutcome, err)
}

func (t *pgxTx) Rollback(ctx context.Context) error {
	if err := t.Tx.Rollback(ctx); err != nil && !errors.Is(err, pgx.ErrTxClosed) {
		return serverError(err)
	}
	return nil
}

// serverError makes an error of the server one of the port's.
func serverError(err error) error {
	var refused *pgconn.PgError
	if errors.As(err, &refused) && !pgport.HasCode(err, refused.Code) {
		return &pgport.Error{Code: refused.Code, Message: refused.Message, Cause: err}
	}
	return err
}
