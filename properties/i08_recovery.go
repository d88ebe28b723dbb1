package properties

import (
	"math"
	"time"

	"github.com/fencepost-sim/fencepost/sim/journal"
)

var recovery = Property{
	ID: "I8", Name: "recovery",
	Statement: "After the last fault every delivery ends within a bound: what its retries, leases, polls and handlers may take; and the run comes to rest.",
	New:       func() Checker { return &bounded{} },
}

type bounded struct {
	longest time.Duration // handler
	left    bool          // a process that took part has gone, or hears of nothing until it polls
}

func (b *bounded) Observe(s *State, event *journal.Event) {
	if event.Kind == journal.HandlerEnded {
		if h := s.Running(event); h != nil {
			b.longest = max(b.longest, event.Time-h.Started)
		}
	}
	switch event.Kind {
	case journal.ProcessDied, journal.StreamFailed, journal.Withheld, journal.Unsubscribed:
		b.left = true
	case journal.ProcessClosing:
		b.left = b.left || !s.Settled()
	}
	if event.Kind == journal.RunEnded && event.Name == "step limit" {
		s.Violate("the run does not come to rest: a busy loop")
	}
}

func (b *bounded) Finish(s *State) {
	for _, event := range s.Events {
		for _, subscription := range s.Subscriptions {
			if s.Deserves(subscription, event) {
				b.checkEvent(s, subscription, event)
			}
		}
	}
}

func (b *bounded) checkEvent(s *State, subscription *Subscription, event *Event) {
	since := max(event.Stored, s.LastFault)
	bound := b.bound(s, subscription)
	ended := time.Duration(-1)
	for _, delivery := range s.Deliveries {
		if delivery.Group == subscription.Group && delivery.EventID == event.ID && delivery.Terminal() {
			ended = delivery.Ended
		}
	}
	switch {
	case ended > since+bound:
		s.Violate("the delivery of event %s to group %s ended %v after the last fault; the bound is %v", event.ID, subscription.Group, ended-since, bound)
	case ended < 0 && s.Now > since+bound:
		s.Violate("the delivery of event %s to group %s has not ended %v after the last fault; the bound is %v", event.ID, subscription.Group, s.Now-since, bound)
	}
}

// bound adds up what every event of the group may take, one after the other: a single worker may have to go
// through all of them first.
func (b *bounded) bound(s *State, subscription *Subscription) time.Duration {
	var lock, poll time.Duration
	for _, engine := range s.Engines {
		lock, poll = max(lock, engine.LockTimeout), max(poll, engine.PollInterval)
	}
	if len(s.struck) == 0 && s.Forced == 0 {
		lock = 0 // where nothing went wrong, no lease has to run out
		if !b.left {
			poll = 0 // and nobody has to wait for a poll: publications, retries and free workers wake those who wait
		}
	}
	sum := s.Forced
	for _, other := range s.Subscriptions {
		if other.Group != subscription.Group {
			continue
		}
		for _, event := range s.Events {
			if s.Deserves(other, event) {
				made := s.attemptsMade(other, event)
				sum += 2*lock + time.Duration(made)*(2*lock+4*poll+b.longest) + other.delays(made-1)
			}
		}
	}
	return sum
}

// attemptsMade is how many attempts the group's delivery of the event has, at least one.
func (s *State) attemptsMade(subscription *Subscription, event *Event) int {
	made := 1
	for _, delivery := range s.Deliveries {
		if delivery.Group == subscription.Group && delivery.EventID == event.ID {
			made = max(made, len(s.AttemptsOf(delivery.ID)))
		}
	}
	return made
}

// delays sums the waits before so many retries.
func (subscription *Subscription) delays(retries int) (sum time.Duration) {
	for n := range retries {
		sum += time.Duration(float64(subscription.RetryDelay) * math.Pow(subscription.Multiplier, float64(n)))
	}
	return sum
}
