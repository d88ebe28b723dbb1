package engine_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/fencepost-sim/fencepost/engine"
	"github.com/fencepost-sim/fencepost/faults"
	"github.com/fencepost-sim/fencepost/scenarios"
	"github.com/fencepost-sim/fencepost/sim"
)

func TestHandlersMayPublishWhileTheirEngineCloses(t *testing.T) {
	w, err := sim.New(sim.Config{Limit: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	next := engine.NewTopic[int]("next")
	var published, after error
	w.Add("process", func(ctx context.Context, p *sim.Process) error {
		eng, err := p.Open(ctx, engine.Options{ConsumerGroup: "billing"})
		if err != nil {
			return err
		}
		var handlerContext context.Context
		_, err = sim.Subscribe(ctx, p, eng, orders, engine.SubscribeOptions{Delivery: engine.AtMostOnce},
			func(ctx context.Context, _ engine.Event[int]) error {
				handlerContext = ctx
				if err := sim.Sleep(ctx, 10*time.Second); err != nil {
					return err
				}
				_, published = next.Publish(ctx, eng, 2)
				return published
			})
		if err == nil {
			_, err = orders.Publish(ctx, eng, 1)
		}
		if err == nil {
			err = p.Sleep(ctx, time.Minute)
		}
		_, after = next.Publish(handlerContext, eng, 3)
		return err
	})
	keep(t, w.Run())
	if published != nil {
		t.Errorf("publishing in the handler: %v", published)
	}
	if !errors.Is(after, engine.ErrClosed) {
		t.Errorf("publishing with the context of a handler that is over: %v, want ErrClosed", after)
	}
	if events := w.Model().Documents(sim.Database, "orionjs.pulse.events"); len(events) != 2 {
		t.Errorf("%d events are stored, want the handled one and the one that its handler published", len(events))
	}
}

func TestCloseEndsAlthoughTheServerRefusesTheOutcome(t *testing.T) {
	w := scenarios.Workload{
		Replicas: 1, CloseAt: 5 * time.Second, LockTimeout: 10 * time.Second,
		Topics: []scenarios.TopicLoad{{Do: scenarios.Work{Time: 8 * time.Second}}},
	}
	run, err := w.Run(faults.Plan{Faults: []faults.Fault{{
		Kind: faults.Refuse, Process: faults.AnyProcess, Point: string(engine.PointAttemptSucceed),
		Position: faults.Before, Occurrence: 1, Span: 10 * time.Minute,
	}}}, 1, scenarios.Bug{})
	if err != nil {
		t.Fatal(err)
	}
	last := run.Journal.Events[len(run.Journal.Events)-1]
	if last.Name != sim.EndedClosed {
		t.Errorf("the run ended by the %s at %v", last.Name, last.Time)
	}
}
