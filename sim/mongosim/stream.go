package mongosim

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/fencepost-sim/fencepost/engine/store"
)

// Stream is a change stream on one collection. It reads the oplog when asked, and needs no closing.
type Stream struct {
	server               *Server
	database, collection string
	match                []node
	show                 []stage
	next                 int // number of the next oplog entry to look at
	invalidated          bool
	done                 bool
}

// OpenStream opens a change stream. Without a token it starts now.
func (s *Server) OpenStream(database string, watch store.Watch) (*Stream, error) {
	if s.options.Standalone {
		return nil, refuse(40573, "The $changeStream stage is only supported on replica sets")
	}
	if err := checkCollection(database, watch.Collection); err != nil {
		return nil, err
	}
	st := &Stream{server: s, database: database, collection: watch.Collection, next: len(s.oplog)}
	for _, d := range watch.Pipeline {
		if err := st.addStage(d); err != nil {
			return nil, err
		}
	}
	if watch.ResumeAfter != nil {
		seen, err := parseToken(watch.ResumeAfter)
		if err != nil {
			return nil, err
		}
		st.next = s.after(seen)
		if st.next < s.history {
			return nil, historyLost()
		}
	}
	return st, nil
}

func historyLost() error {
	return refuse(codeHistoryLost,
		"Executor error during getMore :: caused by :: Resume of change stream was not possible, as the "+
			"resume point may no longer be in the oplog.")
}

// addStage compiles a stage after $changeStream. Source: manual, "Change Streams", "Modify Change Stream Output".
func (st *Stream) addStage(d bson.D) error {
	d, err := normalizeDocument(d)
	if err != nil {
		return err
	}
	if len(d) != 1 {
		return refuse(40323, "A pipeline stage specification object must contain exactly one field.")
	}
	switch name := d[0].Key; name {
	case "$match":
		filter, ok := d[0].Value.(bson.D)
		if !ok {
			return refuse(15959, "the match filter must be an expression in an object")
		}
		if len(st.show) > 0 {
			return unmodelled("$match after another stage of a change stream")
		}
		n, err := parseFilter(filter)
		st.match = append(st.match, n)
		return err
	case "$project", "$addFields", "$set", "$unset", "$replaceRoot", "$replaceWith":
		run, err := parseStage(name, d[0].Value)
		st.show = append(st.show, run)
		return err
	case "$redact":
		return unmodelled(name)
	default:
		if slices.Contains(strings.Fields(otherStages), name) {
			return refuse(codeIllegalOperation, "%s is not permitted in a $changeStream pipeline", name)
		}
		return refuse(40324, "Unrecognized pipeline stage name: '%s'", name)
	}
}

// Next returns the next change that matches. available is false if there is none yet.
func (st *Stream) Next() (change store.Change, available bool, err error) {
	if st.invalidated && !st.done {
		if change, available, err = st.invalidate(); available || err != nil {
			return change, available, err
		}
	}
	if st.done {
		return store.Change{}, false, store.ErrStreamClosed
	}
	if st.next < st.server.history {
		return store.Change{}, false, historyLost()
	}
	for st.next < len(st.server.oplog) {
		entry := &st.server.oplog[st.next]
		st.next++
		if entry.Collection != st.collection || entry.Database != st.database {
			continue
		}
		switch entry.Operation {
		case Create, CreateIndexes:
			continue // shown only with showExpandedEvents
		case Drop:
			st.invalidated = true
		}
		event, matched, err := st.event(entry)
		if err != nil {
			return store.Change{}, false, err
		}
		if matched {
			return event, true, nil
		}
		if st.invalidated {
			return st.Next()
		}
	}
	return store.Change{}, false, nil
}

// invalidate ends the stream with an event, unless the pipeline does not let it through: then it just ends.
func (st *Stream) invalidate() (store.Change, bool, error) {
	st.done = true
	entry := &st.server.oplog[st.next-1]
	change := store.Change{Token: token(entry.Time, true), Operation: "invalidate"}
	matched, err := all(st.match, bson.D{
		{Key: "_id", Value: change.Token}, {Key: "operationType", Value: change.Operation},
		{Key: "clusterTime", Value: entry.Time}, {Key: "wallTime", Value: entry.Wall},
	}, st.server.moment())
	return change, matched, err
}

// event makes the change of an entry, if the pipeline lets it through.
func (st *Stream) event(entry *Entry) (store.Change, bool, error) {
	change := store.Change{Token: token(entry.Time, false), Operation: string(entry.Operation)}
	if entry.ID != nil || entry.Operation != Drop {
		change.Key = bson.D{{Key: "_id", Value: entry.ID}}
	}
	if entry.Operation == Insert || entry.Operation == Replace {
		change.Document = entry.After
	}
	if len(st.match) == 0 && len(st.show) == 0 {
		return change, true, nil
	}
	event := describeEvent(entry, &change)
	at := st.server.moment()
	if ok, err := all(st.match, event, at); !ok || err != nil {
		return change, false, err
	}
	for _, run := range st.show {
		var err error
		if event, err = run(event, at); err != nil {
			return change, false, err
		}
	}
	if len(st.show) == 0 {
		return change, true, nil
	}
	id, ok := get(event, "_id").(bson.D)
	if !ok || !identical(id, change.Token) {
		return change, false, refuse(280,
			"Encountered an event whose _id field, which contains the resume token, was modified by the pipeline.")
	}
	change.Document, _ = get(event, "fullDocument").(bson.D)
	change.Key, _ = get(event, "documentKey").(bson.D)
	change.Operation, _ = get(event, "operationType").(string)
	return change, true, nil
}

// describeEvent makes the document that the pipeline sees. Source: manual, "Change Events".
func describeEvent(entry *Entry, change *store.Change) bson.D {
	event := bson.D{
		{Key: "_id", Value: change.Token},
		{Key: "operationType", Value: change.Operation},
		{Key: "clusterTime", Value: entry.Time},
		{Key: "wallTime", Value: entry.Wall},
	}
	if change.Document != nil {
		event = append(event, bson.E{Key: "fullDocument", Value: change.Document})
	}
	event = append(event, bson.E{Key: "ns", Value: bson.D{{Key: "db", Value: entry.Database}, {Key: "coll", Value: entry.Collection}}})
	if change.Key != nil {
		event = append(event, bson.E{Key: "documentKey", Value: change.Key})
	}
	if entry.Operation == Update {
		event = append(event, bson.E{Key: "updateDescription", Value: describeUpdate(entry.Before, entry.After)})
	}
	return event
}

// describeUpdate lists the fields that differ. Fields inside documents have dotted names; a changed array is listed whole.
func describeUpdate(before, after bson.D) bson.D {
	updated, removed := appendDifference(bson.D{}, bson.A{}, "", before, after)
	return bson.D{
		{Key: "updatedFields", Value: updated}, {Key: "removedFields", Value: removed}, {Key: "truncatedArrays", Value: bson.A{}},
	}
}

func appendDifference(updated bson.D, removed bson.A, prefix string, before, after bson.D) (bson.D, bson.A) {
	for _, field := range after {
		old := get(before, field.Key)
		if identical(old, field.Value) {
			continue
		}
		x, documentBefore := old.(bson.D)
		y, documentAfter := field.Value.(bson.D)
		if documentBefore && documentAfter {
			updated, removed = appendDifference(updated, removed, prefix+field.Key+".", x, y)
			continue
		}
		updated = append(updated, bson.E{Key: prefix + field.Key, Value: field.Value})
	}
	for _, field := range before {
		if position(after, field.Key) < 0 {
			removed = append(removed, prefix+field.Key)
		}
	}
	return updated, removed
}

// A resume token names a time in the oplog. It looks like a server's: a document with one string of
// hexadecimal digits that starts with 82 and the time; the rest is ours. Applications may not read it.

const (
	tokenEvent      = "46"
	tokenInvalidate = "49"
)

func token(t bson.Timestamp, invalidate bool) bson.D {
	kind := tokenEvent
	if invalidate {
		kind = tokenInvalidate
	}
	return bson.D{{Key: "_data", Value: fmt.Sprintf("82%08X%08X%s", t.T, t.I, kind)}}
}

func parseToken(d bson.D) (bson.Timestamp, error) {
	bad := func() (bson.Timestamp, error) {
		return bson.Timestamp{}, refuse(codeInvalidResumeToken, "Invalid resume token: %s", format(d))
	}
	d, err := normalizeDocument(d)
	if err != nil {
		return bad()
	}
	data, ok := get(d, "_data").(string)
	if !ok || len(data) != 20 || !strings.HasPrefix(data, "82") {
		return bad()
	}
	seconds, errT := strconv.ParseUint(data[2:10], 16, 32)
	increment, errI := strconv.ParseUint(data[10:18], 16, 32)
	if errT != nil || errI != nil {
		return bad()
	}
	switch data[18:] {
	case tokenEvent:
		return bson.Timestamp{T: uint32(seconds), I: uint32(increment)}, nil
	case tokenInvalidate:
		return bson.Timestamp{}, refuse(codeInvalidResumeToken,
			"Attempting to resume a change stream using 'resumeAfter' is not allowed "+
				"from an invalidate notification.")
	}
	return bad()
}
