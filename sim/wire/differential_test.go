package wire

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"pgregory.net/rapid"

	"github.com/fencepost-sim/fencepost/engine/store"
	"github.com/fencepost-sim/fencepost/sim/mongosim"
)

// The same random operations on the model directly, and through the official driver and this server, must have the same results: what
// lies between is then only a way of saying things. Where FENCEPOST_MONGODB_URI names a MongoDB, it must agree as well.

// operation is one request in both languages. A find without a sort is not drawn, since its order is nobody's promise.
type operation struct {
	request  mongosim.Request
	pipeline []bson.D // an aggregation instead
	distinct string   // the distinct values of a field instead
}

func (o operation) String() string {
	return fmt.Sprintf("%s %v sort %v update %v%v filters %v multi %v upsert %v remove %v documents %v pipeline %v distinct %q", o.request.Kind,
		o.request.Filter, o.request.Sort, o.request.Update, o.request.Pipeline, o.request.ArrayFilters, o.request.Multi, o.request.Upsert,
		o.request.Remove, o.request.Documents, o.pipeline, o.distinct)
}

// answer is what an operation comes to, as far as both sides can say it.
type answer struct {
	Documents                   []bson.D
	Values                      bson.A
	Matched, Modified, Inserted int64
	Upserted                    any
	Code                        int32
}

var (
	smallInt = rapid.Custom(func(t *rapid.T) any { return rapid.Int32Range(0, 4).Draw(t, "number") })
	value    = rapid.OneOf(smallInt, smallInt, rapid.SampledFrom([]any{
		nil, "a", "b", 1.5, int64(2), true, bson.DateTime(1000), d("k", int32(1)), bson.A{}, bson.A{int32(1), int32(2)}, bson.A{d("k", int32(1)), d("k", int32(2))},
	}))
	field = rapid.SampledFrom([]string{"x", "y", "l", "x.k", "l.k"})
	top   = rapid.SampledFrom([]string{"x", "y", "l"})
)

var condition = rapid.Custom(func(t *rapid.T) bson.D {
	if rapid.Bool().Draw(t, "by id") {
		return d("_id", smallInt.Draw(t, "id"))
	}
	op := rapid.SampledFrom([]string{"$eq", "$ne", "$gt", "$gte", "$lt", "$lte"}).Draw(t, "operator")
	out := d(field.Draw(t, "field"), d(op, value.Draw(t, "operand")))
	switch rapid.IntRange(0, 5).Draw(t, "more") {
	case 0:
		out = append(out, bson.E{Key: "$or", Value: bson.A{d("x", value.Draw(t, "x")), d("y", d("$exists", true))}})
	case 1:
		out = append(out, bson.E{Key: "l", Value: d("$elemMatch", d("$gte", smallInt.Draw(t, "element")))})
	}
	return out
})

var change = rapid.Custom(func(t *rapid.T) bson.D {
	switch rapid.IntRange(0, 8).Draw(t, "change") {
	case 0:
		return d("$inc", d(field.Draw(t, "field"), smallInt.Draw(t, "by")))
	case 1:
		return d("$unset", d(field.Draw(t, "field"), ""))
	case 2:
		return d("$push", d("l", d("$each", bson.A{value.Draw(t, "element")}, "$slice", int32(-4))))
	case 3:
		return d("$addToSet", d("l", value.Draw(t, "element")), "$setOnInsert", d("y", int32(0)))
	case 4:
		return d("$pull", d("l", value.Draw(t, "element")))
	case 5:
		return d("$set", d("l.$[]", smallInt.Draw(t, "to")))
	case 6:
		return d("$rename", d("x", "y"))
	case 7:
		return d("$set", d("l.$", smallInt.Draw(t, "to")))
	}
	return d("$set", d(field.Draw(t, "field"), value.Draw(t, "to")))
})

var drawn = rapid.Custom(func(t *rapid.T) operation {
	request := mongosim.Request{Command: store.Command{Collection: "c"}}
	switch rapid.IntRange(0, 9).Draw(t, "kind") {
	case 0, 1:
		request.Kind = store.Insert
		request.Unordered = rapid.Bool().Draw(t, "unordered")
		for range rapid.IntRange(1, 3).Draw(t, "documents") {
			document := d("_id", smallInt.Draw(t, "id"))
			for _, name := range []string{"x", "y", "l"} {
				if rapid.Bool().Draw(t, "has") {
					document = append(document, bson.E{Key: name, Value: value.Draw(t, name)})
				}
			}
			request.Documents = append(request.Documents, document)
		}
	case 2, 3, 4:
		request.Kind, request.Filter, request.Update = store.Update, condition.Draw(t, "filter"), change.Draw(t, "update")
		request.Multi, request.Upsert = rapid.Bool().Draw(t, "multi"), has(request.Filter, "_id") && rapid.Bool().Draw(t, "upsert")
	case 5:
		request.Kind, request.Filter, request.Sort = store.FindAndModify, condition.Draw(t, "filter"), d("_id", int32(1))
		if request.Remove = rapid.Bool().Draw(t, "remove"); request.Remove {
			request.ReturnBefore = true
		} else {
			request.Update, request.ReturnBefore = change.Draw(t, "update"), rapid.Bool().Draw(t, "before")
		}
	case 6:
		request.Kind, request.Filter, request.Multi = store.Delete, condition.Draw(t, "filter"), rapid.Bool().Draw(t, "multi")
	case 7:
		return operation{request: request, pipeline: []bson.D{
			d("$match", condition.Draw(t, "filter")), d("$sort", d("_id", int32(1))),
			d("$group", d("_id", "$"+top.Draw(t, "by"), "n", d("$sum", int32(1)), "ids", d("$push", "$_id"))), d("$sort", d("ids", int32(1))),
		}}
	case 8:
		request.Filter = condition.Draw(t, "filter")
		return operation{request: request, distinct: field.Draw(t, "field")}
	default:
		request.Kind, request.Filter = store.Find, condition.Draw(t, "filter")
		request.Sort = d(top.Draw(t, "by"), int32(1), "_id", rapid.SampledFrom([]any{int32(1), int32(-1)}).Draw(t, "direction"))
		request.Limit, request.Skip = rapid.Int64Range(0, 3).Draw(t, "limit"), rapid.Int64Range(0, 2).Draw(t, "skip")
	}
	return operation{request: request}
})

// directly runs the operation on a model.
func (o operation) directly(model *mongosim.Server, now time.Time) (a answer) {
	caller := mongosim.Caller{Now: now}
	request := o.request
	var err error
	var outcome mongosim.Outcome
	switch {
	case o.pipeline != nil:
		a.Documents, err = model.Aggregate(caller, "d", mongosim.Aggregation{Collection: "c", Pipeline: o.pipeline})
	case o.distinct != "":
		a.Values, err = model.Distinct(caller, "d", o.distinct, &request)
	default:
		outcome, err = model.Execute(caller, "d", &request)
	}
	a.Code = codeOf(err)
	switch request.Kind {
	case store.Insert:
		a.Inserted = outcome.Inserted
	case store.Update, store.Delete:
		a.Matched, a.Modified, a.Upserted = outcome.Matched, outcome.Modified, outcome.Upserted
	case store.Find:
		a.Documents = outcome.Documents
	case store.FindAndModify:
		if outcome.Document != nil {
			a.Documents = []bson.D{outcome.Document}
		}
	}
	if a.Code != 0 && request.Kind != store.Insert {
		a = answer{Code: a.Code} // drivers do not say what was done before
	}
	return a
}

func codeOf(err error) int32 {
	var own *store.Error
	if errors.As(err, &own) {
		return own.Code
	}
	var write mongo.WriteException
	if errors.As(err, &write) && len(write.WriteErrors) > 0 {
		return int32(write.WriteErrors[0].Code)
	}
	var bulk mongo.BulkWriteException
	if errors.As(err, &bulk) && len(bulk.WriteErrors) > 0 {
		return int32(bulk.WriteErrors[0].Code)
	}
	var command mongo.CommandError
	if errors.As(err, &command) {
		return command.Code
	}
	if err != nil {
		return -1
	}
	return 0
}

// through runs the operation through a driver.
func (o operation) through(ctx context.Context, collection *mongo.Collection) (a answer) {
	q := o.request
	var err error
	switch {
	case o.pipeline != nil:
		a.Documents, err = all(ctx)(collection.Aggregate(ctx, o.pipeline))
	case o.distinct != "":
		found := collection.Distinct(ctx, o.distinct, q.Filter)
		if err = found.Err(); err == nil {
			err = found.Decode(&a.Values)
		}
	default:
		a, err = throughKind(ctx, collection, q)
	}
	a.Code = codeOf(err)
	if a.Code != 0 && q.Kind != store.Insert {
		a = answer{Code: a.Code}
	}
	return a
}

func throughKind(ctx context.Context, collection *mongo.Collection, q mongosim.Request) (a answer, err error) {
	switch q.Kind {
	case store.Insert:
		inserted, failure := collection.InsertMany(ctx, q.Documents, options.InsertMany().SetOrdered(!q.Unordered))
		a.Inserted, err = int64(len(q.Documents)), failure
		var bulk mongo.BulkWriteException
		if errors.As(err, &bulk) {
			a.Inserted = int64(len(inserted.InsertedIDs))
		}
	case store.Update:
		var updated *mongo.UpdateResult
		if q.Multi {
			updated, err = collection.UpdateMany(ctx, q.Filter, q.Update, options.UpdateMany().SetUpsert(q.Upsert))
		} else {
			updated, err = collection.UpdateOne(ctx, q.Filter, q.Update, options.UpdateOne().SetUpsert(q.Upsert))
		}
		if updated != nil {
			a.Matched, a.Modified, a.Upserted = updated.MatchedCount, updated.ModifiedCount, updated.UpsertedID
		}
	case store.Delete:
		if q.Multi {
			deleted, err := collection.DeleteMany(ctx, q.Filter)
			if deleted != nil {
				a.Matched = deleted.DeletedCount
			}
			return a, err
		}
		deleted, failure := collection.DeleteOne(ctx, q.Filter)
		if err = failure; deleted != nil {
			a.Matched = deleted.DeletedCount
		}
	case store.FindAndModify:
		a.Documents, err = modified(ctx, collection, q)
	case store.Find:
		a.Documents, err = all(ctx)(collection.Find(ctx, q.Filter, options.Find().SetSort(q.Sort).SetLimit(q.Limit).SetSkip(q.Skip).SetBatchSize(2)))
	}
	return a, err
}

func modified(ctx context.Context, collection *mongo.Collection, q mongosim.Request) ([]bson.D, error) {
	var found *mongo.SingleResult
	if q.Remove {
		found = collection.FindOneAndDelete(ctx, q.Filter, options.FindOneAndDelete().SetSort(q.Sort))
	} else {
		which := options.After
		if q.ReturnBefore {
			which = options.Before
		}
		found = collection.FindOneAndUpdate(ctx, q.Filter, q.Update, options.FindOneAndUpdate().SetSort(q.Sort).SetReturnDocument(which))
	}
	var document bson.D
	err := found.Decode(&document)
	if errors.Is(err, mongo.ErrNoDocuments) {
		return nil, nil
	}
	return []bson.D{document}, err
}

func all(ctx context.Context) func(*mongo.Cursor, error) ([]bson.D, error) {
	return func(cursor *mongo.Cursor, err error) ([]bson.D, error) {
		if err != nil {
			return nil, err
		}
		var documents []bson.D
		err = cursor.All(ctx, &documents)
		return documents, err
	}
}

// canonical makes answers comparable: their BSON.
func (a answer) canonical(t interface{ Fatal(...any) }) []byte {
	if len(a.Documents) == 0 {
		a.Documents = nil
	}
	if len(a.Values) == 0 {
		a.Values = nil
	}
	out, err := bson.Marshal(a)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestTheDriverThroughTheWireDoesWhatTheModelDoes(t *testing.T) {
	now := time.Date(2024, 5, 1, 12, 0, 0, 0, time.UTC)
	server := NewServer(Options{Model: mongosim.New(mongosim.Options{Seed: 5}), Now: func() time.Time { return now }, Report: func(err error) { t.Error(err) }})
	t.Cleanup(server.Close)
	client := connectDriver(t, options.Client().SetDialer(server.Dialer()).SetHosts([]string{"model.test:27017"}))
	compareRandomly(t, client, func() mongosim.Options { return mongosim.Options{Seed: 5} }, now)
}

// A MongoDB finds documents without a sort in the order of their insertion, as the model with the seed zero does.
func TestMongoDBDoesWhatTheModelDoes(t *testing.T) {
	uri := os.Getenv("FENCEPOST_MONGODB_URI")
	if uri == "" {
		t.Skip("SKIP: FENCEPOST_MONGODB_URI names no MongoDB")
	}
	compareRandomly(t, connectDriver(t, options.Client().ApplyURI(uri)), func() mongosim.Options { return mongosim.Options{} }, time.Now())
}

func connectDriver(t *testing.T, how *options.ClientOptions) *mongo.Client {
	t.Helper()
	client, err := mongo.Connect(how.SetServerSelectionTimeout(10 * time.Second))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.Disconnect(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return client
}

func compareRandomly(t *testing.T, client *mongo.Client, how func() mongosim.Options, now time.Time) {
	ctx := t.Context()
	database := client.Database("d")
	rapid.Check(t, func(rt *rapid.T) {
		if err := database.Drop(ctx); err != nil {
			rt.Fatal(err)
		}
		model, collection := mongosim.New(how()), database.Collection("c")
		if rapid.Bool().Draw(rt, "unique x") {
			index := store.Index{Name: "x_1", Keys: d("x", int32(1)), Unique: true}
			if _, err := model.Run(now, "d", store.Command{Kind: store.CreateIndexes, Collection: "c", Indexes: []store.Index{index}}); err != nil {
				rt.Fatal(err)
			}
			if _, err := collection.Indexes().CreateOne(ctx, mongo.IndexModel{Keys: index.Keys, Options: options.Index().SetUnique(true)}); err != nil {
				rt.Fatal(err)
			}
		}
		for _, o := range rapid.SliceOfN(drawn, 1, 25).Draw(rt, "operations") {
			direct, driven := o.directly(model, now), o.through(ctx, collection)
			if !bytes.Equal(direct.canonical(rt), driven.canonical(rt)) {
				rt.Fatalf("%v\ndirectly: %+v\nthrough the driver: %+v", o, direct, driven)
			}
		}
		left, err := all(ctx)(collection.Find(ctx, bson.D{}, options.Find().SetSort(d("_id", int32(1)))))
		if err != nil {
			rt.Fatal(err)
		}
		want := slices.Clone(model.Documents("d", "c"))
		slices.SortFunc(want, func(a, b bson.D) int { return int(a[0].Value.(int32) - b[0].Value.(int32)) })
		if !bytes.Equal(answer{Documents: left}.canonical(rt), answer{Documents: want}.canonical(rt)) {
			rt.Fatalf("at the end there are %v, through the driver %v", want, left)
		}
	})
}
