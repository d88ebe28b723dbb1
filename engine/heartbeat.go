package engine

import (
	"context"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/fencepost-sim/fencepost/engine/store"
	"github.com/fencepost-sim/fencepost/internal/defect"
)

// shortestHeartbeat keeps tiny lock timeouts from becoming a busy loop.
const shortestHeartbeat = 10 * time.Millisecond

// heartbeat renews the lease about every third of the lock timeout, from the claim until the outcome is recorded, also
// while the engine is closing. Errors are reported only: the deadline decides what they mean.
func (x *execution) heartbeat() {
	e := x.engine
	interval := max(shortestHeartbeat, e.options.LockTimeout/3)
	next := e.host.Monotonic() + interval
	for !x.finished && !x.lost {
		if e.closing && e.defects.Has(defect.CloseStopsHeartbeat) {
			return
		}
		if left := next - e.host.Monotonic(); left > 0 {
			x.signal.Wait(context.Background(), left)
			continue
		}
		e.report(x.renew())
		next = e.host.Monotonic() + interval
	}
}

// renew extends the attempt's lease, and the topic's ordering lease with it. Crash window 15.
//
// A lease is lost when no document matches the token. That a document matched but did not change
// (equal dates within one millisecond) is not a loss (W2).
func (x *execution) renew() error {
	e := x.engine
	asked := e.host.Monotonic()
	held, err := x.renewOne(PointAttemptHeartbeat, e.collections.history,
		bson.D{is("_id", x.attempt.id), is("status", statusPending), is("lockToken", x.token)},
		bson.D{is("heartbeatAt", "$$NOW"), is("lockedUntil", e.renewedEnd("lockedUntil"))})
	if err == nil && held && x.order != nil {
		held, err = x.renewOne(PointOrderHeartbeat, e.collections.subscriptions,
			bson.D{is("_id", x.topic.subscription.id), is("orderedLockToken", x.order.token)},
			bson.D{is("orderedLockedUntil", e.renewedEnd("orderedLockedUntil"))})
	}
	switch {
	case err != nil || x.finished:
		return err
	case !held:
		x.lost = true
		x.signal.Broadcast()
	default:
		x.deadline = e.deadline(asked)
		if x.order != nil {
			x.order.deadline = x.deadline
		}
		x.signal.Broadcast()
	}
	return nil
}

func (x *execution) renewOne(point store.Point, collection string, filter, set bson.D) (held bool, err error) {
	reply, err := x.engine.run(x.engine.context, store.Command{
		Point: point, Kind: store.Update, Collection: collection,
		Filter:   filter,
		Pipeline: []bson.D{{is("$set", set)}},
	})
	return reply.Matched > 0, err
}
