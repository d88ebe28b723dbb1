package host

import (
	"time"

	"golang.org/x/sys/unix"
)

// suspended is for how long the machine has been suspended since it was booted: what CLOCK_BOOTTIME counts and
// CLOCK_MONOTONIC, on which Go's timers run, does not (clock_gettime(2)).
func suspended() time.Duration {
	return readClock(unix.CLOCK_BOOTTIME) - readClock(unix.CLOCK_MONOTONIC)
}

func readClock(clock int32) time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(clock, &now); err != nil {
		panic("host: a clock of Linux cannot be read: " + err.Error()) // both are older than any Linux that Go runs on
	}
	return time.Duration(now.Nano())
}
