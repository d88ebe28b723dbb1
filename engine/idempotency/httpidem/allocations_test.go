//go:build !race

package httpidem_test

import "testing"

// The allocations do not depend on the machine, so they are a test. The race detector makes sync.Pool drop what it is given, so the file is
// not part of such builds.
func TestTheCostOfAGuardedCallInAllocations(t *testing.T) {
	allocations := func(benchmark func(*testing.B)) int64 { return testing.Benchmark(benchmark).AllocsPerOp() }
	if n := allocations(BenchmarkPassThroughWithoutAKey); n != 0 {
		t.Errorf("a pass-through allocates %d times", n)
	}
	if n := allocations(BenchmarkFirstCallOf1KiBJSON) - allocations(BenchmarkUnmounted); n > 25 {
		t.Errorf("a guarded call allocates %d times, more than 25", n)
	}
}
