package idempotency_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/fencepost-sim/fencepost/engine"
	"github.com/fencepost-sim/fencepost/engine/idempotency"
	"github.com/fencepost-sim/fencepost/engine/idempotency/idemtest"
)

func TestR13C15AConsumerWorkerRunsOncePerGroupTopicAndEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, runs := open(t, idempotency.Config{}), 0
		work := func(context.Context) error { runs++; return nil }
		events := []idempotency.Event{{"g", "t", "1"}, {"g", "t", "2"}, {"g", "u", "1"}, {"h", "t", "1"}}
		for round := range 2 {
			for _, e := range events {
				if outcome, err := idempotency.ConsumerWorker(t.Context(), g, e, work); err != nil || outcome.Replayed != (round == 1) {
					t.Errorf("%+v: %+v, %v", e, outcome, err)
				}
			}
		}
		if runs != len(events) {
			t.Errorf("%d runs", runs)
		}
		for _, e := range []idempotency.Event{{"", "t", "1"}, {"g", "", "1"}, {"g", "t", ""}} {
			if _, err := idempotency.ConsumerWorker(t.Context(), g, e, work); !errors.Is(err, idempotency.ErrConfiguration) {
				t.Errorf("%+v: %v", e, err)
			}
		}
	})
}

func TestAnEngineHandlerHasItsEffectOncePerEventOfItsGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, effects, fail := open(t, idempotency.Config{}), 0, true
		handler := idempotency.Handler(g, func(_ context.Context, e engine.Event[string]) error {
			if fail {
				return errors.New("no connection")
			}
			effects++
			return nil
		})
		event := engine.Event[string]{ID: "E1", Topic: "orders", ConsumerGroup: "billing", Attempt: 1}
		if err := handler(t.Context(), event); err == nil {
			t.Error("a failed handler succeeded")
		}
		fail = false
		for event.Attempt = 2; event.Attempt < 5; event.Attempt++ {
			if err := handler(t.Context(), event); err != nil {
				t.Error(err)
			}
		}
		event.ConsumerGroup = "mail"
		if err := handler(t.Context(), event); err != nil || effects != 2 {
			t.Errorf("%d effects, %v; want one for each group", effects, err)
		}
	})
}

func TestR13C15AWebhookRunsOncePerProviderAndDelivery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, runs := open(t, idempotency.Config{}), 0
		work := func(context.Context) error { runs++; return nil }
		for _, d := range []idempotency.Delivery{{Provider: "a", ID: "1"}, {Provider: "a", ID: "1"}, {Provider: "b", ID: "1"}} {
			if _, err := idempotency.Webhook(t.Context(), g, d, work); err != nil {
				t.Error(err)
			}
		}
		if runs != 2 {
			t.Errorf("%d runs", runs)
		}
		if _, err := idempotency.Webhook(t.Context(), g, idempotency.Delivery{Provider: "a"}, work); !errors.Is(err, idempotency.ErrConfiguration) {
			t.Errorf("got %v", err)
		}
	})
}

func TestAReplayedRejectionOfAWebhookCanBeAcknowledged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := open(t, idempotency.Config{})
		reject := func(context.Context) error { return status.Error(codes.InvalidArgument, "bad") }
		for round, acknowledge := range []bool{true, false, true} {
			d := idempotency.Delivery{Provider: "a", ID: "1", AcknowledgeRejections: acknowledge}
			_, err := idempotency.Webhook(t.Context(), g, d, reject)
			if wantError := round == 0 || !acknowledge; (err != nil) != wantError {
				t.Errorf("round %d: %v", round, err)
			}
		}
	})
}

func sagaStep(t *testing.T, g *idempotency.Guard, phase idempotency.Phase, runs *int) (int, idempotency.Outcome, error) {
	t.Helper()
	return idempotency.SagaStep(t.Context(), g, idempotency.Step{Saga: "s", Step: "pay", Phase: phase}, idempotency.JSON[int](), counted(runs))
}

func TestR13C15ASagaStepRunsItsActionAndItsCompensationOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, actions, compensations := open(t, idempotency.Config{}), 0, 0
		for range 2 {
			if value, _, err := sagaStep(t, g, idempotency.Action, &actions); err != nil || value != 1 {
				t.Errorf("action: %d, %v", value, err)
			}
		}
		for range 2 {
			if value, _, err := sagaStep(t, g, idempotency.Compensate, &compensations); err != nil || value != 1 {
				t.Errorf("compensation: %d, %v", value, err)
			}
		}
		if _, _, err := sagaStep(t, g, idempotency.Action, &actions); !errors.Is(err, idempotency.ErrCompensated) {
			t.Errorf("an action after its compensation: %v", err)
		}
		if actions != 1 || compensations != 1 {
			t.Errorf("%d actions, %d compensations", actions, compensations)
		}
	})
}

func TestC15ACompensationBeforeItsActionDoesNothingAndALateActionIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, actions, compensations := open(t, idempotency.Config{}), 0, 0
		for range 2 {
			if value, outcome, err := sagaStep(t, g, idempotency.Compensate, &compensations); err != nil || value != 0 || !outcome.Replayed {
				t.Errorf("compensation: %d, %+v, %v", value, outcome, err)
			}
		}
		if _, _, err := sagaStep(t, g, idempotency.Action, &actions); !errors.Is(err, idempotency.ErrCompensated) || actions+compensations != 0 {
			t.Errorf("late action: %v; %d actions, %d compensations", err, actions, compensations)
		}
	})
}

func TestC15ACompensationWaitsForARunningActionAndFollowsADeadOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, runs := &idemtest.Memory{}, 0
		g := open(t, idempotency.Config{Store: store})
		step := idempotency.Step{Saga: "s", Step: "pay", Phase: idempotency.Action}
		_, err := store.Claim(t.Context(), step.Key(), idempotency.ClaimRequest{Token: idempotency.Token{1}, Lease: time.Minute, TTL: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := sagaStep(t, g, idempotency.Compensate, &runs); !errors.Is(err, idempotency.ErrInFlight) || runs != 0 {
			t.Errorf("beside a running action: %v, %d runs", err, runs)
		}
		time.Sleep(time.Minute)
		if _, _, err := sagaStep(t, g, idempotency.Compensate, &runs); err != nil || runs != 1 {
			t.Errorf("after a dead action: %v, %d runs", err, runs)
		}
	})
}

func TestSagaStepsThatMakeNoSenseAreRefused(t *testing.T) {
	g := open(t, idempotency.Config{DisableSweeper: true})
	for _, step := range []idempotency.Step{{"", "a", idempotency.Action}, {"s", "", idempotency.Action}, {"s", "a", "undo"}} {
		_, _, err := idempotency.SagaStep(t.Context(), g, step, idempotency.JSON[int](), counted(new(int)))
		if !errors.Is(err, idempotency.ErrConfiguration) {
			t.Errorf("%+v: %v", step, err)
		}
	}
}
