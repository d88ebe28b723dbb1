package sim_test

import (
	"testing"
	"time"

	"github.com/fencepost-sim/fencepost/faults"
	"github.com/fencepost-sim/fencepost/scenarios"
)

// BenchmarkScenario runs complete worlds: the figure to look at is steps/s.
func BenchmarkScenario(b *testing.B) {
	for _, name := range []string{"no-faults", "crash-after-side-effect"} {
		b.Run(name, func(b *testing.B) {
			scenario, err := scenarios.Lookup(name)
			if err != nil {
				b.Fatal(err)
			}
			steps := 0
			for b.Loop() {
				run, err := scenario.Run(scenarios.Options{Seed: 1})
				if err != nil {
					b.Fatal(err)
				}
				steps += run.Journal.Steps()
			}
			b.ReportMetric(float64(steps)/b.Elapsed().Seconds(), "steps/s")
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "runs/s")
		})
	}
}

// BenchmarkIdle lets three replicas wait for an hour: the figure to look at is how many virtual seconds pass in a real one.
func BenchmarkIdle(b *testing.B) {
	virtual := time.Duration(0)
	for b.Loop() {
		run, err := scenarios.Workload{Replicas: 3, StayFor: time.Hour}.Run(faults.Plan{}, 1, scenarios.Bug{})
		if err != nil {
			b.Fatal(err)
		}
		virtual += run.Journal.Events[len(run.Journal.Events)-1].Time
	}
	b.ReportMetric(virtual.Seconds()/b.Elapsed().Seconds(), "virtual-s/s")
}
