package engine

import (
	"context"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/fencepost-sim/fencepost/engine/store"
)

// materialize turns events into deliveries, each with its first attempt: crash windows 4 to 6. It can be
// repeated at will, since the unique indexes keep one delivery for each group and event, and one
// attempt for each delivery and number.
func (e *Engine) materialize(ctx context.Context, lease *discoveryLease, events []eventDocument) error {
	events, err := e.unknownEvents(ctx, events)
	if err != nil {
		return err
	}
	for _, event := range events {
		if e.host.Monotonic() >= lease.deadline {
			return fmt.Errorf("%w: materialization took longer than the lock timeout", ErrLeaseLost)
		}
		if err := e.materializeOne(ctx, lease, event); err != nil {
			return err
		}
	}
	return nil
}

func (e *Engine) materializeOne(ctx context.Context, lease *discoveryLease, event eventDocument) error {
	delivery := deliveryDocument{id: e.host.NewID(), eventID: event.id, topic: event.topic, status: statusPending, createdAt: lease.now}
	reply, err := e.run(ctx, store.Command{
		Point: PointDeliveryCreate, Kind: store.Update, Collection: e.collections.deliveries,
		Filter:   bson.D{is("consumerGroup", e.options.ConsumerGroup), is("eventId", event.id)},
		Pipeline: []bson.D{{is("$set", newDelivery(delivery, lease, event))}},
		Upsert:   true,
	})
	switch {
	case store.HasCode(err, store.CodeConversionFailure):
		return fmt.Errorf("%w: materialization came after the end of its lease", ErrLeaseLost)
	case err != nil && !store.IsDuplicateKey(err):
		return err
	case err != nil || reply.Upserted == nil:
		found, err := e.findOne(ctx, store.Command{
			Point: PointDeliveryFind, Collection: e.collections.deliveries,
			Filter: bson.D{is("consumerGroup", e.options.ConsumerGroup), is("eventId", event.id)},
		})
		if err != nil || found == nil {
			return err
		}
		if delivery = decodeDelivery(found); delivery.status != statusPending {
			return nil
		}
	}
	_, err = e.createAttempt(ctx, PointAttemptCreate, delivery, 1, delivery.createdAt, delivery.createdAt)
	return err
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

// createAttempt inserts attempt number n unless it exists: replicas that repair the same gap converge on one.
func (e *Engine) createAttempt(ctx context.Context, point store.Point, delivery deliveryDocument, n int64, now, due bson.DateTime) (created bool, err error) {
	_, err = e.run(ctx, store.Command{
		Point: point, Kind: store.Insert, Collection: e.collections.history,
		Documents: []bson.D{{
			is("_id", e.host.NewID()),
			is("deliveryId", delivery.id),
			is("eventId", delivery.eventID),
			is("consumerGroup", e.options.ConsumerGroup),
			is("topic", delivery.topic),
			is("attempt", n),
			is("status", statusPending),
			is("createdAt", now),
			is("nextAttemptAt", due),
		}},
	})
	if store.IsDuplicateKey(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	e.wakeWorkers()
	return true, nil
}
