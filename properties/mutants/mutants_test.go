package mutants

import (
	"slices"
	"testing"

	"go.uber.org/goleak"

	"github.com/fencepost-sim/fencepost/properties"
	"github.com/fencepost-sim/fencepost/scenarios"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestEveryMutantIsKilledByItsPropertyWithAtMostTwoFaults(t *testing.T) {
	kills := make([]*Kill, len(All))
	t.Run("each", func(t *testing.T) {
		for i := range All {
			t.Run(All[i].Name, func(t *testing.T) {
				t.Parallel()
				kills[i] = killed(t, &All[i])
			})
		}
	})
	alone := map[string]bool{}
	for _, kill := range kills {
		if kill != nil && len(kill.Properties) == 1 {
			alone[kill.Properties[0]] = true
		}
	}
	for _, property := range properties.Everything() {
		if !alone[property.ID] {
			t.Errorf("no mutant is found by %s %s alone", property.ID, property.Name)
		}
	}
}

func killed(t *testing.T, m *Mutant) *Kill {
	kill, err := m.Hunt()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("killed in run %d by %v: %s\nshrunk plan:\n%s", kill.Runs, kill.Properties, kill.Violation, kill.Plan)
	if len(kill.Plan.Faults) > 2 {
		t.Errorf("the shrunk plan has %d faults; at most 2 are wanted:\n%s", len(kill.Plan.Faults), kill.Plan)
	}
	healthy, err := m.Workload.Run(kill.Plan, kill.Seed, scenarios.Bug{})
	if err != nil {
		t.Fatal(err)
	}
	if found := properties.Violations(healthy.Journal); len(found) > 0 {
		t.Errorf("the engine without the bug violates it too: %s", found[0])
	}
	return kill
}

func TestEveryPropertyHasAMutantThatItCatches(t *testing.T) {
	for _, property := range properties.Everything() {
		if !slices.ContainsFunc(All, func(m Mutant) bool { return m.Caught == property.ID }) {
			t.Errorf("no mutant is there to be caught by %s %s", property.ID, property.Name)
		}
	}
}

func TestMutantNamesAreUnique(t *testing.T) {
	seen := map[string]bool{}
	for _, m := range All {
		if seen[m.Name] {
			t.Errorf("two mutants are named %s", m.Name)
		}
		seen[m.Name] = true
	}
}
