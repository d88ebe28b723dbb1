package engine

import (
	"context"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/fencepost-sim/fencepost/engine/store"
)

// Subscription is a topic that this process consumes.
type Subscription struct {
	engine  *Engine
	topic   *topicState
	options SubscribeOptions
}

// Topic returns the name of the topic.
func (s *Subscription) Topic() string { return s.topic.name }

// Options returns the options with all defaults filled in; MaxRetries and RetryDelay are the real numbers, zero
// meaning none.
func (s *Subscription) Options() SubscribeOptions { return s.options }

// Unsubscribe stops this process from taking more work of the topic. Handlers that run go on. The group keeps its
// position: what is published meanwhile is delivered after the next Subscribe. Calling it again does nothing.
func (s *Subscription) Unsubscribe() {
	s.engine.host.Enter(func() { s.topic.subscribed = false })
}

func (e *Engine) subscribe(ctx context.Context, name string, options SubscribeOptions, deliver deliverFunc) (*Subscription, error) {
	if e.closing {
		return nil, ErrClosed
	}
	topic := e.topicState(name)
	if topic == nil {
		topic = &topicState{name: name}
		e.topics = append(e.topics, topic)
	}
	if topic.subscribed || topic.subscribing {
		return nil, &ConfigurationError{"topic", name, "a topic to which this process is not subscribed yet"}
	}
	topic.subscribing = true // taken before the first call gives the turn away
	defer func() { topic.subscribing = false }()

	stored, err := e.agree(ctx, name, options.policy(e.options.HistoryRetention))
	if err != nil {
		return nil, err
	}
	options.adopt(stored.policy)
	topic.subscription, topic.cursor = stored, stored.cursor
	topic.options, topic.deliver, topic.subscribed = options, deliver, true
	topic.nextMark = e.host.Monotonic() + e.options.PollInterval
	e.nextPass = e.host.Monotonic() // look at once for what crashes left behind
	e.wakeCoordinator()
	return &Subscription{e, topic, options}, nil
}

// ensureSubscription finds or creates the group's subscription; replicas that race agree on one by the unique index.
// Crash window 2.
func (e *Engine) ensureSubscription(ctx context.Context, topic string, wanted policy) (subscriptionDocument, error) {
	if stored, err := e.findSubscription(ctx, topic); stored != nil || err != nil {
		return decodeSubscription(stored), err
	}
	document, err := e.newSubscription(ctx, topic, wanted)
	if err != nil {
		return subscriptionDocument{}, err
	}
	_, err = e.run(ctx, store.Command{
		Point: PointSubscriptionCreate, Kind: store.Insert, Collection: e.collections.subscriptions,
		Documents: []bson.D{document},
	})
	if err != nil && !store.IsDuplicateKey(err) {
		return subscriptionDocument{}, err
	}
	stored, err := e.findSubscription(ctx, topic)
	if err == nil && stored == nil {
		err = fmt.Errorf("fencepost: the subscription of group %s to topic %s vanished while it was created",
			e.options.ConsumerGroup, topic)
	}
	return decodeSubscription(stored), err
}

// ensureStillSubscribed stores the group's subscription again if somebody has deleted it, from where this process has seen the cursor:
// without it every worker of the group would wait for ever, in silence (W22). The error that it returns then is for OnError.
//
// It is called when a lease of the topic is not to be had, and looks once in a poll interval.
func (e *Engine) ensureStillSubscribed(ctx context.Context, topic *topicState) error {
	now := e.host.Monotonic()
	if now < topic.nextCheck {
		return nil
	}
	topic.nextCheck = now + e.options.PollInterval
	found, err := e.findSubscription(ctx, topic.name)
	if err != nil || found != nil {
		if stored := decodeSubscription(found); found != nil {
			topic.subscription.id = stored.id // another replica may have stored it again
		}
		return err
	}
	document := append(e.subscriptionFields(topic.name, topic.subscription.policy),
		is("cursorSequence", topic.cursor.sequence), is("cursorSequenceEventId", topic.cursor.eventID))
	_, err = e.run(ctx, store.Command{
		Point: PointSubscriptionCreate, Kind: store.Insert, Collection: e.collections.subscriptions,
		Documents: []bson.D{document},
	})
	if err != nil && !store.IsDuplicateKey(err) {
		return err
	}
	e.wakeCoordinator()
	return fmt.Errorf("fencepost: the subscription of group %s to topic %s was deleted; it is stored again from the last position that this process knows",
		e.options.ConsumerGroup, topic.name)
}

func (e *Engine) findSubscription(ctx context.Context, topic string) (bson.D, error) {
	return e.findOne(ctx, store.Command{
		Point: PointSubscriptionFind, Collection: e.collections.subscriptions,
		Filter: bson.D{is("consumerGroup", e.options.ConsumerGroup), is("topic", topic)},
	})
}

func (e *Engine) newSubscription(ctx context.Context, topic string, wanted policy) (bson.D, error) {
	document := e.subscriptionFields(topic, wanted)
	if wanted.offsetReset == string(Earliest) {
		return document, nil
	}
	latest, err := e.findOne(ctx, store.Command{
		Point: PointSubscriptionLatest, Collection: e.collections.events,
		Filter: bson.D{is("topic", topic), is("sequence", present)},
		Sort:   bson.D{is("sequence", int32(-1)), is("_id", int32(-1))},
	})
	if err != nil || latest == nil {
		return document, err
	}
	event := decodeEvent(latest)
	return append(document, is("cursorSequence", event.sequence), is("cursorSequenceEventId", event.id)), nil
}

func (e *Engine) subscriptionFields(topic string, wanted policy) bson.D {
	now := bson.NewDateTimeFromTime(e.host.Now())
	return bson.D{
		is("_id", e.host.NewID()),
		is("consumerGroup", e.options.ConsumerGroup),
		is("topic", topic),
		is("ordered", wanted.ordered),
		is("offsetReset", wanted.offsetReset),
		is("delivery", wanted.delivery),
		is("maxRetries", wanted.maxRetries),
		is("retryDelayMs", wanted.retryDelay),
		is("retryBackoffMultiplier", wanted.multiplier),
		is("historyRetentionMs", wanted.retention),
		is("configVersion", wanted.version),
		is("createdAt", now),
		is("updatedAt", now),
	}
}
