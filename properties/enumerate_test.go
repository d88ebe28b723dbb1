package properties_test

import (
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"testing"

	"github.com/fencepost-sim/fencepost/explore"
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

// everyOccurrence is opt-in: go test ./properties -run Crash -every-occurrence
var everyOccurrence = flag.Bool("every-occurrence", false, "crash whenever a point is come to, in every base, and not only the first three times in all but one")

// TestACrashAtEveryPointAndPositionConverges kills a process at every place to which one event and two workers lead, one after
// the other, and counts what was visited against the source of the engine.
func TestACrashAtEveryPointAndPositionConverges(t *testing.T) {
	occurrences := 3
	if *everyOccurrence {
		occurrences = 0
	}
	result, err := explore.Exhaustive{Bases: explore.Bases(), Seed: 1, Occurrences: occurrences}.Run()
	if err != nil {
		t.Fatal(err)
	}
	// Three positions for each of the engine's steps and the effect, two for the start and end of a handler.
	want := 3*(declaredPoints(t)+1) + 2*(len(sim.HandlerPoints)-1)
	t.Logf("point × position: %d of %d visited, by %d crashes at %d windows",
		result.Singles(), want, result.Runs, result.Windows)
	if result.Singles() != want || result.Runs != result.Windows {
		t.Errorf("not visited: %v; did not strike: %v", result.Unvisited(), result.Unstruck)
	}
	for _, failure := range explore.PerProperty(result.Failures) {
		smallest := failure.Shrink()
		t.Errorf("%s\nshrunk plan, seed %d:\n%s", smallest, smallest.Outcome.Seed, smallest.Outcome.Plan)
	}
	if n := len(result.Failures); n > 0 {
		t.Errorf("%d violations in all; those above are the first of each property", n)
	}
}
