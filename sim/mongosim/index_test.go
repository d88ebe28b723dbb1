package mongosim

import (
	"fmt"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"pgregory.net/rapid"

	"github.com/fencepost-sim/fencepost/engine/store"
)

func createIndexes(indexes ...store.Index) store.Command {
	return store.Command{Kind: store.CreateIndexes, Collection: "c", Indexes: indexes}
}

func seconds(n int32) *int32 { return &n }

// Source: jstests/core/index/index_signature.js and src/mongo/db/catalog/index_catalog_impl.cpp: key pattern, unique,
// sparse and partial filter identify an index; the time of expiry does not; hidden does not count at all.
func TestIndexConflicts(t *testing.T) {
	base := store.Index{Name: "x", Keys: doc("a", 1, "b", -1)}
	for _, row := range []struct {
		name  string
		index store.Index
		code  int32 // 0: success
		count int   // of indexes afterwards
	}{
		{"the same", base, 0, 2},
		{"the same but hidden", store.Index{Name: "x", Keys: base.Keys, Hidden: true}, 0, 2},
		{"equal numbers in the key pattern", store.Index{Name: "x", Keys: doc("a", int64(1), "b", -1.0)}, 0, 2},
		{"another name", store.Index{Name: "y", Keys: base.Keys}, codeIndexOptionsConflict, 2},
		{"the name with another order", store.Index{Name: "x", Keys: doc("b", -1, "a", 1)}, codeIndexKeySpecsConflict, 2},
		{"the name with another direction", store.Index{Name: "x", Keys: doc("a", 1, "b", 1)}, codeIndexKeySpecsConflict, 2},
		{"the name but unique", store.Index{Name: "x", Keys: base.Keys, Unique: true}, codeIndexKeySpecsConflict, 2},
		{"the name but sparse", store.Index{Name: "x", Keys: base.Keys, Sparse: true}, codeIndexKeySpecsConflict, 2},
		{"the name but partial", store.Index{Name: "x", Keys: base.Keys, Partial: doc("a", 1)}, codeIndexKeySpecsConflict, 2},
		{"another name and unique", store.Index{Name: "y", Keys: base.Keys, Unique: true}, 0, 3},
		{"another name and sparse", store.Index{Name: "y", Keys: base.Keys, Sparse: true}, 0, 3},
		{"another name and direction", store.Index{Name: "y", Keys: doc("a", 1, "b", 1)}, 0, 3},
		{"the _id index under any name", store.Index{Name: "mine", Keys: doc("_id", 1)}, 0, 2},
		{"the _id index with an option", store.Index{Name: "_id_", Keys: doc("_id", 1), Unique: true}, codeInvalidIndexOption, 2},
		{"a compound TTL index", store.Index{Name: "y", Keys: doc("a", 1, "c", 1), ExpireAfterSeconds: seconds(1)}, codeCannotCreateIndex, 2},
		{"a negative expiry", store.Index{Name: "y", Keys: doc("c", 1), ExpireAfterSeconds: seconds(-1)}, codeCannotCreateIndex, 2},
		{"a zero direction", store.Index{Name: "y", Keys: doc("c", 0)}, codeCannotCreateIndex, 2},
		{"no keys", store.Index{Name: "y"}, codeCannotCreateIndex, 2},
		{"an unknown kind", store.Index{Name: "y", Keys: doc("c", "tree")}, codeCannotCreateIndex, 2},
		{"a text index", store.Index{Name: "y", Keys: doc("c", "text")}, codeNotImplemented, 2},
		{"partial with $ne", store.Index{Name: "y", Keys: doc("c", 1), Partial: doc("c", doc("$ne", 1))}, codeCannotCreateIndex, 2},
		{"partial with $exists: false", store.Index{Name: "y", Keys: doc("c", 1), Partial: doc("c", doc("$exists", false))}, codeCannotCreateIndex, 2},
		{"partial and sparse", store.Index{Name: "y", Keys: doc("c", 1), Partial: doc("c", 1), Sparse: true}, codeCannotCreateIndex, 2},
	} {
		t.Run(row.name, func(t *testing.T) {
			s := New(Options{})
			run(t, s, createIndexes(base))
			if row.code == 0 {
				run(t, s, createIndexes(row.index))
			} else {
				fail(t, s, row.code, createIndexes(row.index))
			}
			if n := len(run(t, s, store.Command{Kind: store.ListIndexes, Collection: "c"}).Documents); n != row.count {
				t.Errorf("%d indexes", n)
			}
		})
	}
	s := New(Options{})
	run(t, s, createIndexes(store.Index{Name: "ttl", Keys: doc("e", 1), ExpireAfterSeconds: seconds(1)}))
	fail(t, s, codeIndexOptionsConflict, createIndexes(store.Index{Name: "ttl", Keys: doc("e", 1), ExpireAfterSeconds: seconds(2)}))
	fail(t, s, codeIndexOptionsConflict, createIndexes(store.Index{Name: "ttl", Keys: doc("e", 1)}))
}

func TestIndexesAreListedWithOnlyTheirOptions(t *testing.T) {
	s := New(Options{})
	fail(t, s, codeNamespaceNotFound, store.Command{Kind: store.ListIndexes, Collection: "c"})
	run(t, s, createIndexes(
		store.Index{Keys: doc("a", 1, "b.c", -1), Unique: true},
		store.Index{Name: "ttl", Keys: doc("e", 1), ExpireAfterSeconds: seconds(0)},
		store.Index{Name: "p", Keys: doc("a", 1), Partial: doc("a", doc("$gt", 0))},
	))
	same(t, run(t, s, store.Command{Kind: store.ListIndexes, Collection: "c"}).Documents, []bson.D{
		doc("v", 2, "key", doc("_id", 1), "name", "_id_"),
		doc("v", 2, "key", doc("a", 1, "b.c", -1), "name", "a_1_b.c_-1", "unique", true),
		doc("v", 2, "key", doc("e", 1), "name", "ttl", "expireAfterSeconds", 0),
		doc("v", 2, "key", doc("a", 1), "name", "p", "partialFilterExpression", doc("a", doc("$gt", 0))),
	})
	same(t, run(t, s, store.Command{Kind: store.ListCollections}).Documents, []bson.D{doc("name", "c", "type", "collection")})
}

// Source: manual, "Unique Indexes", "Sparse Indexes", "Partial Indexes", "Multikey Indexes".
func TestUniqueness(t *testing.T) {
	for _, row := range []struct {
		name   string
		index  store.Index
		first  bson.D
		second bson.D
		code   int32
	}{
		{"missing is null", store.Index{Keys: doc("k", 1), Unique: true}, doc(), doc("k", nil), codeDuplicateKey},
		{"equal numbers of other types", store.Index{Keys: doc("k", 1), Unique: true}, doc("k", 7), doc("k", decimal("7.0")), codeDuplicateKey},
		{"descending", store.Index{Keys: doc("k", -1), Unique: true}, doc("k", "x"), doc("k", "x"), codeDuplicateKey},
		{"one of two fields differs", store.Index{Keys: doc("k", 1, "l", 1), Unique: true}, doc("k", 1, "l", 1), doc("k", 1, "l", 2), 0},
		{"sparse skips the missing", store.Index{Keys: doc("k", 1), Unique: true, Sparse: true}, doc(), doc(), 0},
		{"sparse holds null", store.Index{Keys: doc("k", 1), Unique: true, Sparse: true}, doc("k", nil), doc("k", nil), codeDuplicateKey},
		{"outside of the partial filter", store.Index{Keys: doc("k", 1), Unique: true, Partial: doc("on", true)}, doc("k", 1, "on", true), doc("k", 1), 0},
		{"inside of the partial filter", store.Index{Keys: doc("k", 1), Unique: true, Partial: doc("on", true)}, doc("k", 1, "on", true), doc("k", 1, "on", true), codeDuplicateKey},
		{"an element of an array", store.Index{Keys: doc("k", 1), Unique: true}, doc("k", a{1, 2}), doc("k", 2), codeDuplicateKey},
		{"the same element twice in one document", store.Index{Keys: doc("k", 1), Unique: true}, doc("k", a{1, 1}), doc("k", 2), 0},
		{"in documents of an array", store.Index{Keys: doc("k.x", 1), Unique: true}, doc("k", a{doc("x", 1)}), doc("k", doc("x", 1)), codeDuplicateKey},
		{"parallel arrays", store.Index{Keys: doc("k", 1, "l", 1)}, doc("k", a{1}, "l", 1), doc("k", a{1}, "l", a{1}), codeCannotIndexParallelArrays},
		{"two fields of one array", store.Index{Keys: doc("k.x", 1, "k.y", 1)}, doc(), doc("k", a{doc("x", 1, "y", 2), doc("x", 2)}), 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			command := store.Command{Kind: store.Insert, Collection: "c", Documents: []bson.D{append(doc("_id", 2), row.second...)}}
			for _, built := range []string{"before", "after"} {
				s := New(Options{})
				if built == "before" {
					run(t, s, createIndexes(row.index))
				}
				insert(t, s, append(doc("_id", 1), row.first...))
				if built == "after" {
					command = createIndexes(row.index)
					insert(t, s, append(doc("_id", 2), row.second...))
				}
				if row.code == 0 {
					run(t, s, command)
				} else {
					fail(t, s, row.code, command)
				}
				if listed := len(run(t, s, store.Command{Kind: store.ListIndexes, Collection: "c"}).Documents); built == "after" && row.code != 0 && listed != 1 {
					t.Error("a failed build left an index")
				}
			}
		})
	}
}

// The shape is the one that the manual shows for E11000, and that drivers parse.
func TestDuplicateKeysOfManyTypesAreWrittenAsServersDo(t *testing.T) {
	for _, row := range []struct {
		value any
		want  string
	}{
		{"x", `"x"`}, {7, "7"}, {int64(7), "7"}, {7.0, "7.0"}, {nil, "null"}, {true, "true"}, {noon, "new Date(1714564800000)"},
		{bson.Timestamp{T: 1, I: 2}, "Timestamp(1, 2)"}, {bson.ObjectID{1}, "ObjectId('010000000000000000000000')"},
		{doc("a", 1), "{ a: 1 }"}, {a{a{1, "x"}}, `[ 1, "x" ]`},
		{bson.Binary{Subtype: 4, Data: make([]byte, 16)}, `UUID("00000000-0000-0000-0000-000000000000")`},
	} {
		s := New(Options{})
		run(t, s, createIndexes(store.Index{Keys: doc("k", 1), Unique: true}))
		insert(t, s, doc("_id", 1, "k", row.value))
		err := fail(t, s, codeDuplicateKey, store.Command{Kind: store.Insert, Collection: "c", Documents: []bson.D{doc("_id", 2, "k", row.value)}})
		if want := "E11000 duplicate key error collection: db.c index: k_1 dup key: { k: " + row.want + " }"; err.Message != want {
			t.Errorf("got %s, want %s", err.Message, want)
		}
	}
}

func TestPlansAreThoseAServerWouldChoose(t *testing.T) {
	s := New(Options{Seed: 3})
	run(t, s, createIndexes(
		store.Index{Name: "created", Keys: doc("topic", 1, "created", 1, "_id", 1)},
		store.Index{Name: "sequence", Keys: doc("topic", 1, "sequence", 1, "_id", 1)},
		store.Index{Name: "unique", Keys: doc("group", 1, "event", 1), Unique: true},
		store.Index{Name: "status", Keys: doc("status", 1, "until", 1)},
		store.Index{Name: "sparse", Keys: doc("sparse", 1), Sparse: true},
		store.Index{Name: "partial", Keys: doc("partial", 1), Partial: doc("partial", doc("$gt", 5))},
		store.Index{Name: "hidden", Keys: doc("hidden", 1), Hidden: true},
		store.Index{Name: "list", Keys: doc("list", 1)},
	))
	for i := range 100 {
		insert(t, s, doc("_id", i, "topic", "t", "created", i%10, "sequence", 100-i, "group", "g", "event", i, "status", i%3, "until", bson.DateTime(i),
			"list", a{i, 1000 + i}))
	}
	page := doc("topic", "t", "$or", a{doc("sequence", doc("$gt", 90)), doc("sequence", 90, "_id", doc("$gt", 5))})
	for _, row := range []struct {
		filter bson.D
		sort   bson.D
		limit  int64
		want   Plan
	}{
		{doc("_id", 7, "topic", "t"), nil, 0, Plan{Index: "_id_", KeysExamined: 1, DocsExamined: 1, Returned: 1}},
		{doc("_id", doc("$in", a{7, 8, 7})), nil, 0, Plan{Index: "_id_", KeysExamined: 2, DocsExamined: 2, Returned: 2}},
		{doc("group", "g", "event", 5), nil, 0, Plan{Index: "unique", KeysExamined: 1, DocsExamined: 1, Returned: 1}},
		{page, doc("sequence", 1, "_id", 1), 5, Plan{Index: "sequence", KeysExamined: 5, DocsExamined: 5, Returned: 5}},
		{doc("topic", "t"), doc("created", -1, "_id", -1), 3, Plan{Index: "created", KeysExamined: 3, DocsExamined: 3, Returned: 3}},
		{doc("topic", "t"), doc("created", -1, "_id", 1), 3, Plan{Index: "created", KeysExamined: 100, DocsExamined: 100, Returned: 3, SortInMemory: true}},
		{doc("status", 1, "$expr", doc("$lte", a{"$until", bson.DateTime(9)})), nil, 0, Plan{Index: "status", KeysExamined: 3, DocsExamined: 3, Returned: 3}},
		{doc("status", doc("$in", a{0, 1})), doc("until", 1), 0, Plan{Index: "status", KeysExamined: 67, DocsExamined: 67, Returned: 67}},
		{doc("sparse", nil), nil, 0, Plan{DocsExamined: 100, Returned: 100}},
		{doc("sparse", 1), nil, 0, Plan{Index: "sparse"}},
		{doc("partial", doc("$gte", 5)), nil, 0, Plan{DocsExamined: 100}},
		{doc("partial", doc("$gt", 6)), nil, 0, Plan{Index: "partial"}},
		{doc("hidden", 1), nil, 0, Plan{DocsExamined: 100}},
		{doc("list", doc("$gt", 1097, "$lt", 2)), nil, 0, Plan{Index: "list", KeysExamined: 2, DocsExamined: 2, Returned: 0}},
		{doc("nothing", 1), doc("_id", 1), 0, Plan{Index: "_id_", KeysExamined: 100, DocsExamined: 100}},
	} {
		command := store.Command{Kind: store.Find, Collection: "c", Filter: row.filter, Sort: row.sort, Limit: row.limit}
		got, err := s.Explain("db", command)
		if err != nil || got != row.want {
			t.Errorf("%s sort %s: %+v %v, want %+v", format(canonical(t, row.filter)), format(canonical(t, row.sort)), got, err, row.want)
		}
	}
	hinted := store.Command{Kind: store.Find, Collection: "c", Filter: doc("topic", "t"), Hint: "created"}
	if plan, _ := s.Explain("db", hinted); plan.Index != "created" {
		t.Errorf("the hint was not honoured: %+v", plan)
	}
	for _, unknown := range []string{"nothing", "hidden"} {
		hinted.Hint = unknown
		fail(t, s, codeBadValue, hinted)
	}
}

func TestTheSeedDecidesTheOrderAmongEquals(t *testing.T) {
	orders := map[string]bool{}
	for seed := range uint64(20) {
		for _, size := range []int{5, 50} { // by a scan and by an index
			var twice [2]string
			for i := range twice {
				s := New(Options{Seed: seed})
				run(t, s, createIndexes(store.Index{Keys: doc("k", 1)}))
				for id := range size {
					insert(t, s, doc("_id", id, "k", 1))
				}
				for _, document := range run(t, s, store.Command{Kind: store.Find, Collection: "c", Filter: doc("k", 1), Sort: doc("k", 1), Limit: 5}).Documents {
					twice[i] += fmt.Sprint(document[0].Value, " ")
				}
			}
			if twice[0] != twice[1] {
				t.Fatal("the same seed gave two orders")
			}
			if seed == 0 && twice[0] != "0 1 2 3 4 " {
				t.Errorf("seed zero gave %s", twice[0])
			}
			orders[twice[0]] = true
		}
	}
	if len(orders) < 20 {
		t.Errorf("20 seeds gave only %d orders", len(orders))
	}
}

func TestAnOrderedSequenceStaysSorted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s ordered
		held := map[int]*record{}
		for i := range rapid.IntRange(1, 2000).Draw(t, "steps") {
			n := (i * 7919) % 1000
			if r := held[n]; r != nil {
				s.remove(entry{fmt.Sprintf("%04d", n), r})
				delete(held, n)
				continue
			}
			held[n] = &record{sequence: uint64(i)}
			s.insert(entry{fmt.Sprintf("%04d", n), held[n]})
		}
		count := 0
		for p := s.seek(""); ; p = s.next(p) {
			e, ok := s.at(p)
			if !ok {
				break
			}
			if before, ok := s.at(s.previous(p)); count > 0 && (!ok || !before.less(e)) {
				t.Fatal("not sorted")
			}
			count++
		}
		if count != len(held) || s.size != count {
			t.Fatalf("%d entries of %d", count, len(held))
		}
	})
}

// Source: manual, "Comparison/Sort Order", "Arrays": the sort looks at the whole array, also at the elements that are
// outside of the index bounds.
func TestArraysAreSortedByElementsOutsideOfTheBounds(t *testing.T) {
	s := New(Options{})
	run(t, s, createIndexes(store.Index{Keys: doc("f", 1, "_id", 1)}))
	for i := range 2 * smallCollection {
		insert(t, s, doc("_id", i, "f", a{100 - i, 200 + i}))
	}
	command := store.Command{Kind: store.Find, Collection: "c", Filter: doc("f", doc("$gte", 200)), Sort: doc("f", 1, "_id", 1), Limit: 1}
	if plan, err := s.Explain("db", command); err != nil || plan.Index == "" || !plan.SortInMemory {
		t.Errorf("planned %+v, %v", plan, err)
	}
	same(t, run(t, s, command).Documents[0][0].Value, 2*smallCollection-1)
}

func TestBranchesOfAnOrAreWidenedToTheClosedBound(t *testing.T) {
	s := New(Options{})
	run(t, s, createIndexes(store.Index{Keys: doc("f", 1)}))
	for i := range 3 * smallCollection {
		insert(t, s, doc("_id", i, "f", i))
	}
	for _, order := range []bson.A{{"$lt", "$lte"}, {"$lte", "$lt"}, {"$gt", "$gte"}, {"$gte", "$gt"}} {
		branches := a{doc("f", doc(order[0].(string), 10)), doc("f", doc(order[1].(string), 10))}
		found := find(t, s, doc("$or", branches, "f", doc("$gte", 10, "$lte", 10)))
		same(t, found, []bson.D{doc("_id", 10, "f", 10)})
	}
}
