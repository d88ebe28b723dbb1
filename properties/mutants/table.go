package mutants

import (
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/fencepost-sim/fencepost/engine"
	"github.com/fencepost-sim/fencepost/engine/store"
	"github.com/fencepost-sim/fencepost/faults"
	"github.com/fencepost-sim/fencepost/internal/defect"
	"github.com/fencepost-sim/fencepost/internal/document"
	"github.com/fencepost-sim/fencepost/scenarios"
	"github.com/fencepost-sim/fencepost/sim"
)

// topics makes a workload of two replicas.
func topics(loads ...scenarios.TopicLoad) scenarios.Workload {
	return scenarios.Workload{Replicas: 2, Topics: loads}
}

var (
	unordered = engine.SubscribeOptions{Unordered: true}
	single    = engine.SubscribeOptions{Unordered: true, Delivery: engine.AtMostOnce}
)

func crash(point string) faults.Fault {
	return faults.Fault{Kind: faults.Crash, Process: faults.AnyProcess, Point: point, Position: faults.After, Occurrence: 1, Span: 5 * time.Second}
}

func stall(point store.Point, span time.Duration) faults.Fault {
	return faults.Fault{Kind: faults.Stall, Process: faults.AnyProcess, Point: string(point), Position: faults.Before, Occurrence: 1, Span: span}
}

var unlock = faults.Fault{Kind: faults.Unlock, Process: faults.AnyProcess, Point: sim.PointHandlerStart, Position: faults.After, Occurrence: 1}

// All mutants: those of the engine, by the property that must catch them, those that mix up groups, and those of the guards.
var All = slices.Concat(ofEngine, mixedGroups(), ofGuards)

var ofEngine = []Mutant{
	{
		Name: "scan-skips-first", What: "discovery passes over the oldest event of a batch, and does not look back", Caught: "I1",
		Workload: scenarios.Workload{Replicas: 2, PublishAt: time.Second, Topics: []scenarios.TopicLoad{{Events: 3}}},
		Faults:   []faults.Fault{{Kind: faults.Drop, Process: faults.AnyProcess, Occurrence: 1, Count: faults.All}},
		Reply: func(c store.Command, r store.Reply) store.Reply {
			switch {
			case c.Point == engine.PointDiscoveryScan && len(r.Documents) > 1:
				r.Documents = r.Documents[1:]
			case c.Point == engine.PointDiscoveryLate:
				r.Documents = nil // nor does it look back
			}
			return r
		},
	},
	{
		Name: "publish-stores-nothing", What: "a publication updates what is not there instead of storing it", Caught: "I1",
		Command: at(func(c store.Command) store.Command { c.Upsert = false; return c }, engine.PointPublish),
	},
	{
		Name: "write-concern-one", What: "the write concern is not pinned: a publication is acknowledged that a failover rolls back", Caught: "I1",
		Defect: defect.WriteConcernOne,
		Faults: []faults.Fault{{
			Kind: faults.Rollback, Process: "publisher", Point: string(engine.PointPublish), Position: faults.Before, Occurrence: 1, Span: 5 * time.Second,
		}},
	},
	{
		Name: "loss-by-error", What: "a handler's error that says that the lease is lost is taken for a lost lease", Caught: "I8",
		Workload: topics(scenarios.TopicLoad{Do: scenarios.Work{FailFirst: 1, Misleading: true}}), Defect: defect.LossByError,
	},
	{
		Name: "cursor-first", What: "the cursor moves before the events are materialized", Caught: "I1",
		// Polling finds the event when it is older than the visibility window, so that the cursor may move at once.
		Workload: scenarios.Workload{Replicas: 2, PublishAt: time.Second, PollInterval: 20 * time.Second},
		Faults: []faults.Fault{
			{Kind: faults.Drop, Process: faults.AnyProcess, Occurrence: 1, Count: faults.All},
			crash(string(engine.PointCursorAdvance)),
		},
		Defect: defect.CursorFirst,
	},
	{
		Name: "no-horizon", What: "the cursor moves to the newest event that is visible", Caught: "I1",
		Workload: scenarios.Workload{Replicas: 2, Publishers: 2}, Defect: defect.NoHorizon,
		Faults: []faults.Fault{{
			Kind: faults.Gap, Process: "publisher", Point: string(engine.PointPublish),
			Position: faults.Before, Occurrence: 1, Span: 2 * time.Second,
		}},
	},
	{
		Name: "scan-age-ignored", What: "the cursor moves by a scan that was made long before its lease", Caught: "I1",
		Workload: scenarios.Workload{Replicas: 1, Publishers: 2}, Defect: defect.ScanAgeIgnored, Seeds: 200,
		Faults: []faults.Fault{
			{
				Kind: faults.Gap, Process: "publisher-2", Point: string(engine.PointPublish),
				Position: faults.Before, Occurrence: 1, Span: 4 * time.Second,
			},
			{
				Kind: faults.Stall, Process: "worker-1", Point: string(engine.PointDiscoveryScan),
				Position: faults.Unanswered, Occurrence: 2, Span: 30 * time.Second,
			},
		},
	},
	notUnique(Mutant{
		Name: "delivery-not-unique", What: "the unique index on group and event is missing, and a late discoverer is not refused", Caught: "I2",
		Command: at(statements(func(s store.Statement) store.Statement {
			s = unfenced(s) // and an upsert finds nothing that it could be unique with
			s.Filter = bson.D{{Key: "consumerGroup", Value: "billing"}, {Key: "eventId", Value: document.Get(s.Filter, "eventId")}, {Key: "$expr", Value: false}}
			return s
		}), engine.PointDeliveryCreate),
		Workload: topics(scenarios.TopicLoad{}), Faults: []faults.Fault{stall(engine.PointDeliveryCreate, 40*time.Second)},
	}, "pulse_deliveries_group_event_unique"),
	notUnique(Mutant{
		Name: "retry-not-unique", What: "the unique index on delivery and attempt is missing when the retry is created", Caught: "I2",
		Workload: topics(scenarios.TopicLoad{Do: scenarios.Work{FailFirst: 1}}),
		Faults:   []faults.Fault{stall(engine.PointAttemptRetry, 10*time.Second)},
	}, "pulse_history_delivery_attempt_unique"),
	{
		Name: "success-without-token", What: "the fencing token is dropped from the filter that records success", Caught: "I3",
		Workload: topics(scenarios.TopicLoad{Options: unordered, Do: scenarios.Work{Time: 5 * time.Second}}),
		Faults:   []faults.Fault{unlock},
		Command:  at(withoutFilter("lockToken"), engine.PointAttemptSucceed),
	},
	{
		Name: "error-without-token", What: "the fencing token is dropped from the filter that records a failure", Caught: "I3",
		Workload: topics(scenarios.TopicLoad{Options: unordered, Do: scenarios.Work{Time: 5 * time.Second, FailFirst: 1}}),
		Faults:   []faults.Fault{unlock},
		Command:  at(withoutFilter("lockToken"), engine.PointAttemptFail),
	},
	{
		Name: "heartbeat-without-token", What: "the fencing token is dropped from the filter that renews the lease", Caught: "I3",
		Workload: scenarios.Workload{Replicas: 2, Workers: 1, Topics: []scenarios.TopicLoad{
			{Options: unordered, Do: scenarios.Work{Time: 25 * time.Second}},
		}},
		Faults:  []faults.Fault{unlock},
		Command: at(withoutFilter("lockToken"), engine.PointAttemptHeartbeat),
	},
	{
		Name: "claim-on-one-member", What: "the write concern is not pinned: a handler starts on a claim that a failover rolls back", Caught: "I3",
		Defect:   defect.WriteConcernOne,
		Workload: topics(scenarios.TopicLoad{Options: unordered, Do: scenarios.Work{Time: 20 * time.Second}}),
		Faults: []faults.Fault{{
			Kind: faults.Rollback, Process: faults.AnyProcess, Point: string(engine.PointAttemptClaim), Position: faults.Before, Occurrence: 1, Span: 5 * time.Second,
		}},
	},
	{
		Name: "no-margin", What: "a worker believes in its lease until its very end by its own clock, which runs slow", Caught: "I3",
		Workload: scenarios.Workload{Replicas: 2, LockTimeout: 2 * time.Minute, Topics: []scenarios.TopicLoad{
			{Options: unordered, Do: scenarios.Work{Time: 10 * time.Minute}},
		}},
		Defect: defect.NoMargin,
		Faults: []faults.Fault{
			{
				Kind: faults.Drift, Process: faults.AnyProcess, Point: string(engine.PointEventRead),
				Position: faults.Before, Occurrence: 1, Span: -5 * time.Minute,
			},
			stall(engine.PointAttemptHeartbeat, 5*time.Minute),
		},
	},
	{
		Name: "claim-takes-locked", What: "the claim does not ask whether the attempt is locked", Caught: "I3",
		Workload: topics(scenarios.TopicLoad{Events: 2, Options: unordered, Do: scenarios.Work{Time: time.Second}}),
		Command:  at(withoutFilter("lockToken"), engine.PointAttemptClaim),
	},
	{
		Name: "reap-takes-live", What: "the reaper does not ask whether the lease has expired", Caught: "I3",
		Workload: topics(scenarios.TopicLoad{Do: scenarios.Work{Time: 10 * time.Second}}),
		Command:  at(withoutFilter("$expr"), engine.PointReap),
	},
	{
		Name: "start-unchecked", What: "a handler starts without a last look at the lease", Caught: "I3",
		Workload: topics(scenarios.TopicLoad{}), Defect: defect.StartUnchecked,
		Faults: []faults.Fault{{
			Kind: faults.Freeze, Process: faults.AnyProcess, Point: string(engine.PointEventRead),
			Position: faults.After, Occurrence: 1, Span: time.Minute,
		}},
	},
	{
		Name: "lease-shorter-than-believed", What: "the lease ends before its holder stops", Caught: "I3",
		Workload: topics(scenarios.TopicLoad{Do: scenarios.Work{Time: 45 * time.Second, Stubborn: true}}),
		Faults:   []faults.Fault{stall(engine.PointAttemptHeartbeat, 2*time.Minute)},
		Command: at(func(c store.Command) store.Command {
			set, _ := document.Get(c.Pipeline[0], "$set").(bson.D)
			half := bson.D{{Key: "$add", Value: bson.A{"$$NOW", int64(15_000)}}}
			return withPipeline(c, bson.D{{Key: "$set", Value: replaced(set, "lockedUntil", half)}})
		}, engine.PointOrderClaim),
	},
	{
		Name: "cursor-without-token", What: "the cursor is moved by a discoverer whose lease is over", Caught: "I3",
		Workload: topics(scenarios.TopicLoad{Events: 3, Pause: 20 * time.Second, Options: unordered}),
		Faults:   []faults.Fault{stall(engine.PointCursorAdvance, 40*time.Second)},
		Command:  at(withoutFilter("discoveryLockToken"), engine.PointCursorAdvance),
	},
	{
		Name: "discovery-lease-taken", What: "a discovery lease is taken although another holds it", Caught: "I3",
		Workload: topics(scenarios.TopicLoad{Events: 3}), Seeds: 20,
		Command: at(withoutFilter("$expr"), engine.PointDiscoveryLease),
	},
	{
		Name: "order-lease-taken", What: "an ordering lease is taken although another holds it", Caught: "I3",
		Workload: topics(scenarios.TopicLoad{Events: 3, Do: scenarios.Work{Time: 10 * time.Second}}), Seeds: 20,
		Command: at(withoutFilter("$expr"), engine.PointOrderLease),
	},
	{
		Name: "order-released-for-another", What: "an ordering lease is given back without asking whose it is", Caught: "I3",
		Workload: topics(scenarios.TopicLoad{Events: 2, Pause: 35 * time.Second, Do: scenarios.Work{Time: 25 * time.Second}}),
		Faults:   []faults.Fault{stall(engine.PointOrderRelease, 40*time.Second)},
		Command:  at(withoutFilter("orderedLockToken"), engine.PointOrderRelease), Seeds: 20,
	},
	{
		Name: "order-renewed-for-another", What: "an ordering lease is renewed without asking whose it is", Caught: "I3",
		Workload: topics(scenarios.TopicLoad{Do: scenarios.Work{Time: 45 * time.Second, Stubborn: true}}),
		Faults:   []faults.Fault{stall(engine.PointOrderHeartbeat, 40*time.Second)},
		Command:  at(withoutFilter("orderedLockToken"), engine.PointOrderHeartbeat), Seeds: 20,
	},
	notUnique(Mutant{
		Name: "subscription-not-unique", What: "the index that makes subscriptions unique is not unique", Caught: "I2",
		Workload: topics(scenarios.TopicLoad{}), Seeds: 30,
	}, "pulse_subscriptions_group_topic_unique"),
	{
		Name: "late-failure", What: "a failure is recorded although the attempt has been reaped meanwhile", Caught: "I4",
		Workload: scenarios.Workload{Replicas: 2, HistoryRetention: engine.KeepForever, Topics: []scenarios.TopicLoad{
			{Options: unordered, Do: scenarios.Work{FailFirst: 1}},
		}},
		Faults: []faults.Fault{{
			Kind: faults.Freeze, Process: faults.AnyProcess, Point: string(engine.PointAttemptFail), Position: faults.Before, Occurrence: 1, Span: 40 * time.Second,
		}},
		Command: at(withoutFilter("status"), engine.PointAttemptFail),
	},
	{
		Name: "completion-without-status", What: "completion does not ask whether the attempt is still pending", Caught: "I4",
		Workload: topics(scenarios.TopicLoad{Do: scenarios.Work{Time: 45 * time.Second, Stubborn: true}}),
		Faults:   []faults.Fault{stall(engine.PointAttemptHeartbeat, 2*time.Minute)},
		Command:  at(withoutFilter("status"), engine.PointAttemptSucceed, engine.PointAttemptFail),
	},
	{
		Name: "giving-up-unlocks", What: "a worker that gives up unlocks the attempt instead of ending it, under at-most-once", Caught: "I5",
		Workload: topics(scenarios.TopicLoad{Options: single, Do: scenarios.Work{Time: 45 * time.Second}}),
		Faults:   []faults.Fault{stall(engine.PointAttemptHeartbeat, 2*time.Minute)},
		Command: at(func(c store.Command) store.Command {
			set, _ := document.Get(c.Pipeline[0], "$set").(bson.D)
			if failure, ok := document.Get(set, "error").(bson.D); !ok || document.Text(document.Get(failure, "$literal").(bson.D), "code") != engine.CodeWorkerLost {
				return c
			}
			return withPipeline(c, bson.D{{Key: "$unset", Value: bson.A{"lockToken", "lockedUntil", "lockOwner", "lockedAt", "startedAt", "heartbeatAt"}}})
		}, engine.PointAttemptFail),
		Reply: func(c store.Command, r store.Reply) store.Reply {
			if c.Point == engine.PointAttemptFail && document.Has(c.Pipeline[0], "$unset") {
				r.Document = nil // as if it had been fenced out
			}
			return r
		},
	},
	{
		Name: "retry-at-most-once", What: "a lost worker's event is retried under at-most-once", Caught: "I5",
		Workload: topics(scenarios.TopicLoad{Options: single}), Faults: []faults.Fault{crash(sim.PointHandlerStart)},
		Defect: defect.RetryAtMostOnce,
	},
	{
		Name: "late-discoverer", What: "a discoverer may create a delivery after its lease is over", Caught: "I5",
		Workload: scenarios.Workload{Replicas: 2, HistoryRetention: 2 * time.Second, Topics: []scenarios.TopicLoad{{Options: single}}},
		Faults:   []faults.Fault{stall(engine.PointDeliveryCreate, 150*time.Second)},
		Command:  at(statements(unfenced), engine.PointDeliveryCreate),
	},
	{
		Name: "number-skipped", What: "the next attempt's number is one too high", Caught: "I6",
		Workload: topics(scenarios.TopicLoad{Do: scenarios.Work{FailFirst: 1}}),
		Command: at(func(c store.Command) store.Command {
			n, _ := document.Get(c.Documents[0], "attempt").(int64)
			c.Documents = []bson.D{set(c.Documents[0], "attempt", n+1)}
			return c
		}, engine.PointAttemptRetry),
	},
	{
		Name: "retry-too-early", What: "an attempt is claimed before it is due", Caught: "I6",
		Workload: topics(scenarios.TopicLoad{
			Options: engine.SubscribeOptions{Unordered: true, RetryDelay: 10 * time.Second}, Do: scenarios.Work{FailFirst: 1},
		}),
		Command: at(withoutFilter("$expr"), engine.PointAttemptClaim),
	},
	{
		Name: "head-skipped", What: "an ordered topic goes on with the next event while the head waits for its retry", Caught: "I7",
		Workload: topics(scenarios.TopicLoad{Events: 2, Do: scenarios.Work{FailFirst: 1}}), Seeds: 50,
		Command: at(withoutFilter("deliveryId"), engine.PointOrderClaim),
	},
	{
		Name: "late-ones-last", What: "an ordered topic does not look for late events before it goes on", Caught: "I7",
		Workload: scenarios.Workload{Replicas: 1, Publishers: 2, Topics: []scenarios.TopicLoad{{Events: 2}}},
		Faults: []faults.Fault{
			{
				Kind: faults.Gap, Process: "publisher", Point: string(engine.PointPublish),
				Position: faults.Before, Occurrence: 1, Span: 10 * time.Millisecond,
			},
			{Kind: faults.Drop, Process: "worker-1", Occurrence: 3, Count: 1},
		},
		Defect: defect.NoUrgentLook,
	},
	{
		Name: "success-rows-ignored", What: "reconciliation does not see successful attempts", Caught: "I8",
		Workload: topics(scenarios.TopicLoad{}), Faults: []faults.Fault{crash(string(engine.PointAttemptSucceed))},
		Reply: replies(hiding("success"), engine.PointReconcileAttempts),
	},
	{
		Name: "error-rows-ignored", What: "reconciliation does not see failed attempts", Caught: "I8",
		Workload: topics(scenarios.TopicLoad{Do: scenarios.Work{FailFirst: 1}}),
		Faults:   []faults.Fault{crash(string(engine.PointAttemptFail))},
		Reply:    replies(hiding("error"), engine.PointReconcileAttempts),
	},
	{
		Name: "never-reaps", What: "expired leases are not looked for", Caught: "I8",
		Workload: topics(scenarios.TopicLoad{}), Faults: []faults.Fault{crash(sim.PointHandlerStart)},
		Swallow: func(c store.Command) (store.Reply, bool) { return store.Reply{}, c.Point == engine.PointReap },
	},
	{
		Name: "order-lease-kept", What: "the ordering lease is not given back after an event", Caught: "I8",
		Workload: topics(scenarios.TopicLoad{Events: 2}), Seeds: 20,
		Swallow: func(c store.Command) (store.Reply, bool) {
			return store.Reply{Matched: 1}, c.Point == engine.PointOrderRelease
		},
	},
	{
		Name: "no-pause-after-errors", What: "a worker tries again at once after an error", Caught: "I8",
		Workload: topics(scenarios.TopicLoad{Options: unordered}), Defect: defect.NoPause,
		Faults: []faults.Fault{{
			Kind: faults.Refuse, Process: faults.AnyProcess, Point: string(engine.PointEventRead),
			Position: faults.Before, Occurrence: 1, Span: 5 * time.Second,
		}},
	},
	{
		Name: "one-timer", What: "only the earliest of several retries is timed", Caught: "I8",
		Workload: scenarios.Workload{Replicas: 1, PollInterval: 5 * time.Minute, Topics: []scenarios.TopicLoad{
			{Events: 3, Pause: 300 * time.Millisecond, Options: unordered, Do: scenarios.Work{FailFirst: 1}},
		}},
		Defect: defect.OneTimer,
	},
	{
		Name: "skipped-topic-forgotten", What: "nobody comes back to a topic that had no free slot", Caught: "I8",
		Workload: scenarios.Workload{Replicas: 1, PollInterval: time.Minute, Topics: []scenarios.TopicLoad{{
			Events: 6, Do: scenarios.Work{Time: time.Second}, Options: engine.SubscribeOptions{Unordered: true, MaxConcurrency: 1},
		}}},
		Defect: defect.SkippedForgotten, Seeds: 50,
	},
	{
		Name: "ticket-forgets", What: "a claim that found nothing hides what became claimable while it was under way", Caught: "I8",
		Workload: scenarios.Workload{Replicas: 2, Workers: 1, PollInterval: time.Minute, Topics: []scenarios.TopicLoad{
			{Events: 6, Pause: time.Millisecond, Options: unordered},
		}},
		Defect: defect.TicketForgets, Seeds: 300,
	},
	{
		Name: "slot-after-claim", What: "a concurrency slot is counted only after the claim was answered", Caught: "I9",
		Workload: topics(scenarios.TopicLoad{
			Events: 8, Do: scenarios.Work{Time: time.Second},
			Options: engine.SubscribeOptions{Unordered: true, MaxConcurrency: 1},
		}),
		Seeds: 50, Defect: defect.SlotAfterClaim,
	},
	{
		Name: "expiry-with-attempt", What: "a failed attempt gets its expiry date while its delivery is pending", Caught: "I10",
		Workload: topics(scenarios.TopicLoad{Do: scenarios.Work{FailFirst: 1}}),
		Command: at(func(c store.Command) store.Command {
			c.Pipeline = append(c.Pipeline[:len(c.Pipeline):len(c.Pipeline)],
				bson.D{{Key: "$set", Value: bson.D{{Key: "expiresAt", Value: "$endedAt"}}}})
			return c
		}, engine.PointAttemptFail),
	},
	{
		Name: "retention-doubled", What: "history is kept for twice as long as the options say", Caught: "I10",
		Workload: topics(scenarios.TopicLoad{}),
		Command: at(statements(func(s store.Statement) store.Statement {
			set, _ := document.Get(s.Update, "$set").(bson.D)
			date, _ := document.Get(set, "expiresAt").(bson.DateTime)
			late := bson.D{{Key: "expiresAt", Value: date + bson.DateTime((7 * 24 * time.Hour).Milliseconds())}}
			s.Update = bson.D{{Key: "$set", Value: late}}
			return s
		}), engine.PointRetentionAttempts, engine.PointRetentionDelivery),
	},
	{
		Name: "delivery-ended-twice", What: "a late repairer ends a delivery that has ended, and takes its date away", Caught: "I10",
		Workload: topics(scenarios.TopicLoad{Options: single, Do: scenarios.Work{FailFirst: 1}}),
		Faults: []faults.Fault{{
			Kind: faults.Stall, Process: faults.AnyProcess, Point: string(engine.PointDeliveryFail),
			Position: faults.Before, Occurrence: 1, Span: time.Minute,
		}},
		Command: at(withoutFilter("status"), engine.PointDeliveryFail),
	},
	{
		Name: "retention-swapped", What: "the delivery gets its expiry date before its attempts do", Caught: "I10",
		Workload: scenarios.Workload{}, Faults: []faults.Fault{crash(string(engine.PointRetentionDelivery))},
		Defect: defect.RetentionSwapped,
	},
	{
		Name: "success-taken-for-error", What: "reconciliation takes a successful attempt for a failed one", Caught: "I11",
		Workload: topics(scenarios.TopicLoad{}), Faults: []faults.Fault{crash(string(engine.PointAttemptSucceed))},
		Reply: replies(func(r store.Reply) store.Reply {
			documents := make([]bson.D, len(r.Documents))
			for i, d := range r.Documents {
				if documents[i] = d; document.Get(d, "status") == "success" {
					documents[i] = set(d, "status", "error")
				}
			}
			r.Documents = documents
			return r
		}, engine.PointReconcileAttempts),
	},
	{
		Name: "dated-before-cursor", What: "a delivery gets its expiry date before the cursor has passed its event", Caught: "I11",
		Workload: scenarios.Workload{Replicas: 1, HistoryRetention: 2 * time.Second, StayFor: time.Minute},
		Faults: []faults.Fault{
			stall(engine.PointCursorAdvance, 70*time.Second),
			{
				Kind: faults.Crash, Process: faults.AnyProcess, Point: string(engine.PointCursorAdvance),
				Position: faults.Before, Occurrence: 1, Span: 5 * time.Second,
			},
		},
		Defect: defect.DateEarly,
	},
	{
		Name: "no-rotation", What: "topics are always served in the same order", Caught: "I12",
		Workload: scenarios.Workload{Replicas: 1, Workers: 1, Topics: []scenarios.TopicLoad{
			{
				Name: "hopeless", Events: 2, Do: scenarios.Work{Time: time.Second, FailFirst: 1000},
				Options: engine.SubscribeOptions{Unordered: true, MaxRetries: 60, RetryDelay: engine.NoDelay, RetryMultiplier: 1},
			},
			{Name: "healthy", Options: unordered},
		}},
		Defect: defect.NoRotation,
	},
	{
		Name: "shared-rotation", What: "the loops share one rotation of the topics, and fall into step", Caught: "I12",
		Workload: scenarios.Workload{Replicas: 1, Workers: 1, PollInterval: 20 * time.Second, Topics: []scenarios.TopicLoad{
			{Name: "busy", Events: 5, Options: unordered, Do: scenarios.Work{Time: 200 * time.Millisecond, Publish: 30}},
			{Name: "quiet", Events: 3, Options: unordered},
		}},
		Faults: []faults.Fault{{Kind: faults.Drop, Process: faults.AnyProcess, Occurrence: 1, Count: faults.All}},
		Defect: defect.SharedRotation, Seeds: 20,
	},
	{
		Name: "close-without-drain", What: "Close returns while handlers run", Caught: "I13",
		Workload: scenarios.Workload{
			Replicas: 2, CloseAt: 10 * time.Second,
			Topics: []scenarios.TopicLoad{{Do: scenarios.Work{Time: 45 * time.Second}}},
		},
		Defect: defect.CloseWithoutDrain,
	},
	{
		Name: "close-leaves-one", What: "Close returns while one task still goes on", Caught: "I13",
		Workload: scenarios.Workload{
			Replicas: 1, CloseAt: 2 * time.Second, Topics: []scenarios.TopicLoad{{Do: scenarios.Work{Time: 10 * time.Second}}},
		},
		Defect: defect.CloseLeavesOne, Seeds: 20,
	},
	{
		Name: "failure-as-success", What: "a failed attempt is recorded as a success", Caught: "I14",
		Workload: topics(scenarios.TopicLoad{Do: scenarios.Work{FailFirst: 1}}),
		Command: at(func(c store.Command) store.Command {
			c.Pipeline = append(c.Pipeline[:len(c.Pipeline):len(c.Pipeline)],
				bson.D{{Key: "$set", Value: bson.D{{Key: "status", Value: "success"}}}})
			return c
		}, engine.PointAttemptFail),
	},
	{
		Name: "close-stops-heartbeat", What: "a closing process lets the leases of its handlers run out", Caught: "I14",
		Workload: scenarios.Workload{Replicas: 2, RollAt: 5 * time.Second, Topics: []scenarios.TopicLoad{
			{Events: 4, Options: unordered, Do: scenarios.Work{Time: 80 * time.Second}},
		}},
		Defect: defect.CloseStopsHeartbeat, Seeds: 20,
	},
	{
		Name: "handler-blamed", What: "a handler that was stopped because its lease seemed lost is recorded as failed", Caught: "I14",
		Workload: topics(scenarios.TopicLoad{Options: single, Do: scenarios.Work{Time: time.Minute}}), Defect: defect.BlameHandler,
		Faults: []faults.Fault{{
			Kind: faults.Stall, Process: faults.AnyProcess, Point: string(engine.PointAttemptHeartbeat),
			Position: faults.Unanswered, Occurrence: 1, Span: 18 * time.Second,
		}},
	},
	{
		Name: "old-order-lease", What: "the next event is begun under an ordering lease that is about to end", Caught: "I14",
		Workload: scenarios.Workload{Replicas: 1, Topics: []scenarios.TopicLoad{{Events: 5, Do: scenarios.Work{Time: 8 * time.Second}}}},
		Defect:   defect.OldOrderLease,
	},
	{
		Name: "duration-from-creation", What: "the recorded duration counts from the creation of the attempt", Caught: "I14",
		Workload: topics(scenarios.TopicLoad{Do: scenarios.Work{FailFirst: 1}}),
		Command: at(func(c store.Command) store.Command {
			set, _ := document.Get(c.Pipeline[0], "$set").(bson.D)
			wrong := replaced(set, "durationMs", bson.D{{Key: "$subtract", Value: bson.A{"$$NOW", "$createdAt"}}})
			return withPipeline(c, append([]bson.D{{{Key: "$set", Value: wrong}}}, c.Pipeline[1:]...)...)
		}, engine.PointAttemptSucceed),
	},
	{
		Name: "give-up-early", What: "the last retry is not made", Caught: "I14",
		Workload: topics(scenarios.TopicLoad{Do: scenarios.Work{FailFirst: 9}}), Defect: defect.GiveUpEarly,
	},
	{
		Name: "heartbeat-dropped", What: "heartbeats are not sent, and taken for answered", Caught: "I14",
		Workload: topics(scenarios.TopicLoad{Do: scenarios.Work{Time: 90 * time.Second}}),
		Swallow: func(c store.Command) (store.Reply, bool) {
			return store.Reply{Matched: 1}, c.Point == engine.PointAttemptHeartbeat
		},
	},
}
