package sim

import (
	"math/bits"
	"time"
)

// clock is that of a process. It may be wrong, and run at another rate than true virtual time. The zero value is right.
type clock struct {
	wrong time.Duration // what the wall clock was set to be off by
	rate  time.Duration // gained in an hour
	since time.Duration // when it began to run at the rate
	kept  time.Duration // gained until then
}

// gained is by how much the clock has run ahead of true time since the world began.
func (c *clock) gained(now time.Duration) time.Duration {
	return c.kept + scaled(now-c.since, c.rate, time.Hour)
}

// drift lets the clock run at another rate from now on.
func (c *clock) drift(now, rate time.Duration) {
	c.kept, c.since, c.rate = c.gained(now), now, rate
}

// trueTime is how long it takes until the clock has gone on by the time. Negative ones, which mean for ever, stay as they are.
func (c *clock) trueTime(wait time.Duration) time.Duration {
	if c.rate == 0 || wait <= 0 {
		return wait
	}
	// One nanosecond more than is due: a timer must not fire before its time, by the clock of whoever set it.
	return scaled(wait, time.Hour, time.Hour+c.rate) + 1
}

// scaled is value * numerator / denominator, rounded towards zero. Whole numbers are the same on every machine, and the product may need 128 bits.
func scaled(value, numerator, denominator time.Duration) time.Duration {
	negative := (value < 0) != (numerator < 0)
	high, low := bits.Mul64(magnitude(value), magnitude(numerator))
	quotient, _ := bits.Div64(high, low, uint64(denominator))
	if negative {
		return -time.Duration(quotient)
	}
	return time.Duration(quotient)
}

func magnitude(d time.Duration) uint64 {
	return uint64(max(d, -d))
}
