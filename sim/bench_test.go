package sim_test

import (
	"testing"

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
		})
	}
}
