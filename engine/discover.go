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
// The caller has looked already, from where this process has got to: the discovery lease is taken only if there is something to do. What the
// process remembers may be old, which is harmless: the lease comes with the true cursor, events that the cursor has passed are left
// out, and materializing one again changes nothing.
func (e *Engine) discover(ctx context.Context, topic *topicState, events []eventDocument, looked time.Duration) (more bool, err error) {
	look := look{fresh: events, at: looked, from: topic.horizon.frontier(topic.cursor)}
	if e.lookBack(topic, len(events) > 0) {
		if err := e.scanLate(ctx, topic, &look); err != nil {
			return false, err
		}
	}
	if len(look.fresh)+len(look.late) == 0 && !(look.back && topic.horizon.settled(e.guessNow(), e.options.VisibilityWindow)) {
		return false, nil
	}
	lease, err := e.leaseDiscovery(ctx, topic)
	if err != nil {
		return false, err
	}
	if lease == nil {
		e.work.suspect()                                  // for what that one finds
		return false, e.ensureStillSubscribed(ctx, topic) // usually somebody else is at it
	}
	lease.lookAge = e.host.Monotonic() - looked
	more = len(events) == e.options.DiscoveryBatch
	if err := e.discoverUnderLease(ctx, topic, lease, look); err != nil {
		e.report(e.releaseDiscovery(ctx, topic, lease.token))
		return false, err
	}
	return more, nil
}

// look is what discovery has seen of a topic before it took the lease.
type look struct {
	at    time.Duration // monotonic time at which it began
	from  cursor        // the frontier: everything behind it was looked at, as far as the batch went
	fresh []eventDocument
	back  bool // everything between the cursor and the frontier was looked at, too
	late  []eventDocument
}

func (e *Engine) discoverUnderLease(ctx context.Context, topic *topicState, lease *discoveryLease, look look) error {
	topic.moveCursor(lease.cursor)
	events := slices.DeleteFunc(append(look.late, look.fresh...), func(event eventDocument) bool {
		return lease.cursor.passed(event.sequence, event.id)
	})
	target := e.safeCursor(topic, lease, look, events)
	if e.defects.Has(defect.CursorFirst) {
		if err := e.advance(ctx, topic, lease, target); err != nil {
			return err
		}
	}
	if err := e.materialize(ctx, topic, lease, events); err != nil {
		return err
	}
	for _, event := range events {
		topic.horizon.add(cursor{event.sequence, event.id}, e.host.Monotonic()+e.options.PollInterval)
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
	lookAge  time.Duration // how long before the lease was granted the look began, at the most
}

// scanTopics finds what is new in each of the topics, with one command, unless there is more than fits: then each topic gets a
// command of its own, so that the backlog of one does not hide the others.
func (e *Engine) scanTopics(ctx context.Context, topics []*topicState) (news [][]eventDocument, err error) {
	if len(topics) == 0 {
		return nil, nil // the last one is gone since the pass began
	}
	clauses := make(bson.A, len(topics))
	for i, topic := range topics {
		clauses[i] = topic.news()
	}
	found, err := e.scan(ctx, bson.D{is("$or", clauses)})
	if err != nil {
		return nil, err
	}
	news = make([][]eventDocument, len(topics))
	for i, topic := range topics {
		if len(found) == e.options.DiscoveryBatch && len(topics) > 1 {
			if news[i], err = e.scan(ctx, topic.news()); err != nil {
				return nil, err
			}
			continue
		}
		for _, event := range found {
			if event.topic == topic.name {
				news[i] = append(news[i], event)
			}
		}
	}
	return news, nil
}

// news matches the events of the topic that this process has not seen.
func (t *topicState) news() bson.D {
	return bson.D{is("topic", t.name), beyond(t.horizon.frontier(t.cursor))}
}

func (e *Engine) scan(ctx context.Context, filter bson.D) ([]eventDocument, error) {
	return e.findEvents(ctx, PointDiscoveryScan, int64(e.options.DiscoveryBatch), filter)
}

// beyond matches events behind the cursor.
func beyond(from cursor) bson.E {
	return is("$or", bson.A{
		bson.D{is("sequence", bson.D{is("$gt", from.sequence)})},
		bson.D{is("sequence", from.sequence), is("_id", bson.D{is("$gt", from.eventID)})},
	})
}

var inSequence = bson.D{is("sequence", int32(1)), is("_id", int32(1))}

// findEvents reads what discovery needs to know of events, in their order.
func (e *Engine) findEvents(ctx context.Context, point store.Point, limit int64, filter bson.D) ([]eventDocument, error) {
	reply, err := e.run(ctx, store.Command{
		Point: point, Kind: store.Find, Collection: e.collections.events,
		Filter:     filter,
		Projection: bson.D{is("topic", int32(1)), is("sequence", int32(1)), is("createdAt", int32(1))},
		Sort:       inSequence,
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
	topic.learn(stored.policy)
	e.clock = stored.discoveryLockedUntil.Time().Add(-e.options.LockTimeout - e.host.Monotonic())
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
	topic.moveCursor(to)
	e.undated = true // what ended before may have its dates now
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
