package engine

import (
	"cmp"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/fencepost-sim/fencepost/internal/document"
)

// States of deliveries and attempts, as stored.
const (
	statusPending = "pending"
	statusSuccess = "success"
	statusError   = "error"
)

// is makes one field of a document.
func is(key string, value any) bson.E { return bson.E{Key: key, Value: value} }

var (
	absent  = bson.D{is("$exists", false)}
	present = bson.D{is("$exists", true)}
)

// eventDocument is a row of the events collection.
type eventDocument struct {
	id        string
	topic     string
	data      any
	headers   bson.D
	createdAt bson.DateTime
	sequence  bson.Timestamp
}

func decodeEvent(document bson.D) (event eventDocument) {
	for _, field := range document {
		switch field.Key {
		case "_id":
			event.id, _ = field.Value.(string)
		case "topic":
			event.topic, _ = field.Value.(string)
		case "data":
			event.data = field.Value
		case "headers":
			event.headers, _ = field.Value.(bson.D)
		case "createdAt":
			event.createdAt, _ = field.Value.(bson.DateTime)
		case "sequence":
			event.sequence, _ = field.Value.(bson.Timestamp)
		}
	}
	return event
}

// subscriptionDocument is a row of the subscriptions collection: one for each consumer group and topic, kept for ever.
type subscriptionDocument struct {
	id     string
	topic  string
	policy policy
	cursor cursor

	discoveryLockedUntil bson.DateTime
}

// policy is what the replicas of a group must agree on. It is stored with the subscription.
type policy struct {
	version     int64
	ordered     bool
	offsetReset string
	delivery    string
	maxRetries  int64
	retryDelay  int64   // milliseconds
	multiplier  float64 // of retryDelay, for each further attempt
	retention   int64   // of history, in milliseconds; keptForever; zero where a Pulse replica stored the subscription, which does not say
}

// cursor is a position in a topic: the last event that was materialized. Equal sequences are told apart by event id.
type cursor struct {
	sequence bson.Timestamp
	eventID  string
}

// compare orders positions, first by sequence, then by event id.
func (c cursor) compare(other cursor) int {
	return cmp.Or(c.sequence.Compare(other.sequence), cmp.Compare(c.eventID, other.eventID))
}

// passed tells whether the cursor is at the event or behind it.
func (c cursor) passed(sequence bson.Timestamp, eventID string) bool {
	return c.compare(cursor{sequence, eventID}) >= 0
}

func decodeSubscription(document bson.D) (s subscriptionDocument) {
	for _, field := range document {
		switch field.Key {
		case "_id":
			s.id, _ = field.Value.(string)
		case "topic":
			s.topic, _ = field.Value.(string)
		case "ordered":
			s.policy.ordered, _ = field.Value.(bool)
		case "offsetReset":
			s.policy.offsetReset, _ = field.Value.(string)
		case "delivery":
			s.policy.delivery, _ = field.Value.(string)
		case "configVersion":
			s.policy.version = integer(field.Value)
		case "historyRetentionMs":
			s.policy.retention = integer(field.Value)
		case "maxRetries":
			s.policy.maxRetries = integer(field.Value)
		case "retryDelayMs":
			s.policy.retryDelay = integer(field.Value)
		case "retryBackoffMultiplier":
			s.policy.multiplier = number(field.Value)
		case "cursorSequence":
			s.cursor.sequence, _ = field.Value.(bson.Timestamp)
		case "cursorSequenceEventId":
			s.cursor.eventID, _ = field.Value.(string)
		case "discoveryLockedUntil":
			s.discoveryLockedUntil, _ = field.Value.(bson.DateTime)
		}
	}
	return s
}

// deliveryDocument is a row of the deliveries collection: one for each consumer group and event.
type deliveryDocument struct {
	id           string
	eventID      string
	topic        string
	status       string
	createdAt    bson.DateTime
	updatedAt    bson.DateTime
	endedAt      bson.DateTime
	sequence     bson.Timestamp // of the event; zero if a Pulse replica materialized it
	hasExpiresAt bool
}

// ended is when the delivery ended; those of early Pulse versions do not say.
func (d deliveryDocument) ended() bson.DateTime {
	if d.endedAt == 0 {
		return d.updatedAt
	}
	return d.endedAt
}

func decodeDelivery(document bson.D) (d deliveryDocument) {
	for _, field := range document {
		switch field.Key {
		case "_id":
			d.id, _ = field.Value.(string)
		case "eventId":
			d.eventID, _ = field.Value.(string)
		case "topic":
			d.topic, _ = field.Value.(string)
		case "status":
			d.status, _ = field.Value.(string)
		case "createdAt":
			d.createdAt, _ = field.Value.(bson.DateTime)
		case "updatedAt":
			d.updatedAt, _ = field.Value.(bson.DateTime)
		case "endedAt":
			d.endedAt, _ = field.Value.(bson.DateTime)
		case "eventSequence":
			d.sequence, _ = field.Value.(bson.Timestamp)
		case "expiresAt":
			d.hasExpiresAt = true
		}
	}
	return d
}

// attemptDocument is a row of the history collection: one for each delivery and attempt number.
type attemptDocument struct {
	id         string
	deliveryID string
	eventID    string
	topic      string
	number     int64
	status     string
	lockToken  string
	startedAt  bson.DateTime
	endedAt    bson.DateTime
	errorCode  string
	failure    bson.D
}

func decodeAttempt(stored bson.D) (a attemptDocument) {
	for _, field := range stored {
		switch field.Key {
		case "_id":
			a.id, _ = field.Value.(string)
		case "deliveryId":
			a.deliveryID, _ = field.Value.(string)
		case "eventId":
			a.eventID, _ = field.Value.(string)
		case "topic":
			a.topic, _ = field.Value.(string)
		case "attempt":
			a.number = integer(field.Value)
		case "status":
			a.status, _ = field.Value.(string)
		case "lockToken":
			a.lockToken, _ = field.Value.(string)
		case "startedAt":
			a.startedAt, _ = field.Value.(bson.DateTime)
		case "endedAt":
			a.endedAt, _ = field.Value.(bson.DateTime)
		case "error":
			a.failure, _ = field.Value.(bson.D)
			a.errorCode = document.Text(a.failure, "code")
		}
	}
	return a
}

// list makes an array of one value of each item, for $in and $nin.
func list[T any](items []T, value func(T) string) bson.A {
	values := make(bson.A, len(items))
	for i, item := range items {
		values[i] = value(item)
	}
	return values
}

// integer reads a number that a TypeScript replica may have stored as any BSON number.
func integer(value any) int64 {
	switch n := value.(type) {
	case int32:
		return int64(n)
	case int64:
		return n
	case float64:
		return int64(n)
	}
	return 0
}

func number(value any) float64 {
	switch n := value.(type) {
	case int32:
		return float64(n)
	case int64:
		return float64(n)
	case float64:
		return n
	}
	return 0
}

func milliseconds(d time.Duration) int64 { return d.Milliseconds() }

func after(date bson.DateTime, d time.Duration) bson.DateTime {
	return date + bson.DateTime(d.Milliseconds())
}
