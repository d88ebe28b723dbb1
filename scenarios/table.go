package scenarios

import (
	"slices"
	"time"

	"github.com/fencepost-sim/fencepost/engine"
	"github.com/fencepost-sim/fencepost/faults"
	"github.com/fencepost-sim/fencepost/sim"
)

// All scenarios, in the order in which they are best read: those of the delivery engine, then those of the guards.
var All = slices.Concat(deliveries, guarded)

var deliveries = []Scenario{
	{
		Name:   "no-faults",
		Title:  "nothing goes wrong",
		Story:  "An event is published and handled once. What the other scenarios are compared with.",
		Expect: once,
	},
	{
		Name:  "crash-before-handler",
		Title: "the worker dies before the handler starts",
		Story: "A worker leases the attempt, reads the event, and dies. Its lease expires, the attempt becomes worker_lost, and " +
			"the next attempt runs the handler for the first time. At most once: the delivery ends without a run.",
		Row:      &CrashRow{string(engine.PointEventRead), sim.PointHandlerStart, "expired lease becomes worker_lost; a retry is created", true},
		Faults:   []faults.Fault{crash(string(engine.PointEventRead), faults.After)},
		Workload: Workload{},
		Expect:   afterLostWorker(0, 0),
	},
	{
		Name:  "crash-during-handler",
		Title: "the worker dies while the handler runs",
		Story: "The handler has started and has had no effect yet. Its lease expires, the attempt becomes worker_lost, and the " +
			"next attempt runs the handler again.",
		Row:    &CrashRow{sim.PointHandlerStart, sim.PointEffect, "expired lease becomes worker_lost; a retry is created", true},
		Faults: []faults.Fault{crash(sim.PointHandlerStart, faults.After)},
		Expect: afterLostWorker(1, 0),
	},
	{
		Name:  "crash-after-side-effect",
		Title: "the worker dies after the side effect, before it could acknowledge",
		Story: "The customer is charged, and the worker dies before it can write so. Nobody can know: the handler runs again " +
			"with the same event ID, and charges again unless the receiver refuses the second charge by that key.",
		Row:    &CrashRow{sim.PointEffect, string(engine.PointAttemptSucceed), "expired lease becomes worker_lost; another attempt is created", true},
		Faults: []faults.Fault{crash(sim.PointEffect, faults.After)},
		Expect: afterLostWorker(1, 1),
	},
	{
		Name:  "crash-after-history-success",
		Title: "the worker dies after it recorded the success, before the delivery is finished",
		Story: "The attempt is a success under a delivery that is still pending. Reconciliation finishes the delivery; the " +
			"handler does not run again.",
		Row:    &CrashRow{string(engine.PointAttemptSucceed), string(engine.PointDeliverySucceed), "reconciliation finishes the delivery from successful history", false},
		Faults: []faults.Fault{crash(string(engine.PointAttemptSucceed), faults.After)},
		Expect: once,
	},
	{
		Name:  "crash-after-history-error",
		Title: "the worker dies after it recorded the failure, before the retry exists",
		Story: "The handler fails, the failure is recorded, and the worker dies before it can create the next attempt. " +
			"Reconciliation creates exactly that one. At most once: it ends the delivery.",
		Row:      &CrashRow{string(engine.PointAttemptFail), string(engine.PointAttemptRetry), "reconciliation creates exactly the next numbered attempt", true},
		Workload: Workload{Topics: []TopicLoad{{Do: Work{FailFirst: 1}}}},
		Faults:   []faults.Fault{crash(string(engine.PointAttemptFail), faults.After)},
		Expect: func(v Variant) Expectation {
			if v.AtMostOnce() {
				return Expectation{Starts: 1, Effects: 0, Attempts: []string{engine.CodeHandlerError}, Status: "error"}
			}
			return Expectation{Starts: 2, Effects: 1, Attempts: []string{engine.CodeHandlerError, "success"}, Status: "success"}
		},
	},
	{
		Name:  "heartbeat-stall",
		Title: "a worker's heartbeat hangs, it loses its lease, and its late success is fenced out",
		Story: "The handler works for 45 s and does not look at its context. Its first heartbeat hangs, so its lease of 30 s expires: the attempt " +
			"becomes worker_lost and another worker runs the next one. When the stale handler returns, its success carries a token that no " +
			"longer matches, and is refused.",
		Workload: Workload{Topics: []TopicLoad{{Do: Work{Time: 45 * time.Second, Stubborn: true}}}},
		Faults: []faults.Fault{{
			Kind: faults.Stall, Process: faults.AnyProcess, Point: string(engine.PointAttemptHeartbeat),
			Position: faults.Before, Occurrence: 1, Span: 2 * time.Minute,
		}},
		Expect: func(v Variant) Expectation {
			expected := afterLostWorker(1, 1)(v)
			expected.Fenced = true
			return expected
		},
	},
	{
		Name:  "slow-heartbeat",
		Title: "a heartbeat is applied, and its reply comes too late",
		Story: "The handler works for a minute. The reply to its first heartbeat takes 25 s, so the worker must take its lease for lost, and tells the " +
			"handler to stop. The lease was renewed, nobody else has it, and the worker gives the attempt up: it says worker_lost, not that the handler failed.",
		Workload: Workload{Topics: []TopicLoad{{Do: Work{Time: time.Minute}}}},
		Faults: []faults.Fault{{
			Kind: faults.Stall, Process: faults.AnyProcess, Point: string(engine.PointAttemptHeartbeat),
			Position: faults.Unanswered, Occurrence: 1, Span: 25 * time.Second,
		}},
		Expect: afterLostWorker(1, 0),
	},
	{
		Name:     "dropped-notification",
		Title:    "every change-stream notification is lost",
		Story:    "No worker hears of the event. Polling finds it within a poll interval.",
		Workload: Workload{PublishAt: 10 * time.Second},
		Faults:   []faults.Fault{{Kind: faults.Drop, Process: faults.AnyProcess, Occurrence: 1, Count: faults.All}},
		Expect: func(v Variant) Expectation {
			expected := once(v)
			expected.Within = 3 * time.Second
			return expected
		},
	},
	{
		Name:  "failed-reads",
		Title: "the reads between the claim and the handler fail",
		Story: "The reply to the read of the delivery is lost, and then that to the read of the event. Neither is the handler's failure: each time the " +
			"worker gives the attempt back, and no attempt is spent, also under at-most-once.",
		Faults: []faults.Fault{
			{
				Kind: faults.LoseReply, Process: faults.AnyProcess, Point: string(engine.PointAttemptDelivery),
				Position: faults.Unanswered, Occurrence: 1,
			},
			{
				Kind: faults.LoseReply, Process: faults.AnyProcess, Point: string(engine.PointEventRead),
				Position: faults.Unanswered, Occurrence: 1,
			},
		},
		Expect: once,
	},
	{
		Name:  "refused-reads",
		Title: "the server refuses the read of the event for ten seconds",
		Story: "Somebody has taken away the permission to read events. Each worker gives the attempt back, waits longer each time, and tries again: no " +
			"attempt is spent, and nobody asks without pause.",
		Faults: []faults.Fault{{
			Kind: faults.Refuse, Process: faults.AnyProcess, Point: string(engine.PointEventRead),
			Position: faults.Before, Occurrence: 1, Span: 10 * time.Second,
		}},
		Expect: func(v Variant) Expectation {
			expected := once(v)
			expected.Within = 14 * time.Second
			return expected
		},
	},
	{
		Name:  "refused-success",
		Title: "the server refuses the acknowledgement for ten seconds",
		Story: "The handler has succeeded, and its success cannot be recorded. The worker sends it again while its heartbeats keep the lease: the handler " +
			"does not run again.",
		Faults: []faults.Fault{{
			Kind: faults.Refuse, Process: faults.AnyProcess, Point: string(engine.PointAttemptSucceed),
			Position: faults.Before, Occurrence: 1, Span: 10 * time.Second,
		}},
		Expect: once,
	},
	{
		Name:  "failed-discovery",
		Title: "the request that creates the delivery is lost",
		Story: "The discoverer does not know whether the delivery was created. It gives its lease back at once, and a poll interval later somebody discovers " +
			"the event again.",
		Faults: []faults.Fault{{
			Kind: faults.LoseCall, Process: faults.AnyProcess, Point: string(engine.PointDeliveryCreate),
			Position: faults.Before, Occurrence: 1,
		}},
		Expect: func(v Variant) Expectation {
			expected := once(v)
			expected.Within = 7 * time.Second
			return expected
		},
	},
	{
		Name:  "partition",
		Title: "the worker is cut off from the database while its handler runs",
		Story: "The handler works for 20 s, and 10 s of them the worker cannot reach the database: its first heartbeat is lost. The second gets through before " +
			"the lease ends, and nobody has noticed.",
		Workload: Workload{Topics: []TopicLoad{{Do: Work{Time: 22 * time.Second}}}},
		Faults: []faults.Fault{{
			Kind: faults.Partition, Process: faults.AnyProcess, Point: string(engine.PointAttemptHeartbeat),
			Position: faults.Before, Occurrence: 1, Span: 9 * time.Second,
		}},
		Expect: once,
	},
	{
		Name:  "wrong-clocks",
		Title: "the clocks of workers are five minutes wrong, one ahead and one behind",
		Story: "A worker whose clock is 5 min ahead would find every lease expired, one that is behind would be born with an expired lease, if leases were " +
			"compared by the workers' clocks. They are set and compared by the database's.",
		Workload: Workload{Topics: []TopicLoad{{Do: Work{Time: 45 * time.Second}}}, PublishAt: time.Second},
		Faults: []faults.Fault{
			{
				Kind: faults.SetClock, Process: faults.AnyProcess, Point: string(engine.PointDiscoveryScan),
				Position: faults.Before, Occurrence: 1, Span: 5 * time.Minute,
			},
			{
				Kind: faults.SetClock, Process: faults.AnyProcess, Point: string(engine.PointDiscoveryScan),
				Position: faults.Before, Occurrence: 2, Span: -5 * time.Minute,
			},
		},
		Expect: once,
	},
	{
		Name:  "slow-clocks",
		Title: "the clocks of a worker run 8 % slow, and it is cut off under its handler",
		Story: "By its own clock the worker has its lease for longer than the database grants it. It keeps a tenth of it as a margin: its handler is told in time, " +
			"before another worker starts.",
		Workload: Workload{Topics: []TopicLoad{{Do: Work{Time: time.Minute}}}},
		Faults: []faults.Fault{
			{
				Kind: faults.Drift, Process: faults.AnyProcess, Point: string(engine.PointEventRead),
				Position: faults.Before, Occurrence: 1, Span: -5 * time.Minute,
			},
			{
				Kind: faults.Partition, Process: faults.AnyProcess, Point: string(engine.PointAttemptHeartbeat),
				Position: faults.Before, Occurrence: 1, Span: 50 * time.Second,
			},
		},
		Expect: afterLostWorker(1, 0),
	},
	{
		Name:  "visibility-gap",
		Title: "an event becomes visible after a later one",
		Story: "The database has stamped the first event, and makes it visible 2 s later, when the second has long been seen. The " +
			"cursor keeps a distance to the present, and each pass looks back: the first is found.",
		Workload: Workload{Publishers: 2},
		Faults: []faults.Fault{{
			Kind: faults.Gap, Process: "publisher", Point: string(engine.PointPublish),
			Position: faults.Before, Occurrence: 1, Span: 2 * time.Second,
		}},
		Expect: once,
	},
	{
		Name:  "failover",
		Title: "the primary steps down right after it has recorded the success",
		Story: "The success is stored, and no reply comes: the primary steps down, and for 8 s there is none. The worker cannot know whether it was recorded. " +
			"It asks again under its own token when another is elected, and finds that it was.",
		Faults: []faults.Fault{{
			Kind: faults.Failover, Process: faults.AnyProcess, Point: string(engine.PointAttemptSucceed),
			Position: faults.Unanswered, Occurrence: 1, Span: 8 * time.Second,
		}},
		Expect: once,
	},
	{
		Name:  "failover-rollback",
		Title: "the success is recorded on a primary that is cut off, and rolled back",
		Story: "The primary loses the other members, and the worker records its success there. 8 s later another is elected, which knows nothing of it, and the " +
			"worker does not notice for 8 s more. A majority never had the success, so the worker is never told of it. It is taken back, and the worker " +
			"records it again, under the lease that it still has.",
		Faults: []faults.Fault{{
			Kind: faults.Rollback, Process: faults.AnyProcess, Point: string(engine.PointAttemptSucceed),
			Position: faults.Before, Occurrence: 1, Span: 8 * time.Second,
		}},
		Expect: once,
	},
	{
		Name:  "replication-lag",
		Title: "the other members lag behind while the success is recorded",
		Story: "The primary has recorded the success, and a majority gets it only 20 s later. So long nobody is told, and nobody sees it who reads with the concern " +
			"that the engine pins. The worker waits, and is told in the end.",
		Faults: []faults.Fault{{
			Kind: faults.Lag, Process: faults.AnyProcess, Point: string(engine.PointAttemptSucceed),
			Position: faults.Before, Occurrence: 1, Span: 20 * time.Second,
		}},
		Expect: once,
	},
	{
		Name:  "stale-discoverer",
		Title: "a discoverer wakes up after its event was delivered and forgotten",
		Story: "A discoverer hangs for 150 s while its insert of the delivery is under way. Another takes over, the event is handled, and " +
			"retention (2 s here) removes every trace of it. Then the insert arrives: it is refused, since its lease is over by " +
			"the database's clock.",
		Workload: Workload{HistoryRetention: 2 * time.Second},
		Faults: []faults.Fault{{
			Kind: faults.Stall, Process: faults.AnyProcess, Point: string(engine.PointDeliveryCreate),
			Position: faults.Before, Occurrence: 1, Span: 150 * time.Second,
		}},
		Expect: once,
	},
	{
		Name:  "retention-before-cursor",
		Title: "retention must not forget an event before the cursor has passed it",
		Story: "A discoverer hangs for 70 s before it can move the cursor, and dies. The event was handled meanwhile. If retention " +
			"(2 s here) removed its delivery, the next discoverer would take it for a new one: so a delivery gets its expiry date only " +
			"when the cursor has passed its event.",
		Workload: Workload{HistoryRetention: 2 * time.Second},
		Faults: []faults.Fault{
			{
				Kind: faults.Stall, Process: faults.AnyProcess, Point: string(engine.PointCursorAdvance),
				Position: faults.Before, Occurrence: 1, Span: 70 * time.Second,
			},
			crash(string(engine.PointCursorAdvance), faults.Before),
		},
		Expect: once,
	},
	{
		Name:  "two-groups",
		Title: "every consumer group gets the event, whatever befalls another",
		Story: "Two groups consume the topic. A process of the second is cut off from the database for 20 s, from its start. The first group is not " +
			"concerned: each has its own delivery, attempts, leases and cursor. The second has the event when somebody of it is there.",
		Workload: Workload{Groups: 2},
		Faults: []faults.Fault{{
			Kind: faults.Partition, Process: "shipping-worker-1", Point: string(engine.PointSubscriptionFind), Position: faults.Before,
			Occurrence: 1, Span: 20 * time.Second,
		}},
		Expect: once,
	},
}

func crash(point string, position faults.Position) faults.Fault {
	return faults.Fault{
		Kind: faults.Crash, Process: faults.AnyProcess, Point: point, Position: position,
		Occurrence: 1, Span: 5 * time.Second,
	}
}

func once(Variant) Expectation {
	return Expectation{Starts: 1, Effects: 1, Attempts: []string{"success"}, Status: "success"}
}

// afterLostWorker expects what follows when the first worker is lost after so many starts and effects.
func afterLostWorker(starts, effects int) func(Variant) Expectation {
	return func(v Variant) Expectation {
		if v.AtMostOnce() {
			return Expectation{Starts: starts, Effects: effects, Attempts: []string{engine.CodeWorkerLost}, Status: "error"}
		}
		return Expectation{Starts: starts + 1, Effects: effects + 1, Attempts: []string{engine.CodeWorkerLost, "success"}, Status: "success"}
	}
}
