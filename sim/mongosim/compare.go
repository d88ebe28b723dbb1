package mongosim

import (
	"bytes"
	"cmp"
	"math"
	"math/big"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// class is the place of a BSON type in the order across types. Types of one class are compared by value.
// Source: MongoDB manual, "Comparison/Sort Order"; the numbers keep the server's order (canonicalizeBSONType)
// and are all between 1 and 127, which the key encoding relies on.
type class uint8

const (
	classMinKey    class = 1
	classUndefined class = 2 // and missing
	classNull      class = 5
	classNumber    class = 10
	classString    class = 15 // and symbol
	classObject    class = 20
	classArray     class = 25
	classBinary    class = 30
	classObjectID  class = 35
	classBool      class = 40
	classDate      class = 45
	classTimestamp class = 47
	classRegex     class = 50
	classDBPointer class = 55
	classCode      class = 60
	classScoped    class = 65
	classMaxKey    class = 127
)

func classOf(v any) class {
	switch v.(type) {
	case string, bson.Symbol:
		return classString
	case int32, int64, float64, bson.Decimal128:
		return classNumber
	case bson.DateTime:
		return classDate
	case nil:
		return classNull
	case bool:
		return classBool
	case bson.D:
		return classObject
	case bson.A:
		return classArray
	case bson.Timestamp:
		return classTimestamp
	case bson.ObjectID:
		return classObjectID
	case bson.Binary:
		return classBinary
	case bson.Regex:
		return classRegex
	case bson.JavaScript:
		return classCode
	case bson.CodeWithScope:
		return classScoped
	case bson.DBPointer:
		return classDBPointer
	case bson.MinKey:
		return classMinKey
	case bson.MaxKey:
		return classMaxKey
	default:
		return classUndefined
	}
}

// compare orders two canonical values as MongoDB sorts them.
func compare(a, b any) int {
	if x, ok := a.(string); ok {
		if y, ok := b.(string); ok {
			return strings.Compare(x, y)
		}
	}
	ca, cb := classOf(a), classOf(b)
	if ca != cb {
		return cmp.Compare(ca, cb)
	}
	switch ca {
	case classNumber:
		return compareNumbers(a, b)
	case classString:
		return strings.Compare(text(a), text(b))
	case classObject:
		return compareDocuments(a.(bson.D), b.(bson.D))
	case classArray:
		return compareArrays(a.(bson.A), b.(bson.A))
	case classBinary:
		return compareBinaries(a.(bson.Binary), b.(bson.Binary))
	case classObjectID:
		x, y := a.(bson.ObjectID), b.(bson.ObjectID)
		return bytes.Compare(x[:], y[:])
	case classBool:
		return compareBools(a.(bool), b.(bool))
	case classDate:
		return cmp.Compare(a.(bson.DateTime), b.(bson.DateTime))
	case classTimestamp:
		return a.(bson.Timestamp).Compare(b.(bson.Timestamp))
	case classRegex:
		x, y := a.(bson.Regex), b.(bson.Regex)
		return cmp.Or(strings.Compare(x.Pattern, y.Pattern), strings.Compare(x.Options, y.Options))
	case classDBPointer:
		x, y := a.(bson.DBPointer), b.(bson.DBPointer)
		return cmp.Or(cmp.Compare(len(x.DB), len(y.DB)), strings.Compare(x.DB, y.DB), bytes.Compare(x.Pointer[:], y.Pointer[:]))
	case classCode:
		return strings.Compare(string(a.(bson.JavaScript)), string(b.(bson.JavaScript)))
	case classScoped:
		x, y := a.(bson.CodeWithScope), b.(bson.CodeWithScope)
		return cmp.Or(strings.Compare(string(x.Code), string(y.Code)), compare(x.Scope, y.Scope))
	}
	return 0 // the classes with one value
}

// equal reports whether two values are the same to a query: equal numbers of different types are.
func equal(a, b any) bool {
	switch x := a.(type) {
	case string:
		if y, ok := b.(string); ok {
			return x == y
		}
	case bson.DateTime:
		y, ok := b.(bson.DateTime)
		return ok && x == y
	case int32:
		if y, ok := b.(int32); ok {
			return x == y
		}
	}
	return compare(a, b) == 0
}

// identical reports whether two values have the same type and encoding, so that writing one over the
// other changes nothing.
func identical(a, b any) bool {
	switch x := a.(type) {
	case string:
		y, ok := b.(string)
		return ok && x == y
	case int32, int64, bson.DateTime, bson.Timestamp, bson.ObjectID, bool, nil, bson.Decimal128, bson.Regex,
		bson.JavaScript, bson.Symbol, bson.DBPointer, bson.Undefined, bson.MinKey, bson.MaxKey, missing:
		return a == b
	case float64:
		y, ok := b.(float64)
		return ok && math.Float64bits(x) == math.Float64bits(y)
	case bson.D:
		y, ok := b.(bson.D)
		return ok && identicalDocuments(x, y)
	case bson.A:
		y, ok := b.(bson.A)
		return ok && identicalArrays(x, y)
	case bson.Binary:
		y, ok := b.(bson.Binary)
		return ok && x.Equal(y)
	case bson.CodeWithScope:
		y, ok := b.(bson.CodeWithScope)
		return ok && x.Code == y.Code && identical(x.Scope, y.Scope)
	}
	return false
}

func identicalDocuments(x, y bson.D) bool {
	if len(x) != len(y) {
		return false
	}
	if len(x) == 0 || &x[0] == &y[0] {
		return true
	}
	for i := range x {
		if x[i].Key != y[i].Key || !identical(x[i].Value, y[i].Value) {
			return false
		}
	}
	return true
}

func identicalArrays(x, y bson.A) bool {
	if len(x) != len(y) {
		return false
	}
	for i := range x {
		if !identical(x[i], y[i]) {
			return false
		}
	}
	return true
}

// compareDocuments goes field by field: first the class of the value, then the name, then the value; the
// shorter of two documents that agree so far is the smaller. Source: manual, "Comparison/Sort Order", "Objects".
func compareDocuments(x, y bson.D) int {
	for i := range min(len(x), len(y)) {
		if c := cmp.Compare(classOf(x[i].Value), classOf(y[i].Value)); c != 0 {
			return c
		}
		if c := strings.Compare(x[i].Key, y[i].Key); c != 0 {
			return c
		}
		if c := compare(x[i].Value, y[i].Value); c != 0 {
			return c
		}
	}
	return cmp.Compare(len(x), len(y))
}

func compareArrays(x, y bson.A) int {
	for i := range min(len(x), len(y)) {
		if c := compare(x[i], y[i]); c != 0 {
			return c
		}
	}
	return cmp.Compare(len(x), len(y))
}

// compareBinaries orders by length, then subtype, then content. Source: manual, "Comparison/Sort Order", "BinData".
func compareBinaries(x, y bson.Binary) int {
	return cmp.Or(cmp.Compare(len(x.Data), len(y.Data)), cmp.Compare(x.Subtype, y.Subtype), bytes.Compare(x.Data, y.Data))
}

func compareBools(x, y bool) int {
	switch {
	case x == y:
		return 0
	case y:
		return -1
	}
	return 1
}

func text(v any) string {
	if s, ok := v.(string); ok {
		return s
	}
	return string(v.(bson.Symbol))
}

// compareNumbers compares by value, whatever the types. NaN equals itself and is below every other number.
func compareNumbers(a, b any) int {
	x, xInt := integer(a)
	y, yInt := integer(b)
	if xInt && yInt {
		return cmp.Compare(x, y)
	}
	f, fIs := a.(float64)
	g, gIs := b.(float64)
	switch {
	case fIs && gIs:
		return cmp.Compare(f, g) // orders NaN first, and takes -0 for 0
	case fIs && yInt:
		return -compareIntFloat(y, f)
	case xInt && gIs:
		return compareIntFloat(x, g)
	}
	return compareDecimals(a, b)
}

// integer returns the value of an int32 or int64.
func integer(v any) (int64, bool) {
	switch v := v.(type) {
	case int32:
		return int64(v), true
	case int64:
		return v, true
	}
	return 0, false
}

// compareIntFloat is exact also where a float64 cannot hold the integer.
func compareIntFloat(n int64, f float64) int {
	switch {
	case math.IsNaN(f):
		return 1
	case f >= 1<<63:
		return -1
	case f < -1<<63:
		return 1
	}
	whole, fraction := math.Modf(f)
	return cmp.Or(cmp.Compare(n, int64(whole)), cmp.Compare(0, fraction))
}

func compareDecimals(a, b any) int {
	x, xSpecial := rational(a)
	y, ySpecial := rational(b)
	if xSpecial != ySpecial || x == nil || y == nil {
		return cmp.Compare(xSpecial, ySpecial)
	}
	return x.Cmp(y)
}

// rational returns the exact value of a number, or its place outside the finite ones: -2 NaN, -1 and 1 the infinities.
func rational(v any) (exact *big.Rat, special int) {
	switch v := v.(type) {
	case int32:
		return new(big.Rat).SetInt64(int64(v)), 0
	case int64:
		return new(big.Rat).SetInt64(v), 0
	case float64:
		switch {
		case math.IsNaN(v):
			return nil, -2
		case math.IsInf(v, -1):
			return nil, -1
		case math.IsInf(v, 1):
			return nil, 1
		}
		return new(big.Rat).SetFloat64(v), 0
	case bson.Decimal128:
		if v.IsNaN() {
			return nil, -2
		}
		if s := v.IsInf(); s != 0 {
			return nil, s
		}
		return decimalRational(v), 0
	}
	return nil, -2
}

func decimalRational(d bson.Decimal128) *big.Rat {
	digits, exponent, err := d.BigInt()
	if err != nil {
		return new(big.Rat)
	}
	power := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(max(exponent, -exponent))), nil)
	if exponent < 0 {
		return new(big.Rat).SetFrac(digits, power)
	}
	return new(big.Rat).SetInt(digits.Mul(digits, power))
}
