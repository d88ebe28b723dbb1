package wire

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	// The suites that are run are tests of these packages; importing one makes the module, and what its tests need, a dependency.
	_ "go.mongodb.org/mongo-driver/mongo/integration/unified"

	"github.com/fencepost-sim/fencepost/sim/mongosim"
)

// MongoDB publishes what its drivers and servers must do as test files, which the module of the official driver's version 1 carries along
// with the runners for both of their formats. Those runners, unchanged, run here against this server as they run against MongoDB, and
// SPECIFICATIONS.md says for every file what came out. The test fails when the table and the run differ.
//
// go test ./sim/wire -run Specifications -update writes the table anew.

var update = flag.Bool("update", false, "write SPECIFICATIONS.md anew")

const (
	specificationModule = "go.mongodb.org/mongo-driver"
	specificationTable  = "SPECIFICATIONS.md"
)

// suites are the runners, each with the files that it runs. They run at the same time, each against a server of its own.
var suites = []suite{
	{pkg: "mongo/integration/unified", run: unifiedFolders},
	{pkg: "mongo/integration/unified", run: unifiedFolders, standalone: true},
	// The runner panics where an operation with a collation fails, so those files are left out.
	{pkg: "mongo/integration", run: "^(TestCrudSpec|TestRetryableWritesSpec)$", skip: "TestCrudSpec/.*collation"},
	{pkg: "mongo/integration", run: "^TestUnifiedSpecs$/^retryable-reads"},
	{pkg: "mongo/integration", run: "^TestUnifiedSpecs$/^(transactions|convenient-transactions|read-write-concern)"},
}

const unifiedFolders = "^TestUnifiedSpec$/^(crud|change-streams|transactions|collection-management|sessions|retryable-writes|run-command|index-management)"

// suite is one run of a package of the driver, against a replica set of three members or a standalone.
type suite struct {
	pkg, run, skip string
	standalone     bool
}

// folders are those whose files the table lists, each with the prefix of its files in the names of the tests.
var folders = []struct{ folder, prefix string }{
	{"change-streams", "TestUnifiedSpec/change-streams/"},
	{"collection-management", "TestUnifiedSpec/collection-management/"},
	{"convenient-transactions", "TestUnifiedSpecs/convenient-transactions/"},
	{"crud/unified", "TestUnifiedSpec/crud/unified/"},
	{"crud/v1/read", "TestCrudSpec/"},
	{"crud/v1/write", "TestCrudSpec/"},
	{"index-management", "TestUnifiedSpec/index-management/"},
	{"read-write-concern/operation", "TestUnifiedSpecs/read-write-concern/operation/"},
	{"retryable-reads", "TestUnifiedSpecs/retryable-reads/"},
	{"retryable-writes/legacy", "TestRetryableWritesSpec/"},
	{"retryable-writes/unified", "TestUnifiedSpec/retryable-writes/unified/"},
	{"run-command", "TestUnifiedSpec/run-command/"},
	{"sessions", "TestUnifiedSpec/sessions/"},
	{"transactions/legacy", "TestUnifiedSpecs/transactions/legacy/"},
	{"transactions/unified", "TestUnifiedSpec/transactions/unified/"},
}

// unmodelled are the cases about what the model refuses: they must fail.
var unmodelled = []struct{ cases, reason string }{
	{`^crud/v1/.*collation\.json`, "collations are refused"},
	{`^collection-management/timeseries-collection\.json`, "time series collections are refused"},
	{`^collection-management/clustered-indexes\.json`, "clustered collections are refused"},
	{`^collection-management/modifyCollection-errorResponse\.json`, "prepareUnique is refused"},
	{`/estimatedDocumentCount\.json/.*on_views`, "views are refused"},
	{`/change-streams-showExpandedEvents\.json/.*on_views`, "views are refused"},
	{`/findOneAndUpdate-errorResponse\.json/.*document_validation`, "validators are refused"},
	{`/runCursorCommand\.json/does_not_close_the_cursor`, "capped collections and tailable cursors are refused"},
}

func TestSpecificationsOfMongoDBHoldAsTheTableSays(t *testing.T) {
	module := goTool(t, "list", "-m", "-f", "{{.Dir}}", specificationModule)
	results := runSuites(t)
	var table strings.Builder
	failed := writeTable(t, &table, filepath.Join(module, "testdata"), results)
	for _, name := range failed {
		t.Errorf("%s fails:\n%s", name, results[name].output)
	}
	if *update {
		if err := os.WriteFile(specificationTable, []byte(table.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(specificationTable)
	if err != nil {
		t.Fatal(err)
	}
	if string(want) != table.String() {
		t.Errorf("%s differs from the run, which says:\n%s", specificationTable, difference(string(want), table.String()))
	}
}

// difference lists the lines that are not in the other text.
func difference(before, after string) string {
	old, out := strings.Split(before, "\n"), ""
	for line := range strings.SplitSeq(after, "\n") {
		if !slices.Contains(old, line) {
			out += line + "\n"
		}
	}
	return out
}

func goTool(t *testing.T, arguments ...string) string {
	t.Helper()
	command := exec.CommandContext(t.Context(), "go", arguments...)
	command.Stderr = os.Stderr
	out, err := command.Output()
	if err != nil {
		t.Fatalf("go %v: %v", arguments, err)
	}
	return strings.TrimSpace(string(out))
}

// result is what became of one test, by its name.
type result struct {
	action string // pass, fail, skip
	output string
}

func runSuites(t *testing.T) map[string]result {
	var mu sync.Mutex
	var all sync.WaitGroup
	results := map[string]result{}
	for _, suite := range suites {
		all.Go(func() {
			found := suite.try(t)
			mu.Lock()
			defer mu.Unlock()
			for name, r := range found {
				if worse[r.action] >= worse[results[name].action] {
					results[name] = r
				}
			}
		})
	}
	all.Wait()
	return results
}

// worse orders what can become of a case that several suites run: it must pass wherever it applies.
var worse = map[string]int{"skip": 1, "pass": 2, "fail": 3}

// try runs the suite against a new server. Its documents come in the order in which they were inserted, on which the tests rely.
func (s suite) try(t *testing.T) map[string]result {
	members := []*mongosim.Server{mongosim.New(mongosim.Options{Standalone: true})}
	if !s.standalone {
		members = mongosim.NewReplicaSet(mongosim.Options{}, 3).Members()
	}
	server := NewServer(Options{Model: members[0], Report: func(err error) { t.Log(err) }})
	defer server.Close()
	ctx, stop := context.WithCancel(t.Context())
	var hosts []string
	var serving sync.WaitGroup
	for member := range members {
		listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
		if err != nil {
			t.Error(err)
			stop()
			return nil
		}
		hosts = append(hosts, listener.Addr().String())
		serving.Go(func() {
			if err := server.ServeMember(ctx, listener, member); err != nil {
				t.Error(err)
			}
		})
	}
	defer serving.Wait()
	defer stop()
	arguments := []string{"test", "-json", "-count=1", "-timeout=10m", "-run", s.run}
	if s.skip != "" {
		arguments = append(arguments, "-skip", s.skip)
	}
	uri := "mongodb://" + strings.Join(hosts, ",") + "/"
	if !s.standalone {
		uri += "?replicaSet=rs0"
	}
	for try := 1; ; try++ {
		command := exec.CommandContext(ctx, "go", append(arguments, specificationModule+"/"+s.pkg)...)
		command.Env = append(os.Environ(), "MONGODB_URI="+uri)
		var problems bytes.Buffer
		command.Stderr = &problems
		out, err := command.Output()
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) { // failing tests are judged by their names
			t.Errorf("go %v: %v", arguments, err)
		}
		results, broken := readResults(out)
		if strings.Contains(broken, "could not detect topology kind") && try < mostTries {
			continue // before any test: the runner looks at the topology without waiting until it is known, and this machine is busy
		}
		if broken != "" || len(results) == 0 {
			t.Errorf("the suite %s %s broke off: %s\n%s", s.pkg, s.run, broken, problems.String())
		}
		return results
	}
}

// mostTries is how often a suite is begun whose runner has no patience to wait for its server.
const mostTries = 5

// readResults reads what go test -json says. broken is the output of a run that panicked.
func readResults(out []byte) (results map[string]result, broken string) {
	results = map[string]result{}
	for line := range bytes.Lines(out) {
		var event struct{ Action, Test, Output string }
		if json.Unmarshal(line, &event) != nil {
			continue
		}
		r := results[event.Test]
		switch event.Action {
		case "output":
			r.output += event.Output
			if strings.HasPrefix(event.Output, "panic: ") {
				broken = r.output + event.Output
			}
		case "pass", "fail", "skip":
			r.action = event.Action
		default:
			continue
		}
		results[event.Test] = r
	}
	return results, broken
}

// count is what became of the cases of a file.
type count struct {
	cases, passed, failed int
	reasons               map[string]int // why cases do not apply
}

var skipped = regexp.MustCompile(`(?m)^\s*\S+\.go:\d+: (.*)$`)

func writeTable(t *testing.T, table *strings.Builder, testdata string, results map[string]result) (failed []string) {
	var files strings.Builder
	var total count
	for _, f := range folders {
		names, err := filepath.Glob(filepath.Join(testdata, f.folder, "*.json"))
		if err != nil || len(names) == 0 {
			t.Fatalf("no files in %s: %v", f.folder, err)
		}
		for _, name := range names {
			file := path.Join(f.folder, filepath.Base(name))
			c, broken := judge(t, name, file, f.prefix+filepath.Base(name), results)
			failed = append(failed, broken...)
			total.cases, total.passed, total.failed = total.cases+c.cases, total.passed+c.passed, total.failed+c.failed
			fmt.Fprintf(&files, "| %s | %d | %d | %d | %s |\n", file, c.passed, c.failed, c.cases-c.passed-c.failed, listReasons(c.reasons))
		}
	}
	applicable := total.passed + total.failed
	fmt.Fprintf(table, `# MongoDB's specification tests on sim/wire

The files of %s in its testdata folder, run by that module's own runners against a replica set of three
members and a standalone behind this server. Written by "go test ./sim/wire -run Specifications -update"; the same test without -update fails when a run differs.

%d cases; %d apply, of which %d pass and %d fail.

| file | pass | fail | not applicable | why not |
|---|---|---|---|---|
`, specificationModule+"@"+goTool(t, "list", "-m", "-f", "{{.Version}}", specificationModule), total.cases, applicable, total.passed, total.failed)
	table.WriteString(files.String())
	return failed
}

// judge counts what became of the cases of a file.
func judge(t *testing.T, name, file, prefix string, results map[string]result) (c count, failed []string) {
	content, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	var parsed struct{ Tests []json.RawMessage }
	if err := json.Unmarshal(content, &parsed); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	c = count{cases: len(parsed.Tests), reasons: map[string]int{}}
	seen := 0
	for _, test := range slices.Sorted(maps.Keys(results)) {
		rest, ours := strings.CutPrefix(test, prefix+"/")
		r := results[test]
		if !ours || r.action == "" || !isCase(test, results) {
			continue
		}
		seen++
		reason := notModelled(file + "/" + rest)
		switch {
		case r.action == "pass" && reason == "":
			c.passed++
		case r.action == "skip":
			c.reasons[reasonOf(r)]++
		case r.action == "fail" && reason != "":
			c.reasons[reason]++
		case r.action == "pass":
			t.Errorf("%s passes, although %s", test, reason)
		default:
			c.failed++
			failed = append(failed, test)
		}
	}
	if missing := c.cases - seen; missing > 0 {
		reason := notModelled(file)
		if reason == "" && results[prefix].action == "skip" {
			reason = reasonOf(results[prefix])
		}
		if reason == "" {
			t.Errorf("%s: %d of %d cases did not run, for no known reason", file, missing, c.cases)
		}
		c.reasons[reason] += missing
	}
	return c, failed
}

// isCase reports whether a test has no tests below it.
func isCase(test string, results map[string]result) bool {
	for other := range results {
		if strings.HasPrefix(other, test+"/") {
			return false
		}
	}
	return true
}

func notModelled(name string) string {
	for _, u := range unmodelled {
		if regexp.MustCompile(u.cases).MatchString(name) {
			return u.reason
		}
	}
	return ""
}

// reasonOf is why the runner skipped a test: the first line that it says.
func reasonOf(r result) string {
	found := skipped.FindStringSubmatch(r.output)
	if found == nil {
		return "the runner skips it"
	}
	text := found[1]
	for _, noise := range []string{
		"skipping due to environmental constraints: no matching RunOnBlock; comparison errors: ", "skipping due to known failure: ", "skipping for reason: ",
	} {
		text = strings.ReplaceAll(text, noise, "")
	}
	return strings.NewReplacer("|", "/", "[", "", "]", "").Replace(text)
}

func listReasons(reasons map[string]int) string {
	var out []string
	for _, reason := range slices.Sorted(maps.Keys(reasons)) {
		out = append(out, fmt.Sprintf("%s (%d)", reason, reasons[reason]))
	}
	return strings.Join(out, "; ")
}
