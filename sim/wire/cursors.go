package wire

import (
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/fencepost-sim/fencepost/engine/store"
	"github.com/fencepost-sim/fencepost/sim/mongosim"
)

// Limits of MongoDB 8.0. Source: the manual's "MongoDB Limits and Thresholds".
const (
	maxDocumentSize   = 16 * 1024 * 1024
	maxWriteBatchSize = 100_000
)

const (
	// firstBatch is how many documents a find answers unless the client asks for another number. Source: the manual's
	// "Cursor Batches".
	firstBatch = 101
	// maxBatchBytes bounds a batch, since it must fit into a reply.
	maxBatchBytes = maxDocumentSize
	// defaultAwait is how long a getMore on a change stream waits for changes unless the client says. Source: the manual's
	// "getMore", maxTimeMS.
	defaultAwait = time.Second
)

// cursor is what a client has not fetched yet: the rest of a find, or a change stream. It lasts until it is
// exhausted or killed; unlike a server, this one does not close idle cursors.
type cursor struct {
	collection string
	rest       []bson.D
	stream     *mongosim.Stream
	token      bson.D // of the last change that was sent, nil before the first
}

// keep gives a cursor an id. The caller holds the lock.
func (s *Server) keep(c *cursor) int64 {
	s.lastCursor++
	s.cursors[s.lastCursor] = c
	return s.lastCursor
}

func (r *request) find() (bson.D, error) {
	c := store.Command{
		Kind: store.Find, Collection: r.collection(),
		Filter: r.embedded("filter"), Sort: r.embedded("sort"), Limit: r.number("limit"),
		Projection: r.embedded("projection"), Hint: r.index("hint"),
	}
	size := r.batchSize(firstBatch)
	single := r.flag("singleBatch")
	if r.err == nil && c.Limit < 0 {
		r.err = refuse(codeBadValue, "the limit %d is negative", c.Limit)
	}
	reply, err := r.apply(c)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	batch, rest := take(reply.Documents, size)
	id := int64(0)
	if len(rest) > 0 && !single {
		id = r.keep(&cursor{collection: c.Collection, rest: rest})
	}
	return r.cursorReply(id, c.Collection, "firstBatch", batch, nil), nil
}

// batchSize is the number of documents that the client asked for; a missing or (in getMore) zero size is the default.
func (r *request) batchSize(byDefault int) int {
	if !has(r.document, "batchSize") {
		return byDefault
	}
	size := r.number("batchSize")
	if size < 0 && r.err == nil {
		r.err = refuse(codeBadValue, "the batchSize %d is negative", size)
	}
	return int(size)
}

// take cuts a batch of at most size documents and maxBatchBytes bytes off the documents. The first one is taken whatever
// its size.
func take(documents []bson.D, size int) (batch bson.A, rest []bson.D) {
	batch = bson.A{}
	bytes := 0
	for i, document := range documents {
		encoded, err := bson.Marshal(document)
		bytes += len(encoded)
		if i >= size || err == nil && i > 0 && bytes > maxBatchBytes {
			return batch, documents[i:]
		}
		batch = append(batch, document)
	}
	return batch, nil
}

func (r *request) cursorReply(id int64, collection, batchName string, batch bson.A, token bson.D) bson.D {
	reply := bson.D{
		{Key: "id", Value: id},
		{Key: "ns", Value: r.database + "." + collection},
		{Key: batchName, Value: batch},
	}
	if token != nil {
		reply = append(reply, bson.E{Key: "postBatchResumeToken", Value: token})
	}
	return bson.D{{Key: "cursor", Value: reply}}
}

// aggregate opens a change stream, the only aggregation there is. Its first batch is always empty.
func (r *request) aggregate() (bson.D, error) {
	collection := r.collection()
	pipeline := r.documents("pipeline")
	if r.err != nil {
		return nil, r.err
	}
	if len(pipeline) == 0 || len(pipeline[0]) != 1 || pipeline[0][0].Key != "$changeStream" {
		return nil, notImplemented("aggregations other than change streams")
	}
	options := arguments{document: (&arguments{document: pipeline[0]}).embedded("$changeStream")}
	if err := options.only("resumeAfter", "fullDocument"); err != nil {
		return nil, err
	}
	if full := options.text("fullDocument"); full != "" && full != "default" {
		return nil, notImplemented("fullDocument %q", full)
	}
	watch := store.Watch{
		Point: r.point, Collection: collection, Pipeline: pipeline[1:], ResumeAfter: options.embedded("resumeAfter"),
	}
	if options.err != nil {
		return nil, options.err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	stream, err := r.model.OpenStream(r.database, watch)
	if err != nil {
		return nil, err
	}
	opened := &cursor{collection: collection, stream: stream, token: watch.ResumeAfter}
	return r.cursorReply(r.keep(opened), collection, "firstBatch", bson.A{}, opened.token), nil
}

func (r *request) getMore() (bson.D, error) {
	id := r.number("getMore")
	collection := r.text("collection")
	size := r.batchSize(0)
	if size == 0 {
		size = maxWriteBatchSize
	}
	await := defaultAwait
	if has(r.document, "maxTimeMS") {
		await = time.Duration(r.number("maxTimeMS")) * time.Millisecond
	}
	if r.err != nil {
		return nil, r.err
	}
	patience := time.NewTimer(await)
	defer patience.Stop()
	for last := false; ; {
		reply, empty, changed, err := r.nextBatch(id, collection, size)
		if err != nil || !empty || last {
			return reply, err
		}
		select {
		case <-changed:
		case <-patience.C:
			last = true
		case <-r.life.Done():
			return nil, refuse(codeInterruptedAtShutdown, "the server shuts down")
		}
	}
}

// nextBatch answers one batch without waiting. An empty one means that the cursor may have more after changed
// is closed.
func (r *request) nextBatch(id int64, collection string, size int) (reply bson.D, empty bool, changed <-chan struct{}, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.cursors[id]
	switch {
	case c == nil:
		return nil, false, nil, refuse(codeCursorNotFound, "cursor id %d not found", id)
	case c.collection != collection:
		return nil, false, nil, refuse(codeUnauthorized, "Requested getMore on collection %q, but cursor belongs to %q", collection, c.collection)
	case c.stream == nil:
		batch, rest := take(c.rest, size)
		if c.rest = rest; len(rest) == 0 {
			delete(r.cursors, id)
			id = 0
		}
		return r.cursorReply(id, collection, "nextBatch", batch, nil), false, nil, nil
	}
	batch, ended, err := r.changes(c, size)
	if err != nil || ended {
		delete(r.cursors, id)
		id = 0
	}
	if err != nil {
		return nil, false, nil, err
	}
	return r.cursorReply(id, collection, "nextBatch", batch, c.token), len(batch) == 0, r.changed, nil
}

// changes takes those changes from a stream that are there. An error after the first waits for the next batch.
func (r *request) changes(c *cursor, size int) (batch bson.A, ended bool, err error) {
	batch = bson.A{}
	for bytes := 0; len(batch) < size && bytes < maxBatchBytes/2; {
		change, available, err := c.stream.Next()
		if err != nil && len(batch) == 0 {
			return nil, true, err
		}
		if err != nil || !available {
			return batch, false, nil
		}
		event := r.event(c, change)
		encoded, err := bson.Marshal(event)
		if err != nil {
			return nil, true, err
		}
		bytes += len(encoded)
		batch = append(batch, event)
		c.token = change.Token
		if change.Operation == "invalidate" {
			return batch, true, nil
		}
	}
	return batch, false, nil
}

// event spells a change as the manual's "Change Events" do. It has no clusterTime, wallTime and updateDescription.
func (r *request) event(c *cursor, change store.Change) bson.D {
	event := bson.D{{Key: "_id", Value: change.Token}, {Key: "operationType", Value: change.Operation}}
	if change.Operation == "invalidate" {
		return event
	}
	if change.Document != nil {
		event = append(event, bson.E{Key: "fullDocument", Value: change.Document})
	}
	event = append(event, bson.E{Key: "ns", Value: bson.D{{Key: "db", Value: r.database}, {Key: "coll", Value: c.collection}}})
	return append(event, bson.E{Key: "documentKey", Value: change.Key})
}

func (r *request) killCursors() (bson.D, error) {
	ids, ok := r.value("cursors").(bson.A)
	if !ok {
		return nil, refuse(codeTypeMismatch, "the field \"cursors\" is not an array")
	}
	killed, unknown := bson.A{}, bson.A{}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, element := range ids {
		id, _ := element.(int64)
		if r.cursors[id] == nil {
			unknown = append(unknown, element)
			continue
		}
		delete(r.cursors, id)
		killed = append(killed, element)
	}
	r.wakeStreams() // a getMore that waits on one of them must see that it is gone
	return bson.D{
		{Key: "cursorsKilled", Value: killed}, {Key: "cursorsNotFound", Value: unknown},
		{Key: "cursorsAlive", Value: bson.A{}}, {Key: "cursorsUnknown", Value: bson.A{}},
	}, nil
}
