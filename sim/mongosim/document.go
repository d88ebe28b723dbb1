package mongosim

import (
	"math"
	"slices"
	"strconv"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/fencepost-sim/fencepost/engine/store"
)

// missing stands for a field that is not there. It is never stored.
type missing struct{}

func isMissing(v any) bool {
	_, is := v.(missing)
	return is
}

// get returns the value of a top-level field, or missing{}.
func get(d bson.D, name string) any {
	for i := range d {
		if d[i].Key == name {
			return d[i].Value
		}
	}
	return missing{}
}

// position returns the place of a top-level field, or -1.
func position(d bson.D, name string) int {
	for i := range d {
		if d[i].Key == name {
			return i
		}
	}
	return -1
}

// splitPath returns the components of a dotted path.
func splitPath(path string) []string {
	if strings.IndexByte(path, '.') < 0 {
		return []string{path}
	}
	return strings.Split(path, ".")
}

// arrayIndex reads a path component as a position in an array: decimal, without leading zeros.
func arrayIndex(component string) (int, bool) {
	if component == "" || len(component) > 9 || len(component) > 1 && component[0] == '0' {
		return 0, false
	}
	for i := range len(component) {
		if component[i] < '0' || component[i] > '9' {
			return 0, false
		}
	}
	n, err := strconv.Atoi(component)
	return n, err == nil
}

// arrayAsDocument names the elements of an array by their positions, as BSON does.
func arrayAsDocument(a bson.A) bson.D {
	d := make(bson.D, len(a))
	for i, v := range a {
		d[i] = bson.E{Key: strconv.Itoa(i), Value: v}
	}
	return d
}

// withIDFirst returns the document with _id as its first field, as servers store it.
func withIDFirst(d bson.D) bson.D {
	i := position(d, "_id")
	if i <= 0 {
		return d
	}
	out := make(bson.D, 0, len(d))
	out = append(out, d[i])
	out = append(out, d[:i]...)
	return append(out, d[i+1:]...)
}

// Limits of the server. Source: MongoDB manual, "MongoDB Limits and Thresholds"; the nesting of stored documents is
// the server's maxBSONDepth (200) less the 20 levels that it keeps for itself (src/mongo/bson/bson_depth.h).
const (
	maxDocumentSize = 16 * 1024 * 1024
	maxDepth        = 180
)

// size returns the number of bytes of the document's BSON encoding.
func size(d bson.D) int {
	n := 5
	for i := range d {
		n += 2 + len(d[i].Key) + valueSize(d[i].Value)
	}
	return n
}

func valueSize(v any) int {
	switch v := v.(type) {
	case string:
		return 5 + len(v)
	case bson.Symbol:
		return 5 + len(v)
	case bson.JavaScript:
		return 5 + len(v)
	case bool:
		return 1
	case int32:
		return 4
	case int64, float64, bson.DateTime, bson.Timestamp:
		return 8
	case bson.ObjectID:
		return 12
	case bson.Decimal128:
		return 16
	case bson.Binary:
		return 5 + len(v.Data)
	case bson.Regex:
		return 2 + len(v.Pattern) + len(v.Options)
	case bson.DBPointer:
		return 17 + len(v.DB)
	case bson.CodeWithScope:
		return 9 + len(v.Code) + valueSize(v.Scope)
	case bson.D:
		return size(v)
	case bson.A:
		n := 5
		for i, e := range v {
			n += 2 + digits(i) + valueSize(e)
		}
		return n
	default:
		return 0 // null, undefined, the two ends
	}
}

func digits(i int) int {
	n := 1
	for ; i >= 10; i /= 10 {
		n++
	}
	return n
}

// tooDeep reports whether a value nests deeper than the remaining levels.
func tooDeep(v any, levels int) bool {
	switch v := v.(type) {
	case bson.D:
		return levels == 0 || slices.ContainsFunc(v, func(e bson.E) bool { return tooDeep(e.Value, levels-1) })
	case bson.A:
		return levels == 0 || slices.ContainsFunc(v, func(e any) bool { return tooDeep(e, levels-1) })
	}
	return false
}

// checkID refuses what may not be an _id. Source: MongoDB manual, "Documents", "The _id Field".
func checkID(id any) *store.Error {
	switch id := id.(type) {
	case bson.A:
		return refuse(codeInvalidIDField, "The '_id' value cannot be of type array")
	case bson.Regex:
		return refuse(codeInvalidIDField, "The '_id' value cannot be of type regex")
	case bson.Undefined:
		return refuse(codeInvalidIDField, "The '_id' value cannot be of type undefined")
	case bson.D:
		for _, field := range id {
			if strings.HasPrefix(field.Key, "$") {
				return refuse(codeDollarPrefixedFieldName,
					"_id fields may not contain '$'-prefixed fields: %s is not valid for storage.", field.Key)
			}
		}
	}
	return nil
}

// wholeNumber reads an integer of any numeric type.
func wholeNumber(v any) (int64, bool) {
	if n, ok := integer(v); ok {
		return n, true
	}
	if f, ok := v.(float64); ok && f == math.Trunc(f) && math.Abs(f) < 1<<62 {
		return int64(f), true
	}
	if d, ok := v.(bson.Decimal128); ok && !d.IsNaN() && d.IsInf() == 0 {
		if r := decimalRational(d); r.IsInt() && r.Num().IsInt64() {
			return r.Num().Int64(), true
		}
	}
	return 0, false
}

// truth is how MongoDB reads a value as yes or no: everything but false, zero, null, and missing is yes.
func truth(v any) bool {
	switch v := v.(type) {
	case bool:
		return v
	case nil, missing, bson.Undefined:
		return false
	case int32, int64, float64, bson.Decimal128:
		return compareNumbers(v, int32(0)) != 0
	}
	return true
}
