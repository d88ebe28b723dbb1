package explore

import (
	"time"

	"github.com/fencepost-sim/fencepost/engine"
	"github.com/fencepost-sim/fencepost/engine/store"
	"github.com/fencepost-sim/fencepost/faults"
	"github.com/fencepost-sim/fencepost/scenarios"
	"github.com/fencepost-sim/fencepost/sim"
)

// Base is a run into which crashes are put. Together the bases reach every point of the protocol.
type Base struct {
	Name     string
	Workload scenarios.Workload
	Plan     faults.Plan
	// Started leaves out the steps by which engines start up: those of another base are the same.
	Started bool
	// Other, if set, is run instead of the workload.
	Other Subject
}

// Subject returns what runs the base.
func (b Base) Subject(bug scenarios.Bug) Subject {
	if b.Other != nil {
		return b.Other
	}
	return Load{b.Workload, bug}
}

// Bases are for two workers and one event, or two where one would not lead to a point.
func Bases() []Base {
	load := func(topic scenarios.TopicLoad) scenarios.Workload {
		return scenarios.Workload{Replicas: 2, Topics: []scenarios.TopicLoad{topic}}
	}
	unordered := engine.SubscribeOptions{Unordered: true}
	lost := func(kind faults.Kind, position faults.Position, point store.Point, span time.Duration) faults.Plan {
		return faults.Plan{Faults: []faults.Fault{{
			Kind: kind, Process: faults.AnyProcess, Point: string(point), Occurrence: 1, Position: position, Span: span,
		}}}
	}
	bases := []Base{
		{Name: "ordered", Workload: load(scenarios.TopicLoad{})},
		{Name: "unordered", Workload: load(scenarios.TopicLoad{Options: unordered})},
		{Name: "at most once", Workload: load(scenarios.TopicLoad{Options: engine.SubscribeOptions{Delivery: engine.AtMostOnce}})},
		{Name: "latest", Workload: latest(load(scenarios.TopicLoad{}))},
		{Name: "fails once", Workload: load(scenarios.TopicLoad{Do: scenarios.Work{FailFirst: 1}})},
		{Name: "fails always", Workload: load(scenarios.TopicLoad{Options: engine.SubscribeOptions{MaxRetries: 1}, Do: scenarios.Work{FailFirst: 9}})},
		{Name: "long handler", Workload: load(scenarios.TopicLoad{Do: scenarios.Work{Time: 25 * time.Second}})},
		{Name: "lost worker", Workload: load(scenarios.TopicLoad{}), Plan: lost(faults.Crash, faults.After, sim.PointHandlerStart, 5*time.Second)},
		{Name: "lost worker, unordered", Workload: load(scenarios.TopicLoad{Options: unordered}), Plan: lost(faults.Crash, faults.After, sim.PointHandlerStart, 5*time.Second)},
		{Name: "torn materialization", Workload: load(scenarios.TopicLoad{}), Plan: lost(faults.Crash, faults.After, engine.PointDeliveryCreate, 5*time.Second)},
		{Name: "torn success", Workload: load(scenarios.TopicLoad{}), Plan: lost(faults.Crash, faults.After, engine.PointAttemptSucceed, 5*time.Second)},
		{Name: "torn error", Workload: load(scenarios.TopicLoad{Do: scenarios.Work{FailFirst: 1}}), Plan: lost(faults.Crash, faults.After, engine.PointAttemptFail, 5*time.Second)},
		{Name: "torn retention", Workload: load(scenarios.TopicLoad{}), Plan: lost(faults.Crash, faults.After, engine.PointDeliverySucceed, 5*time.Second)},
		{Name: "torn discovery", Workload: load(scenarios.TopicLoad{}), Plan: lost(faults.Crash, faults.After, engine.PointAttemptCreate, 5*time.Second)},
		{Name: "rediscovery", Workload: scenarios.Workload{Replicas: 2, PublishAt: time.Second, Topics: []scenarios.TopicLoad{{Events: 2}}}, Plan: rediscovery},
		{Name: "visible late", Workload: scenarios.Workload{Replicas: 2, Publishers: 2}, Plan: faults.Plan{Faults: []faults.Fault{{
			Kind: faults.Gap, Process: "publisher", Point: string(engine.PointPublish), Occurrence: 1, Position: faults.Before, Span: 2 * time.Second,
		}}}},
		{Name: "two groups", Workload: scenarios.Workload{Groups: 2, Replicas: 1}},
		{Name: "two topics apart", Workload: scenarios.Workload{Replicas: 2, Partial: true, Topics: []scenarios.TopicLoad{{Name: "a"}, {Name: "b", Options: unordered}}}},
		{Name: "comes back", Workload: scenarios.Workload{Replicas: 1, LeaveAt: time.Second, PublishAt: 2 * time.Second}},
		{Name: "upgrade", Workload: scenarios.Workload{Replicas: 2, Upgrade: true}},
		{Name: "audit", Workload: scenarios.Workload{Replicas: 2, Audit: true}},
		{Name: "leftover", Workload: forgotten, Plan: lost(faults.Stall, faults.Before, engine.PointReconcileAttempts, 2*time.Minute)},
		{Name: "late discoverer", Workload: load(scenarios.TopicLoad{}), Plan: lost(faults.Stall, faults.Before, engine.PointDeliveryCreate, 40*time.Second)},
		{Name: "lost acknowledgement", Workload: load(scenarios.TopicLoad{}), Plan: lost(faults.LoseReply, faults.Unanswered, engine.PointAttemptSucceed, 0)},
		{Name: "lost claim", Workload: load(scenarios.TopicLoad{}), Plan: lost(faults.LoseReply, faults.Unanswered, engine.PointOrderClaim, 0)},
		{Name: "lost discovery", Workload: load(scenarios.TopicLoad{}), Plan: lost(faults.LoseReply, faults.Unanswered, engine.PointDiscoveryLease, 0)},
	}
	for i := range bases[1:] {
		bases[i+1].Started = true
	}
	return bases
}

// rediscovery lets polling find two events at once, and kills the discoverer between them.
var rediscovery = faults.Plan{Faults: []faults.Fault{
	{Kind: faults.Drop, Process: faults.AnyProcess, Occurrence: 1, Count: faults.All},
	{Kind: faults.Crash, Process: faults.AnyProcess, Point: string(engine.PointAttemptCreate), Position: faults.After, Occurrence: 1, Span: 5 * time.Second},
}}

// forgotten is a load whose deliveries retention removes while a process that looked at them is paused.
var forgotten = scenarios.Workload{
	Replicas: 2, HistoryRetention: 2 * time.Second, StayFor: 5 * time.Minute,
	Topics: []scenarios.TopicLoad{{Do: scenarios.Work{Time: 6 * time.Second}}},
}

func latest(w scenarios.Workload) scenarios.Workload {
	w.Latest, w.PublishAt = true, time.Second
	return w
}
