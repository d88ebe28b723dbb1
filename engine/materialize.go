package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/fencepost-sim/fencepost/engine/store"
)

// materialize turns events into deliveries, each with its first attempt: crash windows 4 to 6. It can be
// repeated at will, since the unique indexes keep one delivery for each group and event, and one
// attempt for each delivery and number. A delivery that is left without its attempt is completed by reconciliation.
func (e *Engine) materialize(ctx context.Context, topic *topicState, lease *discoveryLease, events []eventDocument) error {
	if len(events) > 1 { // for one, writing is as cheap as asking
		unknown, err := e.unknownEvents(ctx, events)
		if err != nil {
			return err
		}
		if len(unknown) < len(events) {
			e.work.suspect() // another replica has made attempts that we may claim
		}
		events = unknown
	}
	for batch := range slices.Chunk(events, e.options.DiscoveryBatch) {
		if e.host.Monotonic() >= lease.deadline {
			return fmt.Errorf("%w: materialization took longer than the lock timeout", ErrLeaseLost)
		}
		created, late := e.createDeliveries(ctx, lease, batch)
		if err := e.createFirstAttempts(ctx, topic, created); err != nil || late != nil {
			return errors.Join(late, err)
		}
	}
	return nil
}

// createDeliveries returns the deliveries that it has created, also if there is an error: those that exist already are their creator's.
func (e *Engine) createDeliveries(ctx context.Context, lease *discoveryLease, events []eventDocument) (created []deliveryDocument, err error) {
	deliveries := make([]deliveryDocument, len(events))
	statements := make([]store.Statement, len(events))
	for i, event := range events {
		deliveries[i] = deliveryDocument{id: e.host.NewID(), eventID: event.id, topic: event.topic, status: statusPending, createdAt: lease.now}
		statements[i] = store.Statement{
			Filter:   bson.D{is("consumerGroup", e.options.ConsumerGroup), is("eventId", event.id)},
			Pipeline: []bson.D{{is("$set", newDelivery(deliveries[i], lease, event))}},
			Upsert:   true,
		}
	}
	reply, err := e.run(ctx, store.Command{
		Point: PointDeliveryCreate, Kind: store.Update, Collection: e.collections.deliveries, Statements: statements, Unordered: true,
	})
	for i, id := range reply.Upserts {
		if id != nil {
			created = append(created, deliveries[i])
		}
	}
	if len(created) < len(events) {
		e.work.suspect()
	}
	switch {
	case store.IsDuplicateKey(err): // another replica was faster
		err = nil
	case store.HasCode(err, store.CodeConversionFailure):
		err = fmt.Errorf("%w: materialization came after the end of its lease", ErrLeaseLost)
	}
	return created, err
}

// newDelivery is the update that fills a delivery which does not exist yet and leaves one that exists alone. It is fenced by the
// database's clock: a discoverer that was paused cannot create a delivery after its lease has ended, when another may
// have discovered the event, and retention forgotten it (W4).
func newDelivery(delivery deliveryDocument, lease *discoveryLease, event eventDocument) bson.D {
	inTime := bson.D{is("$cond", bson.A{
		bson.D{is("$lt", bson.A{"$$NOW", lease.until})}, statusPending, refuseLate,
	})}
	set := bson.D{is("status", bson.D{is("$ifNull", bson.A{"$status", inTime})})}
	for _, field := range []bson.E{
		is("_id", delivery.id),
		is("topic", event.topic),
		is("eventCreatedAt", event.createdAt),
		is("eventSequence", event.sequence),
		is("createdAt", delivery.createdAt),
		is("updatedAt", delivery.createdAt),
	} {
		literal := bson.D{is("$literal", field.Value)}
		set = append(set, is(field.Key, bson.D{is("$ifNull", bson.A{"$" + field.Key, literal})}))
	}
	return set
}

// refuseLate makes the whole update fail: a text that is no number. It names a field, so that the server
// does not evaluate it ahead of time, as it does with constants.
var refuseLate = bson.D{is("$toLong", bson.D{is("$concat", bson.A{"the discovery lease is over", bson.D{is("$ifNull", bson.A{"$none", ""})}})})}

// createFirstAttempts inserts attempt number 1 of each.
func (e *Engine) createFirstAttempts(ctx context.Context, topic *topicState, deliveries []deliveryDocument) error {
	if len(deliveries) == 0 {
		return nil
	}
	documents := make([]bson.D, len(deliveries))
	for i, delivery := range deliveries {
		documents[i] = e.newAttempt(delivery, 1, delivery.createdAt, delivery.createdAt)
	}
	reply, err := e.run(ctx, store.Command{
		Point: PointAttemptCreate, Kind: store.Insert, Collection: e.collections.history, Documents: documents, Unordered: true,
	})
	e.claimable(topic, int(reply.Inserted))
	if store.IsDuplicateKey(err) {
		err = nil // somebody has repaired it already
	}
	return err
}

// createAttempt inserts attempt number n unless it exists: replicas that repair the same gap converge on one.
func (e *Engine) createAttempt(ctx context.Context, point store.Point, delivery deliveryDocument, n int64, now, due bson.DateTime) (created bool, err error) {
	_, err = e.run(ctx, store.Command{
		Point: point, Kind: store.Insert, Collection: e.collections.history,
		Documents: []bson.D{e.newAttempt(delivery, n, now, due)},
	})
	if store.IsDuplicateKey(err) {
		return false, nil
	}
	return err == nil, err
}

func (e *Engine) newAttempt(delivery deliveryDocument, n int64, now, due bson.DateTime) bson.D {
	return bson.D{
		is("_id", e.host.NewID()),
		is("deliveryId", delivery.id),
		is("eventId", delivery.eventID),
		is("consumerGroup", e.options.ConsumerGroup),
		is("topic", delivery.topic),
		is("attempt", n),
		is("status", statusPending),
		is("createdAt", now),
		is("nextAttemptAt", due),
	}
}
