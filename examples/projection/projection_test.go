package projection

import (
	"context"
	"fmt"
	"testing"

	"go.uber.org/goleak"

	"github.com/fencepost-sim/fencepost/engine"
	"github.com/fencepost-sim/fencepost/sim"
	"github.com/fencepost-sim/fencepost/simtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// memory is the read model of a simulated world.
type memory map[string]Balance

func (m memory) Update(ctx context.Context, account string, change func(Balance) (Balance, error)) error {
	return sim.Call(ctx, "update", account, func() error {
		after, err := change(m[account])
		if err == nil {
			m[account] = after
		}
		return err
	})
}

// onlyAdds is the broken twin.
func onlyAdds(store Store) engine.Handler[Change] {
	return func(ctx context.Context, event engine.Event[Change]) error {
		return store.Update(ctx, event.Data.Account, func(b Balance) (Balance, error) {
			return Balance{event.Data.Number, b.Cents + event.Data.Cents}, nil
		})
	}
}

const changes = 3

// accounts builds a world: one process changes an account three times, two keep the read model.
func accounts(handler func(Store) engine.Handler[Change], options engine.SubscribeOptions) func(w *simtest.World) {
	return func(w *simtest.World) {
		changed := engine.NewTopic[Change]("account.changed")
		model, published := memory{}, 0
		w.Add("bank", func(ctx context.Context, p *sim.Process) error {
			eng, err := p.Open(ctx, engine.Options{ConsumerGroup: "bank"})
			for err == nil && published < changes {
				if _, err = changed.Publish(ctx, eng, Change{"ada", published + 1, 100}); err == nil {
					published++ // if it is unknown whether it was stored, the next life publishes it again
				}
			}
			return err
		})
		for _, name := range []string{"reader-1", "reader-2"} {
			w.Add(name, func(ctx context.Context, p *sim.Process) error {
				eng, err := p.Open(ctx, engine.Options{ConsumerGroup: "read-model"})
				if err != nil {
					return err
				}
				options := options
				options.OffsetReset = engine.Earliest
				_, err = sim.Subscribe(ctx, p, eng, changed, options, handler(model))
				return err
			})
		}
		w.Finally("the read model holds every change once", func() error {
			if want := (Balance{changes, changes * 100}); model["ada"] != want {
				return fmt.Errorf("it holds %+v, not %+v", model["ada"], want)
			}
			return nil
		})
	}
}

func TestTheReadModelHoldsEveryChangeOnceWhateverCrashes(t *testing.T) {
	simtest.Check(t, simtest.Options{}, accounts(Handler, engine.SubscribeOptions{}))
}

func TestTheHarnessShowsThatOnlyAddingCountsTwice(t *testing.T) {
	report, err := simtest.Explore(simtest.Options{}, accounts(onlyAdds, engine.SubscribeOptions{}))
	if err != nil {
		t.Fatal(err)
	}
	if len(report.Failures) == 0 {
		t.Fatal("nothing was found")
	}
	smallest := report.Failures[0].Shrink()
	if smallest.Violation.Property != "the read model holds every change once" || len(smallest.Outcome.Plan.Faults) != 1 {
		t.Errorf("%s", simtest.Describe(smallest))
	}
}
