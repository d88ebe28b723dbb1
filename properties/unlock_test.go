package properties_test

import (
	"testing"
	"time"

	"github.com/fencepost-sim/fencepost/engine"
	"github.com/fencepost-sim/fencepost/faults"
	"github.com/fencepost-sim/fencepost/properties"
	"github.com/fencepost-sim/fencepost/scenarios"
	"github.com/fencepost-sim/fencepost/sim"
)

// TestAnAttemptThatAnOperatorUnlocksIsFencedAgainstItsFirstWorker is where the fencing token in the filters of completion and renewal is
// all that stands between two workers of one attempt: it is pending again, and somebody else's.
func TestAnAttemptThatAnOperatorUnlocksIsFencedAgainstItsFirstWorker(t *testing.T) {
	plan := faults.Plan{Faults: []faults.Fault{{
		Kind: faults.Unlock, Process: faults.AnyProcess, Point: sim.PointHandlerStart, Position: faults.After, Occurrence: 1,
	}}}
	for name, work := range map[string]scenarios.Work{
		"success":   {Time: 5 * time.Second},
		"error":     {Time: 5 * time.Second, FailFirst: 1},
		"heartbeat": {Time: 25 * time.Second},
	} {
		for _, schedule := range []faults.Schedule{faults.Listed, faults.Seeded} {
			plan.Schedule = schedule
			workload := scenarios.Workload{Replicas: 2, Workers: 1, Topics: []scenarios.TopicLoad{
				{Options: engine.SubscribeOptions{Unordered: true}, Do: work},
			}}
			run, err := workload.Run(plan, 1, scenarios.Bug{})
			if err != nil {
				t.Fatal(err)
			}
			if found := properties.Violations(run.Journal); len(found) > 0 {
				t.Errorf("%s, %s: %s\nshrunk plan, seed 1:\n%s", name, schedule, found[0], shrunk(&failure{workload, run, found[0]}))
			}
		}
	}
}
