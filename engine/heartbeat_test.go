package engine_test

import (
	"context"
	"testing"

	"github.com/fencepost-sim/fencepost/engine"
	"github.com/fencepost-sim/fencepost/engine/store"
	"github.com/fencepost-sim/fencepost/sim"
	"github.com/fencepost-sim/fencepost/sim/journal"
)

// unchanging answers heartbeats as a database does whose clock stood still since the last one: the lease is there, and the same values are in it.
type unchanging struct {
	store.Store
	heartbeats *int
}

func (s unchanging) Run(ctx context.Context, command store.Command) (store.Reply, error) {
	reply, err := s.Store.Run(ctx, command)
	if command.Point == engine.PointAttemptHeartbeat || command.Point == engine.PointOrderHeartbeat {
		reply.Modified = 0
		*s.heartbeats++
	}
	return reply, err
}

// TestAHeartbeatThatChangesNothingIsNotALostLease is weakness W2.
func TestAHeartbeatThatChangesNothingIsNotALostLease(t *testing.T) {
	heartbeats, starts, succeeded := 0, 0, 0
	decorate := func(_ string, inner store.Store) store.Store { return unchanging{inner, &heartbeats} }
	for _, event := range oneMinute(t, sim.Config{Decorate: decorate}).Events {
		switch event.Kind {
		case journal.HandlerCancelled, journal.ErrorReported:
			t.Errorf("%s: %s", event.Kind, event.Error)
		case journal.HandlerStarted:
			starts++
		case journal.HandlerEnded:
			if event.Error == "" {
				succeeded++
			}
		}
	}
	if heartbeats < 8 || starts != 1 || succeeded != 1 {
		t.Errorf("%d heartbeats, %d starts, %d successes; want 8 at least (the attempt's and the order's), 1, 1", heartbeats, starts, succeeded)
	}
}
