package idempotency

import (
	"context"
	"errors"
	"fmt"
)

// Event names one event for one consumer group.
type Event struct {
	Group string // consumer group
	Topic string
	ID    string
}

// Key is the key of the event: it is the same in every replica and every attempt.
func (e Event) Key() Key {
	return Key("evt:" + framed("fencepost.idempotency.event.v1", e.Group, e.Topic, e.ID))
}

// ConsumerWorker runs the function once for each event of a group. A duplicate is answered with nil, so that it is acknowledged;
// a replayed rejection with the *ReplayedRejection.
func ConsumerWorker(ctx context.Context, g *Guard, e Event, function func(context.Context) error) (Outcome, error) {
	for _, field := range []struct{ name, value string }{{"Event.Group", e.Group}, {"Event.Topic", e.Topic}, {"Event.ID", e.ID}} {
		if field.value == "" {
			return Outcome{}, &ConfigurationError{field.name, field.value, "a text that is not empty"}
		}
	}
	return run(ctx, g, e.Key(), function)
}

// run is Do for functions without a result.
func run(ctx context.Context, g *Guard, key Key, function func(context.Context) error) (Outcome, error) {
	_, outcome, err := Do(ctx, g, Op{Key: key}, none{}, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, function(ctx)
	})
	return outcome, err
}

// Delivery names one webhook delivery. Its signature has been checked by the caller.
type Delivery struct {
	Provider string
	ID       string // of the delivery or the event, by the provider
	// AcknowledgeRejections answers a replayed rejection with nil. Providers retry what is not acknowledged, and switch
	// endpoints off that never acknowledge.
	AcknowledgeRejections bool
}

// Key is the key of the delivery.
func (d Delivery) Key() Key {
	return Key("hook:" + framed("fencepost.idempotency.webhook.v1", d.Provider, d.ID))
}

// Webhook runs the function once for each delivery of a provider.
func Webhook(ctx context.Context, g *Guard, d Delivery, function func(context.Context) error) (Outcome, error) {
	for _, field := range []struct{ name, value string }{{"Delivery.Provider", d.Provider}, {"Delivery.ID", d.ID}} {
		if field.value == "" {
			return Outcome{}, &ConfigurationError{field.name, field.value, "a text that is not empty"}
		}
	}
	outcome, err := run(ctx, g, d.Key(), function)
	var rejected *ReplayedRejection
	if d.AcknowledgeRejections && errors.As(err, &rejected) && outcome.Replayed {
		err = nil
	}
	return outcome, err
}

// Phase is one of the two halves of a saga step.
type Phase string

// The phases.
const (
	Action     Phase = "action"
	Compensate Phase = "compensate"
)

// Step names one half of one step of a saga.
type Step struct {
	Saga  string
	Step  string
	Phase Phase
}

// Key is the key of the half step. Both halves of all steps of a saga lie in one slot of a Redis Cluster.
func (s Step) Key() Key {
	const domain = "fencepost.idempotency.saga.v1"
	return Key(fmt.Sprintf("saga:{%s}:%s", framed(domain, s.Saga)[:32], framed(domain, s.Saga, s.Step, string(s.Phase))))
}

func (s Step) check() error {
	switch {
	case s.Saga == "":
		return &ConfigurationError{"Step.Saga", s.Saga, "a text that is not empty"}
	case s.Step == "":
		return &ConfigurationError{"Step.Step", s.Step, "a text that is not empty"}
	case s.Phase != Action && s.Phase != Compensate:
		return &ConfigurationError{"Step.Phase", s.Phase, "Action or Compensate"}
	}
	return nil
}

// SagaStep runs one half of a saga step once.
//
// A compensation first closes its action for good: an action that comes later gets ErrCompensated, one that is under way makes the
// compensation wait (an *InFlightError), and if the action was never begun there is nothing to compensate: the function is not
// run and the zero value is returned, with Outcome.Replayed.
//
// Known gap: an action counts as never begun, too, when its owner died and a sweep has deleted its record since, when it returned an error of
// the class Transport, which gives the key free although the effect may have happened, and after the guard's TTL. So use a guard with
// DisableSweeper for sagas, compensate within its TTL, and let an action whose outcome is unknown return nil.
func SagaStep[T any](ctx context.Context, g *Guard, s Step, codec Codec[T], function func(context.Context) (T, error)) (value T, outcome Outcome, err error) {
	if err := s.check(); err != nil {
		return value, outcome, err
	}
	if s.Phase == Compensate {
		ran, err := g.closeAction(ctx, Step{s.Saga, s.Step, Action}.Key())
		if err != nil {
			return value, outcome, err
		}
		if !ran {
			return value, Outcome{Replayed: true, Stored: true, Class: Succeeded}, nil
		}
	}
	return Do(ctx, g, Op{Key: s.Key()}, codec, function)
}

// closeAction writes the tombstone of an action, and tells whether the action was ever begun.
func (g *Guard) closeAction(ctx context.Context, action Key) (ran bool, err error) {
	g.host.Enter(func() {
		if g.closing {
			err = ErrClosed
			return
		}
		var found TombstoneResult
		err = g.ask(func() error {
			found, err = g.config.Store.Tombstone(ctx, action, g.config.TTL)
			return err
		})
		switch {
		case err != nil:
			err = unavailable(err)
		case found.Held:
			err = &InFlightError{RetryAfter: found.LeaseLeft}
		}
		ran = found.Ran
	})
	return ran, err
}
