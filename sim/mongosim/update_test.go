package mongosim

import (
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/fencepost-sim/fencepost/engine/store"
)

func updateOne(filter, update bson.D) store.Command {
	return store.Command{Kind: store.Update, Collection: "c", Filter: filter, Update: update}
}

// Each row: the document before (with _id 1), an update, and the document after; nil means that nothing is modified.
var updating = []struct {
	source string
	before bson.D
	update bson.D
	after  bson.D
}{
	{"manual, $set", doc("x", 1), doc("$set", doc("x", 2)), doc("x", 2)},
	{"manual, $set: no change", doc("x", 1), doc("$set", doc("x", 1)), nil},
	{"another type is a change (src/mongo/db/update/set_node.cpp)", doc("x", 1), doc("$set", doc("x", int64(1))), doc("x", int64(1))},
	{"manual, Update Operators Behavior: order of new fields", doc(), doc("$set", doc("z", 1, "b", 1), "$inc", doc("a", 1)), doc("a", 1, "b", 1, "z", 1)},
	{"manual, Update Operators Behavior: numeric names", doc("f", doc("x", 0)), doc("$set", doc("f.10", 1, "f.9", 1)), doc("f", doc("x", 0, "9", 1, "10", 1))},
	{"manual, $set: embedded", doc(), doc("$set", doc("a.b.c", 1)), doc("a", doc("b", doc("c", 1)))},
	{"manual, $set: array elements", doc("f", a{1, 2}), doc("$set", doc("f.1", 9, "f.3", 7)), doc("f", a{1, 9, nil, 7})},
	{"manual, $unset", doc("x", 1, "y", 2), doc("$unset", doc("x", "", "z", "")), doc("y", 2)},
	{"manual, $unset: array elements", doc("f", a{1, 2}), doc("$unset", doc("f.0", "")), doc("f", a{nil, 2})},
	{"manual, $unset: no path is made", doc("x", 1), doc("$unset", doc("a.b", "")), nil},
	{"manual, $inc", doc("x", 1), doc("$inc", doc("x", 2, "y", int64(3))), doc("x", 3, "y", int64(3))},
	{"an int that overflows becomes a long", doc("x", int32(1<<31-1)), doc("$inc", doc("x", 1)), doc("x", int64(1<<31))},
	{"manual, $inc: types", doc("x", 1), doc("$inc", doc("x", 0.5)), doc("x", 1.5)},
	{"manual, $inc: zero", doc("x", 1), doc("$inc", doc("x", 0)), nil},
	{"manual, $mul", doc("x", 3), doc("$mul", doc("x", 2, "y", 5)), doc("x", 6, "y", 0)},
	{"manual, $min and $max", doc("x", 3, "y", 3), doc("$min", doc("x", 2), "$max", doc("y", 2, "z", 1)), doc("x", 2, "y", 3, "z", 1)},
	{"manual, $max: across types", doc("x", 3), doc("$max", doc("x", "a")), doc("x", "a")},
	{"manual, $setOnInsert", doc("x", 1), doc("$setOnInsert", doc("x", 2)), nil},
	{"manual, $currentDate", doc(), doc("$currentDate", doc("x", true)), doc("x", noon)},
	{"manual, $rename", doc("x", 1, "y", 2), doc("$rename", doc("x", "z", "nothing", "n")), doc("y", 2, "z", 1)},
	{"manual, $push", doc(), doc("$push", doc("f", 1)), doc("f", a{1})},
	{"manual, $push: $each, $sort, $slice", doc("f", a{3}), doc("$push", doc("f", doc("$each", a{1, 2}, "$sort", 1, "$slice", -2))), doc("f", a{2, 3})},
	{"manual, $position", doc("f", a{1, 2}), doc("$push", doc("f", doc("$each", a{9}, "$position", 1))), doc("f", a{1, 9, 2})},
	{"manual, $sort: by field", doc("f", a{doc("n", 2)}), doc("$push", doc("f", doc("$each", a{doc("n", 3), doc("n", 1)}, "$sort", doc("n", -1)))), doc("f", a{doc("n", 3), doc("n", 2), doc("n", 1)})},
	{"manual, $slice: zero", doc("f", a{1}), doc("$push", doc("f", doc("$each", a{2}, "$slice", 0))), doc("f", a{})},
	{"manual, $addToSet", doc("f", a{1}), doc("$addToSet", doc("f", doc("$each", a{1.0, 2, 2}))), doc("f", a{1, 2})},
	{"manual, $addToSet: no change", doc("f", a{1}), doc("$addToSet", doc("f", 1)), nil},
	{"manual, $pop", doc("f", a{1, 2, 3}), doc("$pop", doc("f", -1)), doc("f", a{2, 3})},
	{"manual, $pull: value", doc("f", a{1, 2, 1}), doc("$pull", doc("f", 1)), doc("f", a{2})},
	{"manual, $pull: condition", doc("f", a{1, 5, 9}), doc("$pull", doc("f", doc("$gte", 5))), doc("f", a{1})},
	{"manual, $pull: documents", doc("f", a{doc("x", 1, "y", 1), doc("x", 2)}), doc("$pull", doc("f", doc("x", 1))), doc("f", a{doc("x", 2)})},
	{"manual, $pullAll", doc("f", a{1, 2, 3}), doc("$pullAll", doc("f", a{1, 3})), doc("f", a{2})},
	{"manual, $bit", doc("x", 13), doc("$bit", doc("x", doc("and", 10))), doc("x", 8)},
	{"manual, Update Documents: replacement", doc("x", 1), doc("y", 1), doc("y", 1)},
}

func TestUpdateOperatorsDoWhatTheManualSays(t *testing.T) {
	for _, row := range updating {
		t.Run(row.source, func(t *testing.T) {
			s := New(Options{})
			before := canonical(t, append(doc("_id", 1), row.before...))
			insert(t, s, append(doc("_id", 1), row.before...))
			wrote := s.OplogLen()
			reply := run(t, s, updateOne(doc("_id", 1), row.update))
			want, modified := canonical(t, append(doc("_id", 1), row.after...)), int64(1)
			if row.after == nil {
				want, modified = before, 0
			}
			if reply.Matched != 1 || reply.Modified != modified || s.OplogLen()-wrote != int(modified) {
				t.Errorf("matched %d, modified %d, logged %d", reply.Matched, reply.Modified, s.OplogLen()-wrote)
			}
			if got := s.Documents("db", "c")[0]; !identical(got, want) {
				t.Errorf("got %s, want %s", format(got), format(want))
			}
			if first := s.OplogSince(1)[0].After; !identical(first, before) {
				t.Errorf("the version before was changed in place: %s", format(first))
			}
		})
	}
}

// Source: manual, "Error Codes", and the nodes in src/mongo/db/update.
func TestUpdatesAreRefusedWithMongoDBsCodes(t *testing.T) {
	for _, row := range []struct {
		update bson.D
		code   int32
	}{
		{doc("$set", doc("a", 1, "a.b", 1)), codeConflictingUpdate},
		{doc("$set", doc("a", 1), "$inc", doc("a", 1)), codeConflictingUpdate},
		{doc("$rename", doc("x", "y"), "$set", doc("x", 1)), codeConflictingUpdate},
		{doc("$inc", doc("s", 1)), codeTypeMismatch},
		{doc("$inc", doc("x", "1")), codeTypeMismatch},
		{doc("$push", doc("s", 1)), codeBadValue},
		{doc("$push", doc("f", doc("$each", 1))), codeBadValue},
		{doc("$foo", doc("x", 1)), codeFailedToParse},
		{doc("$set", 1), codeFailedToParse},
		{doc("$set", doc("s.x", 1)), codePathNotViable},
		{doc("$set", doc("f.x", 1)), codePathNotViable},
		{doc("$set", doc("", 1)), codeEmptyFieldName},
		{doc("$set", doc("a..b", 1)), codeEmptyFieldName},
		{doc("$set", doc("$x", 1)), codeDollarPrefixedFieldName},
		{doc("$set", doc("_id", 2)), codeImmutableField},
		{doc("$unset", doc("_id", "")), codeImmutableField},
		{doc("_id", 2, "x", 1), codeImmutableField},
		{doc("$currentDate", doc("x", doc("$type", "time"))), codeBadValue},
		{doc("$pop", doc("f", 2)), codeFailedToParse},
		{doc("$inc", doc("l", 1)), codeBadValue},
		{doc("$set", doc("f.$", 1)), codeBadValue},
	} {
		s := New(Options{})
		before := doc("_id", 1, "s", "x", "f", a{1}, "l", int64(1<<63-1))
		insert(t, s, before)
		fail(t, s, row.code, updateOne(doc("_id", 1), row.update))
		same(t, s.Documents("db", "c"), []bson.D{before})
		if s.OplogLen() != 2 { // create, insert
			t.Errorf("%s was logged", format(canonical(t, row.update)))
		}
	}
}

// Source: manual, "Updates with Aggregation Pipeline" and the pages of the stages.
func TestPipelineUpdates(t *testing.T) {
	for _, row := range []struct {
		before   bson.D
		pipeline []bson.D
		after    bson.D
	}{
		{doc("x", 1), []bson.D{doc("$set", doc("y", doc("$add", a{"$x", 1}), "x", 5))}, doc("x", 5, "y", 2)},
		{doc("x", 1), []bson.D{doc("$set", doc("x", 2)), doc("$set", doc("y", "$x"))}, doc("x", 2, "y", 2)},
		{doc("x", 1), []bson.D{doc("$addFields", doc("a.b", "$x", "a.c", doc("d", 1)))}, doc("x", 1, "a", doc("b", 1, "c", doc("d", 1)))},
		{doc("x", 1, "y", doc("z", 1, "w", 2)), []bson.D{doc("$unset", a{"x", "y.z"})}, doc("y", doc("w", 2))},
		{doc("x", 1, "y", 2), []bson.D{doc("$set", doc("x", "$$REMOVE"))}, doc("y", 2)},
		{doc("x", 1, "y", 2), []bson.D{doc("$project", doc("y", 1))}, doc("y", 2)},
		{doc("x", 1, "y", 2), []bson.D{doc("$project", doc("y", 0))}, doc("x", 1)},
		{doc("x", doc("k", 1)), []bson.D{doc("$replaceWith", "$x")}, doc("k", 1)},
		{doc("x", doc("k", 1)), []bson.D{doc("$replaceRoot", doc("newRoot", doc("$mergeObjects", a{"$$ROOT", doc("n", 1)})))}, doc("x", doc("k", 1), "n", 1)},
		{doc("f", a{doc("x", 1), doc("x", 2)}), []bson.D{doc("$set", doc("f.y", 0))}, doc("f", a{doc("x", 1, "y", 0), doc("x", 2, "y", 0)})},
		{doc(), []bson.D{doc("$set", doc("at", "$$NOW", "until", doc("$add", a{"$$NOW", 1000})))}, doc("at", noon, "until", bson.NewDateTimeFromTime(noon)+1000)},
	} {
		s := New(Options{})
		insert(t, s, append(doc("_id", 1), row.before...))
		run(t, s, store.Command{Kind: store.Update, Collection: "c", Filter: doc("_id", 1), Pipeline: row.pipeline})
		want := canonical(t, append(doc("_id", 1), row.after...))
		if got := s.Documents("db", "c")[0]; !identical(got, want) {
			t.Errorf("%s: got %s, want %s", format(canonical(t, row.pipeline[0])), format(got), format(want))
		}
	}
}

func TestPipelineUpdatesAreRefusedWithMongoDBsCodes(t *testing.T) {
	s := New(Options{})
	insert(t, s, doc("_id", 1, "x", "s"))
	for _, row := range []struct {
		stage bson.D
		code  int32
	}{
		{doc("$foo", doc()), 40324}, {doc("$match", doc()), codeInvalidOptions}, {doc("$set", doc("x", doc("$foo", 1))), codeInvalidPipelineOperator},
		{doc("$set", doc("x", 1), "$unset", "y"), 40323}, {doc("$replaceWith", "$x"), 40228}, {doc("$set", doc("_id", 2)), codeImmutableField},
		{doc("$set", doc("a", 1, "a.b", 2)), 31249},
	} {
		fail(t, s, row.code, store.Command{Kind: store.Update, Collection: "c", Filter: doc("_id", 1), Pipeline: []bson.D{row.stage}})
	}
}

// Source: manual, "db.collection.update()", "Upsert".
func TestUpsertsStartFromTheFiltersEqualities(t *testing.T) {
	for _, row := range []struct{ filter, update, want bson.D }{
		{doc("_id", 1, "b", 2, "a", doc("$eq", 1), "n", doc("$gt", 0)), doc("$set", doc("x", 1)), doc("_id", 1, "a", 1, "b", 2, "x", 1)},
		{doc("_id", 1, "$and", a{doc("x.y", 1), doc("x.z", 2)}), doc("$set", doc("v", 1)), doc("_id", 1, "x", doc("y", 1, "z", 2), "v", 1)},
		{doc("_id", 1, "$or", a{doc("x", 1), doc("x", 2)}), doc("$inc", doc("n", 1)), doc("_id", 1, "n", 1)},
		{doc("_id", 1, "x", doc("$in", a{7})), doc("$setOnInsert", doc("n", 1)), doc("_id", 1, "x", 7, "n", 1)},
		{doc("_id", 1, "n", 1), doc("$inc", doc("n", 1)), doc("_id", 1, "n", 2)},
		{doc("_id", 1, "n", 1), doc("m", 1), doc("_id", 1, "m", 1)},
	} {
		s := New(Options{})
		command := updateOne(row.filter, row.update)
		command.Upsert = true
		reply := run(t, s, command)
		if reply.Matched != 0 || reply.Upserted != any(int32(1)) {
			t.Errorf("matched %d, upserted %v", reply.Matched, reply.Upserted)
		}
		if got, want := s.Documents("db", "c")[0], canonical(t, row.want); !identical(got, want) {
			t.Errorf("got %s, want %s", format(got), format(want))
		}
	}
	s := New(Options{})
	fail(t, s, codeNotSingleValueField, store.Command{Kind: store.Update, Collection: "c", Upsert: true,
		Filter: doc("$and", a{doc("x", 1), doc("x", 2)}), Update: doc("$set", doc("y", 1))})
}

func TestDocumentsHaveALargestSizeAndDepth(t *testing.T) {
	s := New(Options{})
	big := make([]byte, maxDocumentSize)
	fail(t, s, codeBadValue, store.Command{Kind: store.Insert, Collection: "c", Documents: []bson.D{doc("_id", 1, "x", big)}})
	insert(t, s, doc("_id", 1))
	fail(t, s, 17419, updateOne(doc("_id", 1), doc("$set", doc("x", big))))
	upsert := updateOne(doc("_id", 2), doc("$set", doc("x", big)))
	upsert.Upsert = true
	fail(t, s, 17420, upsert)
	deep := bson.D{}
	for range maxDepth {
		deep = doc("x", deep)
	}
	fail(t, s, codeOverflow, store.Command{Kind: store.Insert, Collection: "c", Documents: []bson.D{deep}})
}

func TestManyDocumentsAreUpdatedAndDeleted(t *testing.T) {
	s := New(Options{})
	insert(t, s, doc("_id", 1, "x", 1), doc("_id", 2, "x", 1), doc("_id", 3, "x", 2))
	many := updateOne(doc("x", doc("$gte", 1)), doc("$max", doc("x", 2)))
	many.Multi = true
	if reply := run(t, s, many); reply.Matched != 3 || reply.Modified != 2 {
		t.Errorf("matched %d, modified %d", reply.Matched, reply.Modified)
	}
	if reply := run(t, s, store.Command{Kind: store.Delete, Collection: "c", Filter: doc("x", 2)}); reply.Matched != 1 {
		t.Errorf("one delete deleted %d", reply.Matched)
	}
	if reply := run(t, s, store.Command{Kind: store.Delete, Collection: "c", Filter: doc("x", 2), Multi: true}); reply.Matched != 2 {
		t.Errorf("a multi delete deleted %d", reply.Matched)
	}
}

// An update either is refused with a code, or gives a document that keeps its _id, agrees with its own report of change,
// and leaves the version before as it was.
func FuzzUpdate(f *testing.F) {
	for _, row := range updating {
		before, _ := bson.Marshal(append(doc("_id", 1), row.before...))
		update, _ := bson.Marshal(row.update)
		f.Add(before, update, false)
		f.Add(before, update, true)
	}
	f.Fuzz(func(t *testing.T, documentBytes, updateBytes []byte, piped bool) {
		var document, update bson.D
		if bson.Unmarshal(documentBytes, &document) != nil || bson.Unmarshal(updateBytes, &update) != nil || len(documentBytes) > 1<<12 {
			return
		}
		s := New(Options{})
		if _, err := s.Run(noon, "db", store.Command{Kind: store.Insert, Collection: "c", Documents: []bson.D{document}}); err != nil {
			mustBeServerError(t, err)
			return
		}
		before := s.Documents("db", "c")[0]
		encoded, err := bson.Marshal(before)
		if err != nil {
			return
		}
		command := updateOne(bson.D{}, update)
		if piped {
			command.Update, command.Pipeline = nil, []bson.D{update}
		}
		reply, err := s.Run(noon, "db", command)
		after := s.Documents("db", "c")[0]
		if again, _ := bson.Marshal(before); string(again) != string(encoded) {
			t.Fatal("the version before was changed")
		}
		if err != nil {
			mustBeServerError(t, err)
			if !identical(before, after) {
				t.Fatal("a refused update was applied")
			}
			return
		}
		if reply.Modified == 0 && !identical(before, after) {
			t.Fatal("an update changed something and says that it did not")
		}
		if !equal(after[0].Value, before[0].Value) {
			t.Fatal("the _id changed")
		}
	})
}
