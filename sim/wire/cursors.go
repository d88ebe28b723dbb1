package wire

import (
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

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
	node      *node // that has it: no other member knows of it
	namespace string
	rest      []bson.D
	stream    Events
	failure   error // that the stream ended with, after the events that have been sent
	awaited   int   // commands that wait for events of it
}

// keep gives a cursor an id. The caller holds the lock.
func (r *request) keep(c *cursor) int64 {
	r.lastCursor++
	c.node = r.connection.node
	r.cursors[r.lastCursor] = c
	return r.lastCursor
}

// cursor returns the cursor that this member knows by the id, or nil. The caller holds the lock.
func (r *request) cursor(id int64) *cursor {
	if c := r.cursors[id]; c != nil && c.node == r.connection.node {
		return c
	}
	return nil
}

// forget ends a cursor. The caller holds the lock.
func (s *Server) forget(id int64) {
	if stream, ok := s.cursors[id].stream.(interface{ Close() }); ok {
		stream.Close()
	}
	delete(s.cursors, id)
}

// batchSize is the number of documents that the client asked for.
func (a *arguments) batchSize(byDefault int) int {
	if !has(a.document, "batchSize") {
		return byDefault
	}
	return int(a.notNegative("batchSize"))
}

// take cuts a batch of at most size documents and maxBatchBytes bytes off the documents. The first one is taken whatever
// its size.
func take(documents []bson.D, size int) (batch bson.A, rest []bson.D) {
	batch = bson.A{}
	bytes := 0
	for i, document := range documents {
		bytes += mongosim.SizeOf(document)
		if i >= size || i > 0 && bytes > maxBatchBytes {
			return batch, documents[i:]
		}
		batch = append(batch, document)
	}
	return batch, nil
}

func (r *request) cursorReply(id int64, namespace, batchName string, batch bson.A, token bson.D) bson.D {
	reply := bson.D{{Key: "id", Value: id}, {Key: "ns", Value: namespace}, {Key: batchName, Value: batch}}
	if r.read.snapshot {
		reply = append(reply, bson.E{Key: "atClusterTime", Value: r.read.at})
	}
	if token != nil {
		reply = append(reply, bson.E{Key: "postBatchResumeToken", Value: token})
	}
	return bson.D{{Key: "cursor", Value: reply}}
}

func (r *request) getMore() (bson.D, error) {
	r.need("collection")
	id := r.number64("getMore")
	namespace := r.database + "." + r.text("collection")
	size := r.batchSize(0)
	if size == 0 {
		size = maxWriteBatchSize
	}
	await := defaultAwait
	if has(r.document, "maxTimeMS") {
		await = time.Duration(r.number64("maxTimeMS")) * time.Millisecond
	}
	if r.err != nil {
		return nil, r.err
	}
	until := r.clock().Add(await)
	for last := false; ; {
		reply, waitsFor, changed, err := r.nextBatch(id, namespace, size)
		if err != nil || waitsFor == nil {
			return reply, err
		}
		if last {
			r.leave(waitsFor)
			return reply, nil
		}
		last, err = r.await(changed, max(0, until.Sub(r.clock())), waitsFor.stream)
		r.leave(waitsFor)
		if err != nil {
			return nil, err
		}
	}
}

// leave says that the command does not wait any more for events of the cursor.
func (r *request) leave(c *cursor) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c.awaited--
}

// nextBatch answers one batch without waiting. If it is empty, although the cursor may have more after changed is closed, it
// returns the cursor, which the caller is to leave.
func (r *request) nextBatch(id int64, namespace string, size int) (reply bson.D, waitsFor *cursor, changed <-chan struct{}, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.cursor(id)
	switch {
	case c == nil:
		return nil, nil, nil, refuse(codeCursorNotFound, "cursor id %d not found", id)
	case c.namespace != namespace:
		return nil, nil, nil, refuse(codeUnauthorized, "Requested getMore on namespace '%s', but cursor belongs to a different namespace %s",
			namespace, c.namespace)
	case c.stream == nil:
		batch, rest := take(c.rest, size)
		if c.rest = rest; len(rest) == 0 {
			delete(r.cursors, id)
			id = 0
		}
		return r.cursorReply(id, namespace, "nextBatch", batch, nil), nil, nil, nil
	}
	batch, ended, err := c.events(size)
	if err != nil || ended {
		r.forget(id)
		id = 0
	}
	if err != nil {
		return nil, nil, nil, err
	}
	if len(batch) == 0 && !ended {
		waitsFor = c
		c.awaited++
	}
	return r.cursorReply(id, namespace, "nextBatch", batch, c.stream.Token()), waitsFor, r.changed, nil
}

func (r *request) killCursors() (bson.D, error) {
	r.need("cursors")
	ids := r.array("cursors")
	if r.err != nil {
		return nil, r.err
	}
	killed, unknown, awaited := bson.A{}, bson.A{}, 0
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, element := range ids {
		id, _ := element.(int64)
		c := r.cursor(id)
		if c == nil {
			unknown = append(unknown, element)
			continue
		}
		awaited += c.awaited
		r.forget(id)
		killed = append(killed, element)
	}
	if awaited > 0 {
		r.wake() // a getMore must see that its cursor is gone; in a simulated world, nobody else is to be woken by housekeeping
	}
	return bson.D{
		{Key: "cursorsKilled", Value: killed}, {Key: "cursorsNotFound", Value: unknown},
		{Key: "cursorsAlive", Value: bson.A{}}, {Key: "cursorsUnknown", Value: bson.A{}},
	}, nil
}
