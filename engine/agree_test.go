package engine_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/fencepost-sim/fencepost/engine"
	"github.com/fencepost-sim/fencepost/internal/document"
	"github.com/fencepost-sim/fencepost/sim"
)

// subscribing lets processes subscribe one after the other, a second apart, each with its own options, and returns what each got.
func subscribing(t *testing.T, options ...engine.SubscribeOptions) (got []engine.SubscribeOptions, errs []error, w *sim.World) {
	t.Helper()
	return subscribingFor(t, make([]time.Duration, len(options)), options...)
}

func subscribingFor(t *testing.T, retentions []time.Duration, options ...engine.SubscribeOptions) (got []engine.SubscribeOptions, errs []error, w *sim.World) {
	t.Helper()
	w, err := sim.New(sim.Config{Limit: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	got, errs = make([]engine.SubscribeOptions, len(options)), make([]error, len(options))
	for i := range options {
		w.Add("replica-"+string(rune('1'+i)), func(ctx context.Context, p *sim.Process) error {
			if err := p.Sleep(ctx, time.Duration(i)*time.Second); err != nil {
				return err
			}
			eng, err := p.Open(ctx, engine.Options{ConsumerGroup: "billing", HistoryRetention: retentions[i]})
			if err != nil {
				return err
			}
			subscription, err := sim.Subscribe(ctx, p, eng, orders, options[i], handle)
			if errs[i] = err; err == nil {
				got[i] = subscription.Options()
			}
			return nil
		})
	}
	w.Run()
	return got, errs, w
}

func TestAHigherVersionReplacesThePolicyAndALowerOneTakesWhatIsStored(t *testing.T) {
	got, errs, w := subscribing(t,
		engine.SubscribeOptions{MaxRetries: 1},
		engine.SubscribeOptions{MaxRetries: 5, RetryDelay: 3 * time.Second, Version: 2},
		engine.SubscribeOptions{MaxRetries: 9, Version: 1},
		engine.SubscribeOptions{MaxRetries: 5, RetryDelay: 3 * time.Second, Version: 2},
	)
	for i, want := range []struct{ version, retries int }{{0, 1}, {2, 5}, {2, 5}, {2, 5}} {
		if errs[i] != nil || got[i].Version != want.version || got[i].MaxRetries != want.retries {
			t.Errorf("replica %d: %+v, %v; want %+v", i+1, got[i], errs[i], want)
		}
	}
	if got[2].RetryDelay != 3*time.Second {
		t.Errorf("the lower version retries after %v", got[2].RetryDelay)
	}
	stored := w.Model().Documents(sim.Database, "orionjs.pulse.subscriptions")
	if len(stored) != 1 || document.Get(stored[0], "configVersion") != int64(2) || document.Get(stored[0], "maxRetries") != int64(5) {
		t.Errorf("stored is %v", stored)
	}
}

func TestEqualVersionsThatDifferAndChangesThatCannotBeAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		second engine.SubscribeOptions
		want   string
	}{
		"another number of retries": {engine.SubscribeOptions{MaxRetries: 2}, "or a higher SubscribeOptions.Version"},
		"another order":             {engine.SubscribeOptions{Unordered: true, Version: 7}, "ordered and delivery can only change with another consumer group"},
		"another delivery":          {engine.SubscribeOptions{Delivery: engine.AtMostOnce, Version: 7}, "ordered and delivery can only change with another consumer group"},
		"a version below zero":      {engine.SubscribeOptions{Version: -1}, "allowed: 0 to 1000000000"},
	} {
		_, errs, _ := subscribing(t, engine.SubscribeOptions{}, c.second)
		var refused *engine.ConfigurationError
		if errs[0] != nil || !errors.As(errs[1], &refused) || !strings.Contains(errs[1].Error(), c.want) {
			t.Errorf("%s: %v", name, errs)
		}
	}
}

func TestReplicasAgreeOnTheRetentionOfHistory(t *testing.T) {
	_, errs, _ := subscribingFor(t, []time.Duration{time.Hour, engine.KeepForever}, engine.SubscribeOptions{}, engine.SubscribeOptions{})
	if errs[0] != nil || errs[1] == nil || !strings.Contains(errs[1].Error(), "historyRetentionMs: 3600000") {
		t.Errorf("got %v", errs)
	}
	_, errs, w := subscribingFor(t, []time.Duration{time.Hour, engine.KeepForever}, engine.SubscribeOptions{}, engine.SubscribeOptions{Version: 1})
	stored := w.Model().Documents(sim.Database, "orionjs.pulse.subscriptions")
	if errs[1] != nil || document.Get(stored[0], "historyRetentionMs") != int64(-1) {
		t.Errorf("got %v, stored %v", errs, stored)
	}
}
