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
	for _, event := range events {
		// A discoverer that was paused must not write on (W4).
		if e.host.Monotonic() >= lease.deadline {
			return fmt.Errorf("%w: materialization took longer than the lock timeout", ErrLeaseLost)
		}
		if err := e.materializeOne(ctx, lease.now, event); err != nil {
			return err
		}
	}
	return nil
}

func (e *Engine) materializeOne(ctx context.Context, now bson.DateTime, event eventDocument) error {
	delivery := deliveryDocument{id: e.host.NewID(), eventID: event.id, topic: event.topic, status: statusPending, createdAt: now}
	_, err := e.run(ctx, store.Command{
		Point: PointDeliveryCreate, Kind: store.Insert, Collection: e.collections.deliveries,
		Documents: []bson.D{{
			is("_id", delivery.id),
			is("eventId", event.id),
			is("consumerGroup", e.options.ConsumerGroup),
			is("topic", event.topic),
			is("eventCreatedAt", event.createdAt),
			is("eventSequence", event.sequence),
			is("status", statusPending),
			is("createdAt", now),
			is("updatedAt", now),
		}},
	})
	switch {
	case store.IsDuplicateKey(err):
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
	case err != nil:
		return err
	}
	_, err = e.createAttempt(ctx, PointAttemptCreate, delivery, 1, delivery.createdAt, delivery.createdAt)
	return err
}

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
