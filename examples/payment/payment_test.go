package payment

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"go.uber.org/goleak"

	"github.com/fencepost-sim/fencepost/engine"
	"github.com/fencepost-sim/fencepost/sim"
	"github.com/fencepost-sim/fencepost/simtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeBank is the bank of a simulated world. It is outside of the processes, so it survives their crashes.
type fakeBank struct {
	keys    []string
	charges int
}

func (b *fakeBank) Charge(ctx context.Context, key, _ string, _ int) error {
	return sim.Call(ctx, "charge", key, func() error {
		if !slices.Contains(b.keys, key) {
			b.keys = append(b.keys, key)
			b.charges++
		}
		return nil
	})
}

// newKeyEachTime is the broken twin: the bank cannot know that it is the same charge.
func newKeyEachTime(bank Bank) engine.Handler[Order] {
	return func(ctx context.Context, order engine.Event[Order]) error {
		key := fmt.Sprintf("%s/%d", order.ID, order.Attempt)
		return bank.Charge(ctx, key, order.Data.Customer, order.Data.Cents)
	}
}

// shop builds a world: one process publishes two orders, two charge for them.
func shop(handler func(Bank) engine.Handler[Order]) func(w *simtest.World) {
	return func(w *simtest.World) {
		orders := engine.NewTopic[Order]("order.created")
		bank, published := &fakeBank{}, 0
		w.Add("shop", func(ctx context.Context, p *sim.Process) error {
			eng, err := p.Open(ctx, engine.Options{ConsumerGroup: "shop"})
			for err == nil && published < 2 {
				if _, err = orders.Publish(ctx, eng, Order{"Ada", 4200}); err == nil {
					published++
				}
			}
			return err
		})
		for _, name := range []string{"worker-1", "worker-2"} {
			w.Add(name, func(ctx context.Context, p *sim.Process) error {
				eng, err := p.Open(ctx, engine.Options{ConsumerGroup: "billing"})
				if err != nil {
					return err
				}
				_, err = sim.Subscribe(ctx, p, eng, orders, engine.SubscribeOptions{OffsetReset: engine.Earliest}, handler(bank))
				return err
			})
		}
		w.Finally("every order is charged once", func() error {
			if stored := len(w.Model().Documents(sim.Database, "orionjs.pulse.events")); bank.charges != stored {
				return fmt.Errorf("%d orders, %d charges", stored, bank.charges)
			}
			return nil
		})
	}
}

func TestChargesOnceWhateverCrashes(t *testing.T) {
	simtest.Check(t, simtest.Options{}, shop(Handler))
}

func TestTheHarnessShowsThatANewKeyForEachAttemptChargesTwice(t *testing.T) {
	report, err := simtest.Explore(simtest.Options{}, shop(newKeyEachTime))
	if err != nil {
		t.Fatal(err)
	}
	if len(report.Failures) == 0 {
		t.Fatal("nothing was found")
	}
	smallest := report.Failures[0].Shrink()
	if smallest.Violation.Property != "every order is charged once" || len(smallest.Outcome.Plan.Faults) != 1 {
		t.Errorf("%s", simtest.Describe(smallest))
	}
}
