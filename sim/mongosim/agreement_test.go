package mongosim

import (
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"pgregory.net/rapid"

	"github.com/fencepost-sim/fencepost/engine/store"
)

// few draws from a small set of values of all shapes, so that filters often match.
var few = rapid.Map(rapid.SampledFrom([]any{
	nil, 0, 1, 1, 2, 1.0, "a", bson.DateTime(1), bson.A{}, bson.A{0, 1}, bson.A{1, 2}, bson.A{0, 2}, bson.A{nil, 2}, bson.A{bson.A{1}, "a"},
	doc("b", 1), doc("b", nil), doc("b", bson.A{0, 2}), doc("c", 1), bson.A{doc("b", 0), doc("b", 2)}, bson.A{doc("b", 1, "c", 2), doc("c", 0)},
	bson.MinKey{}, bson.MaxKey{},
}), func(v any) any {
	out, _, err := normalize(v)
	if err != nil {
		panic(err)
	}
	return out
})

// shaped draws a document of the few values.
var shaped = rapid.Custom(func(t *rapid.T) bson.D {
	out := bson.D{}
	for _, name := range []string{"a", "b", "c"} {
		if rapid.IntRange(0, 3).Draw(t, "has "+name) > 0 {
			out = append(out, bson.E{Key: name, Value: few.Draw(t, name)})
		}
	}
	return out
})

// filters draws filters of every kind that an index may serve, and others.
func filters(depth int) *rapid.Generator[bson.D] {
	return rapid.Custom(func(t *rapid.T) bson.D {
		out := bson.D{}
		for range rapid.SampledFrom([]int{0, 1, 1, 1, 2, 2, 3}).Draw(t, "conditions") {
			path := rapid.SampledFrom([]string{"a", "a", "b", "b", "c", "a.b", "b.c", "a.0"}).Draw(t, "path")
			value := few
			switch rapid.IntRange(0, 13).Draw(t, "operator") {
			case 0, 1, 2:
				if v := value.Draw(t, "equal"); classOf(v) != classUndefined && classOf(v) != classRegex {
					out = append(out, bson.E{Key: path, Value: doc("$eq", v)})
				}
			case 3, 4, 5:
				op := rapid.SampledFrom([]string{"$gt", "$gte", "$lt", "$lte"}).Draw(t, "comparison")
				if v := value.Draw(t, "bound"); classOf(v) != classUndefined && classOf(v) != classRegex {
					out = append(out, bson.E{Key: path, Value: doc(op, v)})
				}
			case 6, 7:
				list := bson.A{}
				for _, v := range rapid.SliceOfN(value, 0, 3).Draw(t, "list") {
					if _, operators := isOperators(v); !operators {
						list = append(list, v)
					}
				}
				out = append(out, bson.E{Key: path, Value: doc(rapid.SampledFrom([]string{"$in", "$in", "$nin"}).Draw(t, "in"), list)})
			case 8:
				out = append(out, bson.E{Key: path, Value: doc("$exists", rapid.Bool().Draw(t, "exists"))})
			case 9:
				out = append(out, bson.E{Key: path, Value: nil})
			case 10, 11:
				op := rapid.SampledFrom([]string{"$eq", "$gt", "$gte", "$lt", "$lte"}).Draw(t, "expression")
				sides := bson.A{"$" + path, doc("$literal", value.Draw(t, "constant"))}
				if rapid.Bool().Draw(t, "swapped") {
					sides[0], sides[1] = sides[1], sides[0]
				}
				out = append(out, bson.E{Key: "$expr", Value: doc(op, sides)})
			default:
				if depth == 0 {
					continue
				}
				var branches bson.A
				for _, b := range rapid.SliceOfN(filters(depth-1), 1, 3).Draw(t, "branches") {
					branches = append(branches, b)
				}
				out = append(out, bson.E{Key: rapid.SampledFrom([]string{"$or", "$and", "$nor"}).Draw(t, "join"), Value: branches})
			}
		}
		return out
	})
}

func definitions(t *rapid.T) store.Index {
	x := store.Index{Name: "x"}
	for _, path := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b", "c", "a.b", "b.c"}), 1, 3, rapid.ID[string]).Draw(t, "fields") {
		x.Keys = append(x.Keys, bson.E{Key: path, Value: int32(rapid.SampledFrom([]int{1, -1}).Draw(t, "direction"))})
	}
	if rapid.Bool().Draw(t, "and _id") {
		x.Keys = append(x.Keys, bson.E{Key: "_id", Value: int32(rapid.SampledFrom([]int{1, -1}).Draw(t, "direction of _id"))})
	}
	switch rapid.IntRange(0, 4).Draw(t, "property") {
	case 0:
		x.Sparse = true
	case 1:
		x.Partial = rapid.SampledFrom([]bson.D{
			doc("a", doc("$exists", true)), doc("b", doc("$gt", 0)), doc("c", "a"), doc("a", doc("$in", bson.A{1, "a", nil})),
			doc("$or", bson.A{doc("a", doc("$gte", 1)), doc("b", "b")}),
		}).Draw(t, "partial")
	}
	return x
}

// identities names the documents in order.
func identities(records []*record) bson.A {
	out := bson.A{}
	for _, r := range records {
		out = append(out, r.document[0].Value)
	}
	return out
}

// An index changes how documents are found, not which, nor how they are sorted.
func TestIndexesAgreeWithAScan(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := newCollection("db", "c", rapid.SampledFrom([]uint64{0, 1, 99}).Draw(t, "seed"))
		definition, err := checkDefinition(definitions(t))
		if err != nil {
			t.Fatal(err)
		}
		if err := c.build(definition); err != nil {
			t.Fatal(err)
		}
		for i := range rapid.IntRange(0, 20).Draw(t, "documents") {
			d := append(doc("_id", i), shaped.Draw(t, "document")...)
			if err := c.insert(canonicalDocument(d)); err != nil {
				continue // parallel arrays
			}
			if rapid.IntRange(0, 3).Draw(t, "then") == 0 {
				_ = c.replace(c.last, canonicalDocument(append(doc("_id", i), shaped.Draw(t, "replacement")...)))
			}
		}
		for range 100 {
			checkAgreement(t, c)
		}
		for c.first != nil {
			c.remove(c.first)
		}
		for _, x := range c.indexes {
			if x.entries.size != 0 || len(x.entries.blocks) != 0 {
				t.Fatal("an empty collection has index entries")
			}
		}
	})
}

func canonicalDocument(d bson.D) bson.D {
	out, err := normalizeDocument(d)
	if err != nil {
		panic(err)
	}
	return out
}

func checkAgreement(t *rapid.T, c *collection) {
	filter := canonicalDocument(filters(2).Draw(t, "filter"))
	root, err := parseFilter(filter)
	if err != nil {
		return // not a filter
	}
	q := query{filter: root, at: &moment{now: 1}}
	var order bson.D
	for _, path := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b", "c", "a.b"}), 0, 2, rapid.ID[string]).Draw(t, "sort") {
		order = append(order, bson.E{Key: path, Value: int32(rapid.SampledFrom([]int{1, -1}).Draw(t, "sort direction"))})
	}
	order = append(order, bson.E{Key: "_id", Value: int32(rapid.SampledFrom([]int{1, -1}).Draw(t, "last direction"))})
	if err := parseSort(&q, order); err != nil {
		t.Fatal(err)
	}
	q.limit = rapid.IntRange(0, 4).Draw(t, "limit")
	want, wantErr := c.collect(&q, access{}, &Plan{})
	var plan Plan
	got, gotErr := c.find(&q, &plan)
	if wantErr != nil || gotErr != nil {
		return // an error can depend on which documents are looked at
	}
	if compare(identities(got), identities(want)) != 0 {
		t.Fatalf("filter %s sort %s: index %q found %s, a scan %s", format(filter), format(order), plan.Index,
			format(identities(got)), format(identities(want)))
	}
}
