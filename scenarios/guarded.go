package scenarios

import (
	"time"

	"github.com/fencepost-sim/fencepost/engine"
	"github.com/fencepost-sim/fencepost/engine/idempotency"
	"github.com/fencepost-sim/fencepost/faults"
	"github.com/fencepost-sim/fencepost/sim"
)

// guarded are the scenarios of handlers under a guard: the crash windows of the guards' specification.
var guarded = []Scenario{
	{
		Name:  "idem-crash-after-claim",
		Title: "Redis: the worker dies after it claimed the event, before the effect",
		Story: "The claim is there and nobody works under it. The next attempt finds it: if its lease still lasts, it waits, and then it takes the claim " +
			"over. The effect happens for the first time.",
		Workload: Workload{Guard: Redis},
		Faults:   []faults.Fault{crash("redis.claim", faults.After)},
		Expect:   afterLostExecution(0, 0, 1, 1),
	},
	{
		Name:  "idem-crash-after-effect",
		Title: "Redis: the worker dies after the effect, before COMPLETE",
		Story: "The window that a claim in Redis cannot close: the customer is charged, and nothing says so. The next attempt takes the claim over and charges " +
			"again. Only the receiver of the effect can refuse that, by the key; or a transaction: run it with --guard postgres.",
		Workload: Workload{Guard: Redis},
		Faults:   []faults.Fault{crash(sim.PointEffect, faults.After)},
		Expect:   afterLostExecution(1, 1, 2, 2),
	},
	{
		Name:  "idem-crash-after-complete",
		Title: "Redis: the worker dies after COMPLETE, before the engine records the success",
		Story: "The outcome is stored. The next attempt gets it replayed: the handler's function is not called, and the customer is charged once. With --guard none " +
			"the crash cannot strike, since there is no COMPLETE; crash-after-side-effect shows what happens then.",
		Workload: Workload{Guard: Redis},
		Faults:   []faults.Fault{crash("redis.complete", faults.After)},
		Expect:   afterLostExecution(1, 1, 1, 1),
	},
	{
		Name:  "idem-stale-owner-wakes",
		Title: "Redis: an owner is paused beyond its lease, and wakes right before its effect",
		Story: "The process stands still for two minutes. Its leases run out, another worker takes the claim over, charges the customer and stores the outcome. Then " +
			"the first one wakes up in the middle of its call and charges, too. Its COMPLETE is refused. No lease can prevent this: see idem-stale-owner-fenced.",
		Workload: Workload{Guard: Redis, Standby: 1, Topics: []TopicLoad{{Do: Work{Stubborn: true}}}},
		Faults:   []faults.Fault{asleep},
		Expect:   afterStaleOwner(2),
	},
	{
		Name:  "idem-stale-owner-fenced",
		Title: "Redis: the same, and the receiver of the effect looks at the fence",
		Story: "Each effect carries the fence of its claim, which grows with every owner. The receiver has seen a larger one when the first owner wakes up, " +
			"and refuses: the customer is charged once.",
		Workload: Workload{Guard: Redis, Standby: 1, Topics: []TopicLoad{{Do: Work{Stubborn: true, Fenced: true}}}},
		Faults:   []faults.Fault{asleep},
		Expect:   afterStaleOwner(1),
	},
	{
		Name:  "idem-sweeper-races-handler",
		Title: "Redis: a sweeper reads a claim, hangs, and goes on when the outcome is stored",
		Story: "Sweepers look for lapsed claims every 5 s. One of them has found the claim of a running handler and hangs before it can do anything. Meanwhile the handler " +
			"stores its outcome, and its process dies before the engine knows. The late sweep looks at the record again, where it is, and leaves it: the next attempt gets a replay.",
		Workload: Workload{Guard: Redis, SweepEvery: 5 * time.Second, Topics: []TopicLoad{{Do: Work{Time: 8 * time.Second}}}},
		Faults: []faults.Fault{
			{Kind: faults.Stall, Process: faults.AnyProcess, Point: "redis.sweep", Position: faults.Before, Occurrence: 1, Span: 10 * time.Second},
			crash(sim.PointHandlerEnd, faults.After),
		},
		Expect: afterLostExecution(1, 1, 1, 1),
	},
	{
		Name:  "idem-redis-failover",
		Title: "Redis: a failover forgets the outcome, and the worker dies",
		Story: "The outcome was stored, and the replica that takes over has not seen it. The worker dies before the engine has recorded the success. The next attempt " +
			"finds a claim without an owner, and charges the customer again. What Redis loses is counted, never hidden: see --guard postgres.",
		Workload: Workload{Guard: Redis},
		Faults: []faults.Fault{
			{Kind: faults.RedisFailover, Process: faults.AnyProcess, Point: "redis.complete", Position: faults.After, Occurrence: 1},
			crash(sim.PointHandlerEnd, faults.After),
		},
		Expect: afterLostExecution(1, 1, 2, 2),
	},
	{
		Name:  "idem-claim-outlives-retries",
		Title: "Redis: a dead worker's claim lasts longer than the retries of the event",
		Story: "The engine's lease is 2 s here and the claim's 30 s: after the worker's death all retries would be over before the claim has lapsed. The next " +
			"attempt waits for it instead of failing, and no retry is spent.",
		Workload: Workload{Guard: Redis, LockTimeout: 2 * time.Second, PollInterval: time.Second},
		Faults:   []faults.Fault{crash("redis.claim", faults.After)},
		Expect:   afterLostExecution(0, 0, 1, 1),
	},
	{
		Name:  "idem-redis-away",
		Title: "Redis: nobody can claim for a minute",
		Story: "Redis refuses every claim. The attempt waits and asks again, while the engine renews its lease: that Redis is away is not the handler's failure, " +
			"and no retry is spent.",
		Workload: Workload{Guard: Redis},
		Faults: []faults.Fault{{
			Kind: faults.Refuse, Process: faults.AnyProcess, Point: "redis.claim", Position: faults.Before, Occurrence: 1, Span: time.Minute,
		}},
		Expect: func(v Variant) Expectation {
			expected := once(v)
			expected.Executions = 1
			return expected
		},
	},
	{
		Name:  "pg-claim-outside-transaction",
		Title: "PostgreSQL: the claim commits alone, and the worker dies before the effect: THE EVENT IS LOST",
		Story: "ConsumeAtMostOnce commits the claim and then calls the handler. The worker dies in between. The next attempt finds a duplicate, the delivery ends as a " +
			"success, and the customer is never charged. This is what the scenario expects: see pg-claim-inside-transaction for the cure.",
		Workload: Workload{Guard: PostgresClaimAlone},
		Faults:   []faults.Fault{crash(sim.PointEffect, faults.Before)},
		Expect:   afterLostExecution(1, 0, 1, 0),
	},
	{
		Name:  "pg-claim-inside-transaction",
		Title: "PostgreSQL: the same crash, with claim and effect in one transaction",
		Story: "Consume makes claim, effect and COMMIT one transaction. The worker dies in the middle of it, PostgreSQL rolls it back, and the next attempt does everything: " +
			"the effect happens exactly once.",
		Workload: Workload{Guard: Postgres},
		Faults:   []faults.Fault{crash(sim.PointEffect, faults.Before)},
		Expect:   afterLostExecution(1, 0, 2, 1),
	},
	{
		Name:     "pg-lost-commit",
		Title:    "PostgreSQL: the reply to COMMIT is lost",
		Story:    "The transaction is committed and the worker does not know: its attempt fails. The retry finds the claim, takes the event for a duplicate, and acknowledges it.",
		Workload: Workload{Guard: Postgres},
		Faults: []faults.Fault{{
			Kind: faults.LoseReply, Process: faults.AnyProcess, Point: "postgres.commit", Position: faults.Unanswered, Occurrence: 1,
		}},
		Expect: func(v Variant) Expectation {
			if v.AtMostOnce() {
				return Expectation{Starts: 1, Executions: 1, Effects: 1, Attempts: []string{engine.CodeHandlerError}, Status: "error"}
			}
			return Expectation{Starts: 2, Executions: 1, Effects: 1, Attempts: []string{engine.CodeHandlerError, "success"}, Status: "success"}
		},
	},
	{
		Name:  "pg-frozen-transaction",
		Title: "PostgreSQL: a process stands still for five minutes with its transaction open",
		Story: "The process sleeps in the middle of COMMIT, and its transaction holds the event. The next attempt waits for it, a second at a time, and is not charged a retry; when the process goes on it commits, and " +
			"the next attempt finds a duplicate.",
		Workload: Workload{Guard: Postgres, Standby: 1},
		Faults: []faults.Fault{{
			Kind: faults.Freeze, Process: faults.AnyProcess, Point: "postgres.commit", Position: faults.Before, Occurrence: 1, Span: 5 * time.Minute,
		}},
		Expect: afterLostExecution(1, 1, 1, 1),
	},
}

// asleep stops the process for two minutes right before its effect.
var asleep = faults.Fault{
	Kind: faults.Freeze, Process: faults.AnyProcess, Point: sim.PointEffect, Position: faults.Before, Occurrence: 1, Span: 2 * time.Minute,
}

// afterStaleOwner expects what follows when an owner was asleep: another one has taken over, and so many effects in all.
func afterStaleOwner(effects int) func(Variant) Expectation {
	return func(v Variant) Expectation {
		expected := afterLostExecution(1, 1, 2, effects)(v)
		if !v.AtMostOnce() {
			expected.Reported = idempotency.ErrLostClaim.Error()
		}
		return expected
	}
}

// afterLostExecution expects what follows when the first worker is lost after so many executions and effects: if the event is delivered
// again, so many in all.
func afterLostExecution(executions, effects, inAll, effectsInAll int) func(Variant) Expectation {
	return func(v Variant) Expectation {
		expected := afterLostWorker(1, 0)(v)
		expected.Executions, expected.Effects = inAll, effectsInAll
		if v.AtMostOnce() {
			expected.Executions, expected.Effects = executions, effects
		}
		return expected
	}
}
