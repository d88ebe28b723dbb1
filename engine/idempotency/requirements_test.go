package idempotency_test

import (
	"cmp"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// requirements are what the specification of these guards demands (R) and what was decided where it is silent (C), each in a few words. A test
// that proves one carries its number in its name; the table in the README is made of those names.
var requirements = []struct{ number, words string }{
	{"R1", "one call starts a guard with its sweeper"}, {"R2", "the sweeper can be switched off and tuned"},
	{"R3", "shutdown stops the sweeper, gives its lease back, and cuts nobody off"}, {"R4", "a dead handler's key is free after a lease"},
	{"R5", "sweep every 5 minutes, each process at its own cadence within a fifth"}, {"R6", "the sweep's cursor survives passes and processes"},
	{"R7", "a sweep among many foreign keys, with counters"}, {"R8", "one sweeper a service"}, {"R9", "a key is remembered for 24 h"},
	{"R10", "success, application's error, transport's error"}, {"R11", "errors without a code are transport's"}, {"R12", "codes follow the table"},
	{"R13", "wrappers, keys and classifier"}, {"R14", "the unframed key, and never for requests"}, {"R15", "the root pulls nothing in"},
	{"R16", "gRPC interceptor"},
	{"R20", "four verbs are guarded"}, {"R21", "two headers; no key, no guard"}, {"R22", "below authentication"}, {"R23", "no tenant: 400"},
	{"R24", "no actor: 400"}, {"R25", "where tenant and actor come from"}, {"R26", "the framed digest"}, {"R27", "replay"},
	{"R28", "another request: 422"}, {"R29", "concurrent request: 409"}, {"R30", "malformed key: 400"}, {"R31", "2xx is stored"},
	{"R32", "anything else, and a panic, frees the key"}, {"R33", "other statuses can be stored"}, {"R34", "stated hazard: mutate, then 4xx"},
	{"R35", "actors do not share"}, {"R36", "a tenant can"}, {"R37", "stated residual: a revoked permission"}, {"R38", "bodies arrive as they came"},
	{"R39", "1 MiB is the limit; a large upload is not retained"}, {"R40", "bodies can be left alone"}, {"R41", "256 KiB and 5 s are the limits of answers"},
	{"R42", "streams pass"},
	{"R50", "single-active lease"}, {"R51", "its surface is pinned, under two names"},
	{"R60", "migration is idempotent"}, {"R61", "the shared table"}, {"R62", "first claim true, duplicates false"}, {"R63", "two topics, two claims"},
	{"R64", "run once or skip"}, {"R65", "claim and business write are one"}, {"R66", "claims are swept after 30 days, daily"},
	{"R67", "outlives Redis; what a failover of PostgreSQL loses, it loses whole"}, {"R68", "the driver is optional"}, {"R70", "doubles in memory and failing"},
	{"C1", "the table of codes"}, {"C2", "the order of checks"}, {"C3", "lease, heartbeat, token, longest hold"}, {"C4", "syntax of keys"},
	{"C5", "fingerprints with labels"}, {"C6", "prefix fingerprints of large bodies"}, {"C7", "canonical JSON"}, {"C8", "the answer comes after COMPLETE"},
	{"C9", "storing whatever became of the client"}, {"C10", "store down: 503, or fail open"}, {"C11", "Retry-After is the lease left"},
	{"C12", "problem+json"}, {"C13", "which headers are replayed"}, {"C14", "pinning the claims of the dead"}, {"C15", "keys of sagas, webhooks and events"},
	{"C16", "claim, handler and commit in one transaction"}, {"C17", "the table's shape is checked at boot"}, {"C18", "two consumers on one topic are refused"},
	{"C19", "sweeping in batches"}, {"C20", "unknown verbs pass"},
}

var numbered = regexp.MustCompile(`^Test((?:[RC]\d{1,2})+)[A-Z]`)

// proofs lists the tests of each requirement, as "package: name in words".
func proofs(t *testing.T) map[string][]string {
	t.Helper()
	found := map[string][]string{}
	for _, root := range []string{".", "../../sim/redissim", "../../sim/pgsim"} {
		err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			for _, declaration := range file.Decls {
				function, ok := declaration.(*ast.FuncDecl)
				if !ok {
					continue
				}
				if match := numbered.FindStringSubmatch(function.Name.Name); match != nil {
					for _, number := range regexp.MustCompile(`[RC]\d+`).FindAllString(match[1], -1) {
						n, _ := strconv.Atoi(number[1:])
						name := fmt.Sprintf("%s%d", number[:1], n)
						found[name] = append(found[name], fmt.Sprintf("[%s](%s)", function.Name.Name, filepath.ToSlash(path)))
					}
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return found
}

func table(t *testing.T) string {
	found := proofs(t)
	var b strings.Builder
	b.WriteString("| | what | proven by |\n|---|---|---|\n")
	for _, r := range requirements {
		tests := found[r.number]
		if len(tests) == 0 {
			t.Errorf("%s (%s) has no test", r.number, r.words)
		}
		slices.SortFunc(tests, func(a, b string) int { return cmp.Compare(a, b) })
		fmt.Fprintf(&b, "| %s | %s | %s |\n", r.number, r.words, strings.Join(tests, ", "))
		delete(found, r.number)
	}
	for number := range found {
		t.Errorf("tests carry the number %s, which is no requirement: %v", number, found[number])
	}
	return b.String()
}

// TestTheWeaknessesInTheReadmeNameWhatThereIs looks for every test, mutant and scenario that the README speaks of.
func TestTheWeaknessesInTheReadmeNameWhatThereIs(t *testing.T) {
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "## What a crash leaves behind\n")
	section, _, found := strings.Cut(section, "## How it is tested\n")
	if !found {
		t.Fatal("the sections are gone")
	}
	var source strings.Builder
	for _, pattern := range []string{
		"*_test.go", "*/*_test.go", "../../sim/redissim/holes/*.go", "../../sim/redissim/crashes/*.go", "../../properties/mutants/*.go", "../../sim/pgsim/*_test.go",
		"../../scenarios/guarded.go",
	} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %d files, %v", pattern, len(files), err)
		}
		for _, file := range files {
			content, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			source.Write(content)
		}
	}
	named := 0
	for _, test := range regexp.MustCompile(`\bTest[A-Z]\w+`).FindAllString(section, -1) {
		if named++; !strings.Contains(source.String(), "func "+test+"(") {
			t.Errorf("there is no %s", test)
		}
	}
	for _, name := range regexp.MustCompile("`[a-z]+(-[a-z]+)+`").FindAllString(section, -1) {
		if named++; !strings.Contains(source.String(), `"`+strings.Trim(name, "`")+`"`) {
			t.Errorf("there is no %s", name)
		}
	}
	if named < 60 {
		t.Errorf("only %d names were found: the section has another form", named)
	}
}

var update = flag.Bool("update", false, "write the table in the README anew")

func TestTheTableInTheReadmeNamesTheTestsThatThereAre(t *testing.T) {
	const file, begin, end = "README.md", "<!-- requirements: made by go test ./engine/idempotency -update -->\n", "<!-- end -->"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(text), begin)
	_, after, ended := strings.Cut(rest, end)
	if !found || !ended {
		t.Fatalf("%s lacks the marks of the table", file)
	}
	want := before + begin + table(t) + end + after
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if string(text) != want {
		t.Errorf("the table is out of date: go test ./engine/idempotency -run Readme -update")
	}
}
