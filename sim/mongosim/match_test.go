package mongosim

import (
	"errors"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/fencepost-sim/fencepost/engine/store"
)

func matchesDocument(t testing.TB, filter, document bson.D) bool {
	t.Helper()
	n, err := parseFilter(canonical(t, filter).(bson.D))
	if err != nil {
		t.Fatalf("%s: %v", format(canonical(t, filter)), err)
	}
	ok, err := n.matches(canonical(t, document).(bson.D), &moment{now: 1000, replicated: true})
	if err != nil {
		t.Fatalf("%s: %v", format(canonical(t, filter)), err)
	}
	return ok
}

// Each row: a filter, the documents that it matches, the documents that it does not.
var matching = []struct {
	source string
	filter bson.D
	yes    []bson.D
	no     []bson.D
}{
	{"manual, Query for Null or Missing Fields", doc("f", nil),
		[]bson.D{{}, doc("f", nil), doc("f", a{1, nil})}, []bson.D{doc("f", 0), doc("f", ""), doc("f", a{})}},
	{"manual, $exists", doc("f", doc("$exists", false)), []bson.D{{}}, []bson.D{doc("f", nil), doc("f", a{})}},
	{"manual, $exists", doc("f", doc("$exists", true)), []bson.D{doc("f", nil), doc("f", a{})}, []bson.D{{}}},
	{"$lte null is equality with null (jstests/core/query/null)", doc("f", doc("$lte", nil)), []bson.D{{}, doc("f", nil)}, []bson.D{doc("f", 0)}},
	{"and $lt null nothing", doc("f", doc("$lt", nil)), nil, []bson.D{{}, doc("f", nil), doc("f", 0)}},
	{"manual, Type Bracketing", doc("f", doc("$gt", 1)), []bson.D{doc("f", 2), doc("f", int64(2)), doc("f", 1.5), doc("f", decimal("1.1"))},
		[]bson.D{{}, doc("f", 1), doc("f", "2"), doc("f", true), doc("f", nil)}},
	{"manual, Type Bracketing: the two ends", doc("f", doc("$lt", bson.MaxKey{})), []bson.D{{}, doc("f", "x"), doc("f", 1)}, []bson.D{doc("f", bson.MaxKey{})}},
	{"manual, Query an Array", doc("f", doc("$gt", 5, "$lt", 3)), []bson.D{doc("f", a{1, 9})}, []bson.D{doc("f", a{4}), doc("f", 4)}},
	{"manual, Query an Array: exact match", doc("f", a{1, 2}), []bson.D{doc("f", a{1, 2}), doc("f", a{a{1, 2}})}, []bson.D{doc("f", a{2, 1}), doc("f", a{1, 2, 3})}},
	{"manual, $ne", doc("f", doc("$ne", 1)), []bson.D{{}, doc("f", 2), doc("f", a{2})}, []bson.D{doc("f", 1), doc("f", a{1, 2})}},
	{"manual, $nin", doc("f", doc("$nin", a{1, nil})), []bson.D{doc("f", 2)}, []bson.D{{}, doc("f", 1), doc("f", nil)}},
	{"manual, $in: regular expressions", doc("f", doc("$in", a{bson.Regex{Pattern: "^a"}, 1})), []bson.D{doc("f", "ab"), doc("f", 1)}, []bson.D{doc("f", "b")}},
	{"manual, $not", doc("f", doc("$not", doc("$gt", 1))), []bson.D{{}, doc("f", 1), doc("f", "x")}, []bson.D{doc("f", 2)}},
	{"manual, $nor", doc("$nor", a{doc("f", 1), doc("g", 1)}), []bson.D{{}, doc("f", 2)}, []bson.D{doc("f", 1), doc("g", 1)}},
	{"manual, $or", doc("$or", a{doc("f", 1), doc("g", 1)}), []bson.D{doc("f", 1), doc("g", 1)}, []bson.D{{}}},
	{"manual, Query on Embedded Documents", doc("f", doc("x", 1, "y", 2)), []bson.D{doc("f", doc("x", 1, "y", 2.0))}, []bson.D{doc("f", doc("y", 2, "x", 1)), doc("f", doc("x", 1))}},
	{"manual, Query an Array of Embedded Documents", doc("f.x", 1), []bson.D{doc("f", doc("x", 1)), doc("f", a{doc("x", 2), doc("x", 1)}), doc("f", doc("x", a{1}))},
		[]bson.D{{}, doc("f", 1), doc("f", a{a{doc("x", 1)}})}},
	{"manual, Use the Array Index", doc("f.1.x", 1), []bson.D{doc("f", a{0, doc("x", 1)}), doc("f", doc("1", doc("x", 1)))}, []bson.D{doc("f", a{doc("x", 1)})}},
	{"an array without documents has no missing field (jstests/core/query/null_query_semantics)", doc("f.x", nil),
		[]bson.D{{}, doc("f", 1), doc("f", doc("x", nil)), doc("f", a{doc("x", 1), doc("y", 1)})}, []bson.D{doc("f", a{}), doc("f", a{1, 2}), doc("f", a{doc("x", 1)})}},
	{"manual, $elemMatch", doc("f", doc("$elemMatch", doc("x", 1, "y", doc("$gt", 1)))), []bson.D{doc("f", a{doc("x", 1, "y", 2)})},
		[]bson.D{doc("f", a{doc("x", 1), doc("y", 2)}), doc("f", doc("x", 1, "y", 2))}},
	{"manual, $elemMatch", doc("f", doc("$elemMatch", doc("$gt", 1, "$lt", 3))), []bson.D{doc("f", a{0, 2})}, []bson.D{doc("f", a{0, 4}), doc("f", 2)}},
	{"manual, $all", doc("f", doc("$all", a{1, 2})), []bson.D{doc("f", a{2, 3, 1})}, []bson.D{doc("f", a{1}), doc("f", 1), {}}},
	{"manual, $all: empty", doc("f", doc("$all", a{})), nil, []bson.D{{}, doc("f", a{})}},
	{"manual, $size", doc("f", doc("$size", 2)), []bson.D{doc("f", a{1, 2})}, []bson.D{doc("f", a{1}), doc("f", "ab"), doc("f", a{a{1, 2}})}},
	{"manual, $type", doc("f", doc("$type", "number")), []bson.D{doc("f", 1), doc("f", 1.5), doc("f", a{"x", 1})}, []bson.D{{}, doc("f", "1")}},
	{"manual, $type: numbers and lists", doc("f", doc("$type", a{2, "null"})), []bson.D{doc("f", "x"), doc("f", nil)}, []bson.D{{}, doc("f", 1)}},
	{"manual, $type: array", doc("f", doc("$type", "array")), []bson.D{doc("f", a{}), doc("f", a{1})}, []bson.D{doc("f", 1)}},
	{"manual, $mod", doc("f", doc("$mod", a{4, 1})), []bson.D{doc("f", 5), doc("f", 1.9)}, []bson.D{doc("f", 4), doc("f", "5"), {}}},
	{"manual, $regex", doc("f", doc("$regex", "^A", "$options", "i")), []bson.D{doc("f", "abc"), doc("f", a{"x", "a"})}, []bson.D{doc("f", "b"), doc("f", 1), {}}},
	{"manual, Comparison/Sort Order: NaN", doc("f", doc("$lt", 1)), []bson.D{doc("f", 0)}, []bson.D{doc("f", nan)}},
	{"a missing field is below all in $expr (manual, Comparison/Sort Order)", doc("$expr", doc("$lt", a{"$f", nil})), []bson.D{{}}, []bson.D{doc("f", nil), doc("f", 1)}},
	{"$expr compares across types", doc("$expr", doc("$gt", a{"$f", 5})), []bson.D{doc("f", "a"), doc("f", 6)}, []bson.D{doc("f", 5), doc("f", nil), {}}},
	{"manual, Aggregation Variables: $$NOW", doc("$expr", doc("$lte", a{"$f", "$$NOW"})), []bson.D{{}, doc("f", bson.DateTime(1000)), doc("f", 1)}, []bson.D{doc("f", bson.DateTime(1001))}},
}

var nan = func() float64 { zero := 0.0; return zero / zero }()

func TestFiltersMatchWhatTheManualSays(t *testing.T) {
	for _, row := range matching {
		for _, document := range row.yes {
			if !matchesDocument(t, row.filter, document) {
				t.Errorf("%s: %s does not match %s", row.source, format(canonical(t, row.filter)), format(canonical(t, document)))
			}
		}
		for _, document := range row.no {
			if matchesDocument(t, row.filter, document) {
				t.Errorf("%s: %s matches %s", row.source, format(canonical(t, row.filter)), format(canonical(t, document)))
			}
		}
	}
}

// Codes: src/mongo/db/matcher/expression_parser.cpp and the manual's "Error Codes".
func TestMalformedFiltersAreRefusedAlsoWithoutDocuments(t *testing.T) {
	s := New(Options{})
	for _, row := range []struct {
		filter bson.D
		code   int32
	}{
		{doc("f", doc("$foo", 1)), codeBadValue},
		{doc("$foo", 1), codeBadValue},
		{doc("f", doc("$gt", 1, "x", 1)), codeBadValue},
		{doc("f", doc("$in", 1)), codeBadValue},
		{doc("f", doc("$in", a{doc("$gt", 1)})), codeBadValue},
		{doc("$or", a{}), codeBadValue},
		{doc("$or", a{1}), codeBadValue},
		{doc("f", doc("$not", 1)), codeBadValue},
		{doc("f", doc("$mod", a{0, 1})), codeBadValue},
		{doc("f", doc("$size", -1)), codeFailedToParse},
		{doc("f", doc("$type", "text")), codeBadValue},
		{doc("f", doc("$options", "i")), codeBadValue},
		{doc("f", doc("$regex", "(")), 51091},
		{doc("$expr", doc("$foo", 1)), codeInvalidPipelineOperator},
		{doc("$expr", doc("$eq", a{1})), 16020},
		{doc("$expr", "$$nothing"), 17276},
		{doc("$where", "true"), codeNotImplemented},
		{doc("$expr", doc("$eq", a{doc("$convert", doc()), 1})), codeNotImplemented},
	} {
		if row.code == 17276 {
			insert(t, s, doc("_id", 1)) // a variable is looked up when it is evaluated
		}
		fail(t, s, row.code, store.Command{Kind: store.Find, Collection: "c", Filter: row.filter})
	}
}

func evaluate(t testing.TB, expr any, document bson.D) (any, error) {
	t.Helper()
	e, err := parseExpression(canonical(t, expr))
	if err != nil {
		return nil, err
	}
	return e.evaluate(canonical(t, document).(bson.D), &moment{now: 1000, clusterTime: bson.Timestamp{T: 1, I: 2}, replicated: true})
}

// Source of each: MongoDB manual, "Aggregation Operators", the page of the operator.
func TestExpressionsHaveTheirDocumentedValues(t *testing.T) {
	date := bson.DateTime(500)
	document := doc("n", 5, "d", date, "s", "x", "list", a{1, 2, 3}, "in", doc("x", 1), "docs", a{doc("x", 1), doc("y", 2), doc("x", 3)}, "null", nil)
	for _, row := range []struct{ expr, want any }{
		{"$n", 5}, {"$$ROOT.n", 5}, {"$$CURRENT.in.x", 1}, {"$docs.x", a{1, 3}}, {"$$NOW", bson.DateTime(1000)}, {"$$CLUSTER_TIME", bson.Timestamp{T: 1, I: 2}},
		{doc("$literal", "$n"), "$n"}, {a{"$n", "$nothing"}, a{5, nil}}, {doc("k", "$n", "gone", "$nothing"), doc("k", 5)},
		{doc("$add", a{"$n", int64(1)}), int64(6)}, {doc("$add", a{"$d", 10}), date + 10}, {doc("$add", a{"$n", nil}), nil},
		{doc("$add", a{int32(1 << 30), int32(1 << 30)}), int64(1 << 31)},
		{doc("$subtract", a{"$$NOW", "$d"}), int64(500)}, {doc("$subtract", a{"$d", 1}), date - 1}, {doc("$subtract", a{"$n", 0.5}), 4.5},
		{doc("$multiply", a{"$n", 2}), 10}, {doc("$divide", a{"$n", 2}), 2.5}, {doc("$mod", a{"$n", 3}), 2},
		{doc("$max", a{"$n", "$nothing", 7}), 7}, {doc("$min", a{"$n", nil, 7}), 5}, {doc("$max", "$list"), 3}, {doc("$max", a{nil, "$nothing"}), nil},
		{doc("$cond", a{doc("$gt", a{"$n", 4}), "yes", "no"}), "yes"}, {doc("$cond", doc("if", false, "then", 1, "else", 2)), 2},
		{doc("$ifNull", a{"$null", "$nothing", "z"}), "z"}, {doc("$ifNull", a{"$n", 1}), 5},
		{doc("$switch", doc("branches", a{doc("case", doc("$eq", a{"$n", 4}), "then", 1), doc("case", true, "then", 2)})), 2},
		{doc("$and", a{1, "$n"}), true}, {doc("$or", a{0, nil}), false}, {doc("$not", a{"$nothing"}), true}, {doc("$cmp", a{1, "a"}), -1},
		{doc("$type", "$nothing"), "missing"}, {doc("$type", a{"$d"}), "date"},
		{doc("$toLong", "$d"), int64(500)}, {doc("$toDate", int64(7)), bson.DateTime(7)}, {doc("$toLong", 2.9), int64(2)},
		{doc("$mergeObjects", a{"$in", doc("x", 2, "y", 3), nil}), doc("x", 2, "y", 3)}, {doc("$concat", a{"a", "$s"}), "ax"}, {doc("$concat", a{"a", nil}), nil},
		{doc("$in", a{2, "$list"}), true}, {doc("$size", "$list"), 3}, {doc("$arrayElemAt", a{"$list", -1}), 3},
		{doc("$filter", doc("input", "$list", "as", "e", "cond", doc("$gt", a{"$$e", 1}))), a{2, 3}},
		{doc("$map", doc("input", "$list", "in", doc("$add", a{"$$this", "$n"}))), a{6, 7, 8}},
		{doc("$let", doc("vars", doc("v", "$n"), "in", doc("$multiply", a{"$$v", "$$v"}))), 25},
	} {
		got, err := evaluate(t, row.expr, document)
		want := canonical(t, row.want)
		if err != nil || !identical(got, want) {
			t.Errorf("%s = %s, %v; want %s", format(canonical(t, row.expr)), format(got), err, format(want))
		}
	}
}

func TestExpressionsFailWithMongoDBsCodes(t *testing.T) {
	for _, row := range []struct {
		expr any
		code int32
	}{
		{doc("$add", a{"x", 1}), 16554}, {doc("$add", a{"$$NOW", "$$NOW"}), 16612}, {doc("$subtract", a{1, "x"}), codeTypeMismatch},
		{doc("$divide", a{1, 0}), codeBadValue}, {doc("$size", "x"), 17124}, {doc("$in", a{1, 1}), 40081}, {doc("$concat", a{1}), 16702},
		{doc("$switch", doc("branches", a{doc("case", false, "then", 1)})), 40066}, {doc("$toDate", "x"), 241}, {doc("x", 1, "$y", 2), 15983}, {"$", 16872},
	} {
		_, err := evaluate(t, row.expr, bson.D{})
		var server *store.Error
		if !errors.As(err, &server) || server.Code != row.code {
			t.Errorf("%s: %v, want code %d", format(canonical(t, row.expr)), err, row.code)
		}
	}
}

// A filter either is refused with a code or evaluates without panic, and its negation says the opposite.
func FuzzFilter(f *testing.F) {
	for _, row := range matching {
		filter, _ := bson.Marshal(row.filter)
		for _, document := range append(row.yes, row.no...) {
			encoded, _ := bson.Marshal(document)
			f.Add(filter, encoded)
		}
	}
	f.Fuzz(func(t *testing.T, filterBytes, documentBytes []byte) {
		var filter, document bson.D
		if bson.Unmarshal(filterBytes, &filter) != nil || bson.Unmarshal(documentBytes, &document) != nil {
			return
		}
		filter, err := normalizeDocument(filter)
		if err != nil {
			return
		}
		if document, err = normalizeDocument(document); err != nil {
			return
		}
		n, err := parseFilter(filter)
		if err != nil {
			mustBeServerError(t, err)
			return
		}
		at := &moment{}
		got, err := n.matches(document, at)
		if err != nil {
			mustBeServerError(t, err)
			return
		}
		not := negation(n)
		if opposite, _ := not.matches(document, at); opposite == got {
			t.Fatal("a filter and its negation agree")
		}
		predicates(nil, n.children, at)
	})
}

func mustBeServerError(t testing.TB, err error) {
	t.Helper()
	var server *store.Error
	if !errors.As(err, &server) || server.Code == 0 || server.CodeName == "" {
		t.Fatalf("not an error of a server: %v", err)
	}
}
