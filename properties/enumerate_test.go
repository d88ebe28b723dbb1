package properties_test

import (
	"testing"

	"github.com/fencepost-sim/fencepost/engine"
	"github.com/fencepost-sim/fencepost/properties"
	"github.com/fencepost-sim/fencepost/scenarios"
	"github.com/fencepost-sim/fencepost/sim"
)

// TestACrashAtEveryPointAndPositionConverges kills a process at every place to which one event and two workers lead, one after
// the other, and counts what was visited against the engine's own table.
func TestACrashAtEveryPointAndPositionConverges(t *testing.T) {
	result, err := properties.Enumerate(properties.Bases(), 1, scenarios.Bug{})
	if err != nil {
		t.Fatal(err)
	}
	// Counted on its own: three positions for each of the engine's steps and the effect, two for the start and end of a handler.
	want := 3*(len(engine.Points())+1) + 2*(len(sim.HandlerPoints)-1)
	t.Logf("point × position: %d of %d visited, by %d crashes at %d windows",
		len(result.Visited), want, result.Runs, result.Windows)
	if len(result.Visited) != want || result.Runs != result.Windows {
		t.Errorf("not visited: %v", result.Unvisited())
	}
	for _, failure := range result.Failures {
		t.Error(failure)
	}
}
