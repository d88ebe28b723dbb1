package engine

import (
	"context"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/fencepost-sim/fencepost/engine/store"
	"github.com/fencepost-sim/fencepost/internal/defect"
	"github.com/fencepost-sim/fencepost/internal/document"
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

// add remembers an event; the first one sets the time of the next look back.
func (h *horizon) add(event cursor, nextLook time.Duration) {
	if len(h.seen) == 0 {
		h.nextLook = nextLook
	}
	at, known := slices.BinarySearchFunc(h.seen, event, cursor.compare)
	if !known {
		h.seen = slices.Insert(h.seen, at, event)
	}
}

// settled tells whether the oldest event that the cursor has not passed was stamped longer ago than the window.
func (h *horizon) settled(now time.Time, window time.Duration) bool {
	return len(h.seen) > 0 && settled(h.seen[0], now, window)
}

// settled tells whether whatever was stamped before the event had become visible when we looked. A sequence counts
// whole seconds.
func settled(event cursor, looked time.Time, window time.Duration) bool {
	return int64(event.sequence.T) < looked.Add(-window).Unix()
}

// guessNow is about what the database's clock says.
func (e *Engine) guessNow() time.Time { return e.clock.Add(e.host.Monotonic()) }

func (h *horizon) knows(event cursor) bool {
	_, known := slices.BinarySearchFunc(h.seen, event, cursor.compare)
	return known
}

// knows tells whether discovery has seen the event.
func (t *topicState) knows(event eventDocument) bool {
	return t.cursor.passed(event.sequence, event.id) || t.horizon.knows(cursor{event.sequence, event.id})
}

// moveCursor takes in where the group's cursor stands.
func (t *topicState) moveCursor(to cursor) {
	t.cursor = to
	t.horizon.forget(to)
}

// forget drops what the cursor has passed.
func (h *horizon) forget(passed cursor) {
	keep := slices.IndexFunc(h.seen, func(c cursor) bool { return !passed.passed(c.sequence, c.eventID) })
	if keep < 0 {
		keep = len(h.seen)
	}
	h.seen = h.seen[keep:]
}

// lookBack tells whether it is time to look for events that became visible late: once in a poll interval as long as there are
// any that the cursor has not passed. In an ordered topic also whenever there are new ones, since one publisher's events become
// visible in its order, and nothing may be delivered before what was visible before it.
func (e *Engine) lookBack(topic *topicState, news bool) bool {
	now := e.host.Monotonic()
	urgent := news && !topic.options.Unordered && !e.defects.Has(defect.NoUrgentLook)
	if len(topic.horizon.seen) == 0 || now < topic.horizon.nextLook && !urgent {
		return false
	}
	topic.horizon.nextLook = now + e.options.PollInterval
	return true
}

// latePages is how many times a discovery batch scanLate reads at once: it gets no more than what the index holds of each event.
const latePages = 10

// scanLate finds the events between the cursor and the frontier that this process has not seen yet. It reads the index of all that are
// there, page by page: what that costs grows with the rate of events times the window.
func (e *Engine) scanLate(ctx context.Context, topic *topicState, look *look) error {
	late := bson.A{}
	limit := latePages * e.options.DiscoveryBatch
	for from, more := topic.cursor, true; more; {
		reply, err := e.run(ctx, store.Command{
			Point: PointDiscoveryLate, Kind: store.Find, Collection: e.collections.events,
			Filter: bson.D{
				is("topic", topic.name),
				is("sequence", bson.D{is("$lte", look.from.sequence)}),
				beyond(from),
			},
			Projection: bson.D{is("sequence", int32(1))},
			Sort:       inSequence,
			Limit:      int64(limit),
		})
		if err != nil {
			return err
		}
		for _, document := range reply.Documents {
			event := decodeEvent(document)
			from = cursor{event.sequence, event.id}
			if from.compare(look.from) <= 0 && !topic.horizon.knows(from) {
				late = append(late, event.id)
			}
		}
		more = len(reply.Documents) == limit
	}
	look.back = true
	if len(late) == 0 {
		return nil
	}
	var err error
	look.late, err = e.findEvents(ctx, PointDiscoveryFetch, 0, bson.D{is("_id", bson.D{is("$in", late)})})
	return err
}

// safeCursor is how far the cursor may move: to the newest event that was stamped longer ago than the visibility window when we
// looked, provided that we looked at everything from the cursor on. The look was made before the lease, perhaps long before.
func (e *Engine) safeCursor(topic *topicState, lease *discoveryLease, look look, events []eventDocument) cursor {
	safe := lease.cursor
	if !look.back && len(topic.horizon.seen) > 0 && !e.defects.Has(defect.NoHorizon) {
		return safe
	}
	looked := lease.now.Time().Add(-lease.lookAge)
	if e.defects.Has(defect.ScanAgeIgnored) {
		looked = lease.now.Time()
	}
	consider := func(event cursor) {
		if event.compare(safe) > 0 && (settled(event, looked, e.options.VisibilityWindow) || e.defects.Has(defect.NoHorizon)) {
			safe = event
		}
	}
	for _, event := range topic.horizon.seen {
		consider(event)
	}
	for _, event := range events {
		consider(cursor{event.sequence, event.id})
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
	for _, delivery := range reply.Documents {
		known[document.Text(delivery, "eventId")] = true
	}
	return slices.DeleteFunc(slices.Clone(events), func(event eventDocument) bool { return known[event.id] }), nil
}
