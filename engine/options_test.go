package engine_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fencepost-sim/fencepost/engine"
	"github.com/fencepost-sim/fencepost/sim"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// inside runs a function as the main function of a simulated process, and returns when the world has come to rest.
func inside(t *testing.T, main func(ctx context.Context, p *sim.Process)) {
	t.Helper()
	w, err := sim.New(sim.Config{Limit: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	ran := false
	w.Add("process", func(ctx context.Context, p *sim.Process) error {
		main(ctx, p)
		ran = true
		return nil
	})
	w.Run()
	if !ran {
		t.Error("the process did not get to its end")
	}
}

func TestWrongOptionsNameTheFieldAndWhatIsAllowed(t *testing.T) {
	for field, options := range map[string]engine.Options{
		"Options.ConsumerGroup":    {ConsumerGroup: " \t"},
		"Options.CollectionPrefix": {CollectionPrefix: "$pulse"},
		"Options.ChangeStreams":    {ChangeStreams: "sometimes"},
		"Options.EventRetention":   {EventRetention: -2},
		"Options.HistoryRetention": {HistoryRetention: 200 * 365 * 24 * time.Hour},
		"Options.PollInterval":     {PollInterval: time.Microsecond},
		"Options.LockTimeout":      {LockTimeout: 29 * time.Millisecond},
		"Options.Workers":          {Workers: -1},
		"Options.DiscoveryBatch":   {DiscoveryBatch: 10_001},
		"Options.ReconcileBatch":   {ReconcileBatch: -1},
	} {
		inside(t, func(ctx context.Context, p *sim.Process) {
			if options.ConsumerGroup == "" {
				options.ConsumerGroup = "billing"
			}
			_, err := p.Open(ctx, options)
			wantConfiguration(t, err, field)
		})
	}
	_, err := engine.Open(context.Background(), engine.Options{ConsumerGroup: "billing"})
	wantConfiguration(t, err, "Options.Store")
}

func wantConfiguration(t *testing.T, err error, field string) {
	t.Helper()
	var configuration *engine.ConfigurationError
	if !errors.As(err, &configuration) || !errors.Is(err, engine.ErrConfiguration) {
		t.Errorf("%s: got %v, want a ConfigurationError", field, err)
		return
	}
	if configuration.Field != field || configuration.Allowed == "" || !strings.Contains(err.Error(), "allowed: ") {
		t.Errorf("got %q about %q, want it about %q", err, configuration.Field, field)
	}
}

func TestWrongSubscriptionsNameTheFieldAndWhatIsAllowed(t *testing.T) {
	for field, options := range map[string]engine.SubscribeOptions{
		"SubscribeOptions.OffsetReset":                    {OffsetReset: "middle"},
		"SubscribeOptions.Delivery":                       {Delivery: "exactly-once"},
		"SubscribeOptions.MaxRetries":                     {MaxRetries: -2},
		"SubscribeOptions.RetryDelay":                     {RetryDelay: -2},
		"SubscribeOptions.RetryMultiplier":                {RetryMultiplier: math.NaN()},
		"SubscribeOptions.MaxConcurrency":                 {MaxConcurrency: -1},
		"SubscribeOptions.RetryDelay and RetryMultiplier": {MaxRetries: 1000, RetryMultiplier: 10},
	} {
		inside(t, func(ctx context.Context, p *sim.Process) {
			eng, err := p.Open(ctx, engine.Options{ConsumerGroup: "billing"})
			if err != nil {
				t.Error(err)
				return
			}
			_, err = orders.Subscribe(ctx, eng, options, handle)
			wantConfiguration(t, err, field)
		})
	}
	inside(t, func(ctx context.Context, p *sim.Process) {
		eng, err := p.Open(ctx, engine.Options{ConsumerGroup: "billing"})
		if err != nil {
			t.Error(err)
			return
		}
		_, err = orders.Subscribe(ctx, eng, engine.SubscribeOptions{Delivery: engine.AtMostOnce, MaxRetries: 1}, handle)
		wantConfiguration(t, err, "SubscribeOptions.MaxRetries")
		_, err = orders.Subscribe(ctx, eng, engine.SubscribeOptions{}, nil)
		wantConfiguration(t, err, "handler")
		_, err = engine.NewTopic[int]("").Subscribe(ctx, eng, engine.SubscribeOptions{}, handle)
		wantConfiguration(t, err, "topic")
		_, err = engine.NewTopic[int]("").Publish(ctx, eng, 1)
		wantConfiguration(t, err, "topic")
	})
}

var orders = engine.NewTopic[int]("order.created")

func handle(context.Context, engine.Event[int]) error { return nil }

func TestReplicasThatDisagreeOnThePolicyAreRefusedWithTheStoredOne(t *testing.T) {
	inside(t, func(ctx context.Context, p *sim.Process) {
		first, err1 := p.Open(ctx, engine.Options{ConsumerGroup: "billing"})
		second, err2 := p.Open(ctx, engine.Options{ConsumerGroup: "billing"})
		if err := errors.Join(err1, err2); err != nil {
			t.Error(err)
			return
		}
		if _, err := orders.Subscribe(ctx, first, engine.SubscribeOptions{}, handle); err != nil {
			t.Error(err)
		}
		_, err := orders.Subscribe(ctx, second, engine.SubscribeOptions{MaxRetries: 9}, handle)
		wantConfiguration(t, err, "SubscribeOptions for topic order.created")
		if err == nil || !strings.Contains(err.Error(), "maxRetries: 3") || !strings.Contains(err.Error(), "maxRetries: 9") {
			t.Errorf("the error does not quote both: %v", err)
		}
		if _, err := orders.Subscribe(ctx, second, engine.SubscribeOptions{}, handle); err != nil {
			t.Errorf("after the refusal the right policy is not accepted: %v", err)
		}
	})
}

func TestAProcessSubscribesToATopicOnce(t *testing.T) {
	inside(t, func(ctx context.Context, p *sim.Process) {
		eng, err := p.Open(ctx, engine.Options{ConsumerGroup: "billing"})
		if err != nil {
			t.Error(err)
			return
		}
		subscription, err := orders.Subscribe(ctx, eng, engine.SubscribeOptions{}, handle)
		if err != nil {
			t.Error(err)
			return
		}
		_, err = orders.Subscribe(ctx, eng, engine.SubscribeOptions{}, handle)
		wantConfiguration(t, err, "topic")
		subscription.Unsubscribe()
		subscription.Unsubscribe()
		if _, err = orders.Subscribe(ctx, eng, engine.SubscribeOptions{}, handle); err != nil {
			t.Errorf("after Unsubscribe: %v", err)
		}
	})
}

func TestAClosedEngineTakesNothing(t *testing.T) {
	inside(t, func(ctx context.Context, p *sim.Process) {
		eng, err := p.Open(ctx, engine.Options{ConsumerGroup: "billing"})
		if err != nil {
			t.Error(err)
			return
		}
		if err := errors.Join(eng.Close(ctx), eng.Close(ctx)); err != nil {
			t.Errorf("Close: %v", err)
		}
		if _, err := orders.Publish(ctx, eng, 1); !errors.Is(err, engine.ErrClosed) {
			t.Errorf("Publish: %v", err)
		}
		if _, err := orders.Subscribe(ctx, eng, engine.SubscribeOptions{}, handle); !errors.Is(err, engine.ErrClosed) {
			t.Errorf("Subscribe: %v", err)
		}
	})
}

func TestDataThatBSONCannotHoldIsRefusedBeforeAnythingIsStored(t *testing.T) {
	inside(t, func(ctx context.Context, p *sim.Process) {
		eng, err := p.Open(ctx, engine.Options{ConsumerGroup: "billing"})
		if err != nil {
			t.Error(err)
			return
		}
		_, err = engine.NewTopic[any]("order.created").Publish(ctx, eng, make(chan int))
		if err == nil || !strings.Contains(err.Error(), "order.created") {
			t.Errorf("got %v", err)
		}
		if n := len(p.World().Model().Documents(sim.Database, "orionjs.pulse.events")); n != 0 {
			t.Errorf("%d events are stored", n)
		}
	})
}
