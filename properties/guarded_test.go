package properties_test

import (
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencepost-sim/fencepost/faults"
	"github.com/fencepost-sim/fencepost/properties"
	"github.com/fencepost-sim/fencepost/scenarios"
	"github.com/fencepost-sim/fencepost/sim/journal"
)

// pairs is opt-in: go test ./properties -run Pair -pairs -timeout 3h
var pairs = flag.Bool("pairs", false, "crash at every ordered pair of windows of guarded deliveries")

func guarded(guard scenarios.Guard, do scenarios.Work) properties.Base {
	w := scenarios.Workload{Replicas: 2, Guard: guard, Topics: []scenarios.TopicLoad{{Do: do}}}
	if do.Time > 0 && guard == scenarios.Redis {
		w.SweepEvery = 4 * time.Second
	}
	return properties.Base{Name: string(guard), Workload: w}
}

// tally counts runs by how many effects the event had, and where the last crash struck when there were two.
type tally struct {
	runs    int
	effects map[int]int
	twice   map[string]int
	skipped int
}

func (c *tally) String() string {
	return fmt.Sprintf("%d runs, effects %v, twice after a crash at %v", c.runs, c.effects, slices.Sorted(maps.Keys(c.twice)))
}

func enumerate(t *testing.T, base properties.Base, crashes int, wanted func(properties.Window) bool) *tally {
	t.Helper()
	c := &tally{effects: map[int]int{}, twice: map[string]int{}}
	for run, err := range base.Crashes(1, crashes, wanted) {
		if err != nil {
			t.Fatal(err)
		}
		c.runs++
		for _, violation := range properties.Violations(run.Journal) {
			t.Errorf("%s\n%s", violation, run.Plan)
		}
		most := 0
		for _, o := range scenarios.Outcomes(run.Journal) { // a publisher that dies may publish twice
			if most = max(most, o.Effects); o.Status != "success" || o.Effects == 0 {
				t.Errorf("%+v\n%s", o, run.Plan)
			}
		}
		c.effects[most]++
		if most > 1 {
			var at []string
			for _, f := range run.Plan.Faults {
				at = append(at, string(f.Position)+" "+f.Point)
			}
			c.twice[strings.Join(at, ", ")]++
		}
		if c.runs > 1 && t.Failed() && false {
			return c
		}
	}
	return c
}

var _ = faults.Before
var _ = journal.Wrote

func TestGuardedSingles(t *testing.T) {
	for _, base := range []properties.Base{
		guarded(scenarios.Unguarded, scenarios.Work{}), guarded(scenarios.Redis, scenarios.Work{}), guarded(scenarios.Postgres, scenarios.Work{}),
		guarded(scenarios.Redis, scenarios.Work{FailFirst: 1}), guarded(scenarios.Postgres, scenarios.Work{FailFirst: 1}),
		guarded(scenarios.Redis, scenarios.Work{Time: 25 * time.Second}),guarded(scenarios.Postgres, scenarios.Work{Time: 25 * time.Second}),
	} {
		began := time.Now()
		c := enumerate(t, base, 1, nil)
		t.Logf("%s %+v: %s, %v", base.Name, base.Workload.Topics[0].Do, c, time.Since(began))
	}
}

// guardWindow tells whether a crash there is between two steps of the guard, the handler, or the outcome.
func guardWindow(w properties.Window) bool {
	for _, prefix := range []string{"redis.", "postgres.", "handler.", "effect.", "attempt.succeed", "attempt.claim", "order.claim"} {
		if strings.HasPrefix(w.Point, prefix) {
			return true
		}
	}
	return false
}

func TestGuardedPairs(t *testing.T) {
	wanted := guardWindow
	if *pairs {
		wanted = nil
	}
	for _, base := range []properties.Base{
		guarded(scenarios.Unguarded, scenarios.Work{}), guarded(scenarios.Redis, scenarios.Work{}), guarded(scenarios.Postgres, scenarios.Work{}),
	} {
		began := time.Now()
		c := enumerate(t, base, 2, wanted)
		t.Logf("%s %+v: %s, %v", base.Name, base.Workload.Topics[0].Do, c, time.Since(began))
	}
}
