package engine

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/fencepost-sim/fencepost/engine/store"
	"github.com/fencepost-sim/fencepost/internal/defect"
)

// dateDelivery gives an ended delivery and all its attempts one expiry date. The attempts come first: as long as the delivery has no
// date, reconciliation knows that there is something left to do. Crash windows 19, 20 and 26.
//
// A delivery is what keeps its event from being discovered again, so it gets its date only when the group's cursor has passed
// the event (W5); until then reconciliation comes back to it. It reports whether the date is set.
func (e *Engine) dateDelivery(ctx context.Context, delivery deliveryDocument) (dated bool, err error) {
	if e.options.HistoryRetention == KeepForever {
		return false, nil
	}
	topic := e.topicState(delivery.topic)
	passed := topic != nil && topic.cursor.passed(delivery.sequence, delivery.eventID)
	if !passed && !e.defects.Has(defect.DateEarly) {
		return false, nil
	}
	ended := delivery.endedAt
	if ended == 0 {
		ended = delivery.updatedAt // deliveries of early Pulse versions have no endedAt
	}
	if err := e.writeDates(ctx, delivery, ended); err != nil {
		return false, err
	}
	return true, nil
}

func (e *Engine) writeDates(ctx context.Context, delivery deliveryDocument, ended bson.DateTime) error {
	if e.defects.Has(defect.RetentionSwapped) {
		if err := e.expireDelivery(ctx, delivery, ended); err != nil {
			return err
		}
		return e.expireAttempts(ctx, delivery.id, ended)
	}
	if err := e.expireAttempts(ctx, delivery.id, ended); err != nil {
		return err
	}
	return e.expireDelivery(ctx, delivery, ended)
}

func (e *Engine) expireDelivery(ctx context.Context, delivery deliveryDocument, ended bson.DateTime) error {
	_, err := e.run(ctx, store.Command{
		Point: PointRetentionDelivery, Kind: store.Update, Collection: e.collections.deliveries,
		Filter: bson.D{is("_id", delivery.id), is("status", delivery.status), is("expiresAt", absent)},
		Update: bson.D{is("$set", bson.D{is("expiresAt", after(ended, e.options.HistoryRetention))})},
	})
	return err
}

// expireAttempts dates the attempts of an ended delivery that have ended; one that is left over is dated when it is ended (W23).
func (e *Engine) expireAttempts(ctx context.Context, deliveryID string, ended bson.DateTime) error {
	if e.options.HistoryRetention == KeepForever {
		return nil
	}
	_, err := e.run(ctx, store.Command{
		Point: PointRetentionAttempts, Kind: store.Update, Collection: e.collections.history, Multi: true,
		Filter: bson.D{is("deliveryId", deliveryID), is("status", bson.D{is("$in", bson.A{statusSuccess, statusError})})},
		Update: bson.D{is("$set", bson.D{is("expiresAt", after(ended, e.options.HistoryRetention))})},
	})
	return err
}
