package storetest

import (
	"fmt"
	"sync"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/fencepost-sim/fencepost/engine/store"
)

var pipelines = []test{
	{"a pipeline computes from the server's clock and the old document", pipelineComputes},
	{"the server's clock is one instant for the whole command", nowIsOneInstant},
	{"each stage sees what the one before it set", stagesFollow},
	{"a literal is not evaluated", literalIsKept},
	{"a maximum ignores a missing field and never shortens a lease", maximumNeverShortens},
	{"a pipeline leaves the fields alone that it does not name", pipelineKeepsFields},
}

const hour = int64(3_600_000) // milliseconds

func pipelineComputes(f *fixture) {
	f.insert(numbered(1, "startedAt", past, "expiresAt", future, "lock", d("token", "t", "owner", "o")))
	f.counted(f.run(store.Command{Kind: store.Update, Filter: d("_id", int32(1)), Pipeline: []bson.D{
		d("$set", d(
			"endedAt", "$$NOW",
			"until", d("$add", bson.A{"$$NOW", hour}),
			"took", d("$subtract", bson.A{"$$NOW", "$startedAt"}),
			"copy", "$lock.token",
		)),
		d("$unset", bson.A{"expiresAt", "lock.token"}),
	}}), 1, 1)
	document := f.get(int32(1))
	ended := f.date(document, "endedAt")
	f.has(document, d(
		"until", ended+bson.DateTime(hour),
		"took", int64(ended-past),
		"copy", "t",
		"expiresAt", absent,
		"lock", d("owner", "o"),
	))
}

func nowIsOneInstant(f *fixture) {
	for id := range int32(50) {
		f.insert(numbered(id))
	}
	f.counted(f.run(store.Command{Kind: store.Update, Multi: true, Pipeline: []bson.D{
		d("$set", d("first", "$$NOW")), d("$set", d("second", "$$NOW")),
	}}), 50, 50)
	all := f.find(nil)
	now := f.date(all[0], "first")
	for _, document := range all {
		f.has(document, d("first", now, "second", now))
	}
}

func stagesFollow(f *fixture) {
	f.insert(numbered(1, "n", int32(1)))
	f.run(store.Command{Kind: store.Update, Filter: d("_id", int32(1)), Pipeline: []bson.D{
		d("$set", d("n", d("$add", bson.A{"$n", int32(1)}), "before", "$n")),
		d("$set", d("after", "$n")),
	}})
	f.has(f.get(int32(1)), d("n", int32(2), "before", int32(1), "after", int32(2)))
}

func literalIsKept(f *fixture) {
	failure := d("message", "$notAField", "code", "$$NOW", "cause", d("$add", bson.A{int32(1), int32(2)}))
	f.insert(numbered(1))
	f.run(store.Command{Kind: store.Update, Filter: d("_id", int32(1)), Pipeline: []bson.D{
		d("$set", d("error", d("$literal", failure))),
	}})
	f.has(f.get(int32(1)), d("error", failure))
}

func maximumNeverShortens(f *fixture) {
	f.insert(numbered(1, "until", future), numbered(2, "until", past), numbered(3))
	f.run(store.Command{Kind: store.Update, Multi: true, Pipeline: []bson.D{
		d("$set", d("now", "$$NOW", "until", d("$max", bson.A{"$until", d("$add", bson.A{"$$NOW", hour})}))),
	}})
	all := f.find(nil)
	f.has(all[0], d("until", future))
	f.has(all[1], d("until", f.date(all[1], "now")+bson.DateTime(hour)))
	f.has(all[2], d("until", f.date(all[2], "now")+bson.DateTime(hour)))
}

func pipelineKeepsFields(f *fixture) {
	f.insert(numbered(1, "a", int32(1), "in", d("x", int32(1))))
	f.run(store.Command{Kind: store.Update, Filter: d("_id", int32(1)), Pipeline: []bson.D{
		d("$set", d("in.y", int32(2), "copy", "$missing")),
	}})
	f.has(f.get(int32(1)), d("a", int32(1), "in", d("x", int32(1), "y", int32(2)), "copy", absent))
}

var upserting = []test{
	{"an upsert inserts the filter's equalities and the update's fields", upsertInserts},
	{"an upsert that matches updates and does not apply what is set on insert", upsertUpdates},
	{"an upsert without an _id gets one from the server", upsertMakesID},
	{"a repeated publication is a duplicate and keeps the first timestamp", publicationIsIdempotent},
	{"of concurrent upserts of one _id exactly one inserts", racingUpserts},
}

func upsertInserts(f *fixture) {
	reply := f.run(store.Command{
		Kind: store.Update, Upsert: true,
		Filter: d("_id", "e1", "topic", "t", "sequence", d("$exists", false)),
		Update: d(
			"$setOnInsert", d("data", d("n", int32(1)), "createdAt", past),
			"$currentDate", d("sequence", d("$type", "timestamp")),
		),
	})
	f.counted(reply, 0, 0)
	expect(f, "the upserted _id", reply.Upserted, any("e1"))
	document := f.get("e1")
	f.has(document, d("topic", "t", "data", d("n", int32(1)), "createdAt", past))
	if stamp, _ := lookup(document, "sequence"); same(stamp, bson.Timestamp{}) || stamp == nil {
		f.Errorf("the sequence is %#v", stamp)
	}
}

func upsertUpdates(f *fixture) {
	f.insert(numbered(1, "n", int32(1)))
	reply := f.run(store.Command{
		Kind: store.Update, Upsert: true, Filter: d("_id", int32(1)),
		Update: d("$setOnInsert", d("created", true), "$inc", d("n", int32(1))),
	})
	f.counted(reply, 1, 1)
	if reply.Upserted != nil {
		f.Errorf("upserted %v", reply.Upserted)
	}
	f.has(f.get(int32(1)), d("n", int32(2), "created", absent))
}

func upsertMakesID(f *fixture) {
	reply := f.run(store.Command{Kind: store.Update, Upsert: true, Filter: d("a", int32(1)), Update: d("$set", d("b", int32(2)))})
	id, ok := reply.Upserted.(bson.ObjectID)
	if !ok {
		f.Fatalf("the upserted _id is %#v", reply.Upserted)
	}
	f.has(f.get(id), d("a", int32(1), "b", int32(2)))
}

func publicationIsIdempotent(f *fixture) {
	publish := store.Command{
		Kind: store.Update, Upsert: true,
		Filter: d("_id", "e1", "sequence", d("$exists", false)),
		Update: d("$setOnInsert", d("topic", "t"), "$currentDate", d("sequence", d("$type", "timestamp"))),
	}
	f.run(publish)
	first := f.get("e1")
	err := f.refused(publish, store.CodeDuplicateKey)
	if !store.IsDuplicateKey(err) || !same(err.KeyValue, d("_id", "e1")) {
		f.Errorf("got %v with key %v", err, err.KeyValue)
	}
	if !same(f.get("e1"), first) {
		f.Errorf("%v became %v", first, f.get("e1"))
	}
}

func racingUpserts(f *fixture) {
	var mu sync.Mutex
	inserted := 0
	err := together(8, func(i int) error {
		reply, err := f.try(store.Command{
			Kind: store.Update, Upsert: true, Filter: d("_id", "one", "by", d("$exists", false)),
			Update: d("$set", d("by", int32(i))),
		})
		mu.Lock()
		defer mu.Unlock()
		if reply.Upserted != nil {
			inserted++
		}
		if store.IsDuplicateKey(err) {
			return nil
		}
		return err
	})
	if err != nil {
		f.Fatal(err)
	}
	expect(f, "the number of upserts that inserted", inserted, 1)
	expect(f, "the number of documents", len(f.find(nil)), 1)
}

var findAndModify = []test{
	{"it answers the document as it was or as it became", beforeAndAfter},
	{"it takes the first document of the sort", sortChooses},
	{"it answers no document when nothing matches", noMatchIsNoDocument},
	{"it upserts", findAndModifyUpserts},
	{"a duplicate key is told with its key", findAndModifyDuplicates},
	{"only an expired or absent lease is taken", leaseIsTaken},
	{"concurrent claims never take one document twice", racingClaims},
}

func beforeAndAfter(f *fixture) {
	f.insert(numbered(1, "n", int32(1), "other", "x"))
	change := store.Command{Kind: store.FindAndModify, Filter: d("_id", int32(1)), Update: d("$inc", d("n", int32(1)))}
	f.has(f.run(change).Document, d("_id", int32(1), "n", int32(2), "other", "x"))
	change.ReturnBefore = true
	f.has(f.run(change).Document, d("_id", int32(1), "n", int32(2), "other", "x"))
	f.has(f.get(int32(1)), d("n", int32(3)))
	change.ReturnBefore, change.Projection = false, d("n", int32(1))
	if document := f.run(change).Document; !same(document, numbered(1, "n", int32(4))) {
		f.Errorf("projected to %v", document)
	}
}

func sortChooses(f *fixture) {
	f.insert(numbered(1, "at", int32(30)), numbered(2, "at", int32(10)), numbered(3, "at", int32(20)), numbered(4))
	take := store.Command{
		Kind: store.FindAndModify, Filter: d("taken", d("$exists", false)), Sort: d("at", int32(1), "_id", int32(1)),
		Update: d("$set", d("taken", true)),
	}
	var order []bson.D
	for range 4 {
		order = append(order, f.run(take).Document)
	}
	f.ids(order, 4, 2, 3, 1)
}

func noMatchIsNoDocument(f *fixture) {
	f.insert(numbered(1))
	for _, before := range []bool{false, true} {
		reply := f.run(store.Command{
			Kind: store.FindAndModify, Filter: d("_id", int32(2)), ReturnBefore: before,
			Pipeline: []bson.D{d("$set", d("at", "$$NOW"))},
		})
		if reply.Document != nil {
			f.Errorf("got %v", reply.Document)
		}
	}
	f.ids(f.find(nil), 1)
}

func findAndModifyUpserts(f *fixture) {
	upsert := store.Command{
		Kind: store.FindAndModify, Upsert: true, Filter: d("_id", int32(1)),
		Update: d("$setOnInsert", d("fresh", true), "$inc", d("n", int32(1))),
	}
	f.has(f.run(upsert).Document, d("_id", int32(1), "fresh", true, "n", int32(1)))
	upsert.Filter, upsert.ReturnBefore = d("_id", int32(2)), true
	if document := f.run(upsert).Document; document != nil {
		f.Errorf("before the upsert there was %v", document)
	}
	f.has(f.run(upsert).Document, d("_id", int32(2), "fresh", true, "n", int32(1)))
	f.has(f.get(int32(2)), d("n", int32(2)))
}

func findAndModifyDuplicates(f *fixture) {
	f.run(store.Command{Kind: store.CreateIndexes, Indexes: []store.Index{
		{Name: "unique", Keys: d("group", int32(1), "n", int32(-1)), Unique: true},
	}})
	f.insert(numbered(1, "group", "g", "n", int32(1)), numbered(2, "group", "g", "n", int32(2)))
	err := f.refused(store.Command{
		Kind: store.FindAndModify, Filter: d("_id", int32(1)), Update: d("$set", d("n", int32(2))),
	}, store.CodeDuplicateKey)
	if !same(err.KeyPattern, d("group", int32(1), "n", int32(-1))) || !same(err.KeyValue, d("group", "g", "n", int32(2))) {
		f.Errorf("the key is %v: %v", err.KeyPattern, err.KeyValue)
	}
}

func leaseIsTaken(f *fixture) {
	f.insert(numbered(1), numbered(2, "until", past), numbered(3, "until", future))
	take := func(id int32, token string) bson.D {
		return f.run(store.Command{
			Kind: store.FindAndModify, Filter: d("_id", id, "$expr", d("$lte", bson.A{"$until", "$$NOW"})),
			Pipeline: []bson.D{d("$set", d("token", token, "until", d("$add", bson.A{"$$NOW", hour})))},
		}).Document
	}
	f.has(take(1, "a"), d("_id", int32(1), "token", "a"))
	f.has(take(2, "a"), d("_id", int32(2), "token", "a"))
	for id := range int32(3) {
		if document := take(id+1, "b"); document != nil {
			f.Errorf("the lease of %v was taken from its holder", document)
		}
	}
}

func racingClaims(f *fixture) {
	const workers, documents = 8, 40
	for id := range int32(documents) {
		f.insert(numbered(id, "status", "pending", "due", past))
	}
	claimed := make([][]int32, workers)
	err := together(workers, func(i int) error {
		for {
			reply, err := f.try(store.Command{
				Kind:   store.FindAndModify,
				Filter: d("status", "pending", "token", d("$exists", false), "$expr", d("$lte", bson.A{"$due", "$$NOW"})),
				Sort:   d("due", int32(1)), Pipeline: []bson.D{d("$set", d("token", fmt.Sprint("worker ", i)))},
			})
			if err != nil || reply.Document == nil {
				return err
			}
			id, _ := lookup(reply.Document, "_id")
			claimed[i] = append(claimed[i], id.(int32))
		}
	})
	if err != nil {
		f.Fatal(err)
	}
	times := map[int32]int{}
	for _, ids := range claimed {
		for _, id := range ids {
			times[id]++
		}
	}
	for id := range int32(documents) {
		if times[id] != 1 {
			f.Errorf("document %d was claimed %d times", id, times[id])
		}
	}
}
