package engine_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/fencepost-sim/fencepost/engine"
	"github.com/fencepost-sim/fencepost/engine/store"
	"github.com/fencepost-sim/fencepost/sim"
	"github.com/fencepost-sim/fencepost/sim/journal"
)

func TestASubscriptionThatSomebodyDeletedIsReportedAndStoredAgain(t *testing.T) {
	w, err := sim.New(sim.Config{Limit: 2 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"worker-1", "worker-2"} {
		w.Add(name, func(ctx context.Context, p *sim.Process) error {
			eng, err := p.Open(ctx, engine.Options{ConsumerGroup: "billing"})
			if err != nil {
				return err
			}
			_, err = sim.Subscribe(ctx, p, eng, orders, engine.SubscribeOptions{}, handle)
			return err
		})
	}
	w.Add("operator", func(ctx context.Context, p *sim.Process) error {
		eng, err := p.Open(ctx, engine.Options{ConsumerGroup: "billing"})
		if err != nil {
			return err
		}
		for n := range 3 {
			if err := p.Sleep(ctx, 20*time.Second); err != nil {
				return err
			}
			if n == 1 {
				_, err := p.Store().Run(ctx, store.Command{
					Kind: store.Delete, Collection: "orionjs.pulse.subscriptions", Filter: bson.D{},
				})
				if err != nil {
					return err
				}
			}
			if _, err := orders.Publish(ctx, eng, n); err != nil {
				return err
			}
		}
		return nil
	})
	handled, reported := map[string]int{}, false
	for _, event := range w.Run().Events {
		switch event.Kind {
		case journal.HandlerEnded:
			handled[event.Key]++
		case journal.ErrorReported:
			reported = reported || strings.Contains(event.Error, "was deleted")
		}
	}
	if !reported {
		t.Error("nobody was told")
	}
	if len(handled) != 3 {
		t.Errorf("%d events were handled, want 3", len(handled))
	}
	for id, times := range handled {
		if times != 1 {
			t.Errorf("event %s was handled %d times", id, times)
		}
	}
}
