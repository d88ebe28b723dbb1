package storetest

import (
	"errors"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/fencepost-sim/fencepost/engine/store"
)

// Codes of src/mongo/base/error_codes.yml that only this suite names.
const (
	codeBadValue                  = 2
	codeTypeMismatch              = 14
	codeConflictingUpdate         = 40
	codeImmutableField            = 66
	codeFailedToParse             = 9
	codeCannotIndexParallelArrays = 171
)

var inserting = []test{
	{"an insert answers how many documents it inserted", insertCounts},
	{"a duplicate _id is told with its key", duplicateIDIsTold},
	{"an ordered insert stops at the first failure", orderedInsertStops},
	{"an unordered insert goes on and tells every failure", unorderedInsertGoesOn},
	{"the _id comes first", idComesFirst},
	{"an empty timestamp at the top level is stamped by the server", emptyTimestampIsStamped},
	{"several statements are one command, and tell which of them inserted", statementsTellUpserts},
	{"unordered statements go on after a failure, ordered ones stop", statementsGoOn},
	{"of concurrent inserts with one _id exactly one succeeds", racingInserts},
}

func statementsTellUpserts(f *fixture) {
	f.insert(d("_id", int32(1), "n", int32(5)), d("_id", int32(2), "n", int32(5)))
	reply := f.run(store.Command{Kind: store.Update, Unordered: true, Statements: []store.Statement{
		{Filter: d("_id", int32(1)), Update: d("$set", d("n", int32(6))), Upsert: true},
		{Filter: d("_id", int32(3)), Pipeline: []bson.D{d("$set", d("n", d("$add", bson.A{int32(1), int32(2)})))}, Upsert: true},
		{Filter: d("n", d("$gte", int32(5))), Update: d("$inc", d("n", int32(10))), Multi: true},
		{Filter: d("_id", int32(9)), Update: d("$set", d("n", int32(0)))},
	}})
	expect(f, "the number matched", reply.Matched, 3)
	expect(f, "the number modified", reply.Modified, 3)
	if len(reply.Upserts) != 4 || reply.Upserts[0] != nil || reply.Upserts[1] != int32(3) || reply.Upserts[2] != nil || reply.Upserts[3] != nil {
		f.Errorf("upserts: %v, want only the second statement's", reply.Upserts)
	}
	f.has(f.get(int32(1)), d("n", int32(16)))
	f.has(f.get(int32(2)), d("n", int32(15)))
	f.has(f.get(int32(3)), d("n", int32(3)))
}

func statementsGoOn(f *fixture) {
	f.insert(d("_id", int32(1), "s", "text"))
	statements := []store.Statement{
		{Filter: d("_id", int32(1)), Update: d("$inc", d("s", int32(1)))}, // no number
		{Filter: d("_id", int32(2)), Update: d("$set", d("n", int32(2))), Upsert: true},
		{Filter: d("_id", int32(1)), Pipeline: []bson.D{d("$set", d("n", d("$toLong", "$s")))}}, // no number either
	}
	err := f.refused(store.Command{Kind: store.Update, Unordered: true, Statements: statements}, codeTypeMismatch)
	expect(f, "the index", err.Index, 0)
	expect(f, "the number of other errors", len(err.Others), 1)
	if len(err.Others) == 1 {
		expect(f, "the other's code", err.Others[0].Code, store.CodeConversionFailure)
		expect(f, "the other's index", err.Others[0].Index, 2)
	}
	f.has(f.get(int32(2)), d("n", int32(2)))
	statements[1].Filter = d("_id", int32(3))
	f.refused(store.Command{Kind: store.Update, Statements: statements}, codeTypeMismatch)
	expect(f, "the number of documents", int64(len(f.find(nil))), 2)
}

func insertCounts(f *fixture) {
	reply := f.run(store.Command{Kind: store.Insert, Documents: []bson.D{numbered(1), numbered(2), numbered(3)}})
	expect(f, "the number inserted", reply.Inserted, 3)
	f.ids(f.find(nil), 1, 2, 3)
}

func duplicateIDIsTold(f *fixture) {
	f.insert(d("_id", "taken", "first", true))
	duplicate := store.Command{Kind: store.Insert, Documents: []bson.D{d("_id", "taken", "first", false)}}
	err := f.refused(duplicate, store.CodeDuplicateKey)
	if !store.IsDuplicateKey(err) {
		f.Errorf("%v is not taken for a duplicate key", err)
	}
	expect(f, "the code's name", err.CodeName, "DuplicateKey")
	expect(f, "the index", err.Index, 0)
	if !same(err.KeyPattern, d("_id", int32(1))) || !same(err.KeyValue, d("_id", "taken")) {
		f.Errorf("the key is %v: %v", err.KeyPattern, err.KeyValue)
	}
	f.has(f.get("taken"), d("first", true))
}

func orderedInsertStops(f *fixture) {
	f.insert(numbered(2))
	err := f.refused(store.Command{
		Kind: store.Insert, Documents: []bson.D{numbered(1), numbered(2), numbered(3), numbered(1)},
	}, store.CodeDuplicateKey)
	expect(f, "the index", err.Index, 1)
	expect(f, "the number of other errors", len(err.Others), 0)
	f.ids(f.find(nil), 1, 2)
}

func unorderedInsertGoesOn(f *fixture) {
	f.insert(numbered(2), numbered(4))
	err := f.refused(store.Command{
		Kind: store.Insert, Unordered: true,
		Documents: []bson.D{numbered(1), numbered(2), numbered(3), numbered(4), numbered(5)},
	}, store.CodeDuplicateKey)
	if len(err.Others) != 1 {
		f.Fatalf("%d other errors: %v", len(err.Others), err.Others)
	}
	expect(f, "the first index", err.Index, 1)
	expect(f, "the second index", err.Others[0].Index, 3)
	if !same(err.KeyValue, d("_id", int32(2))) || !same(err.Others[0].KeyValue, d("_id", int32(4))) {
		f.Errorf("the keys are %v and %v", err.KeyValue, err.Others[0].KeyValue)
	}
	if !store.IsDuplicateKey(err) {
		f.Errorf("%v is not taken for duplicate keys alone", err)
	}
	f.ids(f.find(nil), 1, 2, 3, 4, 5)
}

func idComesFirst(f *fixture) {
	f.insert(d("a", int32(1), "_id", int32(1), "b", int32(2)))
	if document := f.get(int32(1)); !same(document, numbered(1, "a", int32(1), "b", int32(2))) {
		f.Errorf("stored as %v", document)
	}
}

func emptyTimestampIsStamped(f *fixture) {
	f.insert(numbered(1, "at", bson.Timestamp{}, "in", d("at", bson.Timestamp{})))
	document := f.get(int32(1))
	if stamp, _ := lookup(document, "at"); same(stamp, bson.Timestamp{}) {
		f.Error("the timestamp is still empty")
	}
	f.has(document, d("in", d("at", bson.Timestamp{})))
}

func racingInserts(f *fixture) {
	const writers = 8
	inserted := make([]bool, writers)
	err := together(writers, func(i int) error {
		_, err := f.try(store.Command{Kind: store.Insert, Documents: []bson.D{d("_id", "one", "by", int32(i))}})
		if store.IsDuplicateKey(err) {
			return nil
		}
		inserted[i] = err == nil
		return err
	})
	if err != nil {
		f.Fatal(err)
	}
	winner := slices.Index(inserted, true)
	if winner < 0 || slices.Contains(inserted[winner+1:], true) {
		f.Fatalf("winners: %v", inserted)
	}
	f.has(f.get("one"), d("by", int32(winner)))
}

var updating = []test{
	{"operators change what they say", operatorsChange},
	{"setting equal values matches but modifies nothing", equalValuesModifyNothing},
	{"only a multi-update changes more than one document", multiUpdates},
	{"a fence that does not match changes nothing", fenceHolds},
	{"the server's clock is written as date and as timestamp", currentDateIsWritten},
	{"timestamps of successive updates grow", timestampsGrow},
	{"updates that make no sense are refused", badUpdatesAreRefused},
	{"an update that would duplicate a unique key is refused", duplicateByUpdateIsRefused},
	{"concurrent increments are all counted", racingIncrements},
}

func operatorsChange(f *fixture) {
	f.insert(numbered(1, "keep", "k", "old", int32(1), "n", int32(5), "big", int64(5), "list", bson.A{"a"}, "in", d("x", int32(1))))
	f.counted(f.run(store.Command{Kind: store.Update, Filter: d("_id", int32(1)), Update: d(
		"$set", d("new", "v", "in.y", int32(2)),
		"$unset", d("old", "", "never", ""),
		"$inc", d("n", int32(2), "big", int32(1), "fresh", int64(3)),
		"$max", d("top", int32(3)),
		"$min", d("keep", "j"),
		"$push", d("list", "b"),
		"$setOnInsert", d("ignored", true),
	)}), 1, 1)
	f.has(f.get(int32(1)), d(
		"keep", "j", "old", absent, "never", absent, "new", "v", "in", d("x", int32(1), "y", int32(2)),
		"n", int32(7), "big", int64(6), "fresh", int64(3), "top", int32(3), "list", bson.A{"a", "b"}, "ignored", absent,
	))
}

func equalValuesModifyNothing(f *fixture) {
	f.insert(numbered(1, "a", "x", "n", int32(1)))
	one := d("_id", int32(1))
	for _, update := range []bson.D{
		d("$set", d("a", "x", "n", int32(1))),
		d("$unset", d("missing", "")),
		d("$max", d("n", int32(0))),
		d("$inc", d("n", int32(0))),
	} {
		f.counted(f.run(store.Command{Kind: store.Update, Filter: one, Update: update}), 1, 0)
	}
	same := []bson.D{d("$set", d("a", "x"))}
	f.counted(f.run(store.Command{Kind: store.Update, Filter: one, Pipeline: same}), 1, 0)
}

func multiUpdates(f *fixture) {
	f.insert(numbered(1, "g", "a"), numbered(2, "g", "a"), numbered(3, "g", "b"), numbered(4, "g", "a", "done", true))
	change := store.Command{Kind: store.Update, Filter: d("g", "a"), Update: d("$set", d("done", true))}
	change.Multi = true
	f.counted(f.run(change), 3, 2)
	f.ids(f.find(d("done", true)), 1, 2, 4)
	change.Multi, change.Update = false, d("$set", d("once", true))
	f.counted(f.run(change), 1, 1)
	expect(f, "the number changed", len(f.find(d("once", true))), 1)
	change.Multi, change.Update, change.Pipeline = true, nil, []bson.D{d("$set", d("at", "$$NOW"))}
	f.counted(f.run(change), 3, 3)
}

func fenceHolds(f *fixture) {
	f.insert(numbered(1, "token", "new", "status", "pending"))
	late := store.Command{
		Kind: store.Update, Filter: d("_id", int32(1), "token", "old"), Update: d("$set", d("status", "success")),
	}
	f.counted(f.run(late), 0, 0)
	f.has(f.get(int32(1)), d("status", "pending"))
}

func currentDateIsWritten(f *fixture) {
	f.insert(numbered(1))
	f.run(store.Command{Kind: store.Update, Filter: d("_id", int32(1)), Update: d("$currentDate", d(
		"date", true, "also", d("$type", "date"), "stamp", d("$type", "timestamp"),
	))})
	document := f.get(int32(1))
	date := f.date(document, "date")
	if date <= past || date >= future {
		f.Errorf("the server's clock says %v", date.Time())
	}
	f.has(document, d("also", date))
	value, _ := lookup(document, "stamp")
	if stamp, ok := value.(bson.Timestamp); !ok || stamp.T == 0 {
		f.Errorf("the stamp is %#v", value)
	}
}

func timestampsGrow(f *fixture) {
	var last bson.Timestamp
	for id := range int32(20) {
		f.insert(numbered(id))
		f.run(store.Command{Kind: store.Update, Filter: d("_id", id),
			Update: d("$currentDate", d("at", d("$type", "timestamp")))})
		value, _ := lookup(f.get(id), "at")
		stamp, _ := value.(bson.Timestamp)
		if !stamp.After(last) {
			f.Fatalf("%v follows %v", stamp, last)
		}
		last = stamp
	}
}

func badUpdatesAreRefused(f *fixture) {
	f.insert(numbered(1, "text", "x", "list", bson.A{}))
	for _, c := range []struct {
		update bson.D
		code   int32
	}{
		{d("$inc", d("text", int32(1))), codeTypeMismatch},
		{d("$push", d("text", int32(1))), codeBadValue},
		{d("$set", d("a", int32(1)), "$inc", d("a", int32(1))), codeConflictingUpdate},
		{d("$set", d("a", int32(1)), "$unset", d("a.b", "")), codeConflictingUpdate},
		{d("$set", d("_id", int32(2))), codeImmutableField},
		{d("$nonsense", d("a", int32(1))), codeFailedToParse},
	} {
		f.Logf("update %v", c.update)
		f.refused(store.Command{Kind: store.Update, Filter: d("_id", int32(1)), Update: c.update}, c.code)
	}
	if !same(f.get(int32(1)), numbered(1, "text", "x", "list", bson.A{})) {
		f.Errorf("changed to %v", f.get(int32(1)))
	}
}

func duplicateByUpdateIsRefused(f *fixture) {
	f.run(store.Command{Kind: store.CreateIndexes, Indexes: []store.Index{{Name: "k", Keys: d("k", int32(1)), Unique: true}}})
	f.insert(numbered(1, "k", "a"), numbered(2, "k", "b"))
	change := store.Command{Kind: store.Update, Filter: d("_id", int32(2)), Update: d("$set", d("k", "a"))}
	err := f.refused(change, store.CodeDuplicateKey)
	if !same(err.KeyPattern, d("k", int32(1))) || !same(err.KeyValue, d("k", "a")) {
		f.Errorf("the key is %v: %v", err.KeyPattern, err.KeyValue)
	}
	f.has(f.get(int32(2)), d("k", "b"))
}

func racingIncrements(f *fixture) {
	const writers, each = 8, 25
	f.insert(numbered(1, "n", int32(0)))
	err := together(writers, func(int) error {
		var failures []error
		for range each {
			_, err := f.try(store.Command{Kind: store.Update, Filter: d("_id", int32(1)), Update: d("$inc", d("n", int32(1)))})
			failures = append(failures, err)
		}
		return errors.Join(failures...)
	})
	if err != nil {
		f.Fatal(err)
	}
	f.has(f.get(int32(1)), d("n", int32(writers*each)))
}

var deleting = []test{
	{"a delete removes one document, or all that match", deletes},
}

func deletes(f *fixture) {
	f.insert(numbered(1, "g", "a"), numbered(2, "g", "a"), numbered(3, "g", "b"), numbered(4, "g", "a"))
	remove := store.Command{Kind: store.Delete, Filter: d("g", "a")}
	expect(f, "the number deleted one by one", f.run(remove).Matched, 1)
	expect(f, "the number left", len(f.find(d("g", "a"))), 2)
	remove.Multi = true
	expect(f, "the number deleted at once", f.run(remove).Matched, 2)
	expect(f, "the number deleted from nothing", f.run(remove).Matched, 0)
	f.ids(f.find(nil), 3)
}
