package wire

import (
	"errors"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/fencepost-sim/fencepost/engine/store"
	"github.com/fencepost-sim/fencepost/sim/mongosim"
)

// openStream opens a change stream on a collection, a database, or everything. Source: manual, "$changeStream".
func (r *request) openStream(pipeline []bson.D, size int) (bson.D, error) {
	options := arguments{document: (&arguments{document: pipeline[0]}).embedded("$changeStream")}
	if err := options.only("$changeStream", fieldSet{known: []string{
		"resumeAfter", "startAfter", "startAtOperationTime", "fullDocument", "fullDocumentBeforeChange", "allChangesForCluster", "showExpandedEvents",
	}}); err != nil {
		return nil, err
	}
	collection := r.target()
	request := mongosim.StreamRequest{
		Watch: store.Watch{
			Point: r.point, Collection: collection, Pipeline: pipeline[1:], ResumeAfter: options.embedded("resumeAfter"),
		},
		Cluster: options.flag("allChangesForCluster"), StartAfter: options.embedded("startAfter"),
		FullDocument: options.text("fullDocument"), BeforeChange: options.text("fullDocumentBeforeChange"), Expanded: options.flag("showExpandedEvents"),
	}
	if at, given := find(options.document, "startAtOperationTime"); given && at != nil {
		t, ok := at.(bson.Timestamp)
		if !ok {
			options.mismatch("$changeStream.startAtOperationTime", at, "timestamp")
		}
		request.StartAt = &t
	}
	switch {
	case r.transaction:
		r.fail(refuse(codeNotInTransaction, "$changeStream cannot be used in a transaction"))
	case r.read.level != "local" && r.read.level != "majority":
		r.fail(refuse(codeInvalidOptions, "$changeStream cannot be used with a '%s' read concern level", r.read.level))
	case request.Cluster && (r.database != "admin" || collection != ""):
		r.fail(refuse(codeInvalidOptions, "A $changeStream with 'allChangesForCluster:true' may only be opened on the 'admin' database, and with no collection name"))
	case collection == "" && r.database == "admin" && !request.Cluster:
		r.fail(refuse(codeInvalidNamespace, "$changeStream may not be opened on the internal admin database"))
	}
	r.fail(options.err)
	if r.err != nil {
		return nil, r.err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	stream, err := r.model.Stream(r.database, request)
	if err != nil {
		return nil, err
	}
	opened := &cursor{namespace: r.database + "." + collection, stream: stream}
	if len(r.faults) > 0 {
		opened.stream = &thinned{stream, r.Server}
	}
	if around := r.connection.around; around != nil && around.Watch != nil {
		opened.stream = around.Watch(stream)
	}
	if collection == "" {
		opened.namespace = r.database + ".$cmd.aggregate"
	}
	batch, ended, err := opened.events(size)
	if err != nil {
		return nil, err
	}
	id := int64(0)
	if !ended {
		id = r.keep(opened)
	}
	return r.cursorReply(id, opened.namespace, "firstBatch", batch, opened.stream.Token()), nil
}

// events takes those events from a stream that are there. An error after the first waits for the next batch.
func (c *cursor) events(size int) (batch bson.A, ended bool, err error) {
	batch = bson.A{}
	if c.failure != nil {
		return nil, true, c.failure
	}
	for bytes := 0; len(batch) < size && bytes < maxBatchBytes/2; {
		event, err := c.stream.NextEvent()
		if errors.Is(err, store.ErrStreamClosed) {
			return batch, true, nil
		}
		if err != nil && len(batch) == 0 {
			return nil, true, err
		}
		if err != nil || event == nil {
			c.failure = err
			return batch, c.stream.Invalidated(), nil
		}
		bytes += mongosim.SizeOf(event)
		batch = append(batch, event)
	}
	return batch, c.stream.Invalidated(), nil
}
