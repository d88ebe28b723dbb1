package mongosim

import (
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/fencepost-sim/fencepost/engine/store"
)

// Stream is a change stream on one collection, a database, or everything. It reads the oplog when asked, shows only what a majority
// of the members has, and needs no closing.
type Stream struct {
	server      *Server
	database    string
	request     StreamRequest
	stages      []streamStage
	next        int    // number of the next oplog entry to look at
	ended       *Entry // the drop or rename that the stream has not yet shown its invalidation for
	done        bool
	invalidated bson.D // token of the invalidation
}

// streamStage is one stage after $changeStream: a condition, or a change of the event's document.
type streamStage struct {
	match *node
	run   stage
}

// StreamRequest is a store.Watch with what drivers can ask for and the engine does not.
type StreamRequest struct {
	store.Watch         // without a Collection, the whole database
	Cluster      bool   // all databases
	StartAfter   bson.D // like ResumeAfter, but also an invalidation's token
	StartAt      *bson.Timestamp
	FullDocument string // of updates: "", "default", "updateLookup", "whenAvailable", "required"
	BeforeChange string // "", "off", "whenAvailable", "required"
	Expanded     bool   // showExpandedEvents
}

// OpenStream opens a change stream on a collection. Without a token it starts now.
func (s *Server) OpenStream(database string, watch store.Watch) (*Stream, error) {
	if err := checkCollection(database, watch.Collection); err != nil {
		return nil, err
	}
	return s.Stream(database, StreamRequest{Watch: watch})
}

// Stream opens a change stream.
func (s *Server) Stream(database string, request StreamRequest) (*Stream, error) {
	if s.options.Standalone {
		return nil, refuse(40573, "The $changeStream stage is only supported on replica sets")
	}
	if err := request.check(); err != nil {
		return nil, err
	}
	st := &Stream{server: s, database: database, request: request, next: s.CommittedLen()}
	for _, d := range request.Pipeline {
		if err := st.addStage(d); err != nil {
			return nil, err
		}
	}
	return st, st.start()
}

func (r *StreamRequest) check() error {
	given := 0
	for _, is := range []bool{r.ResumeAfter != nil, r.StartAfter != nil, r.StartAt != nil} {
		if is {
			given++
		}
	}
	if given > 1 {
		return refuse(40674, "Only one type of resume option is allowed, but multiple were found.")
	}
	if !slices.Contains([]string{"", "default", "updateLookup", "whenAvailable", "required"}, r.FullDocument) {
		return refuse(codeBadValue, "Enumeration value '%s' for field '$changeStream.fullDocument' is not a valid value.", r.FullDocument)
	}
	if !slices.Contains([]string{"", "off", "whenAvailable", "required"}, r.BeforeChange) {
		return refuse(codeBadValue, "Enumeration value '%s' for field '$changeStream.fullDocumentBeforeChange' is not a valid value.", r.BeforeChange)
	}
	return nil
}

// start goes to the place from which the stream was asked to show changes.
func (st *Stream) start() error {
	s := st.server
	token := st.request.ResumeAfter
	if st.request.StartAfter != nil {
		token = st.request.StartAfter
	}
	switch {
	case token != nil:
		p, err := parseToken(token)
		if err != nil {
			return err
		}
		if p.kind == tokenInvalidate && st.request.ResumeAfter != nil {
			return refuse(codeInvalidResumeToken,
				"Attempting to resume a change stream using 'resumeAfter' is not allowed from an invalidate notification.")
		}
		st.next = s.after(p.time, p.index)
	case st.request.StartAt != nil:
		st.next = s.from(*st.request.StartAt)
	}
	if st.next < s.history {
		return historyLost()
	}
	return nil
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
		n, err := parseFilter(filter)
		st.stages = append(st.stages, streamStage{match: &n})
		return err
	case "$project", "$addFields", "$set", "$unset", "$replaceRoot", "$replaceWith":
		run, err := parseStage(name, d[0].Value)
		st.stages = append(st.stages, streamStage{run: run})
		return err
	case "$changeStreamSplitLargeEvent":
		return nil // no event of the model is that large: it holds a document at most twice
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
	e, token, event, err := st.advance(len(st.stages) > 0)
	if err != nil || e == nil {
		return store.Change{}, false, err
	}
	change = store.Change{Token: token, Operation: string(e.Operation)}
	if event != nil {
		change.Document, _ = get(event, "fullDocument").(bson.D)
		change.Key, _ = get(event, "documentKey").(bson.D)
		change.Operation, _ = get(event, "operationType").(string)
		return change, true, nil
	}
	switch e.Operation {
	case Insert, Replace:
		change.Document = e.After
		fallthrough
	case Update, Delete:
		change.Key = bson.D{{Key: "_id", Value: e.ID}}
	}
	return change, true, nil
}

// NextEvent returns the document of the next event that matches, as a server sends it, or nil if there is none yet.
func (st *Stream) NextEvent() (bson.D, error) {
	_, _, event, err := st.advance(true)
	return event, err
}

// Invalidated reports whether the stream has shown its last event.
func (st *Stream) Invalidated() bool { return st.done }

// Token resumes the stream after all that it has looked at, also before its first event.
func (st *Stream) Token() bson.D {
	if st.invalidated != nil {
		return st.invalidated
	}
	p := resumePoint{kind: tokenMark}
	if last := st.next - 1; last >= 0 && last < len(st.server.oplog) {
		p.time, p.index = st.server.oplog[last].Time, st.server.oplog[last].Index
	}
	return p.token()
}

// advance goes on to the next event that matches. The event's document is made if it is wanted, or if a stage needs it.
func (st *Stream) advance(wanted bool) (e *Entry, token, event bson.D, err error) {
	if st.ended != nil {
		if e, token, event, err = st.invalidate(); event != nil || err != nil {
			return e, token, event, err
		}
	}
	if st.done {
		return nil, nil, nil, store.ErrStreamClosed
	}
	if st.next < st.server.history {
		return nil, nil, nil, historyLost()
	}
	for visible := st.server.CommittedLen(); st.next < visible; {
		e = &st.server.oplog[st.next]
		st.next++
		if !st.concerns(e) {
			continue
		}
		if st.ends(e) {
			st.ended = e
		}
		token = resumePoint{e.Time, e.Index, tokenEvent}.token()
		if !wanted {
			return e, token, nil, nil
		}
		if event, err = st.filtered(e, token); event != nil || err != nil {
			return e, token, event, err
		}
		if st.ended != nil {
			return st.advance(wanted)
		}
	}
	return nil, nil, nil, nil
}

// concerns reports whether the stream shows such an entry at all.
func (st *Stream) concerns(e *Entry) bool {
	switch e.Operation {
	case Noop:
		return false
	case Create, CreateIndexes, DropIndexes, Modify:
		if !st.request.Expanded {
			return false
		}
	}
	if st.request.Cluster {
		return e.Database != "admin" && e.Database != "config" && e.Database != "local"
	}
	if e.Operation == Rename && e.Detail.Database == st.database && e.Detail.Collection == st.request.Collection {
		return true
	}
	return e.Database == st.database && (st.request.Collection == "" && !strings.HasPrefix(e.Collection, "system.") || e.Collection == st.request.Collection)
}

// ends reports whether the entry invalidates the stream. Source: manual, "Change Events", "invalidate Event".
func (st *Stream) ends(e *Entry) bool {
	switch {
	case st.request.Cluster:
		return false
	case st.request.Collection == "":
		return e.Operation == DropDatabase
	}
	return e.Operation == Drop || e.Operation == Rename
}

// invalidate ends the stream with an event, unless the pipeline does not let it through: then it just ends.
func (st *Stream) invalidate() (*Entry, bson.D, bson.D, error) {
	e := st.ended
	st.ended, st.done = nil, true
	st.invalidated = resumePoint{e.Time, e.Index, tokenInvalidate}.token()
	event := bson.D{
		{Key: "_id", Value: st.invalidated}, {Key: "operationType", Value: "invalidate"},
		{Key: "clusterTime", Value: e.Time}, {Key: "wallTime", Value: e.Wall},
	}
	event, err := st.pass(event)
	return e, st.invalidated, event, err
}

func (st *Stream) filtered(e *Entry, token bson.D) (bson.D, error) {
	event, err := st.describe(e, token)
	if err != nil {
		return nil, err
	}
	event, err = st.pass(event)
	if event == nil || err != nil || len(st.stages) == 0 {
		return event, err
	}
	if id, ok := get(event, "_id").(bson.D); !ok || !identical(id, token) {
		return nil, refuse(codeChangeStreamFatal,
			"Encountered an event whose _id field, which contains the resume token, was modified by the pipeline.")
	}
	return event, nil
}

// pass runs an event through the stages, and returns nil if one does not let it through.
func (st *Stream) pass(event bson.D) (bson.D, error) {
	at := st.server.moment()
	for i := range st.stages {
		if n := st.stages[i].match; n != nil {
			if ok, err := n.matches(event, at); !ok || err != nil {
				return nil, err
			}
			continue
		}
		var err error
		if event, err = st.stages[i].run(event, at); err != nil {
			return nil, err
		}
	}
	return event, nil
}
