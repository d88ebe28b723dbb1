package mutants

import (
	"context"
	"errors"
	"time"

	"github.com/fencepost-sim/fencepost/engine"
	"github.com/fencepost-sim/fencepost/engine/idempotency"
	"github.com/fencepost-sim/fencepost/engine/idempotency/pgport"
	"github.com/fencepost-sim/fencepost/engine/idempotency/redisport"
	"github.com/fencepost-sim/fencepost/faults"
	"github.com/fencepost-sim/fencepost/scenarios"
	"github.com/fencepost-sim/fencepost/sim"
	"github.com/fencepost-sim/fencepost/sim/pgsim"
	"github.com/fencepost-sim/fencepost/sim/redissim"
	"github.com/fencepost-sim/fencepost/sim/redissim/holes"
)

// guardLease is the lease of the claims in these workloads.
const guardLease = 30 * time.Second

func (m *Mutant) guardBug() scenarios.Bug {
	bug := scenarios.Bug{Handler: m.Handler}
	if m.Hole != "" {
		bug.Script = func(server *redissim.Server, now time.Time, call *redisport.Call) (redisport.Reply, error) {
			return m.Hole.Run(server, now, guardLease, call)
		}
	}
	if m.Postgres != nil {
		bug.Postgres = func(_ string, inner pgport.DB) pgport.DB { return m.Postgres(inner) }
	}
	return bug
}

// inRedis makes a workload of two replicas whose handlers do the work under a claim in Redis.
func inRedis(do scenarios.Work) scenarios.Workload {
	return scenarios.Workload{Replicas: 2, Guard: scenarios.Redis, GuardLease: guardLease, Topics: []scenarios.TopicLoad{{Do: do}}}
}

// swept is inRedis with sweepers.
func swept(do scenarios.Work) scenarios.Workload {
	w := inRedis(do)
	w.SweepEvery = 5 * time.Second
	return w
}

// quick is inRedis with an engine that gives a dead worker up long before its claim has lapsed.
func quick() scenarios.Workload {
	w := inRedis(scenarios.Work{})
	w.LockTimeout, w.PollInterval = 2*time.Second, time.Second
	return w
}

func withoutRetries(w scenarios.Workload) scenarios.Workload {
	w.Topics[0].Options.MaxRetries = engine.NoRetries
	return w
}

func inAnyOrder(w scenarios.Workload) scenarios.Workload {
	w.Topics[0].Options = unordered
	return w
}

var inPostgres = scenarios.Workload{Replicas: 2, Guard: scenarios.Postgres}

func strike(kind faults.Kind, position faults.Position, point string, span time.Duration) []faults.Fault {
	return []faults.Fault{{Kind: kind, Process: faults.AnyProcess, Point: point, Position: position, Occurrence: 1, Span: span}}
}

// overtaken stops an owner at its first heartbeat until another has taken its claim over.
var overtaken = strike(faults.Freeze, faults.Before, "redis.extend", 45*time.Second)

// ofGuards are the holes of the guards' specification.
var ofGuards = []Mutant{
	{
		Name: "complete-by-anyone", What: "COMPLETE does not look at the token: a stale owner stores its outcome over another's claim", Caught: "U1",
		Workload: inRedis(scenarios.Work{Time: 40 * time.Second, Stubborn: true}), Faults: overtaken, Hole: holes.CompleteByAnyone,
	},
	{
		Name: "release-by-anyone", What: "RELEASE does not look at the token: a stale owner frees another's claim", Caught: "U1",
		Workload: inRedis(scenarios.Work{Time: 40 * time.Second, Stubborn: true, FailFirst: 1}), Faults: overtaken, Hole: holes.ReleaseByAnyone,
	},
	{
		Name: "extend-by-anyone", What: "a heartbeat does not look at the token", Caught: "U1",
		Workload: inRedis(scenarios.Work{Time: 40 * time.Second, Stubborn: true}), Faults: overtaken, Hole: holes.ExtendByAnyone,
	},
	{
		Name: "sweep-ignores-lease", What: "the sweeper releases claims whose handlers live", Caught: "U1",
		Workload: swept(scenarios.Work{Time: 12 * time.Second}), Hole: holes.SweepIgnoresLease,
	},
	{
		Name: "sweep-ignores-state", What: "the sweeper deletes what was completed after it had looked", Caught: "U1",
		Workload: swept(scenarios.Work{Time: 8 * time.Second}), Faults: strike(faults.Stall, faults.Before, "redis.sweep", 10*time.Second), Hole: holes.SweepIgnoresState,
	},
	{
		Name: "takeover-at-once", What: "a claim is taken over without a look at its lease", Caught: "U1",
		Workload: quick(), Faults: strike(faults.Crash, faults.After, "redis.claim", 5*time.Second), Hole: holes.TakeoverAtOnce,
	},
	{
		Name: "fence-resets", What: "the fence is a counter that is lost with its record", Caught: "U1",
		Workload: inRedis(scenarios.Work{}), Hole: holes.FenceResets,
		Faults: append(strike(faults.RedisFailover, faults.After, sim.PointEffect, 0), strike(faults.Crash, faults.After, sim.PointEffect, 5*time.Second)...),
	},
	{
		Name: "in-flight-is-done", What: "a claim is taken for a result, so that the event of a dead owner is acknowledged", Caught: "U2",
		Workload: inRedis(scenarios.Work{}), Faults: strike(faults.Crash, faults.After, "redis.claim", 5*time.Second), Hole: holes.InFlightIsDone,
	},
	{
		Name: "acknowledge-in-flight", What: "an attempt that finds another one in flight succeeds", Caught: "U2",
		Workload: quick(), Faults: strike(faults.Crash, faults.After, "redis.claim", 5*time.Second), Handler: acknowledgeInFlight,
	},
	{
		Name: "one-key", What: "the key of a claim does not name the event", Caught: "U3",
		Workload: scenarios.Workload{Replicas: 2, Guard: scenarios.Redis, Topics: []scenarios.TopicLoad{{Events: 2}}}, Hole: holes.OneKey,
	},
	{
		Name: "lease-of-a-day", What: "claims last for a day", Caught: "U4",
		Workload: inRedis(scenarios.Work{}), Faults: strike(faults.Crash, faults.After, "redis.claim", 5*time.Second), Hole: holes.LeaseOfADay,
	},
	{
		Name: "lease-and-a-half", What: "claims last longer than the guard believes", Caught: "U4",
		Workload: inRedis(scenarios.Work{}), Faults: strike(faults.Crash, faults.After, "redis.claim", 5*time.Second), Hole: holes.LeaseAndAHalf,
	},
	{
		Name: "heartbeat-releases-failure", What: "the same, where nobody else comes and the handler fails", Caught: "U5",
		Workload: withoutRetries(inRedis(scenarios.Work{Time: 24 * time.Second, FailFirst: 1})), Hole: holes.HeartbeatReleases,
	},
	{
		Name: "heartbeat-releases", What: "a claim is given back while its handler runs", Caught: "U5",
		Workload: inRedis(scenarios.Work{Time: 12 * time.Second}), Hole: holes.HeartbeatReleases,
	},
	{
		Name: "run-on-unknown-claim", What: "a handler runs although the answer to its claim was lost", Caught: "U6",
		Workload: inRedis(scenarios.Work{}), Faults: strike(faults.LoseReply, faults.Unanswered, "redis.claim", 0), Handler: runAnyway,
	},
	{
		Name: "impatient", What: "an attempt that finds another one in flight fails", Caught: "U7",
		Workload: quick(), Faults: strike(faults.Crash, faults.After, "redis.claim", 5*time.Second), Handler: impatient,
	},
	{
		Name: "no-heartbeat", What: "leases are not renewed", Caught: "C-I",
		Workload: inAnyOrder(inRedis(scenarios.Work{Time: 100 * time.Second, Stubborn: true})), Hole: holes.NoHeartbeat,
		Faults: strike(faults.Refuse, faults.Before, string(engine.PointAttemptHeartbeat), time.Minute),
	},
	{
		Name: "no-heartbeat-failure", What: "the same, where the execution that was overtaken fails", Caught: "C-I",
		Workload: inAnyOrder(inRedis(scenarios.Work{Time: 200 * time.Second, Stubborn: true, FailFirst: 1})), Hole: holes.NoHeartbeat,
		Faults: strike(faults.Refuse, faults.Before, string(engine.PointAttemptHeartbeat), 25*time.Second),
	},
	{
		Name: "store-nothing", What: "COMPLETE is answered and not applied", Caught: "C-II",
		Workload: inRedis(scenarios.Work{}), Hole: holes.StoreNothing,
	},
	{
		Name: "release-on-success", What: "a success frees the key", Caught: "C-II",
		Workload: inRedis(scenarios.Work{}), Hole: holes.ReleaseOnSuccess,
	},
	{
		Name: "reply-before-complete", What: "a handler succeeds before its outcome is stored", Caught: "C-II",
		Workload: inRedis(scenarios.Work{}), Handler: replyFirst,
	},
	{
		Name: "evict-results", What: "Redis evicts results", Caught: "C-II",
		Workload: inRedis(scenarios.Work{}), Faults: strike(faults.Crash, faults.After, sim.PointHandlerEnd, 5*time.Second), Hole: holes.EvictResults,
	},
	{
		Name: "results-ignored", What: "a completed key can be claimed", Caught: "C-III",
		Workload: inRedis(scenarios.Work{}), Faults: strike(faults.Crash, faults.After, sim.PointHandlerEnd, 5*time.Second), Hole: holes.ResultsIgnored,
	},
	{
		Name: "called-twice", What: "a handler is called again under its claim although it succeeded", Caught: "C-III",
		Workload: inRedis(scenarios.Work{}), Handler: twice,
	},
	{
		Name: "claim-commits-alone", What: "the claim of an event commits before the effect", Caught: "D1",
		Workload: inPostgres, Faults: strike(faults.Crash, faults.Before, sim.PointEffect, 5*time.Second),
		Postgres: instead(pgport.Claim, alone),
	},
	{
		Name: "effect-commits-alone", What: "the effect commits before the claim", Caught: "D1",
		Workload: inPostgres, Faults: strike(faults.Crash, faults.After, "postgres.commit", 5*time.Second),
		Postgres: instead(pgsim.Effect, alone),
	},
	{
		Name: "claim-unread", What: "nobody looks whether the claim inserted a row", Caught: "D1",
		Workload: inPostgres, Faults: strike(faults.LoseReply, faults.Unanswered, "postgres.commit", 0),
		Postgres: instead(pgport.Claim, unread),
	},
	{
		Name: "claim-unread-alone", What: "the same, where the claim commits alone", Caught: "D2",
		Workload: scenarios.Workload{Replicas: 2, Guard: scenarios.PostgresClaimAlone}, Faults: strike(faults.Crash, faults.After, sim.PointEffect, 5*time.Second),
		Postgres: instead(pgport.Claim, unread),
	},
	{
		Name: "swept-at-once", What: "claims of events are forgotten before the last redelivery", Caught: "D2",
		Workload: scenarios.Workload{Replicas: 2, Guard: scenarios.PostgresClaimAlone}, Faults: strike(faults.Crash, faults.After, sim.PointEffect, 5*time.Second),
		Postgres: instead(pgport.Claim, func(ctx context.Context, _ pgport.DB, tx pgport.Tx, s *pgport.Statement, args []any) (int64, error) {
			if _, err := tx.Exec(ctx, pgport.Sweep, int64(0), int64(1000)); err != nil {
				return 0, err
			}
			return tx.Exec(ctx, s, args...)
		}),
	},
	{
		Name: "held-is-duplicate", What: "an event that another transaction holds is taken for a duplicate", Caught: "D1",
		Workload: inPostgres, Faults: strike(faults.Freeze, faults.Before, "postgres.commit", time.Minute),
		Postgres: instead(pgport.Claim, func(ctx context.Context, _ pgport.DB, tx pgport.Tx, s *pgport.Statement, args []any) (int64, error) {
			rows, err := tx.Exec(ctx, s, args...)
			if pgport.HasCode(err, pgport.LockNotAvailable) {
				return 0, nil
			}
			return rows, err
		}),
	},
	{
		Name: "commit-unread", What: "nobody looks whether COMMIT succeeded", Caught: "D1",
		Workload: inPostgres, Faults: strike(faults.LoseCall, faults.Before, "postgres.commit", 0),
		Postgres: func(inner pgport.DB) pgport.DB { return &changedDB{inner, nil, nil, true} },
	},
}

// ask is what idempotency.Handler asks for.
func ask(ctx context.Context, g *idempotency.Guard, event engine.Event[scenarios.Order], handler engine.Handler[scenarios.Order]) error {
	key := idempotency.Event{Group: event.ConsumerGroup, Topic: event.Topic, ID: event.ID}
	_, err := idempotency.ConsumerWorker(ctx, g, key, func(ctx context.Context) error { return handler(ctx, event) })
	return err
}

func impatient(g *idempotency.Guard, handler engine.Handler[scenarios.Order]) engine.Handler[scenarios.Order] {
	return func(ctx context.Context, event engine.Event[scenarios.Order]) error {
		return ask(ctx, g, event, handler)
	}
}

func twice(g *idempotency.Guard, handler engine.Handler[scenarios.Order]) engine.Handler[scenarios.Order] {
	return func(ctx context.Context, event engine.Event[scenarios.Order]) error {
		return ask(ctx, g, event, func(ctx context.Context, event engine.Event[scenarios.Order]) error {
			if err := handler(ctx, event); err != nil {
				return err
			}
			return handler(ctx, event)
		})
	}
}

func acknowledgeInFlight(g *idempotency.Guard, handler engine.Handler[scenarios.Order]) engine.Handler[scenarios.Order] {
	return func(ctx context.Context, event engine.Event[scenarios.Order]) error {
		err := ask(ctx, g, event, handler)
		if errors.Is(err, idempotency.ErrInFlight) {
			return nil
		}
		return err
	}
}

func runAnyway(g *idempotency.Guard, handler engine.Handler[scenarios.Order]) engine.Handler[scenarios.Order] {
	return func(ctx context.Context, event engine.Event[scenarios.Order]) error {
		err := ask(ctx, g, event, handler)
		if errors.Is(err, idempotency.ErrUnavailable) {
			return handler(ctx, event)
		}
		return err
	}
}

// replyFirst stores the outcome in another task.
func replyFirst(g *idempotency.Guard, handler engine.Handler[scenarios.Order]) engine.Handler[scenarios.Order] {
	return func(ctx context.Context, event engine.Event[scenarios.Order]) error {
		key := idempotency.Event{Group: event.ConsumerGroup, Topic: event.Topic, ID: event.ID}.Key()
		x, stored, err := g.Begin(ctx, idempotency.Op{Key: key})
		if err != nil || stored != nil {
			return err
		}
		if err := handler(x.Context(), event); err != nil {
			_ = x.Release(ctx)
			return err
		}
		h := g.Config().Host
		h.Enter(func() {
			h.Go("complete", func() {
				h.GiveWay(func() { _ = x.Complete(ctx, "", idempotency.Result{Kind: idempotency.Success}) })
			})
		})
		return nil
	}
}

// execution of a statement in another way.
type execution func(ctx context.Context, db pgport.DB, tx pgport.Tx, statement *pgport.Statement, args []any) (int64, error)

// instead makes a change of one statement.
func instead(statement *pgport.Statement, run execution) func(pgport.DB) pgport.DB {
	return func(inner pgport.DB) pgport.DB { return &changedDB{inner, statement, run, false} }
}

// alone runs a statement in a transaction of its own.
func alone(ctx context.Context, db pgport.DB, _ pgport.Tx, statement *pgport.Statement, args []any) (int64, error) {
	tx, err := db.Begin(ctx, "")
	if err != nil {
		return 0, err
	}
	rows, err := tx.Exec(ctx, statement, args...)
	if err != nil {
		return 0, errors.Join(err, tx.Rollback(ctx))
	}
	return rows, tx.Commit(ctx)
}

// unread does not look whether the claim inserted a row.
func unread(ctx context.Context, _ pgport.DB, tx pgport.Tx, statement *pgport.Statement, args []any) (int64, error) {
	_, err := tx.Exec(ctx, statement, args...)
	return 1, err
}

// changedDB runs one statement in another way, or takes every COMMIT for done.
type changedDB struct {
	pgport.DB
	statement *pgport.Statement
	run       execution
	blind     bool
}

func (d *changedDB) Begin(ctx context.Context, isolation pgport.Isolation) (pgport.Tx, error) {
	tx, err := d.DB.Begin(ctx, isolation)
	if err != nil {
		return nil, err
	}
	return &changedTx{tx, d}, nil
}

type changedTx struct {
	pgport.Tx
	db *changedDB
}

func (t *changedTx) Exec(ctx context.Context, statement *pgport.Statement, args ...any) (int64, error) {
	if statement == t.db.statement {
		return t.db.run(ctx, t.db.DB, t.Tx, statement, args)
	}
	return t.Tx.Exec(ctx, statement, args...)
}

func (t *changedTx) Commit(ctx context.Context) error {
	err := t.Tx.Commit(ctx)
	if t.db.blind && errors.Is(err, pgport.ErrUnknownOutcome) {
		return nil
	}
	return err
}
