package engine

import (
	"context"
	"errors"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.opentelemetry.io/otel/attribute"

	"github.com/fencepost-sim/fencepost/engine/store"
)

// reconcile completes deliveries that a crash left half-written. The five states and their repairs:
//
//	delivery without its first attempt     → create attempt 1
//	attempt succeeded, delivery pending    → end the delivery
//	attempt failed, nothing follows        → create exactly the next attempt, or end the delivery
//	delivery ended, no retention dates     → set them
//	discovery stopped before its cursor    → discovery itself: materializing again changes nothing
//
// It also tells what it has seen, so that an idle process need not look for anything else.
func (e *Engine) reconcile(ctx context.Context) (seen survey, err error) {
	for range reconcileBatches {
		pending, scanErr := e.scanPending(ctx)
		if scanErr != nil {
			return seen, errors.Join(err, scanErr)
		}
		found, repairErr := e.repairPending(ctx, pending)
		seen, err = seen.and(found), errors.Join(err, repairErr)
		if e.scanFrom == "" {
			return seen, err
		}
	}
	return seen.and(survey{locked: true, claimable: true}), err // the rest may hold anything
}

// survey is what a look at pending deliveries has found.
type survey struct {
	// repaired: something was changed. A repair that another replica has made meanwhile is no reason to look again at once.
	repaired  bool
	locked    bool // attempts that are leased, or were
	claimable bool // attempts that wait to be claimed, now or later
}

func (s survey) and(other survey) survey {
	return survey{s.repaired || other.repaired, s.locked || other.locked, s.claimable || other.claimable}
}

// reconcileBatches is how many batches of pending deliveries one pass examines at the most. With a longer backlog, torn deliveries
// in it wait for a later pass; the head of an ordered topic, which holds up the others, is looked at by whoever wants to claim it.
const reconcileBatches = 8

// repairHead completes the head of an ordered topic if its attempt is missing or has ended. It looks once in a poll interval: as a rule
// the head waits for its retry, or somebody runs it.
func (e *Engine) repairHead(ctx context.Context, topic *topicState, head deliveryDocument) error {
	now := e.host.Monotonic()
	if now < topic.nextRepair {
		return nil
	}
	topic.nextRepair = now + e.options.PollInterval
	_, err := e.repairPending(ctx, []deliveryDocument{head})
	return err
}

// scanPending reads the next few deliveries that have not ended, starting over at the end: healthy deliveries that wait
// for something do not hide torn ones behind them.
func (e *Engine) scanPending(ctx context.Context) ([]deliveryDocument, error) {
	reply, err := e.run(ctx, store.Command{
		Point: PointReconcileScan, Kind: store.Find, Collection: e.collections.deliveries,
		Filter: bson.D{
			is("consumerGroup", e.options.ConsumerGroup),
			is("topic", bson.D{is("$in", e.topicNames())}),
			is("status", statusPending),
			is("eventId", bson.D{is("$gt", e.scanFrom)}),
		},
		Sort:  bson.D{is("eventId", int32(1))},
		Limit: int64(e.options.ReconcileBatch),
	})
	if err != nil {
		return nil, err
	}
	deliveries := decodeDeliveries(reply.Documents)
	e.scanFrom = ""
	if len(deliveries) == e.options.ReconcileBatch {
		e.scanFrom = deliveries[len(deliveries)-1].eventID
	}
	return deliveries, nil
}

func decodeDeliveries(documents []bson.D) []deliveryDocument {
	deliveries := make([]deliveryDocument, len(documents))
	for i, document := range documents {
		deliveries[i] = decodeDelivery(document)
	}
	return deliveries
}

func (e *Engine) repairPending(ctx context.Context, pending []deliveryDocument) (seen survey, err error) {
	if len(pending) == 0 {
		return seen, nil
	}
	ids := list(pending, func(delivery deliveryDocument) string { return delivery.id })
	reply, err := e.run(ctx, store.Command{
		Point: PointReconcileAttempts, Kind: store.Find, Collection: e.collections.history,
		Filter: bson.D{is("deliveryId", bson.D{is("$in", ids)})},
		Sort:   bson.D{is("deliveryId", int32(1)), is("attempt", int32(1))},
	})
	if err != nil {
		return seen, err
	}
	attempts := map[string][]attemptDocument{} // looked up by key, never iterated
	for _, document := range reply.Documents {
		attempt := decodeAttempt(document)
		attempts[attempt.deliveryID] = append(attempts[attempt.deliveryID], attempt)
		if attempt.status == statusPending {
			seen = seen.and(survey{locked: attempt.lockToken != "", claimable: attempt.lockToken == ""})
		}
	}
	var failures []error
	for _, delivery := range pending {
		done, err := e.repairDelivery(ctx, delivery, attempts[delivery.id])
		seen.repaired = seen.repaired || done
		failures = append(failures, err)
	}
	return seen, errors.Join(failures...)
}

// repairDelivery looks at one pending delivery and its attempts in ascending order.
func (e *Engine) repairDelivery(ctx context.Context, delivery deliveryDocument, attempts []attemptDocument) (repaired bool, err error) {
	missing := ""
	switch succeeded := slices.IndexFunc(attempts, func(a attemptDocument) bool { return a.status == statusSuccess }); {
	case len(attempts) == 0:
		missing = "first attempt"
		repaired, err = e.createAttempt(ctx, PointAttemptCreate, delivery, 1, delivery.createdAt, delivery.createdAt)
		e.work.suspect()
	case succeeded >= 0:
		missing = "end after success"
		repaired, err = e.finishSuccess(ctx, attempts[succeeded])
	case attempts[len(attempts)-1].status == statusError:
		missing = "what follows an error"
		repaired, err = e.afterError(ctx, e.topicState(delivery.topic), delivery, attempts[len(attempts)-1])
	}
	if repaired {
		e.telemetry.repaired.Add(ctx, 1, e.labels(delivery.topic, attribute.String("fencepost.missing", missing)))
	}
	return repaired, err
}
