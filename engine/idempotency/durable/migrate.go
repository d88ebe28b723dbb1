package durable

import (
	"context"
	"fmt"

	"github.com/fencepost-sim/fencepost/engine/idempotency/pgport"
)

// ShapeError says how the table differs. Nothing is ever altered: whoever reads this decides. It wraps ErrShape.
type ShapeError struct{ Expected, Actual string }

func (e *ShapeError) Error() string {
	return fmt.Sprintf("%v: expected %s; found %s", ErrShape, e.Expected, e.Actual)
}

// Unwrap returns ErrShape.
func (e *ShapeError) Unwrap() error { return ErrShape }

// Migrate makes the table and its index if they are not there, and checks their shape. It can be called at every start, by any
// number of processes at once: an advisory lock makes them take turns.
func (c *Consumer) Migrate(ctx context.Context) error {
	tx, err := c.db.Begin(ctx, pgport.ReadCommitted)
	if err != nil {
		return fmt.Errorf("durable: migrate: %w", err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	for _, statement := range []*pgport.Statement{pgport.MigrationLock, pgport.CreateTable} {
		if _, err := tx.Exec(ctx, statement); err != nil {
			return fmt.Errorf("durable: migrate: %s: %w", statement.Name, err)
		}
	}
	shape, err := tx.Text(ctx, pgport.Shape)
	if err != nil {
		return fmt.Errorf("durable: migrate: %w", err)
	}
	if shape != pgport.ExpectedShape {
		return &ShapeError{Expected: pgport.ExpectedShape, Actual: shape}
	}
	if _, err := tx.Exec(ctx, pgport.CreateIndex); err != nil {
		return fmt.Errorf("durable: migrate: %w", err)
	}
	if err := tx.Commit(ctx); err != nil {
		return fmt.Errorf("durable: migrate: commit: %w", err)
	}
	return nil
}
