package wire

import (
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/fencepost-sim/fencepost/engine/store"
	"github.com/fencepost-sim/fencepost/sim/mongosim"
)

// The command bulkWrite of MongoDB 8.0: writes to several collections in one batch. Source: manual, "bulkWrite".

type bulk struct {
	inserted, matched, modified, upserted, deleted, errors int32
	results                                                []bson.D
}

func (r *request) bulkWrite() (bson.D, error) {
	ordered, errorsOnly := !has(r.document, "ordered") || r.flag("ordered"), r.flag("errorsOnly")
	let, operations := r.embedded("let"), r.documents("ops")
	var namespaces []string
	for _, info := range r.documents("nsInfo") {
		a := arguments{document: info}
		namespaces = append(namespaces, a.text("ns"))
		r.fail(a.err)
	}
	if r.err == nil {
		r.fail(checkBatch(len(operations)))
	}
	requests, databases := make([]*mongosim.Request, len(operations)), make([]string, len(operations))
	for i, operation := range operations {
		q, namespace, err := parseOperation(operation, namespaces, let)
		if err != nil {
			return nil, err
		}
		if r.numbered && !r.transaction && q.Multi {
			return nil, refuse(codeInvalidOptions, "Cannot use retryable writes with multi=true")
		}
		databases[i], q.Collection = split(namespace)
		requests[i] = q
	}
	if r.err != nil {
		return nil, r.err
	}
	var b bulk
	for i, q := range requests {
		r.between(i)
		outcome, _, err := r.statement(i, databases[i], q)
		answer, single := ofStatement(err)
		if err != nil && !single {
			return nil, err
		}
		b.add(i, q, outcome, answer, errorsOnly)
		if err != nil && (ordered || r.transaction) {
			break
		}
	}
	options := arguments{document: r.embedded("cursor")}
	return append(r.bulkCursor(b.results, options.batchSize(len(b.results)+1)),
		bson.E{Key: "nErrors", Value: b.errors}, bson.E{Key: "nInserted", Value: b.inserted}, bson.E{Key: "nMatched", Value: b.matched},
		bson.E{Key: "nModified", Value: b.modified}, bson.E{Key: "nUpserted", Value: b.upserted}, bson.E{Key: "nDeleted", Value: b.deleted},
	), options.err
}

func (r *request) bulkCursor(results []bson.D, size int) bson.D {
	r.mu.Lock()
	defer r.mu.Unlock()
	const namespace = "admin.$cmd.bulkWrite"
	batch, rest := take(results, size)
	id := int64(0)
	if len(rest) > 0 {
		id = r.keep(&cursor{namespace: namespace, rest: rest})
	}
	return r.cursorReply(id, namespace, "firstBatch", batch, nil)
}

// parseOperation reads one operation and the namespace that it is on.
func parseOperation(operation bson.D, namespaces []string, let bson.D) (*mongosim.Request, string, error) {
	if len(operation) == 0 {
		return nil, "", refuse(codeFailedToParse, "an operation of bulkWrite is empty")
	}
	a := &arguments{document: operation}
	kind := operation[0].Key
	place := a.number64(kind)
	if place < 0 || place >= int64(len(namespaces)) {
		return nil, "", refuse(codeBadValue, "BulkWrite ops entry has an invalid nsInfo index: %d", place)
	}
	q := &mongosim.Request{Let: let}
	var err error
	switch kind {
	case "insert":
		err = a.only("bulkWrite.ops", fieldSet{known: []string{"insert", "document"}})
		a.need("document")
		q.Kind, q.Documents = store.Insert, []bson.D{a.embedded("document")}
	case "update":
		err = a.only("bulkWrite.ops", fieldSet{
			known:    []string{"update", "filter", "updateMods", "multi", "upsert", "hint", "arrayFilters", "sort", "upsertSupplied"},
			unserved: []string{"collation", "constants"},
		})
		a.need("filter")
		q.Kind, q.Filter, q.Multi, q.Upsert = store.Update, a.embedded("filter"), a.flag("multi"), a.flag("upsert")
		q.Sort, q.ArrayFilters = a.embedded("sort"), a.documents("arrayFilters")
		q.Hint, q.HintKeys = a.index("hint")
		q.Update, q.Pipeline = a.change("updateMods")
	case "delete":
		err = a.only("bulkWrite.ops", fieldSet{known: []string{"delete", "filter", "multi", "hint"}, unserved: []string{"collation"}})
		a.need("filter")
		q.Kind, q.Filter, q.Multi = store.Delete, a.embedded("filter"), a.flag("multi")
		q.Hint, q.HintKeys = a.index("hint")
	default:
		return nil, "", refuse(codeUnknownField, "BSON field 'bulkWrite.ops.%s' is an unknown field.", kind)
	}
	if err == nil {
		err = a.err
	}
	return q, namespaces[place], err
}

func (b *bulk) add(index int, q *mongosim.Request, outcome mongosim.Outcome, failure *store.Error, errorsOnly bool) {
	result := bson.D{{Key: "ok", Value: 1.0}, {Key: "idx", Value: int32(index)}}
	switch {
	case failure != nil:
		b.errors++
		result = append(bson.D{{Key: "ok", Value: 0.0}, {Key: "idx", Value: int32(index)}}, errorFields(failure)...)
		b.results = append(b.results, append(result, bson.E{Key: "n", Value: int32(0)}))
		return
	case q.Kind == store.Insert:
		b.inserted++
		result = append(result, bson.E{Key: "n", Value: int32(1)})
	case q.Kind == store.Delete:
		b.deleted += int32(outcome.Matched)
		result = append(result, bson.E{Key: "n", Value: int32(outcome.Matched)})
	case outcome.Upserted != nil:
		b.upserted++
		result = append(result, bson.E{Key: "n", Value: int32(1)}, bson.E{Key: "nModified", Value: int32(0)},
			bson.E{Key: "upserted", Value: bson.D{{Key: "_id", Value: outcome.Upserted}}})
	default:
		b.matched, b.modified = b.matched+int32(outcome.Matched), b.modified+int32(outcome.Modified)
		result = append(result, bson.E{Key: "n", Value: int32(outcome.Matched)}, bson.E{Key: "nModified", Value: int32(outcome.Modified)})
	}
	if !errorsOnly {
		b.results = append(b.results, result)
	}
}
