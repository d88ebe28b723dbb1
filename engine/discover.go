package engine

import (
	"context"
	"fmt"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/fencepost-sim/fencepost/engine/store"
	"github.com/fencepost-sim/fencepost/internal/defect"
)

// discover materializes the events of one topic that lie behind the group's cursor: crash windows 3 to 8. It reports
// whether there may be more.
//
// It looks first, from where this process has got to, and takes the discovery lease only if there is something to do. What it
// remembers may be old, which is harmless: the lease comes with the true cursor, events that the cursor has passed are left
// out, and materializing one again changes nothing.
func (e *Engine) discover(ctx context.Context, topic *topicState) (more bool, err error) {
	looked := e.host.Monotonic()
	events, err := e.scan(ctx, topic.name, topic.horizon.frontier(topic.cursor))
	if err != nil {
		return false, err
	}
	back := e.lookBack(topic)
	if len(events) == 0 && !back {
		return false, nil
	}
	lease, err := e.leaseDiscovery(ctx, topic)
	if err != nil {
		return false, err
	}
	if lease == nil {
		return false, e.ensureStillSubscribed(ctx, topic) // usually somebody else is at it
	}
	lease.scanAge = e.host.Monotonic() - looked
	more = len(events) == e.options.DiscoveryBatch
	if err := e.discoverUnderLease(ctx, topic, lease, events, back); err != nil {
		e.report(e.releaseDiscovery(ctx, topic, lease.token))
		return false, err
	}
	return more, nil
}

func (e *Engine) discoverUnderLease(ctx context.Context, topic *topicState, lease *discoveryLease, events []eventDocument, back bool) error {
	topic.cursor = lease.cursor
	topic.horizon.forget(lease.cursor)
	events = slices.DeleteFunc(events, func(event eventDocument) bool {
		return lease.cursor.passed(event.sequence, event.id)
	})
	target := lease.cursor
	if back || len(topic.horizon.seen) == 0 {
		late, err := e.scanLate(ctx, topic, lease)
		if err != nil {
			return err
		}
		target = e.safeCursor(topic, lease, events)
		events = append(late, events...)
	}
	if e.defects.Has(defect.CursorFirst) {
		if err := e.advance(ctx, topic, lease, target); err != nil {
			return err
		}
	}
	if err := e.materialize(ctx, lease, events); err != nil {
		return err
	}
	for _, event := range events {
		topic.horizon.add(cursor{event.sequence, event.id})
	}
	if target == lease.cursor {
		return e.releaseDiscovery(ctx, topic, lease.token)
	}
	return e.advance(ctx, topic, lease, target)
}

// discoveryLease is the right to materialize one batch of a topic.
type discoveryLease struct {
	token    string
	cursor   cursor
	now      bson.DateTime // the database's clock when the lease was granted
	until    bson.DateTime // the end of the lease, by the database's clock
	deadline time.Duration // monotonic time at which this process must have stopped
	scanAge  time.Duration // how long before the lease was granted the scan for new events began, at the most
}

func (e *Engine) scan(ctx context.Context, topic string, from cursor) ([]eventDocument, error) {
	return e.findEvents(ctx, PointDiscoveryScan, int64(e.options.DiscoveryBatch), bson.D{is("topic", topic), beyond(from)})
}

// beyond matches events behind the cursor.
func beyond(from cursor) bson.E {
	return is("$or", bson.A{
		bson.D{is("sequence", bson.D{is("$gt", from.sequence)})},
		bson.D{is("sequence", from.sequence), is("_id", bson.D{is("$gt", from.eventID)})},
	})
}

// findEvents reads what discovery needs to know of events, in their order.
func (e *Engine) findEvents(ctx context.Context, point store.Point, limit int64, filter bson.D) ([]eventDocument, error) {
	reply, err := e.run(ctx, store.Command{
		Point: point, Kind: store.Find, Collection: e.collections.events,
		Filter:     filter,
		Projection: bson.D{is("topic", int32(1)), is("sequence", int32(1)), is("createdAt", int32(1))},
		Sort:       bson.D{is("sequence", int32(1)), is("_id", int32(1))},
		Limit:      limit,
	})
	if err != nil {
		return nil, err
	}
	events := make([]eventDocument, len(reply.Documents))
	for i, document := range reply.Documents {
		events[i] = decodeEvent(document)
	}
	return events, nil
}

func (e *Engine) leaseDiscovery(ctx context.Context, topic *topicState) (*discoveryLease, error) {
	token, asked := e.host.NewID(), e.host.Monotonic()
	reply, err := e.run(ctx, store.Command{
		Point: PointDiscoveryLease, Kind: store.FindAndModify, Collection: e.collections.subscriptions,
		Filter: bson.D{is("_id", topic.subscription.id), expired("discoveryLockedUntil")},
		Pipeline: []bson.D{{is("$set", bson.D{
			is("discoveryLockOwner", token),
			is("discoveryLockToken", token),
			is("discoveryLockedUntil", e.leaseEnd()),
		})}},
	})
	if err != nil {
		// It may have been applied: give it back by the token, which only we know (W11).
		e.report(e.releaseDiscovery(ctx, topic, token))
		return nil, err
	}
	if reply.Document == nil {
		return nil, nil
	}
	stored := decodeSubscription(reply.Document)
	return &discoveryLease{
		token:    token,
		cursor:   stored.cursor,
		until:    stored.discoveryLockedUntil,
		now:      after(stored.discoveryLockedUntil, -e.options.LockTimeout),
		deadline: e.deadline(asked),
	}, nil
}

// advance moves the cursor and gives the lease back in one write, fenced by the lease.
func (e *Engine) advance(ctx context.Context, topic *topicState, lease *discoveryLease, to cursor) error {
	reply, err := e.run(ctx, store.Command{
		Point: PointCursorAdvance, Kind: store.Update, Collection: e.collections.subscriptions,
		Filter: bson.D{is("_id", topic.subscription.id), is("discoveryLockToken", lease.token)},
		Update: bson.D{
			is("$set", bson.D{is("cursorSequence", to.sequence), is("cursorSequenceEventId", to.eventID)}),
			is("$currentDate", bson.D{is("updatedAt", true)}),
			is("$unset", discoveryFields),
		},
	})
	if err != nil {
		return err
	}
	if reply.Matched == 0 {
		return fmt.Errorf("%w: another worker discovers topic %s", ErrLeaseLost, topic.name)
	}
	topic.cursor = to
	topic.horizon.forget(to)
	return nil
}

func (e *Engine) releaseDiscovery(ctx context.Context, topic *topicState, token string) error {
	_, err := e.run(ctx, store.Command{
		Point: PointDiscoveryRelease, Kind: store.Update, Collection: e.collections.subscriptions,
		Filter: bson.D{is("_id", topic.subscription.id), is("discoveryLockToken", token)},
		Update: bson.D{is("$unset", discoveryFields)},
	})
	return err
}

var discoveryFields = bson.D{is("discoveryLockOwner", ""), is("discoveryLockToken", ""), is("discoveryLockedUntil", "")}
