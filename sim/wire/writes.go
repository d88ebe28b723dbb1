package wire

import (
	"errors"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/fencepost-sim/fencepost/engine/store"
	"github.com/fencepost-sim/fencepost/sim/mongosim"
)

func (r *request) insert() (bson.D, error) {
	documents := r.documents("documents")
	if err := checkBatch("documents", len(documents)); err != nil {
		return nil, err
	}
	inserted, err := r.apply(store.Command{
		Kind: store.Insert, Collection: r.collection(), Documents: documents, Unordered: !r.ordered(),
	})
	reply := bson.D{{Key: "n", Value: int32(inserted.Inserted)}}
	if err == nil {
		return reply, nil
	}
	answer, single := ofDocument(err)
	if !single {
		return nil, err
	}
	failures := bson.A{writeError(answer, answer.Index)}
	for _, other := range answer.Others {
		failures = append(failures, writeError(other, other.Index))
	}
	return append(reply, bson.E{Key: "writeErrors", Value: failures}), nil
}

// ordered says whether a batch ends with its first error, which it does unless told otherwise.
func (r *request) ordered() bool { return !has(r.document, "ordered") || r.flag("ordered") }

// checkBatch refuses empty and oversized batches. Source: the manual's "maxWriteBatchSize".
func checkBatch(field string, length int) error {
	if length < 1 || length > maxWriteBatchSize {
		return &store.Error{
			Code: 16, CodeName: "InvalidLength",
			Message: "Write batch sizes must be between 1 and 100000: " + field,
		}
	}
	return nil
}

// ofDocument tells the error of a single document, which the reply lists under writeErrors, from that of a command. What
// labels an error, or says that the server lost its role, is about the command.
func ofDocument(err error) (answer *store.Error, single bool) {
	if !errors.As(err, &answer) || len(answer.Labels) > 0 {
		return nil, false
	}
	switch answer.Code {
	case 91, 189, 10107, 11600, 11602, 13435, 13436: // the state-change errors of the driver specifications
		return nil, false
	}
	return answer, true
}

func writeError(answer *store.Error, index int) bson.D {
	return append(bson.D{{Key: "index", Value: int32(index)}}, errorFields(answer)...)
}

// batch collects what the statements of an update or delete answer.
type batch struct {
	n, modified int64
	upserted    bson.A
	failures    bson.A
}

// run applies the statements one after the other. An error that is about the whole command ends it.
func (b *batch) run(r *request, statements []bson.D, parse func(*arguments) store.Command) error {
	ordered, collection := r.ordered(), r.collection()
	for i, statement := range statements {
		a := &arguments{document: statement}
		c := parse(a)
		if a.err == nil && c.Multi && has(r.document, "txnNumber") {
			a.err = refuse(codeInvalidOptions, "Cannot use retryable writes with multi=true or limit=0")
		}
		if a.err != nil {
			return a.err
		}
		c.Collection = collection
		reply, err := r.apply(c)
		if err == nil {
			b.add(i, reply)
			continue
		}
		answer, single := ofDocument(err)
		if !single {
			return err
		}
		b.failures = append(b.failures, writeError(answer, i))
		if ordered {
			break
		}
	}
	return nil
}

func (b *batch) add(index int, reply store.Reply) {
	b.n += reply.Matched
	b.modified += reply.Modified
	if reply.Upserted != nil {
		b.n++
		b.upserted = append(b.upserted, bson.D{{Key: "index", Value: int32(index)}, {Key: "_id", Value: reply.Upserted}})
	}
}

func (b *batch) reply() bson.D {
	reply := bson.D{{Key: "n", Value: int32(b.n)}}
	if b.upserted != nil {
		reply = append(reply, bson.E{Key: "upserted", Value: b.upserted})
	}
	if b.failures != nil {
		reply = append(reply, bson.E{Key: "writeErrors", Value: b.failures})
	}
	return reply
}

func (r *request) update() (bson.D, error) {
	statements := r.documents("updates")
	if err := checkBatch("updates", len(statements)); err != nil {
		return nil, err
	}
	var b batch
	if err := b.run(r, statements, parseUpdate); err != nil {
		return nil, err
	}
	return append(b.reply(), bson.E{Key: "nModified", Value: int32(b.modified)}), nil
}

func parseUpdate(a *arguments) store.Command {
	if err := a.only("q", "u", "multi", "upsert", "hint"); err != nil {
		a.err = err
	}
	c := store.Command{
		Kind: store.Update, Filter: a.embedded("q"), Multi: a.flag("multi"), Upsert: a.flag("upsert"), Hint: a.index("hint"),
	}
	c.Update, c.Pipeline = a.change("u")
	return c
}

// change reads update operators or an update pipeline.
func (a *arguments) change(key string) (operators bson.D, pipeline []bson.D) {
	if _, isPipeline := a.value(key).(bson.A); isPipeline {
		return nil, a.documents(key)
	}
	operators = a.embedded(key)
	if len(operators) == 0 || !strings.HasPrefix(operators[0].Key, "$") {
		if a.err == nil {
			a.err = notImplemented("updates that replace the document")
		}
	}
	return operators, nil
}

func (r *request) delete() (bson.D, error) {
	statements := r.documents("deletes")
	if err := checkBatch("deletes", len(statements)); err != nil {
		return nil, err
	}
	var b batch
	if err := b.run(r, statements, parseDelete); err != nil {
		return nil, err
	}
	return b.reply(), nil
}

func parseDelete(a *arguments) store.Command {
	if err := a.only("q", "limit", "hint"); err != nil {
		a.err = err
	}
	return store.Command{Kind: store.Delete, Filter: a.embedded("q"), Multi: a.number("limit") == 0, Hint: a.index("hint")}
}

func (r *request) findAndModify() (bson.D, error) {
	c := store.Command{
		Kind: store.FindAndModify, Collection: r.collection(),
		Filter: r.embedded("query"), Sort: r.embedded("sort"), Projection: r.embedded("fields"), Hint: r.index("hint"),
		Upsert: r.flag("upsert"), ReturnBefore: !r.flag("new"),
	}
	c.Update, c.Pipeline = r.change("update")
	if r.err != nil {
		return nil, r.err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.model.OplogLen()
	reply, err := r.applyLocked(c)
	if err != nil {
		return nil, err
	}
	var value any
	if reply.Document != nil {
		value = reply.Document
	}
	last := lastError(reply, r.model.OplogSince(before))
	return bson.D{{Key: "lastErrorObject", Value: last}, {Key: "value", Value: value}}, nil
}

// lastError says what a find-and-modify did. Only the oplog tells whether it inserted a document, since
// it may have been asked for the one before, which there is not.
func lastError(reply store.Reply, written []mongosim.Entry) bson.D {
	for _, entry := range written {
		if entry.Operation == mongosim.Insert {
			return bson.D{{Key: "n", Value: int32(1)}, {Key: "updatedExisting", Value: false}, {Key: "upserted", Value: entry.ID}}
		}
	}
	if reply.Document != nil {
		return bson.D{{Key: "n", Value: int32(1)}, {Key: "updatedExisting", Value: true}}
	}
	return bson.D{{Key: "n", Value: int32(0)}, {Key: "updatedExisting", Value: false}}
}
