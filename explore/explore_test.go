package explore_test

import (
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/fencepost-sim/fencepost/explore"
	"github.com/fencepost-sim/fencepost/properties/mutants"
	"github.com/fencepost-sim/fencepost/scenarios"
	"github.com/fencepost-sim/fencepost/sim/journal"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bug returns a planted bug.
func bug(t *testing.T, name string) scenarios.Bug {
	t.Helper()
	for i := range mutants.All {
		if mutants.All[i].Name == name {
			return mutants.All[i].Bug()
		}
	}
	t.Fatalf("no mutant is named %s", name)
	return scenarios.Bug{}
}

// TestPairsOfCrashesAreCountedAsTheJournalsTellThem counts again what the explorer says that it visited, from nothing but the journals.
func TestPairsOfCrashesAreCountedAsTheJournalsTellThem(t *testing.T) {
	crashes := map[int]int{} // runs by the number of crashes that struck
	result, err := explore.Exhaustive{
		Bases: []explore.Base{{Name: "one replica", Workload: scenarios.Workload{Replicas: 1, Workers: 1}}}, Seed: 1, Depth: 2, Limits: explore.Limits{Failures: 1},
		Wanted: func(w explore.Window) bool {
			return !strings.HasPrefix(w.Point, "startup.") && !strings.HasPrefix(w.Point, "discovery.")
		},
		Observe: func(o *explore.Outcome) {
			n := 0
			for _, event := range o.Journal.Events {
				if event.Kind == journal.FaultStruck && strings.HasPrefix(event.Name, "crash ") {
					n++
				}
			}
			crashes[n]++
		},
	}.Run()
	if err != nil {
		t.Fatal(err)
	}
	for _, failure := range explore.PerProperty(result.Failures) {
		t.Errorf("%s\n%s", failure.String(), failure.Outcome.Plan)
	}
	if !result.Complete || len(result.Unstruck) > 0 {
		t.Errorf("complete: %v; not struck: %v", result.Complete, result.Unstruck)
	}
	// Every window is a run with one crash; every pair of cells is a run with two.
	if crashes[1] != result.Windows || crashes[2] != result.Chains(2) || crashes[1]+crashes[2] != result.Runs || len(crashes) != 2 {
		t.Errorf("the journals show %v; the explorer %d windows, %d pairs, %d runs", crashes, result.Windows, result.Chains(2), result.Runs)
	}
	t.Logf("%d runs: %d windows, %d cells, %d pairs", result.Runs, result.Windows, result.Singles(), result.Chains(2))
}

func TestEveryStrategyFindsAPlantedBugAndShrinksIt(t *testing.T) {
	limits := explore.Limits{Failures: 1}
	for name, find := range map[string]func() ([]explore.Failure, error){
		"exhaustive": func() ([]explore.Failure, error) {
			e, err := explore.Exhaustive{Bases: explore.Bases()[:1], Seed: 1, Bug: bug(t, "reap-takes-live"), Limits: limits}.Run()
			return e.Failures, err
		},
		"orders": func() ([]explore.Failure, error) {
			o, err := explore.Schedules{Bases: explore.Bases(), Seed: 1, Bug: bug(t, "subscription-not-unique"), Limits: limits}.Run()
			return o.Failures, err
		},
		"random": func() ([]explore.Failure, error) {
			s, err := explore.Random{Seed: 1, Runs: 500, Bug: bug(t, "retry-not-unique"), Limits: limits}.Run()
			return s.Failures, err
		},
		"priorities": func() ([]explore.Failure, error) {
			s, err := explore.Random{Seed: 1, Runs: 2000, Depth: 3, Bug: bug(t, "retry-not-unique"), Limits: limits}.Run()
			return s.Failures, err
		},
		"coverage": func() ([]explore.Failure, error) {
			s, err := explore.Coverage{Seed: 1, Runs: 500, Bug: bug(t, "reap-takes-live"), Limits: limits}.Run()
			return s.Failures, err
		},
	} {
		t.Run(name, func(t *testing.T) {
			failures, err := find()
			if err != nil || len(failures) == 0 {
				t.Fatalf("found %d, %v", len(failures), err)
			}
			most := 8
			if name == "priorities" {
				most = 200 // its decisions lean on each other; see Shrink
			}
			smallest := failures[0].Shrink()
			if plan := smallest.Outcome.Plan; !smallest.Outcome.Violates(failures[0].Violation.Property) || len(plan.Faults) > 3 || len(plan.Choices) > most {
				t.Errorf("%s\n%s", smallest, plan)
			}
		})
	}
}

// The same search must visit the same runs, whatever the number of cores and however often it is made.
func TestASearchIsRepeatable(t *testing.T) {
	hashes := func() (all []string) {
		search, err := explore.Coverage{Seed: 3, Runs: 130}.Run()
		if err != nil || !search.Complete || search.Runs != 130 {
			t.Fatalf("%d runs, %v", search.Runs, err)
		}
		for place := range search.Covered.Places {
			all = append(all, place)
		}
		return all
	}
	if a, b := len(hashes()), len(hashes()); a != b || a == 0 {
		t.Errorf("the first search reached %d places, the second %d", a, b)
	}
}

func TestOrdersThatChangeNothingArePassedOver(t *testing.T) {
	orders, err := explore.Schedules{Bases: []explore.Base{{Name: "one replica", Workload: scenarios.Workload{Replicas: 1}}}, Seed: 1}.Run()
	if err != nil {
		t.Fatal(err)
	}
	if orders.Pruned == 0 || orders.Runs != 1+orders.Total-orders.Pruned || len(orders.Failures) > 0 || !orders.Complete {
		t.Errorf("%+v", orders)
	}
}
