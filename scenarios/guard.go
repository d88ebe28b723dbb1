package scenarios

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fencepost-sim/fencepost/engine"
	"github.com/fencepost-sim/fencepost/engine/idempotency"
	"github.com/fencepost-sim/fencepost/engine/idempotency/durable"
	"github.com/fencepost-sim/fencepost/engine/idempotency/pgport"
	"github.com/fencepost-sim/fencepost/engine/idempotency/redisstore"
	"github.com/fencepost-sim/fencepost/sim"
	"github.com/fencepost-sim/fencepost/sim/pgsim"
)

// Guard is what keeps an event that is delivered again from having its side effect again.
type Guard string

// The guards. The zero value is Unguarded.
const (
	Unguarded Guard = "none"
	// Redis guards the handler by a claim in Redis; the effect is somewhere else.
	Redis Guard = "redis"
	// Postgres makes the effect a row in the transaction that claims the event.
	Postgres Guard = "postgres"
	// PostgresClaimAlone commits the claim before the effect, which is somewhere else.
	PostgresClaimAlone Guard = "postgres-claim-alone"
)

// Guards lists them all.
var Guards = []Guard{Unguarded, Redis, Postgres, PostgresClaimAlone}

// ParseGuard reads a guard.
func ParseGuard(text string) (Guard, error) {
	if slices.Contains(Guards, Guard(text)) {
		return Guard(text), nil
	}
	names := make([]string, len(Guards))
	for i, guard := range Guards {
		names[i] = string(guard)
	}
	return "", fmt.Errorf("%w guard %q; allowed: %s", ErrUnknown, text, strings.Join(names, ", "))
}

// effect performs a side effect under an idempotency key.
type effect func(ctx context.Context, key string) error

// outside is an effect that no transaction takes back: a payment, a mail.
func outside(ctx context.Context, key string) error { return sim.Effect(ctx, "charge", key) }

// fenced is outside, with a receiver that looks at the fence of the claim.
func fenced(ctx context.Context, key string) error { return sim.FencedEffect(ctx, "charge", key) }

// task is what a handler does, given how its effect is performed.
type task func(ctx context.Context, event engine.Event[Order], perform effect) error

// with fixes how the effect is performed.
func (t task) with(perform effect) engine.Handler[Order] {
	return func(ctx context.Context, event engine.Event[Order]) error { return t(ctx, event, perform) }
}

// protect makes a handler of a task.
type protect func(task) engine.Handler[Order]

// guard makes the guard of one process. It is closed after the engines.
func (r replica) guard(ctx context.Context, p *sim.Process) (protect, error) {
	switch r.Guard {
	case Redis:
		return r.redisGuard(ctx, p)
	case Postgres, PostgresClaimAlone:
		return r.postgresGuard(ctx, p)
	}
	return func(t task) engine.Handler[Order] { return t.with(outside) }, nil
}

func (r replica) redisGuard(ctx context.Context, p *sim.Process) (protect, error) {
	store, err := redisstore.Over(p.Redis(), groupNames[r.group])
	if err != nil {
		return nil, err
	}
	guard, err := idempotency.Init(ctx, idempotency.Config{
		Store: store, Host: p.Host(), Lease: r.GuardLease, OnError: p.Report,
		DisableSweeper: r.SweepEvery == 0,
		Sweeper:        idempotency.SweeperConfig{Interval: r.SweepEvery, IntervalJitterRatio: idempotency.Exact},
	})
	if err != nil {
		return nil, err
	}
	p.AtClose(guard.Shutdown)
	p.GuardOpened(string(r.Guard), guard.Config().Lease)
	guarded := r.bug.Handler
	if guarded == nil {
		guarded = idempotency.Handler[Order]
	}
	return func(t task) engine.Handler[Order] { return guarded(guard, sim.Guarded(t.with(outside))) }, nil
}

func (r replica) postgresGuard(ctx context.Context, p *sim.Process) (protect, error) {
	consumer, err := durable.Over(p.Postgres(), durable.Options{Host: p.Host(), OnError: p.Report})
	if err != nil {
		return nil, err
	}
	if err := consumer.Migrate(ctx); err != nil {
		return nil, err
	}
	p.GuardOpened(string(r.Guard), time.Duration(0))
	if r.Guard == PostgresClaimAlone {
		return func(t task) engine.Handler[Order] {
			return func(ctx context.Context, event engine.Event[Order]) error {
				_, err := consumer.ConsumeAtMostOnce(ctx, durable.EventOf(event), func(ctx context.Context) error {
					return sim.Guarded(t.with(outside))(ctx, event)
				})
				return err
			}
		}, nil
	}
	return func(t task) engine.Handler[Order] {
		return durable.Handler(consumer, func(ctx context.Context, tx pgport.Tx, event engine.Event[Order]) error {
			return sim.Guarded(t.with(func(ctx context.Context, key string) error {
				_, err := tx.Exec(ctx, pgsim.Effect, key)
				return err
			}))(ctx, event)
		})
	}, nil
}
