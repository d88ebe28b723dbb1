package mongosim

import (
	"bytes"
	"math"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"pgregory.net/rapid"
)

func decimal(text string) bson.Decimal128 {
	d, err := bson.ParseDecimal128(text)
	if err != nil {
		panic(err)
	}
	return d
}

// ascending lists values of every type, each greater than the one before.
// Source: MongoDB manual, "Comparison/Sort Order".
var ascending = bson.A{
	bson.MinKey{}, bson.Undefined{}, nil,
	math.NaN(), math.Inf(-1), decimal("-1E+6000"), -math.MaxFloat64, int64(math.MinInt64), int32(-1), -math.SmallestNonzeroFloat64,
	int32(0), math.SmallestNonzeroFloat64, decimal("0.1"), 0.1, int64(1), 1.5, decimal("1.50000000000000000000000000000001"), int32(2),
	float64(1 << 53), int64(1<<53 + 1), float64(1<<53 + 2), int64(math.MaxInt64), float64(1 << 63), decimal("1E+6000"), math.Inf(1),
	"", "a", "a\x00", "a\x00b", "a\x01", "ab", "b",
	bson.D{}, doc("a", 1), doc("a", 1, "b", 1), doc("a", 2), doc("b", 1), doc("a", "x"),
	bson.A{}, bson.A{nil}, bson.A{int32(1)}, bson.A{int32(1), int32(2)}, bson.A{int32(2)}, bson.A{"a"},
	bson.Binary{}, bson.Binary{Data: []byte{1}}, bson.Binary{Subtype: 4, Data: []byte{0}}, bson.Binary{Data: []byte{0, 0}},
	bson.ObjectID{}, bson.ObjectID{1}, false, true, bson.DateTime(-1), bson.DateTime(0), bson.DateTime(1),
	bson.Timestamp{}, bson.Timestamp{I: 1}, bson.Timestamp{T: 1}, bson.Timestamp{T: math.MaxUint32},
	bson.Regex{Pattern: "a"}, bson.Regex{Pattern: "a", Options: "i"}, bson.JavaScript("a"), bson.CodeWithScope{Code: "a", Scope: bson.D{}}, bson.MaxKey{},
}

func TestValuesOfAllTypesHaveOneOrder(t *testing.T) {
	for i := range ascending {
		for j := range ascending {
			x, y := canonical(t, ascending[i]), canonical(t, ascending[j])
			want := max(-1, min(1, i-j))
			if got := compare(x, y); got != want {
				t.Errorf("compare(%s, %s) = %d, want %d", format(x), format(y), got, want)
			}
			if got := strings.Compare(keyOf(x), keyOf(y)); got != want {
				t.Errorf("the keys of %s and %s compare %d, want %d", format(x), format(y), got, want)
			}
		}
	}
}

func TestEqualNumbersOfAllTypesAreOneKey(t *testing.T) {
	for _, equals := range []bson.A{
		{int32(7), int64(7), 7.0, decimal("7"), decimal("7.00")},
		{int32(0), math.Copysign(0, -1), decimal("-0"), decimal("0E+10")},
		{math.NaN(), decimal("NaN")}, {math.Inf(1), decimal("Infinity")}, {math.Inf(-1), decimal("-Infinity")},
		{int64(1<<62 + 1), decimal("4611686018427387905")},
	} {
		for _, x := range equals {
			if keyOf(x) != keyOf(equals[0]) || compare(x, equals[0]) != 0 {
				t.Errorf("%s differs from %s", format(x), format(equals[0]))
			}
		}
	}
}

// values draws BSON values that are near each other, so that they meet.
func values(depth int) *rapid.Generator[any] {
	return rapid.Map(rapid.Custom(func(t *rapid.T) any {
		kinds := 12
		if depth > 0 {
			kinds = 14
		}
		switch rapid.IntRange(0, kinds-1).Draw(t, "kind") {
		case 0:
			return nil
		case 1:
			return rapid.SampledFrom([]any{false, true}).Draw(t, "bool")
		case 2, 3:
			return int32(rapid.IntRange(-2, 3).Draw(t, "int"))
		case 4:
			return int64(rapid.IntRange(-2, 3).Draw(t, "long"))
		case 5:
			return float64(rapid.IntRange(-4, 6).Draw(t, "half")) / 2
		case 6, 7:
			return rapid.SampledFrom([]any{"", "a", "b", "ab"}).Draw(t, "string")
		case 8:
			return bson.DateTime(rapid.IntRange(-1, 2).Draw(t, "date"))
		case 9:
			return bson.Timestamp{T: uint32(rapid.IntRange(0, 2).Draw(t, "time")), I: 1}
		case 10:
			return rapid.SampledFrom(ascending).Draw(t, "any")
		case 11:
			return decimal(rapid.SampledFrom([]string{"1", "1.5", "-2", "0.1", "NaN"}).Draw(t, "decimal"))
		case 12:
			return bson.A(rapid.SliceOfN(values(depth-1), 0, 3).Draw(t, "array"))
		default:
			return documents(depth-1).Draw(t, "document")
		}
	}), func(v any) any {
		out, _, err := normalize(v)
		if err != nil {
			panic(err)
		}
		return out
	})
}

func documents(depth int) *rapid.Generator[bson.D] {
	return rapid.Custom(func(t *rapid.T) bson.D {
		out := bson.D{}
		for _, name := range []string{"a", "b", "c"} {
			if rapid.Bool().Draw(t, name) {
				out = append(out, bson.E{Key: name, Value: values(depth).Draw(t, "value of "+name)})
			}
		}
		return out
	})
}

func TestComparisonIsATotalOrderThatKeysFollow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x, y, z := values(2).Draw(t, "x"), values(2).Draw(t, "y"), values(2).Draw(t, "z")
		if compare(x, y) != -compare(y, x) {
			t.Fatal("not antisymmetric")
		}
		if compare(x, y) <= 0 && compare(y, z) <= 0 && compare(x, z) > 0 {
			t.Fatal("not transitive")
		}
		if strings.Compare(keyOf(x), keyOf(y)) != compare(x, y) {
			t.Fatalf("keys disagree on %s and %s", format(x), format(y))
		}
		down := bytes.Compare(appendKey(nil, x, true), appendKey(nil, y, true))
		if down != -compare(x, y) {
			t.Fatalf("descending keys disagree on %s and %s", format(x), format(y))
		}
		if identical(x, y) && compare(x, y) != 0 {
			t.Fatal("identical but not equal")
		}
	})
}

func TestSizeIsThatOfTheEncoding(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		document := documents(3).Draw(t, "document")
		encoded, err := bson.Marshal(document)
		if err != nil {
			t.Fatal(err)
		}
		if size(document) != len(encoded) {
			t.Fatalf("size is %d, encoding has %d bytes", size(document), len(encoded))
		}
		var decoded bson.D
		if err := bson.Unmarshal(encoded, &decoded); err != nil {
			t.Fatal(err)
		}
		again, err := normalizeDocument(decoded)
		if err != nil || !identical(again, document) {
			t.Fatalf("%s came back as %s", format(document), format(again))
		}
	})
}
