package mongosim

import (
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/fencepost-sim/fencepost/engine/store"
)

func stages(list ...bson.D) []bson.D { return list }

// Source of each row: manual, the page on the stage.
func TestAggregationStages(t *testing.T) {
	s := New(Options{})
	insert(t, s, doc("_id", 1, "g", "a", "n", 1, "tags", a{"x", "y"}), doc("_id", 2, "g", "b", "n", 2.5, "tags", a{}),
		doc("_id", 3, "g", "a", "n", int64(4)))
	run(t, s, store.Command{Kind: store.Insert, Collection: "other", Documents: []bson.D{doc("_id", 10, "of", 1), doc("_id", 11, "of", 3), doc("_id", 12, "of", 1)}})
	for name, row := range map[string]struct {
		pipeline []bson.D
		want     []bson.D
	}{
		"match, sort, skip, limit": {
			stages(doc("$match", doc("n", doc("$gt", 1))), doc("$sort", doc("n", -1)), doc("$skip", 1), doc("$limit", 1), doc("$project", doc("n", 1))),
			[]bson.D{doc("_id", 2, "n", 2.5)},
		},
		"group": {
			stages(doc("$sort", doc("_id", 1)), doc("$group", doc("_id", "$g", "sum", doc("$sum", "$n"), "mean", doc("$avg", "$n"), "all", doc("$push", "$_id"),
				"first", doc("$first", "$_id"), "last", doc("$last", "$_id"), "most", doc("$max", "$n"), "count", doc("$count", doc()))), doc("$sort", doc("_id", 1))),
			[]bson.D{
				doc("_id", "a", "sum", int64(5), "mean", 2.5, "all", a{1, 3}, "first", 1, "last", 3, "most", int64(4), "count", 2),
				doc("_id", "b", "sum", 2.5, "mean", 2.5, "all", a{2}, "first", 2, "last", 2, "most", 2.5, "count", 1),
			},
		},
		"count":          {stages(doc("$match", doc("g", "a")), doc("$count", "n")), []bson.D{doc("n", 2)}},
		"count nothing":  {stages(doc("$match", doc("g", "z")), doc("$count", "n")), []bson.D{}},
		"sort by count":  {stages(doc("$sortByCount", "$g"), doc("$limit", 1)), []bson.D{doc("_id", "a", "count", 2)}},
		"unwind":         {stages(doc("$unwind", "$tags"), doc("$project", doc("tags", 1))), []bson.D{doc("_id", 1, "tags", "x"), doc("_id", 1, "tags", "y")}},
		"unwind, keep":   {stages(doc("$unwind", doc("path", "$tags", "preserveNullAndEmptyArrays", true, "includeArrayIndex", "i")), doc("$match", doc("_id", doc("$gt", 1))), doc("$project", doc("tags", 1, "i", 1))), []bson.D{doc("_id", 2, "i", nil), doc("_id", 3, "i", nil)}},
		"facet":          {stages(doc("$facet", doc("a", a{doc("$count", "n")}, "b", a{doc("$match", doc("_id", 1)), doc("$project", doc("_id", 1))}))), []bson.D{doc("a", a{doc("n", 3)}, "b", a{doc("_id", 1)})}},
		"lookup":         {stages(doc("$lookup", doc("from", "other", "localField", "_id", "foreignField", "of", "as", "o")), doc("$match", doc("_id", doc("$lt", 3))), doc("$project", doc("o._id", 1))), []bson.D{doc("_id", 1, "o", a{doc("_id", 10), doc("_id", 12)}), doc("_id", 2, "o", a{})}},
		"lookup by expr": {stages(doc("$match", doc("_id", 3)), doc("$lookup", doc("from", "other", "let", doc("id", "$_id"), "pipeline", a{doc("$match", doc("$expr", doc("$eq", a{"$of", "$$id"}))), doc("$project", doc("_id", 1))}, "as", "o")), doc("$project", doc("o", 1))), []bson.D{doc("_id", 3, "o", a{doc("_id", 11)})}},
	} {
		got, err := s.Aggregate(Caller{Now: noon}, "db", Aggregation{Collection: "c", Pipeline: row.pipeline})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		t.Run(name, func(t *testing.T) { same(t, got, row.want) })
	}
	for name, row := range map[string]struct {
		pipeline []bson.D
		code     int32
	}{
		"unknown stage":        {stages(doc("$foo", 1)), 40324},
		"two stages in one":    {stages(doc("$match", doc(), "$limit", 1)), 40323},
		"a stage not modelled": {stages(doc("$graphLookup", doc())), codeNotImplemented},
		"unknown accumulator":  {stages(doc("$group", doc("_id", nil, "x", doc("$foo", 1)))), 15952},
		"no limit":             {stages(doc("$limit", 0)), 15958},
		"write in the middle":  {stages(doc("$out", "x"), doc("$match", doc())), 40601},
	} {
		if _, err := s.Aggregate(Caller{Now: noon}, "db", Aggregation{Collection: "c", Pipeline: row.pipeline}); code(err) != row.code {
			t.Errorf("%s: %v, want code %d", name, err, row.code)
		}
	}
}

func TestAPipelineUsesAnIndexForItsFirstStages(t *testing.T) {
	s := New(Options{})
	for i := range 20 {
		insert(t, s, doc("_id", i, "x", i))
	}
	run(t, s, createIndexes(store.Index{Name: "x", Keys: doc("x", 1)}))
	q, rest, err := s.leading(Aggregation{Collection: "c"}, []bson.D{doc("$match", doc("x", 3)), doc("$sort", doc("x", 1)), doc("$limit", 1)})
	if err != nil || len(rest) != 1 {
		t.Fatalf("%d stages are left: %v", len(rest), err)
	}
	var plan Plan
	if _, err := s.catalog.lookup("db", "c").find(q, &plan); err != nil || plan.Index != "x" || plan.DocsExamined != 1 {
		t.Errorf("%+v, %v", plan, err)
	}
}

// Source: manual, "$ (update)", "$[]", "$[<identifier>]".
func TestPositionalUpdates(t *testing.T) {
	for name, row := range map[string]struct {
		filter, update bson.D
		filters        []bson.D
		want           bson.D
		code           int32
	}{
		"matched value":     {filter: doc("a", 2), update: doc("$set", doc("a.$", 9)), want: doc("_id", 1, "a", a{1, 9, 3}, "d", a{doc("k", 1, "n", 1), doc("k", 2, "n", 2)})},
		"matched document":  {filter: doc("d.k", 2), update: doc("$inc", doc("d.$.n", 10)), want: doc("_id", 1, "a", a{1, 2, 3}, "d", a{doc("k", 1, "n", 1), doc("k", 2, "n", 12)})},
		"matched by elem":   {filter: doc("d", doc("$elemMatch", doc("k", 2, "n", 2))), update: doc("$unset", doc("d.$.n", "")), want: doc("_id", 1, "a", a{1, 2, 3}, "d", a{doc("k", 1, "n", 1), doc("k", 2)})},
		"every element":     {filter: doc("_id", 1), update: doc("$mul", doc("a.$[]", 2)), want: doc("_id", 1, "a", a{2, 4, 6}, "d", a{doc("k", 1, "n", 1), doc("k", 2, "n", 2)})},
		"filtered":          {filter: doc("_id", 1), update: doc("$set", doc("a.$[big]", 0, "d.$[e].n", 7)), filters: []bson.D{doc("big", doc("$gte", 2)), doc("e.k", 1)}, want: doc("_id", 1, "a", a{1, 0, 0}, "d", a{doc("k", 1, "n", 7), doc("k", 2, "n", 2)})},
		"no match":          {filter: doc("_id", 1), update: doc("$set", doc("a.$", 1)), code: codeBadValue},
		"no filter":         {filter: doc("_id", 1), update: doc("$set", doc("a.$[x]", 1)), code: codeBadValue},
		"unused filter":     {filter: doc("_id", 1), update: doc("$set", doc("x", 1)), filters: []bson.D{doc("x", 1)}, code: codeFailedToParse},
		"filter twice":      {filter: doc("_id", 1), update: doc("$set", doc("a.$[x]", 1)), filters: []bson.D{doc("x", 1), doc("x", 2)}, code: codeFailedToParse},
		"not an array":      {filter: doc("_id", 1), update: doc("$set", doc("_id.$[]", 1)), code: codeBadValue},
		"array is missing":  {filter: doc("_id", 1), update: doc("$set", doc("z.$[]", 1)), code: codeBadValue},
		"first in the path": {filter: doc("_id", 1), update: doc("$set", doc("$.a", 1)), code: codeBadValue},
	} {
		t.Run(name, func(t *testing.T) {
			s := New(Options{})
			insert(t, s, doc("_id", 1, "a", a{1, 2, 3}, "d", a{doc("k", 1, "n", 1), doc("k", 2, "n", 2)}))
			_, err := s.Execute(Caller{Now: noon}, "db", &Request{
				Command: store.Command{Kind: store.Update, Collection: "c", Filter: row.filter, Update: row.update}, ArrayFilters: row.filters,
			})
			if code(err) != row.code {
				t.Fatalf("got %v, want code %d", err, row.code)
			}
			if row.code == 0 {
				same(t, s.Documents("db", "c")[0], row.want)
			}
		})
	}
}
