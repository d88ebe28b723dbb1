//go:build !race

package engine_test

// slowdown is how much slower things go in real time under the race detector.
const slowdown = 1
