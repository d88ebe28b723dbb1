package wire

import (
	"math"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/fencepost-sim/fencepost/sim/mongosim"
)

// arguments reads the fields of a command, or of a document in it. A missing field reads as the zero value. The first
// field of a wrong type sets err, which whoever used the values checks before it acts on them.
type arguments struct {
	document bson.D
	err      error
}

// fieldSet says which fields a document may have.
type fieldSet struct {
	known    []string // that are understood, or change nothing here
	unserved []string // that MongoDB understands and this server does not: refused unless they ask for nothing
}

// only refuses the document if it has other fields than these. what names the document.
func (a *arguments) only(what string, fields fieldSet) error {
	for _, field := range a.document {
		switch {
		case slices.Contains(fields.known, field.Key):
		case !slices.Contains(fields.unserved, field.Key):
			return refuse(codeUnknownField, "BSON field '%s.%s' is an unknown field.", what, field.Key)
		case !asksForNothing(field):
			return notImplemented("the field %q", field.Key)
		}
	}
	return nil
}

// asksForNothing reports whether a field has the value that it has by default. The simple collation is none.
func asksForNothing(field bson.E) bool {
	switch value := field.Value.(type) {
	case nil:
		return true
	case bool:
		return !value
	case int32:
		return value == 0
	case float64:
		return value == 0
	case bson.D:
		locale, _ := find(value, "locale")
		return len(value) == 0 || field.Key == "collation" && locale == "simple"
	case bson.A:
		return len(value) == 0
	}
	return false
}

func (a *arguments) value(key string) any {
	value, _ := find(a.document, key)
	return value
}

func (a *arguments) fail(err error) {
	if a.err == nil {
		a.err = err
	}
}

func (a *arguments) mismatch(key string, value any, wanted string) {
	a.fail(refuse(codeTypeMismatch, "BSON field '%s' is the wrong type '%s', expected type '%s'", key, typeName(value), wanted))
}

func typeName(v any) string { return mongosim.TypeName(v) }

// need refuses a document without the field.
func (a *arguments) need(key string) {
	if !has(a.document, key) {
		a.fail(refuse(codeMissingField, "BSON field '%s' is missing but a required field", key))
	}
}

func (a *arguments) text(key string) string {
	value := a.value(key)
	text, ok := value.(string)
	if !ok && value != nil {
		a.mismatch(key, value, "string")
	}
	return text
}

func (a *arguments) embedded(key string) bson.D {
	value := a.value(key)
	document, ok := value.(bson.D)
	if !ok && value != nil {
		a.mismatch(key, value, "object")
	}
	return document
}

func (a *arguments) array(key string) bson.A {
	value := a.value(key)
	array, ok := value.(bson.A)
	if !ok && value != nil {
		a.mismatch(key, value, "array")
	}
	return array
}

func (a *arguments) documents(key string) []bson.D {
	array := a.array(key)
	documents := make([]bson.D, len(array))
	for i, element := range array {
		var ok bool
		if documents[i], ok = element.(bson.D); !ok {
			a.mismatch(key, element, "object")
		}
	}
	return documents
}

// flag reads a boolean; as servers do, it takes numbers for one.
func (a *arguments) flag(key string) bool {
	if value, ok := a.value(key).(bool); ok {
		return value
	}
	return a.number64(key) != 0
}

// number64 reads a whole number of whatever numeric type.
func (a *arguments) number64(key string) int64 {
	switch value := a.value(key).(type) {
	case nil:
		return 0
	case int32:
		return int64(value)
	case int64:
		return value
	case float64:
		if math.Abs(value) < math.MaxInt64 {
			return int64(value)
		}
		a.mismatch(key, value, "long")
	default:
		a.mismatch(key, value, "long")
	}
	return 0
}

// notNegative reads a number that says how many.
func (a *arguments) notNegative(key string) int64 {
	n := a.number64(key)
	if n < 0 {
		a.fail(refuse(51024, "BSON field '%s' value must be >= 0, actual value '%d'", key, n))
	}
	return n
}

// index reads a hint: the name of an index, or its key pattern.
func (a *arguments) index(key string) (name string, keys bson.D) {
	switch value := a.value(key).(type) {
	case nil:
	case string:
		return value, nil
	case bson.D:
		return "", value
	default:
		a.fail(refuse(codeFailedToParse, "Hint must be a string or an object"))
	}
	return "", nil
}
