package properties_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"testing"

	"github.com/fencepost-sim/fencepost/properties"
	"github.com/fencepost-sim/fencepost/scenarios"
	"github.com/fencepost-sim/fencepost/sim"
)

// declaredPoints counts the constants of type store.Point in the engine's source: on its own, whatever the engine's table says.
func declaredPoints(t *testing.T) (count int) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "../engine/points.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(file, func(node ast.Node) bool {
		if constant, ok := node.(*ast.ValueSpec); ok {
			if kind, ok := constant.Type.(*ast.SelectorExpr); ok && kind.Sel.Name == "Point" {
				count += len(constant.Names)
			}
		}
		return true
	})
	return count
}

// TestACrashAtEveryPointAndPositionConverges kills a process at every place to which one event and two workers lead, one after
// the other, and counts what was visited against the source of the engine.
func TestACrashAtEveryPointAndPositionConverges(t *testing.T) {
	result, err := properties.Enumerate(properties.Bases(), 1, scenarios.Bug{})
	if err != nil {
		t.Fatal(err)
	}
	// Three positions for each of the engine's steps and the effect, two for the start and end of a handler.
	want := 3*(declaredPoints(t)+1) + 2*(len(sim.HandlerPoints)-1)
	t.Logf("point × position: %d of %d visited, by %d crashes at %d windows",
		len(result.Visited), want, result.Runs, result.Windows)
	if len(result.Visited) != want || result.Runs != result.Windows {
		t.Errorf("not visited: %v; did not strike: %v", result.Unvisited(), result.Unstruck)
	}
	for _, failure := range result.PerProperty() {
		t.Errorf("%s: %s\nshrunk plan, seed %d:\n%s", failure.Base.Name, failure.Violation, failure.Run.Seed, failure.Shrink(scenarios.Bug{}))
	}
	if n := len(result.Failures); n > 0 {
		t.Errorf("%d violations in all; those above are the first of each property", n)
	}
}
