// Package rules holds the rules of this project that a compiler does not check: which packages may import which, and
// what code that must be deterministic may not use.
package rules

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/tools/go/packages"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const module = "github.com/fencepost-sim/fencepost"

// deterministic are the packages whose code may be run by the simulator: everything that they want of the machine, they
// ask their Host for.
var deterministic = []string{
	"engine", "engine/store",
	"engine/idempotency", "engine/idempotency/record", "engine/idempotency/redisport", "engine/idempotency/lease", "engine/idempotency/pgport", "engine/idempotency/durable",
	"faults", "sim", "sim/journal", "sim/mongosim", "sim/redissim", "sim/redissim/crashes", "sim/redissim/holes", "sim/pgsim",
	"scenarios", "properties", "properties/mutants", "internal/defect", "internal/document",
}

// forbidden names what reads a clock, waits, draws, or runs beside others. A whole package is forbidden by ".".
var forbidden = map[string][]string{
	"time":                   {"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "NewTimer", "NewTicker", "Tick"},
	"context":                {"WithTimeout", "WithTimeoutCause", "WithDeadline", "WithDeadlineCause", "AfterFunc"},
	"sync":                   {"."},
	"sync/atomic":            {"."},
	"math/rand":              {"."},
	"math/rand/v2":           {"."},
	"crypto/rand":            {"."},
	"github.com/google/uuid": {"."},
	"hash/maphash":           {"."},
	"maps":                   {"Keys", "Values", "All"}, // in no order; allowed where the result is sorted at once
}

// offLimits are packages that deterministic code may not import at all: they reach the machine, or the database past the port. A
// trailing slash takes in what is below.
var offLimits = []string{
	"os", "os/", "net", "net/", "syscall", "golang.org/x/sys/", "runtime/", "testing/", "go.mongodb.org/mongo-driver/v2/mongo", "go.mongodb.org/mongo-driver/v2/mongo/",
	"go.mongodb.org/mongo-driver/v2/x/",
}

// exceptions are places that are allowed what the rules forbid, each with its reason.
var exceptions = map[string]string{
	"sim/scheduler.go: go statement":       "hands the scheduler over when a task ends its goroutine; one of the two runs",
	"sim/scheduler.go: channel":            "the same",
	"sim/journal/state.go: map range":      "the names are sorted before they are returned",
	"scenarios/text.go: map range":         "fills another map, whose encoding is sorted",
	"sim/mongosim/filter.go: map range":    "looks a value up; no two entries have the same",
	"sim/mongosim/functions.go: map range": "gives each entry its own name, before main",
}

func load(t *testing.T, overlay map[string][]byte, patterns ...string) []*packages.Package {
	t.Helper()
	mode := packages.NeedName | packages.NeedFiles | packages.NeedSyntax | packages.NeedTypes | packages.NeedTypesInfo | packages.NeedImports | packages.NeedModule
	loaded, err := packages.Load(&packages.Config{Mode: mode, Dir: "../..", Overlay: overlay}, patterns...)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range loaded {
		for _, problem := range p.Errors {
			t.Fatalf("%s: %v", p.PkgPath, problem)
		}
	}
	return loaded
}

func TestDeterministicCodeAsksItsHostForEverything(t *testing.T) {
	checked := 0
	for _, p := range load(t, nil, "./...") {
		path := strings.TrimPrefix(strings.TrimPrefix(p.PkgPath, module), "/")
		if !slices.Contains(deterministic, path) {
			continue
		}
		checked++
		for _, breach := range breaches(p, path) {
			if exceptions[breach.what()] == "" {
				t.Errorf("%s: %s", p.Fset.Position(breach.at), breach.text)
			}
		}
	}
	if checked != len(deterministic) {
		t.Errorf("%d of %d packages were found: %v", checked, len(deterministic), deterministic)
	}
}

// everyBreach breaks each of the rules once.
const everyBreach = `package engine

import (
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

var (
	_ = os.Getenv
	_ mongo.Client
	_ sync.Mutex
	_ = uuid.NewString
	_ = time.Now
	_ = rand.Int
)

func breaks(m map[string]int) []string {
	go breaks(m)
	for range m {
	}
	for range maps.Keys(m) {
	}
	messages := make(chan int)
	select {
	case messages <- 1:
	}
	return slices.Sorted(maps.Keys(m))
}
`

func TestEveryRuleCanBeBroken(t *testing.T) {
	folder, err := filepath.Abs("../../engine")
	if err != nil {
		t.Fatal(err)
	}
	loaded := load(t, map[string][]byte{filepath.Join(folder, "every_breach.go"): []byte(everyBreach)}, "./engine")
	var found []string
	for _, breach := range breaches(loaded[0], "engine") {
		if breach.file == "engine/every_breach.go" {
			found = append(found, breach.text)
		}
	}
	want := []string{
		`import of "os"`, `import of "go.mongodb.org/mongo-driver/v2/mongo"`,
		"use of sync.Mutex", "use of github.com/google/uuid.NewString", "use of time.Now", "use of math/rand/v2.Int",
		"go statement", "map range", "use of maps.Keys", "channel", "select", "channel",
	}
	slices.Sort(found)
	slices.Sort(want)
	if !slices.Equal(found, want) {
		t.Errorf("found %q\nwant  %q", found, want)
	}
}

type breach struct {
	at   token.Pos
	file string
	text string
}

func (b breach) what() string { return b.file + ": " + b.text }

func breaches(p *packages.Package, path string) (found []breach) {
	for _, file := range p.Syntax {
		name := p.Fset.Position(file.Pos()).Filename
		name = path + "/" + name[strings.LastIndexByte(name, '/')+1:]
		add := func(node ast.Node, format string, values ...any) {
			found = append(found, breach{node.Pos(), name, fmt.Sprintf(format, values...)})
		}
		for _, imported := range file.Imports {
			if isOffLimits(strings.Trim(imported.Path.Value, `"`)) {
				add(imported, "import of %s", imported.Path.Value)
			}
		}
		sorted := map[ast.Expr]bool{}
		ast.Inspect(file, func(node ast.Node) bool {
			switch n := node.(type) {
			case *ast.CallExpr:
				if isSort(p, n.Fun) {
					sorted[n.Args[0]] = true
				}
				if selector, ok := n.Fun.(*ast.SelectorExpr); ok && sorted[n] {
					sorted[selector] = true
				}
			case *ast.GoStmt:
				add(n, "go statement")
			case *ast.SelectStmt:
				add(n, "select")
			case *ast.ChanType, *ast.SendStmt:
				add(n, "channel")
			case *ast.RangeStmt:
				if _, isMap := p.TypesInfo.TypeOf(n.X).Underlying().(*types.Map); isMap {
					add(n, "map range")
				}
			case *ast.SelectorExpr:
				if object := p.TypesInfo.Uses[n.Sel]; object != nil && object.Pkg() != nil && isForbidden(object) && !sorted[n] {
					add(n, "use of %s.%s", object.Pkg().Path(), object.Name())
				}
			}
			return true
		})
	}
	return found
}

func isOffLimits(path string) bool {
	return slices.ContainsFunc(offLimits, func(limit string) bool {
		return path == limit || strings.HasSuffix(limit, "/") && strings.HasPrefix(path, limit)
	})
}

// isSort tells whether the function collects a sequence in order.
func isSort(p *packages.Package, function ast.Expr) bool {
	selector, ok := function.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	object := p.TypesInfo.Uses[selector.Sel]
	return object != nil && object.Pkg() != nil && object.Pkg().Path() == "slices" && strings.HasPrefix(object.Name(), "Sorted")
}

func isForbidden(object types.Object) bool {
	names := forbidden[object.Pkg().Path()]
	if slices.Contains(names, ".") {
		return true
	}
	function, ok := object.(*types.Func)
	return ok && function.Signature().Recv() == nil && slices.Contains(names, object.Name())
}

// layers say what a package of ours may import of ours; a trailing slash takes in what is below.
var layers = map[string][]string{
	"engine":                                 {"engine/host", "engine/store", "internal/defect", "internal/document"},
	"engine/host":                            {},
	"engine/idempotency":                     {"engine", "engine/host"},
	"engine/idempotency/record":              {"engine/idempotency"},
	"engine/idempotency/idemtest":            {"engine/idempotency", "engine/idempotency/record"},
	"engine/idempotency/redisport":           {"engine/idempotency", "engine/idempotency/record"},
	"engine/idempotency/redisport/goredis":   {"engine/idempotency", "engine/idempotency/redisport"},
	"engine/idempotency/redisstore":          {"engine/idempotency", "engine/idempotency/redisport", "engine/idempotency/redisport/goredis"},
	"engine/idempotency/lease":               {"engine/host", "engine/idempotency", "engine/idempotency/redisport", "engine/idempotency/redisport/goredis"},
	"engine/idempotency/httpidem":            {"engine/host", "engine/idempotency"},
	"engine/idempotency/grpcidem":            {"engine/idempotency"},
	"engine/idempotency/pgport":              {},
	"engine/idempotency/durable":             {"engine", "engine/host", "engine/idempotency", "engine/idempotency/pgport"},
	"engine/idempotency/durable/pgtest":      {"engine/host", "engine/idempotency", "engine/idempotency/durable", "engine/idempotency/pgport"},
	"sim/pgsim":                              {"engine/host", "engine/idempotency/pgport"},
	"engine/idempotency/worker":              {"engine/idempotency/lease"},
	"engine/idempotency/internal/testserver": {},
	"sim/redissim":                           {"engine/idempotency", "engine/idempotency/record", "engine/idempotency/redisport"},
	"engine/store":                           {},
	"engine/store/mongostore":                {"engine/store"},
	"engine/store/storetest":                 {"engine/store"},
	"internal/document":                      {},
	"internal/defect":                        {},
	"faults":                                 {},
	"sim/journal":                            {},
	"sim/mongosim":                           {"engine/store"},
	"sim/redissim/crashes":                   {"engine/host", "engine/idempotency", "engine/idempotency/record", "engine/idempotency/redisport", "engine/idempotency/redisstore", "sim/redissim", "sim/redissim/holes"},
	"sim/redissim/holes":                     {"engine/idempotency/record", "engine/idempotency/redisport", "sim/redissim"},
	"sim/wire":                               {"engine/store", "sim/mongosim"},
	"sim": {"engine", "engine/host", "engine/store", "faults", "internal/defect", "sim/journal", "sim/mongosim", "internal/document",
		"engine/idempotency", "engine/idempotency/record", "engine/idempotency/redisport", "engine/idempotency/pgport", "sim/redissim", "sim/pgsim"},
	"sim/mongodriver": {"engine/store", "engine/store/mongostore", "sim", "sim/mongosim", "sim/wire"},
	"scenarios": {"sim/mongodriver", "engine", "engine/store", "faults", "internal/defect", "sim", "sim/journal", "internal/document",
		"engine/idempotency", "engine/idempotency/redisstore", "engine/idempotency/durable", "engine/idempotency/redisport", "engine/idempotency/pgport", "sim/redissim", "sim/pgsim"},
	"properties": {"engine", "engine/store", "faults", "scenarios", "sim", "sim/journal", "internal/document", "engine/idempotency"},
	"properties/mutants": {"engine", "engine/store", "faults", "internal/defect", "properties", "scenarios", "sim", "internal/document",
		"engine/idempotency", "engine/idempotency/pgport", "engine/idempotency/redisport", "sim/pgsim", "sim/redissim", "sim/redissim/holes"},
	"explore": {"engine", "engine/store", "faults", "properties", "scenarios", "sim", "sim/journal"},
	"simtest": {"engine/store", "explore", "faults", "internal/document", "properties", "reports", "scenarios", "sim", "sim/journal"},
	"reports": {"engine", "faults", "properties", "scenarios", "sim/journal", "internal/document"},
}

func TestImportsPointOneWay(t *testing.T) {
	for _, p := range load(t, nil, "./...") {
		path := strings.TrimPrefix(strings.TrimPrefix(p.PkgPath, module), "/")
		allowed, known := layers[path]
		if path == "internal/rules" || strings.HasPrefix(path, "cmd/") || strings.HasPrefix(path, "examples/") {
			continue // the top: may import anything
		}
		if !known {
			t.Errorf("package %s is not in the table of layers", path)
			continue
		}
		for imported := range p.Imports {
			ours, is := strings.CutPrefix(imported, module+"/")
			if is && !slices.Contains(allowed, ours) {
				t.Errorf("%s imports %s; allowed: %v", path, ours, allowed)
			}
		}
	}
}
