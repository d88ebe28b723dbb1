package mongosim

import (
	"fmt"
	"math"
	"reflect"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// Inside the model a BSON value has exactly one Go type: string, bool, int32, int64, float64, nil for null, and
// the bson package's DateTime, Timestamp, ObjectID, Binary, D, A, Decimal128, Regex, JavaScript, Symbol,
// CodeWithScope, DBPointer, Undefined, MinKey and MaxKey. Commands are brought into this form at the
// border, the way the driver would encode them, so that nothing behind it has to think about time.Time or int.

// normalizeDocument returns the canonical form of the document. What is canonical already is not copied.
func normalizeDocument(d bson.D) (bson.D, error) {
	for i := range d {
		value, changed, err := normalize(d[i].Value)
		if err != nil {
			return nil, err
		}
		if changed {
			return normalizeFrom(d, i, value)
		}
	}
	return d, nil
}

// normalizeFrom copies a document whose field i is the first that had to change.
func normalizeFrom(d bson.D, i int, value any) (bson.D, error) {
	out := make(bson.D, len(d))
	copy(out, d)
	out[i].Value = value
	for i++; i < len(d); i++ {
		value, _, err := normalize(d[i].Value)
		if err != nil {
			return nil, err
		}
		out[i].Value = value
	}
	return out, nil
}

func normalizeArray(a bson.A) (bson.A, bool, error) {
	out, copied := a, false
	for i := range a {
		value, changed, err := normalize(a[i])
		if err != nil {
			return nil, false, err
		}
		if !changed {
			continue
		}
		if !copied {
			out, copied = append(bson.A(nil), a...), true
		}
		out[i] = value
	}
	return out, copied, nil
}

// normalize returns the canonical form of a value, and whether it differs from what was given.
func normalize(v any) (any, bool, error) {
	switch v := v.(type) {
	case nil, string, bool, int32, int64, float64, bson.DateTime, bson.Timestamp, bson.ObjectID, bson.Binary,
		bson.Decimal128, bson.Regex, bson.JavaScript, bson.Symbol, bson.DBPointer, bson.Undefined,
		bson.MinKey, bson.MaxKey:
		return v, false, nil
	case bson.D:
		if v == nil {
			return nil, true, nil
		}
		out, err := normalizeDocument(v)
		return out, len(v) > 0 && &out[0] != &v[0], err
	case bson.A:
		if v == nil {
			return nil, true, nil
		}
		out, changed, err := normalizeArray(v)
		return out, changed, err
	case bson.Null:
		return nil, true, nil
	case time.Time:
		return bson.NewDateTimeFromTime(v), true, nil
	case int:
		return narrow(int64(v)), true, nil
	case []byte:
		if v == nil {
			return nil, true, nil
		}
		return bson.Binary{Data: v}, true, nil
	case bson.RawValue:
		out, err := decodeRaw(v)
		return out, true, err
	case bson.Raw:
		out, err := decodeRaw(bson.RawValue{Type: bson.TypeEmbeddedDocument, Value: v})
		return out, true, err
	case bson.CodeWithScope:
		scope, _, err := normalize(v.Scope)
		return bson.CodeWithScope{Code: v.Code, Scope: scope}, false, err
	case bson.M:
		return nil, false, refuse(codeBadValue, "a bson.M has no order of its fields; use a bson.D")
	default:
		out, err := normalizeReflect(v)
		return out, true, err
	}
}

// narrow encodes a Go int as the driver does: 32 bits if it fits.
func narrow(n int64) any {
	if n >= math.MinInt32 && n <= math.MaxInt32 {
		return int32(n)
	}
	return n
}

func decodeRaw(raw bson.RawValue) (any, error) {
	var v any
	if err := raw.Unmarshal(&v); err != nil {
		return nil, refuse(codeBadValue, "invalid BSON: %v", err)
	}
	out, _, err := normalize(v)
	return out, err
}

// normalizeReflect handles named types, slices, pointers, and structs, the last through the driver's own encoder.
func normalizeReflect(v any) (any, error) {
	r := reflect.ValueOf(v)
	if _, custom := v.(bson.ValueMarshaler); !custom {
		switch r.Kind() {
		case reflect.String:
			return r.String(), nil
		case reflect.Bool:
			return r.Bool(), nil
		case reflect.Int8, reflect.Int16, reflect.Int32:
			return int32(r.Int()), nil
		case reflect.Int64:
			return r.Int(), nil
		case reflect.Int:
			return narrow(r.Int()), nil
		case reflect.Uint8, reflect.Uint16:
			return int32(r.Uint()), nil
		case reflect.Uint, reflect.Uint32, reflect.Uint64:
			if r.Uint() > math.MaxInt64 {
				return nil, refuse(codeBadValue, "%d overflows int64", r.Uint())
			}
			return int64(r.Uint()), nil
		case reflect.Float32, reflect.Float64:
			return r.Float(), nil
		case reflect.Pointer, reflect.Interface:
			if r.IsNil() {
				return nil, nil
			}
			out, _, err := normalize(r.Elem().Interface())
			return out, err
		case reflect.Slice, reflect.Array:
			if out, done, err := normalizeSlice(r); done {
				return out, err
			}
		case reflect.Map:
			return nil, refuse(codeBadValue, "a %T has no order of its fields; use a bson.D", v)
		}
	}
	kind, data, err := bson.MarshalValue(v)
	if err != nil {
		return nil, refuse(codeBadValue, "%v", fmt.Errorf("cannot encode %T as BSON: %w", v, err))
	}
	return decodeRaw(bson.RawValue{Type: kind, Value: data})
}

func normalizeSlice(r reflect.Value) (out any, done bool, err error) {
	switch r.Type().Elem() {
	case reflect.TypeFor[byte](), reflect.TypeFor[bson.E]():
		return nil, false, nil // binary, or a document under another name
	}
	if r.Kind() == reflect.Slice && r.IsNil() {
		return nil, true, nil
	}
	array := make(bson.A, r.Len())
	for i := range array {
		if array[i], _, err = normalize(r.Index(i).Interface()); err != nil {
			return nil, true, err
		}
	}
	return array, true, nil
}
