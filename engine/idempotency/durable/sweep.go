package durable

import (
	"context"
	"fmt"
	"time"

	"github.com/fencepost-sim/fencepost/engine/idempotency"
	"github.com/fencepost-sim/fencepost/engine/idempotency/pgport"
)

const (
	sweepInterval = 24 * time.Hour
	sweepBatch    = 1000
)

// Sweep deletes claims that are older than the span, so many in each transaction, until there are none. Several processes may sweep at
// once: they do not wait for each other.
func (c *Consumer) Sweep(ctx context.Context, olderThan time.Duration, batch int) (deleted int64, err error) {
	if err := checkSweep(olderThan, batch); err != nil {
		return 0, err
	}
	for {
		rows, err := c.sweepOnce(ctx, olderThan, batch)
		deleted += rows
		if err != nil || rows < int64(batch) {
			return deleted, err
		}
	}
}

func checkSweep(olderThan time.Duration, batch int) error {
	switch {
	case olderThan < 0:
		return &idempotency.ConfigurationError{Field: "olderThan", Value: olderThan, Allowed: "no negative span"}
	case batch < 1:
		return &idempotency.ConfigurationError{Field: "batch", Value: batch, Allowed: "1 or more"}
	}
	return nil
}

func (c *Consumer) sweepOnce(ctx context.Context, olderThan time.Duration, batch int) (rows int64, err error) {
	tx, err := c.db.Begin(ctx, pgport.ReadCommitted)
	if err != nil {
		return 0, fmt.Errorf("durable: sweep: %w", err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	if rows, err = tx.Exec(ctx, pgport.Sweep, olderThan.Microseconds(), int64(batch)); err != nil {
		return 0, fmt.Errorf("durable: sweep: %w", err)
	}
	if err := tx.Commit(ctx); err != nil {
		return 0, fmt.Errorf("durable: sweep: commit: %w", err)
	}
	return rows, nil
}

// Start sweeps now and then once a day, until Shutdown. Starting again does nothing.
func (c *Consumer) Start() {
	c.host.Enter(func() {
		if c.running {
			return
		}
		ctx, cancel := context.WithCancelCause(context.Background())
		c.stop, c.running = cancel, true
		c.host.Go("durable sweeper", func() {
			defer func() {
				c.running = false
				c.changed.Broadcast()
			}()
			for ok := true; ok; ok = c.host.Sleep(ctx, sweepInterval) == nil {
				c.host.GiveWay(func() {
					if _, err := c.Sweep(ctx, c.options.Retention, sweepBatch); err != nil && ctx.Err() == nil {
						c.options.OnError(err)
					}
				})
			}
		})
	})
}

// Shutdown stops the sweeper and waits for it, no longer than ctx lasts.
func (c *Consumer) Shutdown(ctx context.Context) (err error) {
	c.host.Enter(func() {
		if c.stop != nil {
			c.stop(nil)
		}
		for c.running && err == nil {
			if c.changed.Wait(ctx, -1); ctx.Err() != nil && c.running {
				err = fmt.Errorf("durable: shutdown: %w", context.Cause(ctx))
			}
		}
	})
	return err
}
