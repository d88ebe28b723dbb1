package engine

import (
	"context"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/fencepost-sim/fencepost/engine/store"
)

// agreeTries bounds how often a replica looks again because another has replaced the policy meanwhile.
const agreeTries = 10

// agree finds out what policy the group has for the topic, and replaces it if the wanted one has a higher version: the higher wins, and equal
// versions that differ are refused.
func (e *Engine) agree(ctx context.Context, topic string, wanted policy) (stored subscriptionDocument, err error) {
	for range agreeTries {
		stored, err = e.ensureSubscription(ctx, topic, wanted)
		switch {
		case err != nil:
			return stored, err
		case !stored.policy.compatible(wanted):
			return stored, e.refusedPolicy(topic, wanted, stored.policy, "; ordered and delivery can only change with another consumer group")
		case wanted.version < stored.policy.version, stored.policy.same(wanted):
			return stored, nil
		case wanted.version == stored.policy.version:
			return stored, e.refusedPolicy(topic, wanted, stored.policy, "; or a higher SubscribeOptions.Version, to replace it")
		}
		replaced, err := e.replacePolicy(ctx, stored, wanted)
		if err != nil || replaced {
			stored.policy = wanted
			return stored, err
		}
	}
	return stored, fmt.Errorf("fencepost: the policy of group %s for topic %s is being replaced by others all the time", e.options.ConsumerGroup, topic)
}

// replacePolicy writes the wanted policy in the place of the stored one, unless somebody else has replaced that. Crash window: before it the old
// one holds, after it the new one.
func (e *Engine) replacePolicy(ctx context.Context, stored subscriptionDocument, wanted policy) (replaced bool, err error) {
	version := is("configVersion", stored.policy.version)
	if stored.policy.version == 0 {
		version = is("configVersion", bson.D{is("$in", bson.A{nil, int64(0)})}) // Pulse 4.4.3 does not write it
	}
	reply, err := e.run(ctx, store.Command{
		Point: PointSubscriptionReplace, Kind: store.Update, Collection: e.collections.subscriptions,
		Filter: bson.D{is("_id", stored.id), version},
		Update: bson.D{
			is("$set", bson.D{
				is("offsetReset", wanted.offsetReset),
				is("maxRetries", wanted.maxRetries),
				is("retryDelayMs", wanted.retryDelay),
				is("retryBackoffMultiplier", wanted.multiplier),
				is("historyRetentionMs", wanted.retention),
				is("configVersion", wanted.version),
			}),
			is("$currentDate", bson.D{is("updatedAt", true)}),
		},
	})
	return reply.Matched > 0, err
}

// compatible tells whether replicas with these policies may run beside each other at all.
func (p policy) compatible(other policy) bool {
	return p.ordered == other.ordered && p.delivery == other.delivery
}

// same tells whether the policies say the same, as far as the stored one says anything.
func (p policy) same(wanted policy) bool {
	if p.retention == 0 {
		wanted.retention = 0
	}
	return p == wanted
}

func (e *Engine) refusedPolicy(topic string, wanted, stored policy, how string) error {
	return &ConfigurationError{
		Field:   "SubscribeOptions for topic " + topic,
		Value:   wanted.String(),
		Allowed: "what consumer group " + e.options.ConsumerGroup + " has stored: " + stored.String() + how,
	}
}

func (p policy) String() string {
	text := fmt.Sprintf("ordered: %v, offsetReset: %s, delivery: %s, maxRetries: %d, retryDelayMs: %d, retryBackoffMultiplier: %v",
		p.ordered, p.offsetReset, p.delivery, p.maxRetries, p.retryDelay, p.multiplier)
	switch p.retention {
	case 0:
	case keptForever:
		text += ", historyRetentionMs: kept for ever"
	default:
		text += fmt.Sprintf(", historyRetentionMs: %d", p.retention)
	}
	return text + fmt.Sprintf(", configVersion: %d", p.version)
}

// learn takes in the policy of a subscription that was read on the way, if it is newer.
func (t *topicState) learn(stored policy) {
	if stored.version > t.subscription.policy.version && stored.compatible(t.subscription.policy) {
		t.subscription.policy = stored
	}
}

// keepsForever tells whether history of the topic is kept for ever; otherwise after says when it goes.
func (e *Engine) keepsForever(topic *topicState) bool {
	if topic == nil || topic.subscription.policy.retention == 0 {
		return e.options.HistoryRetention == KeepForever
	}
	return topic.subscription.policy.retention == keptForever
}

// expiry is when history of the topic goes that ended at a date.
func (e *Engine) expiry(topic *topicState, ended bson.DateTime) bson.DateTime {
	if topic == nil || topic.subscription.policy.retention == 0 {
		return after(ended, e.options.HistoryRetention)
	}
	return ended + bson.DateTime(topic.subscription.policy.retention)
}
