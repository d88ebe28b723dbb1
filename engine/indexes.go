package engine

import (
	"fmt"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/fencepost-sim/fencepost/engine/store"
	"github.com/fencepost-sim/fencepost/internal/document"
)

type collectionIndexes struct {
	name    string
	indexes []store.Index
}

// indexes is the table of all indexes. Names and keys are shared with TypeScript replicas; the two unique indexes
// of deliveries and history are what makes replicas converge on one logical record.
func (e *Engine) indexes() []collectionIndexes {
	atDate := new(int32) // TTL of 0 s: expire at the date that the document holds
	up := func(fields ...string) (keys bson.D) {
		for _, field := range fields {
			keys = append(keys, is(field, int32(1)))
		}
		return keys
	}
	return []collectionIndexes{
		{e.collections.events, []store.Index{
			{Name: "pulse_events_topic_created_id", Keys: up("topic", "createdAt", "_id")},
			{Name: "pulse_events_topic_sequence_id", Keys: up("topic", "sequence", "_id")},
			{Name: "pulse_events_expires_at_ttl", Keys: up("expiresAt"), ExpireAfterSeconds: atDate},
		}},
		{e.collections.subscriptions, []store.Index{
			{Name: "pulse_subscriptions_group_topic_unique", Keys: up("consumerGroup", "topic"), Unique: true},
			{Name: "pulse_subscriptions_ordered_lease", Keys: up("consumerGroup", "orderedLockedUntil")},
			{Name: "pulse_subscriptions_discovery_lease", Keys: up("consumerGroup", "discoveryLockedUntil")},
		}},
		{e.collections.deliveries, []store.Index{
			{Name: "pulse_deliveries_group_event_unique", Keys: up("consumerGroup", "eventId"), Unique: true},
			{Name: "pulse_deliveries_acquisition", Keys: up("consumerGroup", "topic", "status", "eventCreatedAt", "eventId")},
			// Ours: the order of a topic is the order in which the database received its events, not the
			// clocks of their publishers.
			{Name: "fencepost_deliveries_sequence", Keys: up("consumerGroup", "topic", "status", "eventSequence", "eventId")},
			{Name: "pulse_deliveries_expires_at_ttl", Keys: up("expiresAt"), ExpireAfterSeconds: atDate},
		}},
		{e.collections.history, []store.Index{
			{Name: "pulse_history_delivery_attempt_unique", Keys: up("deliveryId", "attempt"), Unique: true},
			{Name: "pulse_history_group_topic_created", Keys: append(up("consumerGroup", "topic"),
				is("createdAt", int32(-1)), is("_id", int32(-1)))},
			{Name: "pulse_history_event", Keys: append(up("eventId"), is("createdAt", int32(-1)))},
			{Name: "pulse_history_dead_locks", Keys: up("status", "lockedUntil")},
			{Name: "pulse_history_pending_acquisition", Keys: up("consumerGroup", "topic", "status", "nextAttemptAt", "createdAt")},
			{Name: "pulse_history_expires_at_ttl", Keys: up("expiresAt"), ExpireAfterSeconds: atDate},
		}},
	}
}

// checkIndexes compares the indexes that exist under our names with the wanted ones. It returns those
// that do not exist, or an error about the first that differs.
func checkIndexes(collection string, wanted []store.Index, existing []bson.D) (missing []store.Index, err error) {
	for _, index := range wanted {
		actual := findIndex(existing, index.Name)
		if actual == nil {
			missing = append(missing, index)
			continue
		}
		if expected, found := describeIndex(index), describeSpecification(actual); expected != found {
			return nil, &IndexError{Collection: collection, Index: index.Name, Expected: expected, Actual: found}
		}
	}
	return missing, nil
}

func findIndex(existing []bson.D, name string) bson.D {
	for _, specification := range existing {
		if document.Text(specification, "name") == name {
			return specification
		}
	}
	return nil
}

// describeIndex and describeSpecification write an index in one canonical form, so that equal texts mean equal indexes.
func describeIndex(index store.Index) string {
	specification := bson.D{is("key", index.Keys)}
	if index.Unique {
		specification = append(specification, is("unique", true))
	}
	if index.ExpireAfterSeconds != nil {
		specification = append(specification, is("expireAfterSeconds", *index.ExpireAfterSeconds))
	}
	return describeSpecification(specification)
}

func describeSpecification(specification bson.D) string {
	var keys, ttl string
	var others []string
	for _, field := range specification {
		switch field.Key {
		case "key":
			keys = describeKeys(field.Value)
		case "expireAfterSeconds":
			ttl = fmt.Sprintf(" expireAfterSeconds: %v", number(field.Value))
		case "unique", "sparse", "hidden":
			if on, _ := field.Value.(bool); on {
				others = append(others, field.Key)
			}
		case "partialFilterExpression", "collation":
			others = append(others, field.Key)
		}
	}
	text := keys + ttl
	for _, option := range []string{"unique", "sparse", "hidden", "partialFilterExpression", "collation"} {
		for _, other := range others {
			if other == option {
				text += " " + option
			}
		}
	}
	return text
}

func describeKeys(value any) string {
	keys, _ := value.(bson.D)
	parts := make([]string, len(keys))
	for i, key := range keys {
		direction := fmt.Sprint(key.Value)
		if n := number(key.Value); n != 0 {
			direction = fmt.Sprint(n)
		}
		parts[i] = key.Key + ": " + direction
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

func indexNames(indexes []store.Index) string {
	names := make([]string, len(indexes))
	for i, index := range indexes {
		names[i] = index.Name
	}
	return strings.Join(names, ", ")
}

func describeIndexes(indexes []store.Index) string {
	texts := make([]string, len(indexes))
	for i, index := range indexes {
		texts[i] = describeIndex(index)
	}
	return strings.Join(texts, ", ")
}
