package storetest

import (
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/fencepost-sim/fencepost/engine/store"
)

var finding = []test{
	{"filters match as documented", filtersMatch},
	{"expressions see the server's clock and take a missing field for the smallest value", expressionsMatch},
	{"a sort orders by each key in turn and across types", sortOrders},
	{"a limit cuts after sorting", limitCuts},
	{"all documents arrive, also beyond the first batch", manyArrive},
	{"a projection keeps the asked fields and the _id", projectionKeeps},
	{"a document comes back with the BSON types it was written with", typesSurvive},
	{"instants are truncated to milliseconds", instantsAreTruncated},
	{"a missing collection has no documents", missingCollectionIsEmpty},
	{"a hint that names no index is refused", unknownHintIsRefused},
}

func filtersMatch(f *fixture) {
	f.insert(
		numbered(1, "n", int32(5), "tag", "a"),
		numbered(2, "n", int64(7), "tag", "b"),
		numbered(3, "n", 7.5, "tag", nil),
		numbered(4),
		numbered(5, "n", "text", "list", bson.A{int32(1), int32(2), int32(3)}),
		numbered(6, "in", d("x", int32(1), "y", "deep")),
	)
	for _, c := range []struct {
		filter bson.D
		want   []int32
	}{
		{nil, []int32{1, 2, 3, 4, 5, 6}},
		{d(), []int32{1, 2, 3, 4, 5, 6}},
		{d("_id", int64(2)), []int32{2}},
		{d("tag", "a"), []int32{1}},
		{d("tag", "a", "n", int32(7)), nil},
		{d("n", 7.0), []int32{2}},
		{d("tag", nil), []int32{3, 4, 5, 6}},
		{d("tag", d("$exists", false)), []int32{4, 5, 6}},
		{d("tag", d("$exists", true)), []int32{1, 2, 3}},
		{d("n", d("$lte", int32(7))), []int32{1, 2}},
		{d("n", d("$lt", int32(7))), []int32{1}},
		{d("n", d("$gt", int32(5))), []int32{2, 3}},
		{d("n", d("$gte", int64(5), "$lt", 7.5)), []int32{1, 2}},
		{d("n", d("$gt", "")), []int32{5}},
		{d("n", d("$ne", int32(5))), []int32{2, 3, 4, 5, 6}},
		{d("n", d("$in", bson.A{int64(5), 7.5})), []int32{1, 3}},
		{d("n", d("$in", bson.A{})), nil},
		{d("n", d("$nin", bson.A{int32(5), int32(7)})), []int32{3, 4, 5, 6}},
		{d("tag", d("$in", bson.A{"b", nil})), []int32{2, 3, 4, 5, 6}},
		{d("list", int32(2)), []int32{5}},
		{d("list", d("$gt", int32(2))), []int32{5}},
		{d("list", bson.A{int32(1), int32(2), int32(3)}), []int32{5}},
		{d("in.y", "deep"), []int32{6}},
		{d("in", d("x", int32(1), "y", "deep")), []int32{6}},
		{d("in", d("y", "deep", "x", int32(1))), nil},
		{d("$or", bson.A{d("tag", "b"), d("n", int32(5)), d("_id", int32(99))}), []int32{1, 2}},
		{d("$and", bson.A{d("n", d("$gt", int32(5))), d("tag", "b")}), []int32{2}},
		{d("n", d("$gt", int32(4)), "$or", bson.A{d("tag", "a"), d("tag", nil)}), []int32{1, 3}},
	} {
		f.Logf("filter %v", c.filter)
		f.ids(f.find(c.filter), c.want...)
	}
}

func expressionsMatch(f *fixture) {
	f.insert(
		numbered(1),
		numbered(2, "at", nil),
		numbered(3, "at", past),
		numbered(4, "at", future),
		numbered(5, "at", past, "limit", int64(3), "n", int32(2)),
	)
	f.ids(f.find(d("$expr", d("$lte", bson.A{"$at", "$$NOW"}))), 1, 2, 3, 5)
	f.ids(f.find(d("$expr", d("$gt", bson.A{"$at", "$$NOW"}))), 4)
	f.ids(f.find(d("at", d("$exists", true), "$expr", d("$lte", bson.A{"$at", "$$NOW"}))), 2, 3, 5)
	f.ids(f.find(d("$expr", d("$lt", bson.A{"$n", "$limit"}))), 5)
	// A comparison that is not an expression stays within dates.
	f.ids(f.find(d("at", d("$lte", past))), 3, 5)
}

func sortOrders(f *fixture) {
	f.insert(
		numbered(1, "a", "x", "b", int32(1)),
		numbered(2, "a", int32(9), "b", int32(1)),
		numbered(3, "a", int32(9), "b", int32(2)),
		numbered(4, "a", 8.5, "b", int32(0)),
		numbered(5, "b", int32(7)),
		numbered(6, "a", past, "b", int32(0)),
	)
	sorted := func(by bson.D) []bson.D {
		return f.run(store.Command{Kind: store.Find, Sort: by}).Documents
	}
	f.ids(sorted(d("a", int32(1), "b", int32(-1))), 5, 4, 3, 2, 1, 6)
	f.ids(sorted(d("a", int32(-1), "b", int32(1))), 6, 1, 2, 3, 4, 5)
	f.ids(sorted(d("b", int32(1), "_id", int32(-1))), 6, 4, 2, 1, 3, 5)
}

func limitCuts(f *fixture) {
	for id := range int32(10) {
		f.insert(numbered(id))
	}
	limited := func(limit int64) []bson.D {
		return f.run(store.Command{Kind: store.Find, Sort: d("_id", int32(-1)), Limit: limit}).Documents
	}
	f.ids(limited(3), 9, 8, 7)
	f.ids(limited(1), 9)
	expect(f, "the number of documents below the limit", len(limited(20)), 10)
	expect(f, "the number of documents without a limit", len(limited(0)), 10)
}

// The first batch of a cursor holds 101 documents.
func manyArrive(f *fixture) {
	var documents []bson.D
	for id := range int32(350) {
		documents = append(documents, numbered(id))
	}
	f.insert(documents...)
	for i, document := range f.find(nil) {
		f.has(document, d("_id", int32(i)))
	}
	expect(f, "the number of documents", len(f.find(nil)), 350)
	limited := f.run(store.Command{Kind: store.Find, Filter: nil, Limit: 200}).Documents
	expect(f, "the number of documents below a limit beyond the first batch", len(limited), 200)
}

func projectionKeeps(f *fixture) {
	f.insert(numbered(1, "a", int32(1), "b", int32(2), "c", int32(3)))
	found := f.run(store.Command{Kind: store.Find, Projection: d("b", int32(1))}).Documents
	if len(found) != 1 || !same(found[0], numbered(1, "b", int32(2))) {
		f.Errorf("got %v", found)
	}
	found = f.run(store.Command{Kind: store.Find, Projection: d("a", int32(1), "_id", int32(0))}).Documents
	if len(found) != 1 || !same(found[0], d("a", int32(1))) {
		f.Errorf("got %v", found)
	}
}

func typesSurvive(f *fixture) {
	written := numbered(1,
		"string", "text", "int32", int32(1), "int64", int64(1), "double", 1.0, "bool", true, "null", nil,
		"date", past, "timestamp", bson.Timestamp{T: 5, I: 6}, "objectID", bson.NewObjectID(),
		"binary", bson.Binary{Subtype: 4, Data: make([]byte, 16)},
		"document", d("z", int32(1), "a", d("nested", bson.A{d("deep", nil)})),
		"array", bson.A{int32(1), "two", d("three", 3.0), bson.A{}},
	)
	f.insert(written)
	read := f.get(int32(1))
	if !same(read, written) {
		f.Errorf("wrote %v\n read %v", written, read)
	}
	document, _ := lookup(read, "document")
	if _, ok := document.(bson.D); !ok {
		f.Errorf("an embedded document is a %T", document)
	}
	array, _ := lookup(read, "array")
	if elements, ok := array.(bson.A); !ok {
		f.Errorf("an array is a %T", array)
	} else if _, ok := elements[2].(bson.D); !ok {
		f.Errorf("a document in an array is a %T", elements[2])
	}
	if !same(read[1:2], d("string", "text")) {
		f.Errorf("the fields lost their order: %v", read)
	}
}

func instantsAreTruncated(f *fixture) {
	instant := time.Date(2020, 2, 3, 4, 5, 6, 789_999_999, time.UTC)
	f.insert(numbered(1, "at", instant))
	f.has(f.get(int32(1)), d("at", bson.NewDateTimeFromTime(instant.Truncate(time.Millisecond))))
	f.ids(f.find(d("at", instant)), 1)
}

func missingCollectionIsEmpty(f *fixture) {
	f.ids(f.find(nil))
	f.counted(f.run(store.Command{Kind: store.Update, Update: d("$set", d("a", int32(1)))}), 0, 0)
	if document := f.run(store.Command{Kind: store.FindAndModify, Update: d("$set", d("a", int32(1)))}).Document; document != nil {
		f.Errorf("got %v", document)
	}
}

func unknownHintIsRefused(f *fixture) {
	f.insert(numbered(1))
	f.refused(store.Command{Kind: store.Find, Hint: "no_such_index"}, codeBadValue)
	found := f.run(store.Command{Kind: store.Find, Hint: "_id_"}).Documents
	f.ids(found, 1)
}
