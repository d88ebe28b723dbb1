package sim

import (
	"context"
	"errors"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/fencepost-sim/fencepost/engine"
	"github.com/fencepost-sim/fencepost/engine/host"
	"github.com/fencepost-sim/fencepost/faults"
	"github.com/fencepost-sim/fencepost/sim/journal"
)

// Points around user code, beside those of the engine.
const (
	PointHandlerStart = "handler.start" // a crash before it: the handler did not start
	PointEffect       = "effect.perform"
	PointHandlerEnd   = "handler.end"
)

// HandlerPoints lists them in order.
var HandlerPoints = []string{PointHandlerStart, PointEffect, PointHandlerEnd}

// Subscribe subscribes the process to the topic with a handler wrapped by Handle.
func Subscribe[T any](ctx context.Context, p *Process, eng *engine.Engine, topic engine.Topic[T],
	options engine.SubscribeOptions, handler engine.Handler[T]) (*engine.Subscription, error) {
	subscription, err := topic.Subscribe(ctx, eng, options, Handle(p, handler))
	if err != nil {
		return nil, err
	}
	p.world.record(journal.Event{
		Kind: journal.Subscribed, Process: p.index, Group: eng.Options().ConsumerGroup, Name: topic.Name(),
		Number: int64(subscription.Options().MaxConcurrency),
	})
	return subscription, nil
}

// Unsubscribe ends a subscription of the process.
func Unsubscribe(p *Process, eng *engine.Engine, subscription *engine.Subscription) {
	subscription.Unsubscribe()
	p.world.record(journal.Event{
		Kind: journal.Unsubscribed, Process: p.index, Group: eng.Options().ConsumerGroup, Name: subscription.Topic(),
	})
}

// running is what a handler's context carries.
type running struct {
	process  *Process
	life     *instance
	event    string
	topic    string
	group    string
	delivery string
	attempt  int

	task      int
	context   context.Context
	cancelled bool
	claim     bson.D // of an execution under a guard; nil for the handler itself
}

type runningKey struct{}

// Handle wraps a handler so that the journal shows when it starts and ends, and so that faults can strike around
// it. Inside, Effect and Sleep are available.
func Handle[T any](p *Process, handler engine.Handler[T]) engine.Handler[T] {
	life := p.instance
	return func(ctx context.Context, event engine.Event[T]) (err error) {
		w := p.world
		r := &running{
			process: p, life: life, event: event.ID, topic: event.Topic, group: event.ConsumerGroup,
			delivery: event.DeliveryID, attempt: event.Attempt, task: w.current.id, context: ctx,
		}
		occurrence := w.reach(w.current, PointHandlerStart)
		w.strike(w.current, PointHandlerStart, occurrence, faults.Before)
		w.record(r.as(journal.HandlerStarted))
		w.handlers = append(w.handlers, r)
		defer w.handlerOver(r)
		w.strike(w.current, PointHandlerStart, occurrence, faults.After)
		ended := false
		defer func() {
			if !ended && !life.over { // a panic or runtime.Goexit
				r.end("did not return")
			}
		}()
		err = handler(context.WithValue(ctx, runningKey{}, r), event)
		ended = true
		r.end(errorText(err))
		return err
	}
}

func (r *running) as(kind journal.Kind) journal.Event {
	return journal.Event{
		Kind: kind, Process: r.process.index, Task: r.task, Key: r.event, Name: r.topic,
		Group: r.group, Delivery: r.delivery, Number: int64(r.attempt), Document: r.claim,
	}
}

func (r *running) end(problem string) {
	w := r.process.world
	occurrence := w.reach(w.current, PointHandlerEnd)
	w.strike(w.current, PointHandlerEnd, occurrence, faults.Before)
	r.watchContext() // it may be done since this very step
	ended := r.as(journal.HandlerEnded)
	ended.Error = problem
	w.record(ended)
	w.strike(w.current, PointHandlerEnd, occurrence, faults.After)
}

// ErrNotInHandler is returned by Effect and Sleep when the context is not that of a handler wrapped by Handle.
var ErrNotInHandler = errors.New("sim: the context is not that of a handler wrapped by sim.Handle")

func fromContext(ctx context.Context) (*running, error) {
	r, ok := ctx.Value(runningKey{}).(*running)
	if !ok {
		return nil, ErrNotInHandler
	}
	if r.life.over {
		panic(host.Killed{})
	}
	return r, nil
}

// watchContexts tells the journal, once for each handler, that its context is done.
func (w *World) watchContexts() {
	for _, r := range w.handlers {
		r.watchContext()
	}
}

func (r *running) watchContext() {
	if !r.cancelled && r.context.Err() != nil {
		r.cancelled = true
		cancelled := r.as(journal.HandlerCancelled)
		if r.claim != nil {
			cancelled = r.as(journal.ExecutionCancelled)
		}
		cancelled.Error = errorText(context.Cause(r.context))
		r.process.world.record(cancelled)
	}
}

func (w *World) handlerOver(r *running) {
	w.handlers = slices.DeleteFunc(w.handlers, func(other *running) bool { return other == r })
}

// Effect performs a side effect outside the database under an idempotency key: a payment, a mail. The journal is the outside
// world that remembers it. It does nothing and returns the cause if ctx is done, as a well-behaved client does.
func Effect(ctx context.Context, name, key string) error {
	return perform(ctx, name, key, func(*World) error { return nil })
}

// ErrNoAnswer is returned by Effect and Call when the request or the reply was lost: whether the effect happened, nobody can say.
var ErrNoAnswer = errors.New("sim: no answer: the request or the reply was lost")

// Call calls something outside the database, under an idempotency key if it has one. at is what happens there: it runs at once and alone, and may
// change what the world keeps of that system across crashes; its error comes back as the answer. A call that is answered without an error is
// an effect in the journal. A crash can strike before at, between it and the answer, and after, and messages can be lost, at point PointEffect. Like
// Effect it does nothing if ctx is done.
func Call(ctx context.Context, name, key string, at func() error) error {
	return perform(ctx, name, key, func(*World) error { return at() })
}

// perform performs a side effect unless the receiver refuses it.
func perform(ctx context.Context, name, key string, receive func(*World) error) error {
	r, err := fromContext(ctx)
	if err != nil {
		return err
	}
	w := r.process.world
	occurrence := w.reach(w.current, PointEffect)
	lost := w.strike(w.current, PointEffect, occurrence, faults.Before)
	w.current.pause()
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case lost:
		return ErrNoAnswer
	}
	if err = receive(w); err == nil {
		performed := r.as(journal.EffectPerformed)
		performed.Name, performed.Key = name, key
		w.record(performed)
	}
	if w.strike(w.current, PointEffect, occurrence, faults.Unanswered) {
		err = ErrNoAnswer
	}
	w.current.pause()
	w.strike(w.current, PointEffect, occurrence, faults.After)
	return err
}

// Sleep lets virtual time pass inside a handler. It returns early with the cause when ctx is done.
func Sleep(ctx context.Context, wait time.Duration) error {
	r, err := fromContext(ctx)
	if err != nil {
		return err
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	r.process.world.current.sleep(ctx, max(0, wait), nil)
	return context.Cause(ctx)
}
