package wire

import (
	"errors"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/fencepost-sim/fencepost/engine/store"
	"github.com/fencepost-sim/fencepost/sim/mongosim"
)

// statement runs one write. If the session has sent it before it is not run again: its outcome is repeated.
func (r *request) statement(place int, database string, q *mongosim.Request) (outcome mongosim.Outcome, repeated bool, err error) {
	q.Point = r.point
	caller := r.caller()
	retryable := r.numbered && !r.transaction
	if retryable {
		caller.Statement = &mongosim.Statement{Session: r.session, Number: r.number, Place: int32(place)}
	}
	err = r.locked(func() error {
		if retryable {
			done, err := r.model.Executed(caller.Statement)
			if err != nil {
				return &wholeError{err}
			}
			if repeated = done != nil; repeated {
				outcome, err = r.model.Repeat(done, q)
				return err
			}
		}
		struck := r.strikeNumbered(retryable)
		switch {
		case struck != nil && struck.code != 0 && struck.close:
			return ErrHangUp
		case struck != nil && struck.code != 0:
			return &wholeError{struck.error()}
		}
		if outcome, err = r.model.Execute(caller, database, q); err == nil && struck != nil && struck.close {
			return ErrHangUp
		}
		return err
	})
	return outcome, repeated, err
}

func (r *request) strikeNumbered(retryable bool) *failPoint {
	if !retryable {
		return nil
	}
	return r.strikeWrite()
}

// wholeError is about a command, whatever its code.
type wholeError struct{ error }

func (e *wholeError) Unwrap() error { return e.error }

// checkBatch refuses empty and oversized batches. Source: the manual's "maxWriteBatchSize".
func checkBatch(length int) error {
	if length < 1 || length > maxWriteBatchSize {
		return refuse(codeInvalidLength, "Write batch sizes must be between 1 and %d. Got %d operations.", maxWriteBatchSize, length)
	}
	return nil
}

// ofStatement tells the error of a single statement, which the reply lists under writeErrors, from that of a command. What labels an
// error, or says that the server lost its role, is about the command; in a transaction, every error that ends it.
func ofStatement(err error) (answer *store.Error, single bool) {
	var whole *wholeError
	if errors.As(err, &whole) || !errors.As(err, &answer) || len(answer.Labels) > 0 {
		return nil, false
	}
	if slices.Contains(roles, answer.Code) || slices.Contains([]int32{codeMaxTimeMSExpired, codeIllegalOperation, codeNotInTransaction, codeInvalidNamespace}, answer.Code) {
		return nil, false
	}
	return answer, true
}

func writeError(answer *store.Error, index int) bson.D {
	return append(bson.D{{Key: "index", Value: int32(index)}}, errorFields(answer)...)
}

// batch collects what the statements of a command answer.
type batch struct {
	n, modified int64
	upserted    bson.A
	failures    bson.A
	retried     bson.A
}

// run runs the statements one after the other. An error that is about the whole command ends it.
func (b *batch) run(r *request, count int, parse func(i int) (*mongosim.Request, error)) error {
	ordered := !has(r.document, "ordered") || r.flag("ordered")
	collection := r.collection()
	if r.err == nil {
		r.fail(checkBatch(count))
	}
	requests := make([]*mongosim.Request, count)
	for i := range requests {
		var err error
		if requests[i], err = parse(i); err != nil {
			r.fail(err)
			break
		}
		if r.numbered && !r.transaction && requests[i].Multi {
			r.fail(refuse(codeInvalidOptions, "Cannot use retryable writes with multi=true or limit=0"))
		}
	}
	if r.err != nil {
		return r.err
	}
	for i, q := range requests {
		r.between(i)
		q.Collection = collection
		outcome, repeated, err := r.statement(i, r.database, q)
		if err == nil {
			b.add(i, q.Kind, outcome, repeated)
			continue
		}
		answer, single := ofStatement(err)
		if !single {
			return err
		}
		b.n, b.modified = b.n+outcome.Matched, b.modified+outcome.Modified
		b.failures = append(b.failures, writeError(answer, i))
		if ordered || r.transaction {
			break
		}
	}
	return nil
}

func (b *batch) add(index int, kind store.Kind, outcome mongosim.Outcome, repeated bool) {
	if repeated {
		b.retried = append(b.retried, int32(index))
	}
	if kind == store.Insert {
		b.n++
		return
	}
	if kind == store.Update && outcome.Upserted != nil {
		b.n++
		b.upserted = append(b.upserted, bson.D{{Key: "index", Value: int32(index)}, {Key: "_id", Value: outcome.Upserted}})
		return
	}
	b.n += outcome.Matched
	b.modified += outcome.Modified
}

func (b *batch) reply(more ...bson.E) bson.D {
	reply := append(bson.D{{Key: "n", Value: int32(b.n)}}, more...)
	if b.upserted != nil {
		reply = append(reply, bson.E{Key: "upserted", Value: b.upserted})
	}
	if b.failures != nil {
		reply = append(reply, bson.E{Key: "writeErrors", Value: b.failures})
	}
	if b.retried != nil {
		reply = append(reply, bson.E{Key: "retriedStmtIds", Value: b.retried})
	}
	return reply
}

func (r *request) insert() (bson.D, error) {
	r.need("documents")
	documents := r.documents("documents")
	var b batch
	err := b.run(r, len(documents), func(i int) (*mongosim.Request, error) {
		return &mongosim.Request{Command: store.Command{Kind: store.Insert, Documents: documents[i : i+1]}}, nil
	})
	return b.reply(), err
}

func (r *request) update() (bson.D, error) {
	r.need("updates")
	statements, let := r.documents("updates"), r.embedded("let")
	var b batch
	err := b.run(r, len(statements), func(i int) (*mongosim.Request, error) { return parseUpdate(statements[i], let) })
	return b.reply(bson.E{Key: "nModified", Value: int32(b.modified)}), err
}

func parseUpdate(statement, let bson.D) (*mongosim.Request, error) {
	a := &arguments{document: statement}
	if err := a.only("update.updates", fieldSet{
		known: []string{"q", "u", "multi", "upsert", "hint", "arrayFilters", "sort", "upsertSupplied"}, unserved: []string{"collation", "c"},
	}); err != nil {
		return nil, err
	}
	a.need("q")
	a.need("u")
	q := &mongosim.Request{Command: store.Command{
		Kind: store.Update, Filter: a.embedded("q"), Multi: a.flag("multi"), Upsert: a.flag("upsert"), Sort: a.embedded("sort"),
	}, Let: let, ArrayFilters: a.documents("arrayFilters")}
	q.Hint, q.HintKeys = a.index("hint")
	q.Update, q.Pipeline = a.change("u")
	if len(q.Sort) > 0 && q.Multi {
		a.fail(refuse(codeFailedToParse, "Cannot specify sort with multi=true"))
	}
	return q, a.err
}

// change reads update operators, a new document, or an update pipeline.
func (a *arguments) change(key string) (document bson.D, pipeline []bson.D) {
	if _, isPipeline := a.value(key).(bson.A); isPipeline {
		if has(a.document, "arrayFilters") {
			a.fail(refuse(codeFailedToParse, "arrayFilters may not be specified for pipeline-style updates"))
		}
		return nil, a.documents(key)
	}
	document = a.embedded(key)
	if document == nil {
		a.fail(refuse(codeFailedToParse, "Update argument must be either an object or an array"))
	}
	return document, nil
}

func (r *request) delete() (bson.D, error) {
	r.need("deletes")
	statements, let := r.documents("deletes"), r.embedded("let")
	var b batch
	err := b.run(r, len(statements), func(i int) (*mongosim.Request, error) { return parseDelete(statements[i], let) })
	return b.reply(), err
}

func parseDelete(statement, let bson.D) (*mongosim.Request, error) {
	a := &arguments{document: statement}
	if err := a.only("delete.deletes", fieldSet{known: []string{"q", "limit", "hint"}, unserved: []string{"collation"}}); err != nil {
		return nil, err
	}
	a.need("q")
	a.need("limit")
	limit := a.number64("limit")
	if limit != 0 && limit != 1 {
		a.fail(refuse(codeFailedToParse, "The limit field in delete objects must be 0 or 1. Got %d", limit))
	}
	q := &mongosim.Request{Command: store.Command{Kind: store.Delete, Filter: a.embedded("q"), Multi: limit == 0}, Let: let}
	q.Hint, q.HintKeys = a.index("hint")
	return q, a.err
}

func (r *request) findAndModify() (bson.D, error) {
	q := &mongosim.Request{Command: store.Command{
		Kind: store.FindAndModify, Collection: r.collection(),
		Filter: r.embedded("query"), Sort: r.embedded("sort"), Projection: r.embedded("fields"),
		Upsert: r.flag("upsert"), ReturnBefore: !r.flag("new"),
	}, Let: r.embedded("let"), ArrayFilters: r.documents("arrayFilters"), Remove: r.flag("remove")}
	q.Hint, q.HintKeys = r.index("hint")
	switch updates := has(r.document, "update"); {
	case q.Remove && updates:
		r.fail(refuse(codeFailedToParse, "Cannot specify both an update and remove=true"))
	case q.Remove && q.Upsert:
		r.fail(refuse(codeFailedToParse, "Cannot specify both upsert=true and remove=true"))
	case q.Remove && !q.ReturnBefore:
		r.fail(refuse(codeFailedToParse, "Cannot specify both new=true and remove=true; 'remove' always returns the deleted document"))
	case !q.Remove && !updates:
		r.fail(refuse(codeFailedToParse, "Either an update or remove=true must be specified"))
	case updates:
		q.Update, q.Pipeline = r.change("update")
	}
	outcome, repeated, err := r.statement(0, r.database, q)
	if err != nil {
		return nil, err
	}
	var value any
	if outcome.Document != nil {
		value = outcome.Document
	}
	reply := bson.D{{Key: "lastErrorObject", Value: lastError(q, outcome)}, {Key: "value", Value: value}}
	if repeated {
		reply = append(reply, bson.E{Key: "retriedStmtId", Value: int32(0)})
	}
	return reply, nil
}

// lastError says what a find-and-modify did.
func lastError(q *mongosim.Request, outcome mongosim.Outcome) bson.D {
	n := int32(0)
	if outcome.Existing || outcome.Created != nil {
		n = 1
	}
	last := bson.D{{Key: "n", Value: n}}
	if !q.Remove {
		last = append(last, bson.E{Key: "updatedExisting", Value: outcome.Existing})
	}
	if outcome.Created != nil {
		last = append(last, bson.E{Key: "upserted", Value: outcome.Created})
	}
	return last
}

// split cuts a namespace in two.
func split(namespace string) (database, collection string) {
	database, collection, _ = strings.Cut(namespace, ".")
	return database, collection
}
