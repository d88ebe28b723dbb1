package wire

import (
	"math"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/fencepost-sim/fencepost/engine/store"
	"github.com/fencepost-sim/fencepost/sim/mongosim"
)

func (r *request) find() (bson.D, error) {
	q := &mongosim.Request{Command: store.Command{
		Point: r.point, Kind: store.Find, Collection: r.collection(),
		Filter: r.embedded("filter"), Sort: r.embedded("sort"), Limit: r.notNegative("limit"), Projection: r.embedded("projection"),
	}, Skip: r.notNegative("skip"), Let: r.embedded("let")}
	q.Hint, q.HintKeys = r.index("hint")
	size := r.batchSize(firstBatch)
	single := r.flag("singleBatch")
	var found mongosim.Outcome
	err := r.locked(func() (err error) {
		found, err = r.model.Execute(r.caller(), r.database, q)
		return err
	})
	if err != nil {
		return nil, err
	}
	return r.firstBatch(q.Collection, found.Documents, size, single), nil
}

// firstBatch answers the first documents, and keeps a cursor for the others.
func (r *request) firstBatch(collection string, documents []bson.D, size int, single bool) bson.D {
	r.mu.Lock()
	defer r.mu.Unlock()
	batch, rest := take(documents, size)
	id := int64(0)
	if len(rest) > 0 && !single {
		id = r.keep(&cursor{namespace: r.database + "." + collection, rest: rest})
	}
	return r.cursorReply(id, r.database+"."+collection, "firstBatch", batch, nil)
}

// count counts by query, or without one what the collection's metadata says.
func (r *request) count() (bson.D, error) {
	limit := r.number64("limit")
	q := &mongosim.Request{Command: store.Command{
		Point: r.point, Kind: store.Find, Collection: r.collection(), Filter: r.embedded("query"), Limit: max(limit, -limit),
	}, Skip: r.notNegative("skip")}
	q.Hint, q.HintKeys = r.index("hint")
	n := 0
	err := r.locked(func() error {
		if len(q.Filter) == 0 && q.Limit == 0 && q.Skip == 0 && r.read.level == "local" && r.model.IsPrimary() {
			n = r.model.Count(r.database, q.Collection)
			return nil
		}
		found, err := r.model.Execute(r.caller(), r.database, q)
		n = len(found.Documents)
		return err
	})
	if err != nil {
		return nil, err
	}
	return bson.D{{Key: "n", Value: narrow(int64(n))}}, nil
}

// narrow is a count as servers send it: 32 bits if that is enough.
func narrow(n int64) any {
	if n <= math.MaxInt32 {
		return int32(n)
	}
	return n
}

func (r *request) distinct() (bson.D, error) {
	r.need("key")
	q := &mongosim.Request{Command: store.Command{Point: r.point, Collection: r.collection(), Filter: r.embedded("query")}}
	q.Hint, q.HintKeys = r.index("hint")
	field := r.text("key")
	var values bson.A
	err := r.locked(func() (err error) {
		values, err = r.model.Distinct(r.caller(), r.database, field, q)
		return err
	})
	reply := bson.D{{Key: "values", Value: values}}
	if r.read.snapshot {
		reply = append(reply, bson.E{Key: "atClusterTime", Value: r.read.at})
	}
	return reply, err
}

// aggregate runs a pipeline, or opens a change stream.
func (r *request) aggregate() (bson.D, error) {
	pipeline := r.documents("pipeline")
	if r.err == nil && !has(r.document, "cursor") {
		r.fail(refuse(codeFailedToParse, "The 'cursor' option is required, except for aggregate with the explain argument"))
	}
	options := arguments{document: r.embedded("cursor")}
	r.fail(options.only("cursor", fieldSet{known: []string{"batchSize"}}))
	size := options.batchSize(firstBatch)
	r.fail(options.err)
	switch {
	case r.err != nil:
		return nil, r.err
	case r.stream:
		return r.openStream(pipeline, size)
	case len(pipeline) > 0 && len(pipeline[0]) > 0 && pipeline[0][0].Key == "$listSearchIndexes":
		return r.searchIndex()
	}
	a := mongosim.Aggregation{Collection: r.target(), Pipeline: pipeline, Let: r.embedded("let"), Session: r.session}
	a.Hint, a.HintKeys = r.index("hint")
	if r.transaction && mongosim.Writes(pipeline) {
		r.fail(refuse(codeNotInTransaction, "%s cannot be used in a transaction", pipeline[len(pipeline)-1][0].Key))
	}
	if mongosim.Writes(pipeline) && r.read.level == "linearizable" {
		r.fail(refuse(codeInvalidOptions, "%s cannot be used with a 'linearizable' read concern level", pipeline[len(pipeline)-1][0].Key))
	}
	if mongosim.Writes(pipeline) {
		r.goToPrimary()
	}
	var documents []bson.D
	err := r.locked(func() (err error) {
		documents, err = r.model.Aggregate(r.caller(), r.database, a)
		return err
	})
	if err != nil {
		return nil, err
	}
	if a.Collection == "" {
		a.Collection = "$cmd.aggregate"
	}
	return r.firstBatch(a.Collection, documents, size, false), nil
}

// goToPrimary lets the primary run a pipeline that writes. (A secondary of MongoDB reads itself, and has the primary write.)
func (r *request) goToPrimary() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if set := r.model.Set(); set != nil && !r.model.IsPrimary() && r.secondaryOK() {
		if leader := set.Primary(); leader != nil {
			r.model = leader
		}
	}
}

// target is the collection of an aggregation, or empty for one on the database.
func (r *request) target() string {
	switch name := r.value(r.name).(type) {
	case string:
		return name
	case int32, int64, float64:
		if n := r.number64(r.name); n == 1 {
			return ""
		}
	}
	r.fail(refuse(codeFailedToParse, "Invalid command format: the 'aggregate' field must specify a collection name or 1"))
	return ""
}

// explain tells how a command would find its documents. Source: manual, "Explain Results".
func (r *request) explain() (bson.D, error) {
	inner := arguments{document: r.embedded(r.name)}
	verbosity := r.text("verbosity")
	if r.err == nil && len(inner.document) == 0 {
		r.fail(refuse(codeFailedToParse, "explain needs a command"))
	}
	if r.err != nil {
		return nil, r.err
	}
	q, err := explained(&inner)
	if err != nil {
		return nil, err
	}
	q.Collection = inner.text(inner.document[0].Key)
	r.fail(inner.err)
	var plan mongosim.Plan
	err = r.locked(func() (err error) {
		plan, err = r.model.ExplainRequest(r.caller(), r.database, q)
		return err
	})
	if err != nil {
		return nil, err
	}
	reply := bson.D{
		{Key: "explainVersion", Value: "1"},
		{Key: "queryPlanner", Value: bson.D{
			{Key: "namespace", Value: r.database + "." + q.Collection}, {Key: "winningPlan", Value: winner(plan)}, {Key: "rejectedPlans", Value: bson.A{}},
		}},
		{Key: "command", Value: inner.document},
		{Key: "serverInfo", Value: bson.D{{Key: "host", Value: r.connection.address}, {Key: "version", Value: serverVersion}}},
	}
	if verbosity == "queryPlanner" {
		return reply, nil
	}
	return append(reply, bson.E{Key: "executionStats", Value: bson.D{
		{Key: "executionSuccess", Value: true}, {Key: "nReturned", Value: int32(plan.Returned)}, {Key: "executionTimeMillis", Value: int32(0)},
		{Key: "totalKeysExamined", Value: int32(plan.KeysExamined)}, {Key: "totalDocsExamined", Value: int32(plan.DocsExamined)},
	}}), nil
}

// explained reads the part of a command that says what it looks for.
func explained(inner *arguments) (*mongosim.Request, error) {
	q := &mongosim.Request{Command: store.Command{Kind: store.Find, Sort: inner.embedded("sort"), Limit: inner.number64("limit")}}
	statement := *inner
	switch inner.document[0].Key {
	case "find":
		q.Filter = inner.embedded("filter")
	case "count", "distinct":
		q.Filter = inner.embedded("query")
	case "findAndModify":
		q.Kind, q.Filter = store.FindAndModify, inner.embedded("query")
	case "update", "delete":
		statements := inner.documents(inner.document[0].Key + "s")
		if len(statements) != 1 {
			return nil, refuse(codeInvalidOptions, "explained write batches must be of size 1")
		}
		statement = arguments{document: statements[0]}
		q.Kind, q.Filter, q.Multi = store.Update, statement.embedded("q"), statement.flag("multi")
		if inner.document[0].Key == "delete" {
			q.Multi = statement.number64("limit") == 0
		}
	default:
		return nil, notImplemented("explain of %q", inner.document[0].Key)
	}
	q.Hint, q.HintKeys = statement.index("hint")
	return q, statement.err
}

func winner(plan mongosim.Plan) bson.D {
	stage := bson.D{{Key: "stage", Value: "COLLSCAN"}, {Key: "direction", Value: "forward"}}
	if plan.Index != "" {
		stage = bson.D{{Key: "stage", Value: "FETCH"}, {Key: "inputStage", Value: bson.D{
			{Key: "stage", Value: "IXSCAN"}, {Key: "indexName", Value: plan.Index},
		}}}
	}
	if plan.SortInMemory {
		stage = bson.D{{Key: "stage", Value: "SORT"}, {Key: "inputStage", Value: stage}}
	}
	return stage
}
