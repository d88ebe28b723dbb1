package deposits

import (
	"context"
	"fmt"
	"testing"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.uber.org/goleak"

	"github.com/fencepost-sim/fencepost/engine"
	"github.com/fencepost-sim/fencepost/sim"
	"github.com/fencepost-sim/fencepost/sim/mongodriver"
	"github.com/fencepost-sim/fencepost/simtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// markedFirst and bookedFirst are the broken twins.
func markedFirst(database *mongo.Database) engine.Handler[Deposit] {
	return func(ctx context.Context, event engine.Event[Deposit]) error {
		if err := mark(ctx, database, event.ID); err != nil {
			return unlessDone(err)
		}
		return book(ctx, database, event.Data)
	}
}

func bookedFirst(database *mongo.Database) engine.Handler[Deposit] {
	return func(ctx context.Context, event engine.Event[Deposit]) error {
		if err := book(ctx, database, event.Data); err != nil {
			return err
		}
		return unlessDone(mark(ctx, database, event.ID))
	}
}

// till builds a world: one process makes a deposit, two book it, each with a *mongo.Client of its own.
func till(handler func(*mongo.Database) engine.Handler[Deposit]) func(w *simtest.World) {
	return func(w *simtest.World) {
		topic := engine.NewTopic[Deposit]("deposit.made")
		clients := mongodriver.In(w.World)
		made := false
		w.Add("counter", func(ctx context.Context, p *sim.Process) error {
			eng, err := p.Open(ctx, engine.Options{ConsumerGroup: "counter"})
			if err == nil && !made {
				_, err = topic.Publish(ctx, eng, Deposit{"ada", 100})
				made = err == nil
			}
			return err
		})
		for _, name := range []string{"worker-1", "worker-2"} {
			w.Add(name, func(ctx context.Context, p *sim.Process) error {
				client, err := clients.Connect(p)
				if err != nil {
					return err
				}
				eng, err := p.Open(ctx, engine.Options{ConsumerGroup: "till"})
				if err != nil {
					return err
				}
				_, err = sim.Subscribe(ctx, p, eng, topic, engine.SubscribeOptions{OffsetReset: engine.Earliest}, handler(client.Database("till")))
				return err
			})
		}
		w.Finally("every deposit is booked once", func() error {
			want := 100 * len(w.Model().Documents(sim.Database, "orionjs.pulse.events"))
			booked := 0
			for _, balance := range w.Model().Documents("till", "balances") {
				cents, _ := balance[1].Value.(int32)
				booked += int(cents)
			}
			if booked != want {
				return fmt.Errorf("%d cents are booked, not %d", booked, want)
			}
			return nil
		})
	}
}

func TestEveryDepositIsBookedOnceWhateverCrashes(t *testing.T) {
	simtest.Check(t, simtest.Options{Runs: 50}, till(Handler))
}

func TestTheHarnessShowsWhatGoesWrongWithoutATransaction(t *testing.T) {
	for want, twin := range map[string]func(*mongo.Database) engine.Handler[Deposit]{
		"0 cents are booked, not 100":   markedFirst,
		"200 cents are booked, not 100": bookedFirst,
	} {
		report, err := simtest.Explore(simtest.Options{Runs: simtest.NoRuns}, till(twin))
		if err != nil {
			t.Fatal(err)
		}
		if len(report.Failures) == 0 || report.Failures[0].Violation.What != want {
			t.Errorf("want %q, got %v", want, report.Failures)
			continue
		}
		if smallest := report.Failures[0].Shrink(); len(smallest.Outcome.Plan.Faults) != 1 {
			t.Errorf("%s", simtest.Describe(smallest))
		}
	}
}
