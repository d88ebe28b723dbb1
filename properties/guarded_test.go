package properties_test

import (
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencepost-sim/fencepost/explore"
	"github.com/fencepost-sim/fencepost/faults"
	"github.com/fencepost-sim/fencepost/properties"
	"github.com/fencepost-sim/fencepost/scenarios"
	"github.com/fencepost-sim/fencepost/sim"
	"github.com/fencepost-sim/fencepost/sim/journal"
)

// pairs is opt-in: go test ./properties -run Pair -pairs -timeout 3h
var pairs = flag.Bool("pairs", false, "crash guarded deliveries at every ordered pair of windows, not only those of handler and guard")

// guarded is one event for two workers under a guard.
func guarded(guard scenarios.Guard, do scenarios.Work) explore.Base {
	w := scenarios.Workload{Replicas: 2, Guard: guard, Topics: []scenarios.TopicLoad{{Do: do}}}
	if do.Time > 0 && guard == scenarios.Redis {
		w.SweepEvery = 4 * time.Second
	}
	return explore.Base{Name: fmt.Sprintf("%s %+v", guard, do), Workload: w}
}

// tally counts runs by how many effects the event had.
type tally struct {
	runs    int
	effects map[int]int
	again   map[string]int // where the last crash struck, if the event had more than one
	visited map[explore.Cell]bool
}

// crashEverywhere crashes the base everywhere and checks that every event is delivered with an effect, that all properties hold, and that a second effect
// under Redis is in the one window that C-III names.
func crashEverywhere(t *testing.T, base explore.Base, crashes int, wanted func(explore.Window) bool) tally {
	t.Helper()
	began := time.Now()
	c := tally{effects: map[int]int{}, again: map[string]int{}, visited: map[explore.Cell]bool{}}
	for run, err := range base.Crashes(1, crashes, wanted) {
		if err != nil {
			t.Fatal(err)
		}
		c.runs++
		most := 0
		for _, o := range scenarios.Outcomes(run.Journal) { // a publisher that dies may publish twice
			if most = max(most, o.Effects); o.Status != "success" || o.Effects == 0 {
				t.Errorf("%+v\n%s", o, run.Plan)
			}
		}
		last := run.Plan.Faults[len(run.Plan.Faults)-1]
		c.visited[explore.Cell{Point: last.Point, Position: last.Position}] = true
		if c.effects[most]++; most > 1 {
			c.again[fmt.Sprintf("%s %s", last.Position, last.Point)]++
		}
		checkWindows(t, run, most)
		if t.Failed() {
			break // the first says enough
		}
	}
	t.Logf("%s: %d runs with %d crashes, by number of effects %v, in %v", base.Name, c.runs, crashes, c.effects, time.Since(began).Round(time.Millisecond))
	return c
}

func checkWindows(t *testing.T, run *scenarios.Run, effects int) {
	t.Helper()
	notes := 0
	for _, verdict := range properties.Check(run.Journal) {
		for _, violation := range verdict.Violations {
			t.Errorf("%s\n%s", violation, run.Plan)
		}
		for _, note := range verdict.Notes {
			if notes++; !strings.HasSuffix(note, properties.WindowCrash) {
				t.Errorf("%s\n%s", note, run.Plan)
			}
		}
	}
	isRedis := slices.ContainsFunc(run.Journal.Events, func(e journal.Event) bool { return e.Kind == journal.GuardOpened && e.Name == string(scenarios.Redis) })
	if named := notes > 0; isRedis && named != (effects > 1) {
		t.Errorf("%d effects, and %d windows were named\n%s", effects, notes, run.Plan)
	}
}

// behindTheEffect are the places where a crash makes an unguarded effect happen twice. Under Redis, COMPLETE ends that window.
var behindTheEffect = map[scenarios.Guard][]string{
	scenarios.Unguarded: {
		"after effect.perform", "after handler.end", "before attempt.succeed", "before handler.end", "unanswered effect.perform",
	},
	scenarios.Redis:    {"after effect.perform", "before redis.complete", "unanswered effect.perform"},
	scenarios.Postgres: nil,
}

func TestACrashAnywhereRepeatsAnEffectOnlyWhereItsGuardSaysSo(t *testing.T) {
	visited := map[explore.Cell]bool{}
	for _, guard := range []scenarios.Guard{scenarios.Unguarded, scenarios.Redis, scenarios.Postgres} {
		for _, c := range []tally{
			crashEverywhere(t, guarded(guard, scenarios.Work{}), 1, nil),
			crashEverywhere(t, guarded(guard, scenarios.Work{FailFirst: 1}), 1, ofGuard),
		} {
			if again := slices.Sorted(maps.Keys(c.again)); !slices.Equal(again, behindTheEffect[guard]) {
				t.Errorf("%s: the effect happened again after crashes at %q, want %q", guard, again, behindTheEffect[guard])
			}
			maps.Copy(visited, c.visited)
		}
	}
	long := crashEverywhere(t, guarded(scenarios.Redis, scenarios.Work{Time: 25 * time.Second}), 1, ofGuard) // heartbeats and sweeps
	maps.Copy(visited, long.visited)
	long = crashEverywhere(t, guarded(scenarios.Postgres, scenarios.Work{Time: 25 * time.Second}), 1, ofGuard)
	if len(long.effects) != 1 || long.effects[1] != long.runs {
		t.Errorf("a long transaction: %v", long.effects)
	}
	declared := append(slices.Clone(sim.RedisPoints), sim.PostgresPoints...)
	for cell := range visited {
		if (strings.HasPrefix(cell.Point, "redis.") || strings.HasPrefix(cell.Point, "postgres.")) && !slices.Contains(declared, cell.Point) {
			t.Errorf("%s is a point and is not declared", cell.Point)
		}
	}
	for _, point := range declared {
		for _, position := range faults.Positions {
			if !visited[explore.Cell{Point: point, Position: position}] {
				t.Errorf("no crash struck %s %s", position, point)
			}
		}
	}
}

// ofGuard tells whether a crash there is between two steps of the guard, the handler or the outcome.
func ofGuard(w explore.Window) bool {
	migrates := slices.Contains([]string{
		"redis.check", "postgres.migration-lock", "postgres.create-table", "postgres.shape", "postgres.create-index", "postgres.commit-migration",
	}, w.Point)
	return !migrates && slices.ContainsFunc([]string{"redis.", "postgres.", "handler.", "effect.", "attempt.succeed"}, func(prefix string) bool {
		return strings.HasPrefix(w.Point, prefix)
	})
}

func TestAnyPairOfCrashesRepeatsAnEffectOnlyWhereItsGuardSaysSo(t *testing.T) {
	wanted := ofGuard
	if *pairs {
		wanted = nil
	}
	for _, guard := range []scenarios.Guard{scenarios.Unguarded, scenarios.Redis, scenarios.Postgres} {
		c := crashEverywhere(t, guarded(guard, scenarios.Work{}), 2, wanted)
		once := len(c.effects) == 1 && c.effects[1] == c.runs
		if once != (guard == scenarios.Postgres) {
			t.Errorf("%s: runs by number of effects: %v", guard, c.effects)
		}
	}
}

// The same plan, without a guard and with each: crash where an unguarded effect would happen twice.
func TestTheSameRunShowsTwoEffectsWithoutAGuardAndOneUnderPostgres(t *testing.T) {
	for _, place := range behindTheEffect[scenarios.Unguarded] {
		position, point, _ := strings.Cut(place, " ")
		plan := faults.Plan{Faults: []faults.Fault{{
			Kind: faults.Crash, Process: faults.AnyProcess, Point: point, Position: faults.Position(position), Occurrence: 1, Span: 5 * time.Second,
		}}}
		want := map[scenarios.Guard]int{scenarios.Unguarded: 2, scenarios.Redis: 1, scenarios.Postgres: 1}
		if point == sim.PointEffect {
			want[scenarios.Redis] = 2 // before COMPLETE
		}
		for guard, effects := range want {
			run, err := guarded(guard, scenarios.Work{}).Workload.Run(plan, 1, scenarios.Bug{})
			if err != nil {
				t.Fatal(err)
			}
			if o := scenarios.Outcomes(run.Journal)[0]; o.Effects != effects || len(run.Unstruck) > 0 {
				t.Errorf("crash %s, guard %s: %d effects, want %d; not struck: %v", place, guard, o.Effects, effects, run.Unstruck)
			}
		}
	}
}
