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
}

// Subject returns what runs the base's workload.
func (b Base) Subject(bug scenarios.Bug) Subject { return Load{b.Workload, bug} }

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
	return []Base{
		{"ordered", load(scenarios.TopicLoad{}), faults.Plan{}},
		{"unordered", load(scenarios.TopicLoad{Options: unordered}), faults.Plan{}},
		{"at most once", load(scenarios.TopicLoad{Options: engine.SubscribeOptions{Delivery: engine.AtMostOnce}}), faults.Plan{}},
		{"latest", latest(load(scenarios.TopicLoad{})), faults.Plan{}},
		{"fails once", load(scenarios.TopicLoad{Do: scenarios.Work{FailFirst: 1}}), faults.Plan{}},
		{"fails always", load(scenarios.TopicLoad{Options: engine.SubscribeOptions{MaxRetries: 1}, Do: scenarios.Work{FailFirst: 9}}), faults.Plan{}},
		{"long handler", load(scenarios.TopicLoad{Do: scenarios.Work{Time: 25 * time.Second}}), faults.Plan{}},
		{"lost worker", load(scenarios.TopicLoad{}), lost(faults.Crash, faults.After, sim.PointHandlerStart, 5*time.Second)},
		{"lost worker, unordered", load(scenarios.TopicLoad{Options: unordered}), lost(faults.Crash, faults.After, sim.PointHandlerStart, 5*time.Second)},
		{"torn materialization", load(scenarios.TopicLoad{}), lost(faults.Crash, faults.After, engine.PointDeliveryCreate, 5*time.Second)},
		{"torn success", load(scenarios.TopicLoad{}), lost(faults.Crash, faults.After, engine.PointAttemptSucceed, 5*time.Second)},
		{"torn error", load(scenarios.TopicLoad{Do: scenarios.Work{FailFirst: 1}}), lost(faults.Crash, faults.After, engine.PointAttemptFail, 5*time.Second)},
		{"torn retention", load(scenarios.TopicLoad{}), lost(faults.Crash, faults.After, engine.PointDeliverySucceed, 5*time.Second)},
		{"torn discovery", load(scenarios.TopicLoad{}), lost(faults.Crash, faults.After, engine.PointAttemptCreate, 5*time.Second)},
		{"rediscovery", scenarios.Workload{Replicas: 2, PublishAt: time.Second, Topics: []scenarios.TopicLoad{{Events: 2}}}, rediscovery},
		{"visible late", scenarios.Workload{Replicas: 2, Publishers: 2}, faults.Plan{Faults: []faults.Fault{{
			Kind: faults.Gap, Process: "publisher", Point: string(engine.PointPublish), Occurrence: 1, Position: faults.Before, Span: 2 * time.Second,
		}}}},
		{"two groups", scenarios.Workload{Groups: 2, Replicas: 1}, faults.Plan{}},
		{"two topics apart", scenarios.Workload{Replicas: 2, Partial: true, Topics: []scenarios.TopicLoad{{Name: "a"}, {Name: "b", Options: unordered}}}, faults.Plan{}},
		{"comes back", scenarios.Workload{Replicas: 1, LeaveAt: time.Second, PublishAt: 2 * time.Second}, faults.Plan{}},
		{"audit", scenarios.Workload{Replicas: 2, Audit: true}, faults.Plan{}},
		{"leftover", forgotten, lost(faults.Stall, faults.Before, engine.PointReconcileAttempts, 2*time.Minute)},
		{"late discoverer", load(scenarios.TopicLoad{}), lost(faults.Stall, faults.Before, engine.PointDeliveryCreate, 40*time.Second)},
		{"lost acknowledgement", load(scenarios.TopicLoad{}), lost(faults.LoseReply, faults.Unanswered, engine.PointAttemptSucceed, 0)},
		{"lost claim", load(scenarios.TopicLoad{}), lost(faults.LoseReply, faults.Unanswered, engine.PointOrderClaim, 0)},
		{"lost discovery", load(scenarios.TopicLoad{}), lost(faults.LoseReply, faults.Unanswered, engine.PointDiscoveryLease, 0)},
	}
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
