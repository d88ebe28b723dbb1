package engine

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/fencepost-sim/fencepost/engine/store"
)

// reap ends one attempt whose lease has expired, and creates what follows. Finding and ending it is one
// command, so a heartbeat cannot come between. Crash windows 28 and 29.
func (e *Engine) reap(ctx context.Context) (reaped bool, err error) {
	reply, err := e.run(ctx, store.Command{
		Point: PointReap, Kind: store.FindAndModify, Collection: e.collections.history,
		Filter: bson.D{
			is("consumerGroup", e.options.ConsumerGroup),
			is("topic", bson.D{is("$in", e.topicNames())}),
			is("status", statusPending),
			is("lockToken", present),
			expired("lockedUntil"),
		},
		Sort: bson.D{is("lockedUntil", int32(1))},
		Pipeline: []bson.D{
			{is("$set", bson.D{
				is("status", statusError),
				is("endedAt", "$$NOW"),
				is("durationMs", bson.D{is("$subtract", bson.A{"$$NOW", "$startedAt"})}),
				is("error", bson.D{is("$literal", reapedFailure)}),
			})},
			{is("$unset", bson.A{"expiresAt"})},
		},
	})
	if err != nil || reply.Document == nil {
		return false, err
	}
	lost := decodeAttempt(reply.Document)
	e.telemetry.reaped.Add(ctx, 1, e.labels(lost.topic))
	e.attemptEnded(lost)
	found, err := e.findOne(ctx, store.Command{
		Point: PointReapDelivery, Collection: e.collections.deliveries,
		Filter: bson.D{is("_id", lost.deliveryID)},
	})
	if err != nil {
		return true, err
	}
	delivery := decodeDelivery(found)
	if found == nil || delivery.status != statusPending {
		return true, e.expireLeftover(ctx, lost)
	}
	_, err = e.afterError(ctx, e.topicState(lost.topic), delivery, lost)
	return true, err
}
