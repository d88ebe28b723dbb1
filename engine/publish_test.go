package engine_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/fencepost-sim/fencepost/engine"
	"github.com/fencepost-sim/fencepost/engine/store"
	"github.com/fencepost-sim/fencepost/faults"
	"github.com/fencepost-sim/fencepost/sim"
)

func TestAPublicationWhoseOutcomeIsUnknownIsSentAgainAndStoredOnce(t *testing.T) {
	lost := func(kind faults.Kind, position faults.Position, occurrence int) faults.Fault {
		return faults.Fault{Kind: kind, Process: "process", Point: string(engine.PointPublish), Position: position, Occurrence: occurrence}
	}
	request := func(n int) faults.Fault { return lost(faults.LoseCall, faults.Before, n) }
	reply := func(n int) faults.Fault { return lost(faults.LoseReply, faults.Unanswered, n) }
	for _, c := range []struct {
		name   string
		faults []faults.Fault
		fails  bool
		stored int
	}{
		{"the request is lost", []faults.Fault{request(1)}, false, 1},
		{"the reply is lost", []faults.Fault{reply(1)}, false, 1},
		{"two replies are lost", []faults.Fault{reply(1), reply(2)}, false, 1},
		{"three requests are lost", []faults.Fault{request(1), request(2), request(3)}, true, 0},
		{"three replies are lost", []faults.Fault{reply(1), reply(2), reply(3)}, true, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			w, err := sim.New(sim.Config{Limit: time.Minute, Plan: faults.Plan{Faults: c.faults}})
			if err != nil {
				t.Fatal(err)
			}
			w.Add("process", func(ctx context.Context, p *sim.Process) error {
				eng, err := p.Open(ctx, engine.Options{ConsumerGroup: "billing"})
				if err != nil {
					return err
				}
				id, err := orders.Publish(ctx, eng, 1)
				if c.fails != errors.Is(err, store.ErrUnknownOutcome) || (err == nil) != (id != "") {
					t.Errorf("got %q, %v", id, err)
				}
				return nil
			})
			w.Run()
			if n := len(w.Model().Documents(sim.Database, "orionjs.pulse.events")); n != c.stored {
				t.Errorf("%d events are stored, want %d", n, c.stored)
			}
		})
	}
}
