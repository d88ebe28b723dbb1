package wire

import (
	"math"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// arguments reads the fields of a command, or of a document in it. A missing field reads as the zero value. The first
// field of a wrong type sets err, which whoever used the values checks before it acts on them.
type arguments struct {
	document bson.D
	err      error
}

// only refuses the document if it has other fields than these.
func (a *arguments) only(fields ...string) error {
	for _, field := range a.document {
		if !slices.Contains(fields, field.Key) {
			return notImplemented("the field %q", field.Key)
		}
	}
	return nil
}

func (a *arguments) value(key string) any {
	value, _ := find(a.document, key)
	return value
}

func (a *arguments) mismatch(key string, value any) {
	if a.err == nil {
		a.err = refuse(codeTypeMismatch, "the field %q is the wrong type (%T)", key, value)
	}
}

func (a *arguments) text(key string) string {
	value := a.value(key)
	text, ok := value.(string)
	if !ok && value != nil {
		a.mismatch(key, value)
	}
	return text
}

func (a *arguments) embedded(key string) bson.D {
	value := a.value(key)
	document, ok := value.(bson.D)
	if !ok && value != nil {
		a.mismatch(key, value)
	}
	return document
}

func (a *arguments) documents(key string) []bson.D {
	value := a.value(key)
	array, ok := value.(bson.A)
	if !ok && value != nil {
		a.mismatch(key, value)
	}
	documents := make([]bson.D, len(array))
	for i, element := range array {
		if documents[i], ok = element.(bson.D); !ok {
			a.mismatch(key, element)
		}
	}
	return documents
}

// flag reads a boolean; as servers do, it takes numbers for one.
func (a *arguments) flag(key string) bool {
	if value, ok := a.value(key).(bool); ok {
		return value
	}
	return a.number(key) != 0
}

// number reads a whole number of whatever numeric type.
func (a *arguments) number(key string) int64 {
	switch value := a.value(key).(type) {
	case nil:
		return 0
	case int32:
		return int64(value)
	case int64:
		return value
	case float64:
		if value == math.Trunc(value) && math.Abs(value) < math.MaxInt64 {
			return int64(value)
		}
		a.mismatch(key, value)
	default:
		a.mismatch(key, value)
	}
	return 0
}

// index reads a hint, which the model takes by name only.
func (a *arguments) index(key string) string {
	if keys, ok := a.value(key).(bson.D); ok {
		a.err = notImplemented("the hint %v by keys", keys)
		return ""
	}
	return a.text(key)
}
