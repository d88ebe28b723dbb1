package mutants

import (
	"time"

	"github.com/fencepost-sim/fencepost/engine"
	"github.com/fencepost-sim/fencepost/engine/store"
	"github.com/fencepost-sim/fencepost/faults"
	"github.com/fencepost-sim/fencepost/scenarios"
	"github.com/fencepost-sim/fencepost/sim"
)

// mixedGroups drops the consumer group, or the topic, from each filter that stands between what is this process's and what is others'.
func mixedGroups() (all []Mutant) {
	two := func(topic scenarios.TopicLoad) scenarios.Workload {
		return scenarios.Workload{Groups: 2, Replicas: 2, Topics: []scenarios.TopicLoad{topic}}
	}
	ordered := scenarios.TopicLoad{Events: 3, Do: scenarios.Work{Time: time.Second}}
	atOnce := scenarios.TopicLoad{Events: 3, Options: unordered, Do: scenarios.Work{Time: time.Second}}
	// A process reaps only when its own group has locked attempts, too.
	long := scenarios.TopicLoad{Events: 3, Options: unordered, Do: scenarios.Work{Time: 50 * time.Second}}
	dies := []faults.Fault{crash(sim.PointHandlerStart)}
	for _, m := range []struct {
		point    store.Point
		caught   string
		workload scenarios.Workload
		faults   []faults.Fault
	}{
		{engine.PointDiscoveryKnown, "I1", two(ordered), nil},
		{engine.PointAttemptClaim, "I3", two(atOnce), nil},
		{engine.PointOrderHead, "I3", two(ordered), nil},
		{engine.PointReconcileScan, "I3", two(atOnce), []faults.Fault{crash(string(engine.PointAttemptSucceed))}},
		{engine.PointReconcileUndated, "I3", two(atOnce), nil},
		{engine.PointReap, "I3", two(long), dies},
		{engine.PointLeftoverScan, "I3", forgotten, leavesOne},
	} {
		all = append(all, Mutant{
			Name: "other-groups-" + string(m.point), What: "step " + string(m.point) + " does not ask which consumer group it is", Caught: m.caught,
			Workload: m.workload, Faults: m.faults, Seeds: 30,
			Command: at(withoutFilter("consumerGroup"), m.point),
		})
	}
	apart := scenarios.Workload{Replicas: 2, Partial: true, Topics: []scenarios.TopicLoad{
		{Name: "a", Options: unordered, Events: 2, Do: long.Do}, {Name: "b", Options: unordered, Events: 2, Do: long.Do},
	}}
	for _, point := range []store.Point{engine.PointReap, engine.PointReconcileScan} {
		strikes := dies
		if point == engine.PointReconcileScan {
			strikes = []faults.Fault{crash(string(engine.PointAttemptSucceed))}
		}
		all = append(all, Mutant{
			Name: "other-topics-" + string(point), What: "step " + string(point) + " does not ask to what this process has subscribed", Caught: "I3",
			Workload: apart, Faults: strikes, Seeds: 30,
			Command: at(withoutFilter("topic"), point),
		})
	}
	return all
}

// leavesOne makes a process of the second group write a leftover, and keeps it from sweeping it up.
var leavesOne = []faults.Fault{
	{Kind: faults.Stall, Process: "shipping-worker-1", Point: string(engine.PointReconcileAttempts), Position: faults.Before, Occurrence: 1, Span: 2 * time.Minute},
	{Kind: faults.Crash, Process: "shipping-worker-1", Point: string(engine.PointAttemptCreate), Position: faults.After, Occurrence: 2, Span: 9 * time.Minute},
}

// forgotten is a load whose deliveries retention removes while a process that looked at them is paused.
var forgotten = scenarios.Workload{
	Groups: 2, Replicas: 2, HistoryRetention: 2 * time.Second, StayFor: 10 * time.Minute,
	Topics: []scenarios.TopicLoad{{Do: scenarios.Work{Time: 6 * time.Second}}},
}
