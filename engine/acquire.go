package engine

import (
	"context"
	"errors"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/fencepost-sim/fencepost/engine/store"
	"github.com/fencepost-sim/fencepost/internal/defect"
)

// acquire leases one attempt that is due, trying the topics in turn. It returns nil if there is none. The trouble of one topic is
// not the others': the errors say what could not be looked at, also if there is an execution.
func (e *Engine) acquire(ctx context.Context, owner string, ticket ticket) (*execution, error) {
	var failures error
	for _, topic := range e.rotated(&e.claimTurn) {
		if topic.running >= topic.options.MaxConcurrency {
			topic.skipped = true
			continue
		}
		if !e.defects.Has(defect.SlotAfterClaim) {
			topic.running++ // the slot is taken before the first call gives the turn away
		}
		claim := e.claimUnordered
		if !topic.options.Unordered {
			claim = e.claimOrdered
		}
		execution, err := claim(ctx, topic, owner)
		failures = errors.Join(failures, err)
		if e.defects.Has(defect.SlotAfterClaim) {
			topic.running++
		}
		if execution != nil {
			return execution, failures
		}
		e.freeSlot(topic, e.work.added > ticket.added)
	}
	return nil, failures
}

// claimUnordered takes any attempt of the topic that is due. Crash windows 9 and 10.
func (e *Engine) claimUnordered(ctx context.Context, topic *topicState, owner string) (*execution, error) {
	return e.claim(ctx, topic, owner, PointAttemptClaim, bson.D{
		is("consumerGroup", e.options.ConsumerGroup),
		is("topic", topic.name),
	})
}

// claim leases the first due attempt that the filter matches, and makes sure that it may run.
func (e *Engine) claim(ctx context.Context, topic *topicState, owner string, point store.Point, which bson.D) (*execution, error) {
	x := &execution{engine: e, topic: topic, token: e.host.NewID(), signal: e.host.NewSignal()}
	x.deadline = e.deadline(e.host.Monotonic())
	reply, err := e.run(ctx, store.Command{
		Point: point, Kind: store.FindAndModify, Collection: e.collections.history,
		Filter: append(which,
			is("status", statusPending),
			is("lockToken", absent),
			expired("nextAttemptAt")),
		Sort: bson.D{is("nextAttemptAt", int32(1)), is("createdAt", int32(1))},
		Pipeline: []bson.D{{is("$set", bson.D{
			is("startedAt", "$$NOW"),
			is("lockOwner", owner),
			is("lockToken", x.token),
			is("lockedAt", "$$NOW"),
			is("lockedUntil", e.leaseEnd()),
			is("heartbeatAt", "$$NOW"),
		})}},
	})
	if err != nil {
		// It may have been applied: give it back by the token, which only we know (W11).
		e.report(e.releaseToken(ctx, topic, x.token))
		return nil, err
	}
	if reply.Document == nil {
		return nil, nil
	}
	x.attempt = decodeAttempt(reply.Document)
	if err := x.admit(ctx); err != nil || x.refused {
		return nil, err
	}
	return x, nil
}

// admit checks that the claimed attempt belongs to a delivery that is still open, and that this process still wants it.
// If not, it gives the attempt back, or closes it.
func (x *execution) admit(ctx context.Context) error {
	e := x.engine
	found, err := e.findOne(ctx, store.Command{
		Point: PointAttemptDelivery, Collection: e.collections.deliveries,
		Filter: bson.D{is("_id", x.attempt.deliveryID)},
	})
	switch {
	case err != nil:
		x.refuse(ctx)
		return err
	case !x.topic.subscribed || e.closing:
		x.refuse(ctx)
		return nil
	case found == nil:
		x.refused = true
		return x.closeLeftover(ctx, "")
	}
	x.delivery = decodeDelivery(found)
	if x.delivery.status != statusPending {
		x.refused = true
		return x.closeLeftover(ctx, x.delivery.status)
	}
	return nil
}

// refuse gives a claimed attempt back without having run it: no attempt is spent.
func (x *execution) refuse(ctx context.Context) {
	x.refused = true
	x.engine.report(x.engine.releaseToken(ctx, x.topic, x.token))
}

// releaseToken takes the lock from whatever pending attempt carries the token. It is fenced by the token, so an attempt that
// was reaped meanwhile stays as it is.
func (e *Engine) releaseToken(ctx context.Context, topic *topicState, token string) error {
	_, err := e.run(ctx, store.Command{
		Point: PointAttemptRelease, Kind: store.Update, Collection: e.collections.history,
		Filter: bson.D{
			is("consumerGroup", e.options.ConsumerGroup),
			is("topic", topic.name),
			is("status", statusPending),
			is("lockToken", token),
		},
		Update: bson.D{is("$unset", bson.D{
			is("startedAt", ""), is("lockOwner", ""), is("lockToken", ""),
			is("lockedAt", ""), is("lockedUntil", ""), is("heartbeatAt", ""),
		})},
	})
	return err
}
