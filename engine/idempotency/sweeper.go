package idempotency

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"time"
)

// SweeperConfig tunes the sweeper, which releases the lapsed claims of dead processes, so that their keys do not stay behind until
// their TTL. Nobody waits for it: the next request for a key takes a lapsed claim over. The zero value of every field is its default.
type SweeperConfig struct {
	// Interval between passes. Default 5 minutes.
	Interval time.Duration
	// IntervalJitterRatio spreads the processes: each draws its own interval once, between (1-ratio) and (1+ratio) times
	// Interval. Default 0.2; Exact (-1) for none; at most 0.9.
	IntervalJitterRatio float64
	// BatchSize is how many records of the whole database one step looks at, as a hint to the server. Default 1000.
	BatchSize int
	// MaxBatchesPerPass ends a pass; the next one goes on there. Default 100.
	MaxBatchesPerPass int
	// OnTruncated is told when a pass ended before it had seen all records. It must not block.
	OnTruncated func(SweepStats)
}

// Exact is the IntervalJitterRatio of sweepers that keep their interval.
const Exact = -1

// SweepStats counts what the sweeper of this process did since Start.
type SweepStats struct {
	Passes    int64 // begun, with the turn
	Truncated int64 // ended by MaxBatchesPerPass
	Cycles    int64 // times that all records were seen
	Scanned   int64 // records of the whole database that the server was asked to look at
	Matched   int64 // records of the service among them
	Released  int64
	Skipped   int64 // passes that another process had the turn for
}

func (c *SweeperConfig) complete() error {
	switch {
	case c.IntervalJitterRatio == 0:
		c.IntervalJitterRatio = 0.2
	case c.IntervalJitterRatio == Exact:
	case !(c.IntervalJitterRatio > 0 && c.IntervalJitterRatio <= 0.9): // refuses NaN too
		return &ConfigurationError{"Config.Sweeper.IntervalJitterRatio", c.IntervalJitterRatio, "above 0 and at most 0.9, or Exact"}
	}
	for _, option := range []struct {
		field     string
		value     *int
		byDefault int
	}{{"BatchSize", &c.BatchSize, 1000}, {"MaxBatchesPerPass", &c.MaxBatchesPerPass, 100}} {
		if *option.value == 0 {
			*option.value = option.byDefault
		}
		if *option.value < 1 || *option.value > 1_000_000 {
			return &ConfigurationError{"Config.Sweeper." + option.field, *option.value, "1 to 1,000,000"}
		}
	}
	if c.OnTruncated == nil {
		c.OnTruncated = func(SweepStats) {}
	}
	return between("Config.Sweeper.Interval", &c.Interval, 5*time.Minute, time.Millisecond, 24*time.Hour)
}

// cadence is the interval of one process, fixed by a random token: evenly spread over the allowed range.
func (c SweeperConfig) cadence(draw Token) time.Duration {
	if c.IntervalJitterRatio == Exact {
		return c.Interval
	}
	unit := float64(binary.BigEndian.Uint64(draw[:])>>11) / (1 << 53) // in [0, 1)
	factor := 1 + c.IntervalJitterRatio*(2*unit-1)
	return time.Duration(math.Round(factor * float64(c.Interval)))
}

// armSweeper starts the sweeper of this process.
func (g *Guard) armSweeper() {
	ctx, cancel := context.WithCancelCause(context.Background())
	g.stop, g.sweeping = cancel, true
	cadence := g.config.Sweeper.cadence(g.newToken())
	g.host.Go("idempotency sweeper", func() {
		defer func() {
			g.sweeping = false
			g.changed.Broadcast()
		}()
		for g.host.Sleep(ctx, cadence) == nil {
			if err := g.sweep(ctx); err != nil && ctx.Err() == nil {
				g.report(fmt.Errorf("idempotency: sweeper: %w", err))
			}
		}
	})
}

// Sweep makes one pass now, unless another process of the service has the turn.
func (g *Guard) Sweep(ctx context.Context) (err error) {
	g.host.Enter(func() { err = g.sweep(ctx) })
	return err
}

// sweep is one pass: it takes the turn, goes on where the last pass of any process stopped, stores how far it came after every
// batch, and gives the turn back.
func (g *Guard) sweep(ctx context.Context) error {
	token := g.newToken()
	turn, err := g.sweepTurn(ctx, SweepRequest{Token: token})
	if err != nil {
		return err
	}
	stats := &g.stats.Sweep
	if !turn.Held {
		stats.Skipped++
		return nil
	}
	stats.Passes++
	cursor, whole, err := g.sweepBatches(ctx, token, turn.Cursor)
	if err == nil && !whole {
		stats.Truncated++
		seen := *stats
		g.host.GiveWay(func() { g.config.Sweeper.OnTruncated(seen) })
	}
	_, finishErr := g.sweepTurn(context.WithoutCancel(ctx), SweepRequest{Token: token, Finish: true, Cursor: cursor})
	if err == nil {
		err = finishErr
	}
	return err
}

func (g *Guard) sweepTurn(ctx context.Context, request SweepRequest) (turn SweepTurn, err error) {
	request.Lease = g.config.Lease
	err = g.ask(func() error {
		turn, err = g.config.Store.SweepTurn(ctx, request)
		return err
	})
	return turn, err
}

// sweepBatches returns where the next pass goes on, and whether this one came to the end.
func (g *Guard) sweepBatches(ctx context.Context, token Token, cursor Cursor) (next Cursor, whole bool, err error) {
	stats := &g.stats.Sweep
	for batch := 1; ; batch++ {
		if ctx.Err() != nil {
			return cursor, false, context.Cause(ctx)
		}
		var page SweepPage
		err = g.ask(func() error {
			page, err = g.config.Store.Sweep(ctx, cursor, g.config.Sweeper.BatchSize)
			return err
		})
		if err != nil {
			return cursor, false, err
		}
		stats.Scanned += int64(page.Scanned)
		stats.Matched += int64(page.Matched)
		stats.Released += int64(page.Released)
		cursor = page.Next
		if cursor == "" {
			stats.Cycles++
			return "", true, nil
		}
		if batch == g.config.Sweeper.MaxBatchesPerPass {
			return cursor, false, nil
		}
		turn, err := g.sweepTurn(ctx, SweepRequest{Token: token, Save: true, Cursor: cursor})
		if err != nil || !turn.Held { // the turn was lost: whoever has it goes on
			return cursor, true, err
		}
	}
}
