package engine

import (
	"context"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/fencepost-sim/fencepost/engine/store"
	"github.com/fencepost-sim/fencepost/internal/defect"
)

// discover materializes the events of one topic that lie behind the group's cursor: crash windows 3 to 8. It reports
// whether there may be more.
//
// It looks first, with the cursor that it remembers, and takes the discovery lease only if there is something. An
// old memory is harmless: the lease comes with the true cursor, and the scan is repeated if they differ.
func (e *Engine) discover(ctx context.Context, topic *topicState) (more bool, err error) {
	events, err := e.scan(ctx, topic.name, topic.cursor)
	if err != nil || len(events) == 0 {
		return false, err
	}
	lease, err := e.leaseDiscovery(ctx, topic)
	if err != nil || lease == nil {
		return false, err // somebody else is at it
	}
	if lease.cursor != topic.cursor {
		topic.cursor = lease.cursor
		if events, err = e.scan(ctx, topic.name, topic.cursor); err != nil || len(events) == 0 {
			e.report(e.releaseDiscovery(ctx, topic, lease.token))
			return false, err
		}
	}
	if e.defects.Has(defect.CursorFirst) {
		if err := e.advance(ctx, topic, lease, events[len(events)-1]); err != nil {
			return false, err
		}
		return len(events) == e.options.DiscoveryBatch, e.materialize(ctx, lease, events)
	}
	if err := e.materialize(ctx, lease, events); err != nil {
		e.report(e.releaseDiscovery(ctx, topic, lease.token))
		return false, err
	}
	if err := e.advance(ctx, topic, lease, events[len(events)-1]); err != nil {
		return false, err
	}
	return len(events) == e.options.DiscoveryBatch, nil
}

// discoveryLease is the right to materialize one batch of a topic.
type discoveryLease struct {
	token    string
	cursor   cursor
	now      bson.DateTime // the database's clock when the lease was granted
	until    bson.DateTime // the end of the lease, by the database's clock
	deadline time.Duration // monotonic time at which this process must have stopped
}

func (e *Engine) scan(ctx context.Context, topic string, from cursor) ([]eventDocument, error) {
	reply, err := e.run(ctx, store.Command{
		Point: PointDiscoveryScan, Kind: store.Find, Collection: e.collections.events,
		Filter: bson.D{is("topic", topic), is("$or", bson.A{
			bson.D{is("sequence", bson.D{is("$gt", from.sequence)})},
			bson.D{is("sequence", from.sequence), is("_id", bson.D{is("$gt", from.eventID)})},
		})},
		Sort:  bson.D{is("sequence", int32(1)), is("_id", int32(1))},
		Limit: int64(e.options.DiscoveryBatch),
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
func (e *Engine) advance(ctx context.Context, topic *topicState, lease *discoveryLease, last eventDocument) error {
	reply, err := e.run(ctx, store.Command{
		Point: PointCursorAdvance, Kind: store.Update, Collection: e.collections.subscriptions,
		Filter: bson.D{is("_id", topic.subscription.id), is("discoveryLockToken", lease.token)},
		Update: bson.D{
			is("$set", bson.D{is("cursorSequence", last.sequence), is("cursorSequenceEventId", last.id)}),
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
	topic.cursor = cursor{last.sequence, last.id}
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
