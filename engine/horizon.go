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

// The database takes an event's sequence while it builds the document, and makes the document visible when its transaction commits. In
// between, an event with a larger sequence can become visible (W1). A cursor that stood at "the largest seen"
// would pass over the smaller one for ever.
//
// The group's cursor therefore keeps a distance to the present, the visibility window: it moves only to events that were
// stamped longer ago, and only right after a scan that looked at everything behind it. Events within the window are
// materialized at once all the same. Each process remembers which, and once in a poll interval compares them with what is
// there, to find those that appeared since. What it forgets when it dies is found again, and materializing again changes nothing.

// horizon is what a process remembers of the events between the group's cursor and the newest that it has seen.
type horizon struct {
	seen     []cursor // ascending
	nextLook time.Duration
}

// frontier is the newest event that was seen, or the cursor.
func (h *horizon) frontier(from cursor) cursor {
	if len(h.seen) == 0 {
		return from
	}
	return h.seen[len(h.seen)-1]
}

func (h *horizon) add(event cursor) {
	at, known := slices.BinarySearchFunc(h.seen, event, cursor.compare)
	if !known {
		h.seen = slices.Insert(h.seen, at, event)
	}
}

func (h *horizon) knows(event cursor) bool {
	_, known := slices.BinarySearchFunc(h.seen, event, cursor.compare)
	return known
}

// forget drops what the cursor has passed.
func (h *horizon) forget(passed cursor) {
	keep := slices.IndexFunc(h.seen, func(c cursor) bool { return !passed.passed(c.sequence, c.eventID) })
	if keep < 0 {
		keep = len(h.seen)
	}
	h.seen = h.seen[keep:]
}

// lookBack tells whether it is time to look for events that became visible late, once in a poll interval as long as there are
// any that the cursor has not passed.
func (e *Engine) lookBack(topic *topicState) bool {
	now := e.host.Monotonic()
	if len(topic.horizon.seen) == 0 || now < topic.horizon.nextLook {
		return false
	}
	topic.horizon.nextLook = now + e.options.PollInterval
	return true
}

// latePages is how many times a discovery batch scanLate reads at once: it gets no more than an ID and two dates of each event.
const latePages = 10

// scanLate finds the events between the cursor and the frontier that this process has not seen yet. It reads all that are
// there, page by page: what that costs grows with the rate of events times the window, for each poll interval.
func (e *Engine) scanLate(ctx context.Context, topic *topicState, lease *discoveryLease) (late []eventDocument, err error) {
	h := &topic.horizon
	if len(h.seen) == 0 || e.defects.Has(defect.NoHorizon) {
		return nil, nil
	}
	limit := latePages * e.options.DiscoveryBatch
	for from := topic.cursor; ; {
		if e.host.Monotonic() >= lease.deadline {
			return nil, fmt.Errorf("%w: looking back took longer than the lock timeout", ErrLeaseLost)
		}
		page, err := e.findEvents(ctx, PointDiscoveryLate, int64(limit), bson.D{
			is("topic", topic.name),
			is("sequence", bson.D{is("$lte", h.frontier(topic.cursor).sequence)}),
			beyond(from),
		})
		if err != nil {
			return nil, err
		}
		for _, event := range page {
			if !h.knows(cursor{event.sequence, event.id}) {
				late = append(late, event)
			}
		}
		if len(page) < limit {
			return late, nil
		}
		last := page[len(page)-1]
		from = cursor{last.sequence, last.id}
	}
}

// safeCursor is how far the cursor may move: to the newest event that was stamped longer ago than the visibility window when we
// looked. What lies up to the frontier was looked at under the lease, by scanLate; what lies beyond was looked at by the scan before
// the lease, which can have been long ago.
func (e *Engine) safeCursor(topic *topicState, lease *discoveryLease, fresh []eventDocument) cursor {
	safe := lease.cursor
	consider := func(event cursor, looked time.Time) {
		settled := int64(event.sequence.T) < looked.Add(-e.options.VisibilityWindow).Unix() || e.defects.Has(defect.NoHorizon)
		if settled && event.compare(safe) > 0 {
			safe = event
		}
	}
	now := lease.now.Time()
	for _, event := range topic.horizon.seen {
		consider(event, now)
	}
	before := now.Add(-lease.scanAge)
	if e.defects.Has(defect.ScanAgeIgnored) {
		before = now
	}
	for _, event := range fresh {
		consider(cursor{event.sequence, event.id}, before)
	}
	return safe
}

// unknownEvents leaves out the events that other replicas have materialized: one read instead of a write for each.
func (e *Engine) unknownEvents(ctx context.Context, events []eventDocument) ([]eventDocument, error) {
	if len(events) == 0 {
		return nil, nil
	}
	ids := list(events, func(event eventDocument) string { return event.id })
	reply, err := e.run(ctx, store.Command{
		Point: PointDiscoveryKnown, Kind: store.Find, Collection: e.collections.deliveries,
		Filter:     bson.D{is("consumerGroup", e.options.ConsumerGroup), is("eventId", bson.D{is("$in", ids)})},
		Projection: bson.D{is("eventId", int32(1))},
	})
	if err != nil {
		return nil, err
	}
	known := map[string]bool{} // looked up only
	for _, document := range reply.Documents {
		known[stringField(document, "eventId")] = true
	}
	return slices.DeleteFunc(slices.Clone(events), func(event eventDocument) bool { return known[event.id] }), nil
}
