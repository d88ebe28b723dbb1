package engine

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// Topic names a kind of event and the Go type of its data. Any type that BSON can hold will do.
type Topic[T any] struct {
	name string
}

// NewTopic returns the topic with the name. Two topics with one name are the same topic.
func NewTopic[T any](name string) Topic[T] { return Topic[T]{name} }

// Name returns the topic's name.
func (t Topic[T]) Name() string { return t.name }

// Event is what a handler gets.
type Event[T any] struct {
	// ID is the same in every attempt and every replica: use it as idempotency key.
	ID        string
	Topic     string
	Data      T
	Headers   map[string]string
	CreatedAt time.Time // the publisher's clock
	// Attempt counts from 1.
	Attempt       int
	DeliveryID    string
	ConsumerGroup string
}

// Handler does the work for one event. An error, a panic, or a runtime.Goexit makes the attempt fail, and the next is
// made after the retry delay. When ctx is done the lease is lost, or the engine gives up closing; context.Cause tells which.
type Handler[T any] func(ctx context.Context, event Event[T]) error

// PublishOptions configures one publication.
type PublishOptions struct {
	Headers map[string]string
}

// Publish stores an event and returns its ID. When it returns without an error the event is durable, and every group that
// is subscribed gets it.
//
// If the outcome of the write is unknown (a lost connection), Publish sends the same event again under the same ID, which
// cannot store it twice. If it still fails, the event may or may not be stored, and publishing again makes a second event
// with another ID.
func (t Topic[T]) Publish(ctx context.Context, e *Engine, data T, options ...PublishOptions) (id string, err error) {
	if err := checkTopic(t.name); err != nil {
		return "", err
	}
	kind, bytes, err := bson.MarshalValue(data)
	if err != nil {
		return "", fmt.Errorf("fencepost: topic %s: data cannot be stored as BSON: %w", t.name, err)
	}
	headers := map[string]string{}
	for _, option := range options {
		maps.Copy(headers, option.Headers)
	}
	ctx, span := e.publishSpan(ctx, t.name, headers)
	e.host.Enter(func() {
		id, err = e.publish(ctx, t.name, bson.RawValue{Type: kind, Value: bytes}, headers)
	})
	problem := ""
	if err != nil {
		problem = err.Error()
	}
	endSpan(span, problem)
	return id, err
}

// Subscribe makes the engine call the handler for the events of the topic. One process subscribes to a topic once.
//
// The first Subscribe of a group fixes the position and the policy of all its replicas; a replica with another policy gets a
// *ConfigurationError.
func (t Topic[T]) Subscribe(ctx context.Context, e *Engine, options SubscribeOptions, handler Handler[T]) (subscription *Subscription, err error) {
	if err := checkTopic(t.name); err != nil {
		return nil, err
	}
	if handler == nil {
		return nil, &ConfigurationError{"handler", nil, "a function"}
	}
	options, err = options.withDefaults(e.options.Workers)
	if err != nil {
		return nil, err
	}
	deliver := func(ctx context.Context, stored eventDocument, attempt attemptDocument) error {
		event, err := decode[T](e.options.ConsumerGroup, stored, attempt)
		if err != nil {
			return err
		}
		return handler(ctx, event)
	}
	e.host.Enter(func() { subscription, err = e.subscribe(ctx, t.name, options, deliver) })
	return subscription, err
}

// deliverFunc is a handler whose type parameter is hidden.
type deliverFunc func(context.Context, eventDocument, attemptDocument) error

func decode[T any](group string, stored eventDocument, attempt attemptDocument) (event Event[T], err error) {
	event = Event[T]{
		ID:            stored.id,
		Topic:         stored.topic,
		CreatedAt:     stored.createdAt.Time(),
		Attempt:       int(attempt.number),
		DeliveryID:    attempt.deliveryID,
		ConsumerGroup: group,
	}
	if len(stored.headers) > 0 {
		event.Headers = make(map[string]string, len(stored.headers))
		for _, header := range stored.headers {
			event.Headers[header.Key], _ = header.Value.(string)
		}
	}
	kind, bytes, err := bson.MarshalValue(stored.data)
	if err == nil {
		err = bson.RawValue{Type: kind, Value: bytes}.Unmarshal(&event.Data)
	}
	if err != nil {
		return event, fmt.Errorf("fencepost: topic %s: event %s does not fit %T: %w", stored.topic, stored.id, event.Data, err)
	}
	return event, nil
}

func checkTopic(name string) error {
	if strings.TrimSpace(name) == "" {
		return &ConfigurationError{"topic", name, "a name that is not blank; make topics with NewTopic"}
	}
	return nil
}
