package engine

import (
	"context"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/fencepost-sim/fencepost/engine/store"
	"github.com/fencepost-sim/fencepost/internal/defect"
)

// repairUndated gives ended deliveries and all their attempts one expiry date, a batch at a time. The attempts come first: as long as the
// delivery has no date, a later pass knows that there is something left to do. Crash windows 19, 20 and 26.
//
// A delivery is what keeps its event from being discovered again, so it gets its date only when the group's cursor has passed
// the event (W5). Who moves the cursor looks for what has waited for that. It reports whether it has dated some and there may be more.
func (e *Engine) repairUndated(ctx context.Context) (more bool, err error) {
	forgetful := bson.A{}
	for _, topic := range e.topics {
		if topic.subscribed && !e.keepsForever(topic) {
			forgetful = append(forgetful, topic.name)
		}
	}
	if len(forgetful) == 0 {
		return false, nil
	}
	deliveries, err := e.scanUndated(ctx, forgetful)
	if err != nil {
		e.undated = true
		return false, err
	}
	full := len(deliveries) == e.options.ReconcileBatch
	ready := slices.DeleteFunc(slices.Clone(deliveries), func(delivery deliveryDocument) bool { return !e.mayForget(delivery) })
	e.undated = full
	if len(ready) == 0 {
		return false, nil
	}
	writes := []func(context.Context, []deliveryDocument) error{e.dateAttempts, e.dateDeliveries}
	if e.defects.Has(defect.RetentionSwapped) {
		slices.Reverse(writes)
	}
	for _, write := range writes {
		if err := write(ctx, ready); err != nil {
			e.undated = true
			return false, err
		}
	}
	return full, nil
}

// mayForget tells whether the cursor has passed the event. A delivery that a Pulse replica has made does not say where its event stands:
// it gets its date at once, as from Pulse.
func (e *Engine) mayForget(delivery deliveryDocument) bool {
	topic := e.topicState(delivery.topic)
	passed := topic != nil && (delivery.sequence.IsZero() || topic.cursor.passed(delivery.sequence, delivery.eventID))
	return passed || e.defects.Has(defect.DateEarly)
}

func (e *Engine) scanUndated(ctx context.Context, topics bson.A) ([]deliveryDocument, error) {
	reply, err := e.run(ctx, store.Command{
		Point: PointReconcileUndated, Kind: store.Find, Collection: e.collections.deliveries,
		Filter: bson.D{
			is("expiresAt", absent),
			is("consumerGroup", e.options.ConsumerGroup),
			is("topic", bson.D{is("$in", topics)}),
			is("status", bson.D{is("$in", bson.A{statusSuccess, statusError})}),
			is("_id", bson.D{is("$gt", e.undatedFrom)}),
		},
		Sort:  bson.D{is("_id", int32(1))},
		Limit: int64(e.options.ReconcileBatch),
	})
	if err != nil {
		return nil, err
	}
	deliveries := decodeDeliveries(reply.Documents)
	e.undatedFrom = ""
	if len(deliveries) == e.options.ReconcileBatch {
		e.undatedFrom = deliveries[len(deliveries)-1].id
	}
	return deliveries, nil
}

func (e *Engine) dateAttempts(ctx context.Context, deliveries []deliveryDocument) error {
	return e.date(ctx, PointRetentionAttempts, e.collections.history, deliveries, func(delivery deliveryDocument) store.Statement {
		return e.expireAttempts(delivery.id, e.expiry(e.topicState(delivery.topic), delivery.ended()))
	})
}

func (e *Engine) dateDeliveries(ctx context.Context, deliveries []deliveryDocument) error {
	return e.date(ctx, PointRetentionDelivery, e.collections.deliveries, deliveries, func(delivery deliveryDocument) store.Statement {
		return store.Statement{
			Filter: bson.D{is("_id", delivery.id), is("status", delivery.status), is("expiresAt", absent)},
			Update: bson.D{is("$set", bson.D{is("expiresAt", e.expiry(e.topicState(delivery.topic), delivery.ended()))})},
		}
	})
}

func (e *Engine) date(ctx context.Context, point store.Point, collection string, deliveries []deliveryDocument, write func(deliveryDocument) store.Statement) error {
	statements := make([]store.Statement, len(deliveries))
	for i, delivery := range deliveries {
		statements[i] = write(delivery)
	}
	_, err := e.run(ctx, store.Command{Point: point, Kind: store.Update, Collection: collection, Statements: statements, Unordered: true})
	return err
}

// expireAttempts dates the attempts of an ended delivery that have ended; one that is left over is dated when it is ended (W23).
func (e *Engine) expireAttempts(deliveryID string, expires bson.DateTime) store.Statement {
	return store.Statement{
		Filter: bson.D{is("deliveryId", deliveryID), is("status", bson.D{is("$in", bson.A{statusSuccess, statusError})})},
		Update: bson.D{is("$set", bson.D{is("expiresAt", expires)})},
		Multi:  true,
	}
}

// expireLeftover dates an attempt whose delivery has ended or is gone.
func (e *Engine) expireLeftover(ctx context.Context, attempt attemptDocument) error {
	topic := e.topicState(attempt.topic)
	if e.keepsForever(topic) {
		return nil
	}
	_, err := e.run(ctx, store.Command{
		Point: PointRetentionAttempts, Kind: store.Update, Collection: e.collections.history,
		Statements: []store.Statement{e.expireAttempts(attempt.deliveryID, e.expiry(topic, attempt.endedAt))},
	})
	return err
}
