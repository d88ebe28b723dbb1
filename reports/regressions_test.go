package reports_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/fencepost-sim/fencepost/properties"
	"github.com/fencepost-sim/fencepost/reports"
)

// TestRunsThatOnceFoundABugHold runs every plan that once failed and was kept. Their stories are in scenarios/README.md.
func TestRunsThatOnceFoundABugHold(t *testing.T) {
	files, err := filepath.Glob("../scenarios/regressions/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, path := range files {
		t.Run(filepath.Base(path), func(t *testing.T) {
			file, err := os.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			defer file.Close()
			recorded, err := reports.ReadReplay(file)
			if err != nil {
				t.Fatal(err)
			}
			run, err := recorded.Again()
			if err != nil {
				t.Fatal(err)
			}
			for _, violation := range properties.Violations(run.Journal) {
				t.Error(violation)
			}
		})
	}
}
