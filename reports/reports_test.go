package reports_test

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/fencepost-sim/fencepost/reports"
	"github.com/fencepost-sim/fencepost/scenarios"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// update writes the golden files anew: go test ./reports -update
var update = flag.Bool("update", false, "write the golden files")

func run(t *testing.T, name string) *scenarios.Run {
	t.Helper()
	scenario, err := scenarios.Lookup(name)
	if err != nil {
		t.Fatal(err)
	}
	run, err := scenario.Run(scenarios.Options{Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	return run
}

// TestTheTimelineReadsAsItDid keeps the words, and with them the schedule of every scenario in the default order.
func TestTheTimelineReadsAsItDid(t *testing.T) {
	for _, scenario := range scenarios.All {
		t.Run(scenario.Name, func(t *testing.T) {
			var timeline bytes.Buffer
			if err := reports.Timeline(&timeline, run(t, scenario.Name).Journal); err != nil {
				t.Fatal(err)
			}
			golden := filepath.Join("testdata", scenario.Name+".txt")
			if *update {
				if err := os.WriteFile(golden, timeline.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(timeline.Bytes(), want) {
				t.Errorf("the timeline is now\n%s\nit was\n%s\nIf that is meant: go test ./reports -update", timeline.Bytes(), want)
			}
		})
	}
}

func TestReplayFilesAreReadAsTheyWereWritten(t *testing.T) {
	recorded := reports.NewReplay(run(t, "crash-after-side-effect"))
	var file bytes.Buffer
	if err := recorded.Write(&file); err != nil {
		t.Fatal(err)
	}
	text := file.String()
	read, err := reports.ReadReplay(&file)
	if err != nil {
		t.Fatal(err)
	}
	var again bytes.Buffer
	if err := read.Write(&again); err != nil {
		t.Fatal(err)
	}
	if again.String() != text {
		t.Error("writing what was read gives another file")
	}
	if _, err := read.Again(); err != nil {
		t.Error(err)
	}
}

func TestBrokenReplayFilesAreRefusedWithTheLine(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"", "line 1"},
		{"something else\n", `"something else"`},
		{"fencepost-replay 2\nseed x\njournal\n{}\n", "line 2"},
		{"fencepost-replay 2\nvariant often\njournal\n{}\n", "line 2"},
		{"fencepost-replay 2\nscenario no-faults\nfault explode\njournal\n{}\n", "explode"},
		{"fencepost-replay 2\nscenario no-faults\njournal\n", "cut short"},
		{"fencepost-replay 2\nscenario no-faults\nseed 1\nhash ab\njournal\n{}\n", "cut short"},
	} {
		_, err := reports.ReadReplay(strings.NewReader(c.text))
		if !errors.Is(err, reports.ErrReplayFile) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("ReadReplay(%q) = %v; want %q", c.text, err, c.want)
		}
	}
}
