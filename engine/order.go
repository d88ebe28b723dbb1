package engine

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/fencepost-sim/fencepost/engine/store"
	"github.com/fencepost-sim/fencepost/internal/defect"
)

// claimOrdered takes the attempt of the topic's head, the oldest delivery that has not ended, under the topic's ordering
// lease: crash windows 11 to 13. It never skips the head, so an event that waits for its retry holds up the topic.
func (e *Engine) claimOrdered(ctx context.Context, topic *topicState, owner string) (*execution, error) {
	// Without a head there is no need for the lease. Whether its attempt is due, only the claim asks.
	head, err := e.head(ctx, topic, PointOrderPeek)
	if err != nil || head == nil {
		return nil, err
	}
	lease, err := e.leaseOrder(ctx, topic)
	if err != nil {
		return nil, err
	}
	if lease == nil {
		return nil, e.ensureStillSubscribed(ctx, topic) // usually somebody else is at it
	}
	x, err := e.claimHead(ctx, topic, owner, lease)
	if x == nil {
		e.report(e.releaseOrder(ctx, topic, lease.token))
	}
	return x, err
}

// following claims the next head of an ordered topic under the lease that the execution before it held, as long as nothing else
// waits for a worker; otherwise the topics take turns. In the end it gives the lease back.
func (e *Engine) following(x *execution, owner string, failed error) (next *execution, err error) {
	if x.order == nil {
		return nil, nil
	}
	topic := x.topic
	goOn := failed == nil && !e.closing && topic.subscribed
	// Short handlers have no heartbeats, so the lease grows old. With half of it left there is time for the first.
	fresh := e.host.Monotonic()+e.options.LockTimeout/2 < x.order.deadline || e.defects.Has(defect.OldOrderLease)
	switch {
	case goOn && (e.work.waiting() || !fresh):
		e.work.suspect() // the topic has its turn again
	case goOn:
		next, err = e.claimHead(e.context, topic, owner, x.order)
	}
	if next == nil {
		e.report(e.releaseOrder(e.context, topic, x.order.token))
	}
	return next, err
}

type orderLease struct {
	token    string
	deadline deadlineTime
}

func (e *Engine) claimHead(ctx context.Context, topic *topicState, owner string, lease *orderLease) (*execution, error) {
	head, err := e.head(ctx, topic, PointOrderHead) // under the lease: it may have changed before
	if err != nil || head == nil {
		return nil, err
	}
	x, err := e.claim(ctx, topic, owner, PointOrderClaim, bson.D{is("deliveryId", head.id)})
	if x == nil {
		if err == nil {
			err = e.repairHead(ctx, topic, *head)
		}
		return nil, err
	}
	x.order = lease
	x.deadline = min(x.deadline, lease.deadline)
	return x, nil
}

func (e *Engine) head(ctx context.Context, topic *topicState, point store.Point) (*deliveryDocument, error) {
	found, err := e.findOne(ctx, store.Command{
		Point: point, Collection: e.collections.deliveries,
		Filter: bson.D{
			is("consumerGroup", e.options.ConsumerGroup),
			is("topic", topic.name),
			is("status", statusPending),
		},
		Sort: bson.D{is("eventSequence", int32(1)), is("eventId", int32(1))},
	})
	if err != nil || found == nil {
		return nil, err
	}
	head := decodeDelivery(found)
	return &head, nil
}

func (e *Engine) leaseOrder(ctx context.Context, topic *topicState) (*orderLease, error) {
	lease := &orderLease{token: e.host.NewID(), deadline: e.deadline(e.host.Monotonic())}
	reply, err := e.run(ctx, store.Command{
		Point: PointOrderLease, Kind: store.FindAndModify, Collection: e.collections.subscriptions,
		Filter: bson.D{is("_id", topic.subscription.id), expired("orderedLockedUntil")},
		Pipeline: []bson.D{{is("$set", bson.D{
			is("orderedLockOwner", lease.token),
			is("orderedLockToken", lease.token),
			is("orderedLockedUntil", e.leaseEnd()),
		})}},
	})
	if err != nil {
		e.report(e.releaseOrder(ctx, topic, lease.token))
		return nil, err
	}
	if reply.Document == nil {
		return nil, nil
	}
	return lease, nil
}

func (e *Engine) releaseOrder(ctx context.Context, topic *topicState, token string) error {
	_, err := e.run(ctx, store.Command{
		Point: PointOrderRelease, Kind: store.Update, Collection: e.collections.subscriptions,
		Filter: bson.D{is("_id", topic.subscription.id), is("orderedLockToken", token)},
		Update: bson.D{is("$unset", bson.D{
			is("orderedLockOwner", ""), is("orderedLockToken", ""), is("orderedLockedUntil", ""),
		})},
	})
	return err
}
