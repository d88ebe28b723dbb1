package storetest

import (
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/fencepost-sim/fencepost/engine/store"
)

var indexes = []test{
	{"a unique index over two fields refuses the same pair only", uniquePair},
	{"a missing field counts as null in a unique index", missingCountsAsNull},
	{"a partial unique index counts only what it holds", partialUnique},
	{"a sparse unique index skips missing fields", sparseUnique},
	{"a unique index over duplicates is refused and leaves nothing behind", uniqueOverDuplicates},
	{"creating an index again changes nothing", createAgain},
	{"an index like another but for its name or options is a conflict", optionConflicts},
	{"an index that takes the name of a different one is a conflict", nameConflicts},
	{"indexes are listed in order of creation with just the options they were given", indexesAreListed},
	{"a missing collection lists no indexes", missingCollectionListsNothing},
	{"one document cannot have two arrays in a compound index", parallelArrays},
}

func (f *fixture) create(indexes ...store.Index) {
	f.Helper()
	f.run(store.Command{Kind: store.CreateIndexes, Indexes: indexes})
}

func (f *fixture) indexNames() (names []string) {
	f.Helper()
	for _, index := range f.run(store.Command{Kind: store.ListIndexes}).Documents {
		name, _ := lookup(index, "name")
		names = append(names, name.(string))
	}
	return names
}

func uniquePair(f *fixture) {
	f.create(store.Index{Name: "pair", Keys: d("group", int32(1), "event", int32(1)), Unique: true})
	f.insert(numbered(1, "group", "g", "event", "e"), numbered(2, "group", "g", "event", "f"), numbered(3, "group", "h", "event", "e"))
	err := f.refused(store.Command{Kind: store.Insert, Documents: []bson.D{numbered(4, "group", "g", "event", "e")}},
		store.CodeDuplicateKey)
	if !same(err.KeyPattern, d("group", int32(1), "event", int32(1))) || !same(err.KeyValue, d("group", "g", "event", "e")) {
		f.Errorf("the key is %v: %v", err.KeyPattern, err.KeyValue)
	}
	f.ids(f.find(nil), 1, 2, 3)
}

func missingCountsAsNull(f *fixture) {
	f.create(store.Index{Name: "k", Keys: d("k", int32(1)), Unique: true})
	f.insert(numbered(1))
	f.refused(store.Command{Kind: store.Insert, Documents: []bson.D{numbered(2, "k", nil)}}, store.CodeDuplicateKey)
	f.refused(store.Command{Kind: store.Insert, Documents: []bson.D{numbered(3)}}, store.CodeDuplicateKey)
	f.insert(numbered(4, "k", int32(7)))
	f.refused(store.Command{Kind: store.Insert, Documents: []bson.D{numbered(5, "k", 7.0)}}, store.CodeDuplicateKey)
}

func partialUnique(f *fixture) {
	f.create(store.Index{Name: "k", Keys: d("k", int32(1)), Unique: true, Partial: d("live", true)})
	f.insert(numbered(1, "k", "a", "live", false), numbered(2, "k", "a", "live", false), numbered(3, "k", "a", "live", true))
	f.refused(store.Command{Kind: store.Insert, Documents: []bson.D{numbered(4, "k", "a", "live", true)}}, store.CodeDuplicateKey)
	f.refused(store.Command{Kind: store.Update, Filter: d("_id", int32(1)), Update: d("$set", d("live", true))}, store.CodeDuplicateKey)
}

func sparseUnique(f *fixture) {
	f.create(store.Index{Name: "k", Keys: d("k", int32(1)), Unique: true, Sparse: true})
	f.insert(numbered(1), numbered(2), numbered(3, "k", nil))
	f.refused(store.Command{Kind: store.Insert, Documents: []bson.D{numbered(4, "k", nil)}}, store.CodeDuplicateKey)
}

func uniqueOverDuplicates(f *fixture) {
	f.insert(numbered(1, "k", "a"), numbered(2, "k", "a"))
	f.refused(store.Command{Kind: store.CreateIndexes, Indexes: []store.Index{
		{Name: "k", Keys: d("k", int32(1)), Unique: true},
	}}, store.CodeDuplicateKey)
	if names := f.indexNames(); !slices.Equal(names, []string{"_id_"}) {
		f.Errorf("the indexes are %v", names)
	}
}

func createAgain(f *fixture) {
	seconds := int32(60)
	same := []store.Index{
		{Name: "k", Keys: d("k", int32(1)), Unique: true},
		{Name: "ttl", Keys: d("at", int32(1)), ExpireAfterSeconds: &seconds},
	}
	f.create(same...)
	f.create(same...)
	f.create(append(same, store.Index{Name: "more", Keys: d("k", int32(-1))})...)
	if names := f.indexNames(); !slices.Equal(names, []string{"_id_", "k", "ttl", "more"}) {
		f.Errorf("the indexes are %v", names)
	}
}

func optionConflicts(f *fixture) {
	minute, day := int32(60), int32(86400)
	f.create(store.Index{Name: "ttl", Keys: d("at", int32(1)), ExpireAfterSeconds: &minute})
	for _, index := range []store.Index{
		{Name: "other", Keys: d("at", int32(1)), ExpireAfterSeconds: &minute},
		{Name: "ttl", Keys: d("at", int32(1)), ExpireAfterSeconds: &day},
		{Name: "ttl", Keys: d("at", int32(1))},
	} {
		f.refused(store.Command{Kind: store.CreateIndexes, Indexes: []store.Index{index}}, store.CodeIndexOptionsConflict)
	}
	if names := f.indexNames(); !slices.Equal(names, []string{"_id_", "ttl"}) {
		f.Errorf("the indexes are %v", names)
	}
}

func nameConflicts(f *fixture) {
	f.create(store.Index{Name: "k", Keys: d("a", int32(1), "b", int32(1))})
	for _, index := range []store.Index{
		{Name: "k", Keys: d("c", int32(1))},
		{Name: "k", Keys: d("b", int32(1), "a", int32(1))},
		{Name: "k", Keys: d("a", int32(1), "b", int32(-1))},
		{Name: "k", Keys: d("a", int32(1), "b", int32(1)), Unique: true},
		{Name: "k", Keys: d("a", int32(1), "b", int32(1)), Partial: d("live", true)},
	} {
		f.refused(store.Command{Kind: store.CreateIndexes, Indexes: []store.Index{index}}, store.CodeIndexKeySpecsConflict)
	}
}

func indexesAreListed(f *fixture) {
	seconds := int32(0)
	f.create(
		store.Index{Name: "plain", Keys: d("b", int32(1), "a", int32(-1))},
		store.Index{Name: "unique", Keys: d("u", int32(1)), Unique: true},
		store.Index{Name: "ttl", Keys: d("at", int32(1)), ExpireAfterSeconds: &seconds},
		store.Index{Name: "rest", Keys: d("r", int32(1)), Sparse: true, Hidden: true},
		store.Index{Name: "partial", Keys: d("p", int32(1)), Partial: d("live", true)},
	)
	listed := f.run(store.Command{Kind: store.ListIndexes}).Documents
	want := []bson.D{
		d("name", "_id_", "key", d("_id", int32(1)), "v", int32(2), "unique", absent, "sparse", absent),
		d("name", "plain", "key", d("b", int32(1), "a", int32(-1)), "v", int32(2), "unique", absent, "hidden", absent,
			"expireAfterSeconds", absent, "partialFilterExpression", absent),
		d("name", "unique", "key", d("u", int32(1)), "unique", true),
		d("name", "ttl", "key", d("at", int32(1)), "expireAfterSeconds", int32(0)),
		d("name", "rest", "key", d("r", int32(1)), "sparse", true, "hidden", true, "unique", absent),
		d("name", "partial", "key", d("p", int32(1)), "partialFilterExpression", d("live", true)),
	}
	if len(listed) != len(want) {
		f.Fatalf("listed %v", listed)
	}
	for i := range want {
		f.has(listed[i], want[i])
	}
}

// The server answers NamespaceNotFound, which drivers turn into an empty list; a store may do either.
func missingCollectionListsNothing(f *fixture) {
	reply, err := f.try(store.Command{Kind: store.ListIndexes})
	if err != nil && !store.HasCode(err, store.CodeNamespaceNotFound) {
		f.Fatal(err)
	}
	expect(f, "the number of indexes", len(reply.Documents), 0)
}

func parallelArrays(f *fixture) {
	f.create(store.Index{Name: "pair", Keys: d("a", int32(1), "b", int32(1))})
	f.insert(numbered(1, "a", bson.A{int32(1), int32(2)}, "b", int32(1)))
	f.refused(store.Command{Kind: store.Insert, Documents: []bson.D{
		numbered(2, "a", bson.A{int32(1)}, "b", bson.A{int32(1)}),
	}}, codeCannotIndexParallelArrays)
}

var administration = []test{
	{"a created collection is listed, and creating it again does no harm", collectionsAreListed},
	{"hello tells the primary of a replica set", helloTellsPrimary},
}

func collectionsAreListed(f *fixture) {
	listed := func() bool {
		return slices.ContainsFunc(f.run(store.Command{Kind: store.ListCollections}).Documents, func(document bson.D) bool {
			name, _ := lookup(document, "name")
			return name == f.collection
		})
	}
	if listed() {
		f.Error("the collection exists before it was created")
	}
	f.run(store.Command{Kind: store.CreateCollection})
	if !listed() {
		f.Error("the collection is not listed")
	}
	// MongoDB before 7.0 refuses.
	if _, err := f.try(store.Command{Kind: store.CreateCollection}); err != nil && !store.HasCode(err, store.CodeNamespaceExists) {
		f.Error(err)
	}
}

func helloTellsPrimary(f *fixture) {
	hello := f.run(store.Command{Kind: store.Hello}).Document
	if name, _ := lookup(hello, "setName"); name == nil || name == "" {
		f.Errorf("%v names no replica set", hello)
	}
	f.has(hello, d("isWritablePrimary", true))
	f.date(hello, "localTime")
}
