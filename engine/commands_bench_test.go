package engine_test

import (
	"context"
	"testing"
	"time"

	"github.com/fencepost-sim/fencepost/engine"
	"github.com/fencepost-sim/fencepost/sim"
	"github.com/fencepost-sim/fencepost/sim/journal"
)

// BenchmarkCommands counts MongoDB commands, not time: how many the default configuration (4 workers) sends for an event of a burst, for an
// isolated event, and for each poll of an idle process. Startup and subscribing are left out.
func BenchmarkCommands(b *testing.B) {
	for _, c := range []struct {
		name    string
		events  int
		options engine.SubscribeOptions
	}{
		{"burst-of-400/unordered", 400, engine.SubscribeOptions{Unordered: true}},
		{"burst-of-400/ordered", 400, engine.SubscribeOptions{}},
		{"isolated/unordered", 1, engine.SubscribeOptions{Unordered: true}},
		{"isolated/ordered", 1, engine.SubscribeOptions{}},
	} {
		b.Run(c.name, func(b *testing.B) {
			var commands int
			for b.Loop() {
				idle := countCommands(b, 0, c.options)
				commands = countCommands(b, c.events, c.options) - idle
			}
			b.ReportMetric(float64(commands)/float64(c.events), "commands/event")
		})
	}
	b.Run("idle", func(b *testing.B) {
		var commands int
		for b.Loop() {
			commands = countCommands(b, 0, engine.SubscribeOptions{})
		}
		b.ReportMetric(float64(commands)/(span.Seconds()/3), "commands/poll")
	})
}

// span is how long the measured process runs, in virtual time, from the moment at which it has subscribed.
const span = 300 * time.Second

// countCommands runs one process that subscribes, publishes so many events at once, and goes on. It counts what it sends.
func countCommands(b *testing.B, events int, options engine.SubscribeOptions) (commands int) {
	b.Helper()
	w, err := sim.New(sim.Config{Limit: span})
	if err != nil {
		b.Fatal(err)
	}
	w.Add("process", func(ctx context.Context, p *sim.Process) error {
		eng, err := p.Open(ctx, engine.Options{ConsumerGroup: "billing"})
		if err != nil {
			return err
		}
		if _, err := sim.Subscribe(ctx, p, eng, orders, options, handle); err != nil {
			return err
		}
		for n := range events {
			if _, err := orders.Publish(ctx, eng, n); err != nil {
				return err
			}
		}
		return nil
	})
	subscribed, handled := false, 0
	for _, event := range w.Run().Events {
		switch event.Kind {
		case journal.Subscribed:
			subscribed = true
		case journal.HandlerEnded:
			handled++
		case journal.Issued:
			if subscribed {
				commands++
			}
		}
	}
	if handled != events {
		b.Fatalf("%d of %d events were handled", handled, events)
	}
	return commands
}
