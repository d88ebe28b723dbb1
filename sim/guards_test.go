package sim_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/fencepost-sim/fencepost/engine/idempotency"
	"github.com/fencepost-sim/fencepost/engine/idempotency/pgport"
	"github.com/fencepost-sim/fencepost/engine/idempotency/redisport"
	"github.com/fencepost-sim/fencepost/faults"
	"github.com/fencepost-sim/fencepost/sim"
	"github.com/fencepost-sim/fencepost/sim/journal"
	"github.com/fencepost-sim/fencepost/sim/redissim"
)

var claim = redisport.Call{Script: redisport.Claim, Key: "idem:svc:1", Args: []string{idempotency.Token{1}.String(), "30000", "60000", "", "0"}}

// alone runs one process without an engine.
func alone(t *testing.T, main sim.Main, strikes ...faults.Fault) *journal.Journal {
	t.Helper()
	w, err := sim.New(sim.Config{Plan: faults.Plan{Faults: strikes}, Limit: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	w.Add("worker", main)
	j := w.Run()
	if len(w.Unstruck()) > 0 {
		t.Errorf("did not strike: %v", w.Unstruck())
	}
	return j
}

func fault(kind faults.Kind, position faults.Position, point string, span time.Duration) faults.Fault {
	return faults.Fault{Kind: kind, Process: "worker", Point: point, Position: position, Occurrence: 1, Span: span}
}

func TestAClaimInRedisStandsInTheJournalUntilAFailoverForgetsIt(t *testing.T) {
	main := func(ctx context.Context, p *sim.Process) error {
		_, err := p.Redis().Run(ctx, claim)
		return err
	}
	if doc := alone(t, main).At(-1).Get(sim.RedisCollection, claim.Key); doc == nil {
		t.Error("the claim is not in the journal")
	}
	if doc := alone(t, main, fault(faults.RedisFailover, faults.After, "redis.claim", 0)).At(-1).Get(sim.RedisCollection, claim.Key); doc != nil {
		t.Errorf("after the failover: %v", doc)
	}
}

func TestAPartitionCutsAProcessOffFromTheGuardsStores(t *testing.T) {
	var redis, again, postgres error
	alone(t, func(ctx context.Context, p *sim.Process) error {
		_, redis = p.Redis().Run(ctx, claim)
		_, postgres = p.Postgres().Begin(ctx, "")
		if err := p.Sleep(ctx, 11*time.Second); err != nil {
			return err
		}
		_, again = p.Redis().Run(ctx, claim)
		return nil
	}, fault(faults.Partition, faults.Before, "redis.claim", 10*time.Second))
	if !errors.Is(redis, redissim.ErrLost) || !errors.Is(postgres, pgport.ErrUnknownOutcome) || again != nil {
		t.Errorf("Redis: %v; PostgreSQL: %v; afterwards: %v", redis, postgres, again)
	}
}

// claims is a process that claims an event in a transaction, with the given patience, and commits.
func claims(patience string, done *[]int64) sim.Main {
	return func(ctx context.Context, p *sim.Process) error {
		tx, err := p.Postgres().Begin(ctx, "")
		if err != nil {
			return err
		}
		for _, statement := range []*pgport.Statement{pgport.MigrationLock, pgport.CreateTable} {
			if _, err := tx.Exec(ctx, statement); err != nil {
				return err
			}
		}
		if _, err := tx.Text(ctx, pgport.LockTimeout, patience); err != nil {
			return err
		}
		rows, err := tx.Exec(ctx, pgport.Claim, "E1", "orders")
		if err != nil {
			return err
		}
		if err := tx.Commit(ctx); err != nil {
			return err
		}
		*done = append(*done, rows)
		return nil
	}
}

func TestADeadProcessLosesItsTransactionAndAFrozenOneKeepsIt(t *testing.T) {
	for kind, waited := range map[faults.Kind]time.Duration{
		faults.Crash:  time.Second,      // the other goes on at once; the first starts again and finds a duplicate
		faults.Freeze: 20 * time.Second, // the other waits until the first has committed
	} {
		var done []int64
		w, err := sim.New(sim.Config{Plan: faults.Plan{Faults: []faults.Fault{fault(kind, faults.After, "postgres.claim", 20*time.Second)}}, Limit: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		var ends []time.Duration
		w.Add("worker", claims("0", &done))
		w.Add("other", func(ctx context.Context, p *sim.Process) error {
			if err := p.Sleep(ctx, time.Second); err != nil {
				return err
			}
			err := claims("0", &done)(ctx, p)
			ends = append(ends, w.Now())
			return err
		})
		w.Run()
		if !slices.Equal(done, []int64{1, 0}) || !slices.Equal(ends, []time.Duration{waited}) {
			t.Errorf("%s: rows %v, and the other was done after %v; want 1, 0 and %v", kind, done, ends, waited)
		}
	}
}
