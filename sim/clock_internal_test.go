package sim

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestAClockGainsAtItsRateAndKeepsWhatItGained(t *testing.T) {
	c := &clock{}
	c.drift(time.Hour, -5*time.Minute)
	c.drift(3*time.Hour, time.Second)
	for now, want := range map[time.Duration]time.Duration{
		3 * time.Hour: -10 * time.Minute,
		4 * time.Hour: -10*time.Minute + time.Second,
	} {
		if got := c.gained(now); got != want {
			t.Errorf("after %v it has gained %v, want %v", now, got, want)
		}
	}
}

// TestATimerFiresWhenTheClockOfItsProcessSaysSo holds for every rate that the catalogue allows.
func TestATimerFiresWhenTheClockOfItsProcessSaysSo(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		duration := func(name string, from, to time.Duration) time.Duration {
			return time.Duration(rapid.Int64Range(int64(from), int64(to)).Draw(t, name))
		}
		c, now := &clock{}, duration("now", 0, 24*time.Hour)
		c.drift(0, duration("first rate", -5*time.Minute, 5*time.Minute))
		c.drift(now, duration("rate", -5*time.Minute, 5*time.Minute))
		wait := duration("wait", 1, 1000*time.Hour)
		rang := now + c.trueTime(wait)
		local := rang + c.gained(rang) - now - c.gained(now)
		if local < wait || local > wait+3 {
			t.Fatalf("a timer of %v fires after %v by the clock of its process", wait, local)
		}
	})
}

func TestWaitingForEverIsTheSameByEveryClock(t *testing.T) {
	c := &clock{rate: time.Minute}
	if got := c.trueTime(-1); got != -1 {
		t.Errorf("%v, want -1ns", got)
	}
}
