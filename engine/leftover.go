package engine

import (
	"context"
	"errors"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/fencepost-sim/fencepost/engine/store"
)

// A leftover is an attempt that nobody will ever need: its delivery has ended, or retention has removed it. One comes to be
// when a process that repairs a delivery is paused between reading and writing, for so long that meanwhile the delivery was
// finished, and forgotten. It can do no harm, since a worker looks at the delivery before it starts a handler; but in an ordered topic no
// worker would ever look at it, and it would stay for ever (W23).

// sweep ends the leftovers among the attempts that have been due for longer than a lock timeout, the next few in each pass. One that
// was claimed, by a worker that died before it could look at the delivery, is a leftover too when its lease is over.
func (e *Engine) sweep(ctx context.Context) error {
	overdue, err := e.overdueAttempts(ctx)
	if err != nil || len(overdue) == 0 {
		return err
	}
	ids := list(overdue, func(attempt attemptDocument) string { return attempt.deliveryID })
	reply, err := e.run(ctx, store.Command{
		Point: PointLeftoverDeliveries, Kind: store.Find, Collection: e.collections.deliveries,
		Filter: bson.D{is("_id", bson.D{is("$in", ids)})},
	})
	if err != nil {
		return err
	}
	status := map[string]string{} // looked up by key, never iterated
	for _, delivery := range decodeDeliveries(reply.Documents) {
		status[delivery.id] = delivery.status
	}
	var failures []error
	for _, attempt := range overdue {
		if status[attempt.deliveryID] != statusPending {
			failures = append(failures, e.endLeftover(ctx, attempt, status[attempt.deliveryID]))
		}
	}
	return errors.Join(failures...)
}

func (e *Engine) overdueAttempts(ctx context.Context) ([]attemptDocument, error) {
	reply, err := e.run(ctx, store.Command{
		Point: PointLeftoverScan, Kind: store.Find, Collection: e.collections.history,
		Filter: bson.D{
			is("consumerGroup", e.options.ConsumerGroup),
			is("topic", bson.D{is("$in", e.topicNames())}),
			is("status", statusPending),
			is("_id", bson.D{is("$gt", e.sweptTo)}),
			is("$expr", bson.D{is("$and", bson.A{
				bson.D{is("$lte", bson.A{"$lockedUntil", "$$NOW"})}, // or absent
				bson.D{is("$lte", bson.A{"$nextAttemptAt",
					bson.D{is("$subtract", bson.A{"$$NOW", milliseconds(e.options.LockTimeout)})}})},
			})}),
		},
		Sort:  bson.D{is("_id", int32(1))},
		Limit: int64(e.options.ReconcileBatch),
	})
	if err != nil {
		return nil, err
	}
	attempts := make([]attemptDocument, len(reply.Documents))
	for i, document := range reply.Documents {
		attempts[i] = decodeAttempt(document)
	}
	e.sweptTo = ""
	if len(attempts) == e.options.ReconcileBatch {
		e.sweptTo = attempts[len(attempts)-1].id
	}
	return attempts, nil
}

// endLeftover is fenced against a worker that has claimed the attempt meanwhile: that one will find the same.
func (e *Engine) endLeftover(ctx context.Context, attempt attemptDocument, delivery string) error {
	token := is("lockToken", absent)
	if attempt.lockToken != "" {
		token = is("lockToken", attempt.lockToken)
	}
	reply, err := e.run(ctx, store.Command{
		Point: PointLeftoverEnd, Kind: store.FindAndModify, Collection: e.collections.history,
		Filter:   bson.D{is("_id", attempt.id), is("status", statusPending), token, expired("lockedUntil")},
		Pipeline: completion(statusError, leftoverFailure(delivery)),
	})
	if err != nil || reply.Document == nil {
		return err
	}
	ended := decodeAttempt(reply.Document)
	return e.expireLeftover(ctx, ended)
}

// leftoverFailure says why the attempt was ended; the status is that of its delivery, empty if there is none.
func leftoverFailure(delivery string) *failure {
	if delivery == "" {
		return &failure{code: CodeDeliveryMissing, name: "Leftover", message: "the delivery was removed by retention"}
	}
	return &failure{code: CodeAlreadyTerminal, name: "Leftover", message: "the delivery had ended as " + delivery}
}
