package mongosim

import (
	"math"
	"strconv"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// Arithmetic keeps the wider of two types, and widens an int32 that overflows to int64; that is what expressions and
// $inc and $mul share. They differ in what becomes of an int64 that overflows. Decimals are not modelled.

func evaluateAdd(name string, values []any) (any, error) {
	var date, dated = bson.DateTime(0), false
	var sum any = int32(0)
	for _, v := range values {
		switch x := v.(type) {
		case nil, missing, bson.Undefined:
			return nil, nil
		case bson.DateTime:
			if dated {
				return nil, refuse(16612, "only one date allowed in an $add expression")
			}
			date, dated = x, true
			continue
		}
		if classOf(v) != classNumber {
			return nil, refuse(16554, "$add only supports numeric or date types, not %s", typeName(v))
		}
		var err error
		if sum, err = widened(name, sum, v, addInts, func(x, y float64) float64 { return x + y }); err != nil {
			return nil, err
		}
	}
	if dated {
		return moveDate(date, sum, 1)
	}
	return sum, nil
}

// moveDate adds milliseconds, rounded if they are not whole.
func moveDate(date bson.DateTime, by any, sign int64) (any, error) {
	n, ok := integer(by)
	if !ok {
		f := math.Round(by.(float64))
		if math.IsNaN(f) || math.Abs(f) >= 1<<62 {
			return nil, refuse(codeOverflow, "date overflow")
		}
		n = int64(f)
	}
	return date + bson.DateTime(sign*n), nil
}

func evaluateSubtract(name string, values []any) (any, error) {
	a, b := values[0], values[1]
	if absent(a) || absent(b) {
		return nil, nil
	}
	if date, ok := a.(bson.DateTime); ok {
		if other, ok := b.(bson.DateTime); ok {
			return int64(date - other), nil
		}
		if classOf(b) == classNumber {
			if _, decimal := b.(bson.Decimal128); decimal {
				return nil, unmodelled("decimal arithmetic")
			}
			return moveDate(date, b, -1)
		}
	}
	if classOf(a) != classNumber || classOf(b) != classNumber {
		return nil, refuse(codeTypeMismatch, "can't $subtract %s from %s", typeName(b), typeName(a))
	}
	return widened(name, a, b, subtractInts, func(x, y float64) float64 { return x - y })
}

func evaluateMultiply(name string, values []any) (any, error) {
	var product any = int32(1)
	for _, v := range values {
		if absent(v) {
			return nil, nil
		}
		if classOf(v) != classNumber {
			return nil, refuse(codeTypeMismatch, "$multiply only supports numeric types, not %s", typeName(v))
		}
		var err error
		if product, err = widened(name, product, v, multiplyInts, func(x, y float64) float64 { return x * y }); err != nil {
			return nil, err
		}
	}
	return product, nil
}

func evaluateDivide(_ string, values []any) (any, error) {
	if absent(values[0]) || absent(values[1]) {
		return nil, nil
	}
	x, okX := float(values[0])
	y, okY := float(values[1])
	if !okX || !okY {
		return nil, refuse(codeTypeMismatch,
			"$divide only supports numeric types, not %s and %s", typeName(values[0]), typeName(values[1]))
	}
	if y == 0 {
		return nil, refuse(codeBadValue, "can't $divide by zero")
	}
	return x / y, nil
}

func evaluateMod(_ string, values []any) (any, error) {
	if absent(values[0]) || absent(values[1]) {
		return nil, nil
	}
	x, intX := integer(values[0])
	y, intY := integer(values[1])
	if intX && intY {
		if y == 0 {
			return nil, refuse(16610, "can't $mod by zero")
		}
		return sameWidth(x%y, values[0], values[1]), nil
	}
	f, okX := float(values[0])
	g, okY := float(values[1])
	if !okX || !okY {
		return nil, refuse(16611,
			"$mod only supports numeric types, not %s and %s", typeName(values[0]), typeName(values[1]))
	}
	if g == 0 {
		return nil, refuse(16610, "can't $mod by zero")
	}
	return math.Mod(f, g), nil
}

func evaluateAbs(_ string, values []any) (any, error) {
	switch v := values[0].(type) {
	case nil, missing, bson.Undefined:
		return nil, nil
	case int32:
		if v == math.MinInt32 {
			return -int64(v), nil
		}
		return max(v, -v), nil
	case int64:
		if v == math.MinInt64 {
			return nil, refuse(28680, "can't take $abs of long long min")
		}
		return max(v, -v), nil
	case float64:
		return math.Abs(v), nil
	}
	return nil, refuse(28765, "$abs only supports numeric types, not %s", typeName(values[0]))
}

func rounding(round func(float64) float64) func(string, []any) (any, error) {
	return func(name string, values []any) (any, error) {
		switch v := values[0].(type) {
		case nil, missing, bson.Undefined:
			return nil, nil
		case int32, int64:
			return v, nil
		case float64:
			return round(v), nil
		}
		return nil, refuse(28765, "%s only supports numeric types, not %s", name, typeName(values[0]))
	}
}

// float reads a number that is not a decimal.
func float(v any) (float64, bool) {
	if n, ok := integer(v); ok {
		return float64(n), true
	}
	f, ok := v.(float64)
	return f, ok
}

func sameWidth(n int64, a, b any) any {
	_, narrowA := a.(int32)
	_, narrowB := b.(int32)
	if narrowA && narrowB && n >= math.MinInt32 && n <= math.MaxInt32 {
		return int32(n)
	}
	return n
}

func addInts(x, y int64) (int64, bool)      { z := x + y; return z, (z > x) == (y > 0) }
func subtractInts(x, y int64) (int64, bool) { z := x - y; return z, (z < x) == (y > 0) }

func multiplyInts(x, y int64) (int64, bool) {
	if x == 0 || y == 0 {
		return 0, true
	}
	z := x * y
	return z, z/y == x && (z < 0) == ((x < 0) != (y < 0))
}

// widened is the arithmetic of expressions: an int64 that overflows becomes a double.
func widened(name string, a, b any, ints func(x, y int64) (int64, bool), floats func(x, y float64) float64) (any, error) {
	x, intX := integer(a)
	y, intY := integer(b)
	if intX && intY {
		if z, ok := ints(x, y); ok {
			return sameWidth(z, a, b), nil
		}
	}
	f, okX := float(a)
	g, okY := float(b)
	if !okX || !okY {
		return nil, unmodelled("decimal arithmetic (" + name + ")")
	}
	return floats(f, g), nil
}

func conversion(v any, to string) error {
	return refuse(241, "Unsupported conversion from %s to %s in $convert with no onError value", typeName(v), to)
}

func evaluateToLong(_ string, values []any) (any, error) {
	switch v := values[0].(type) {
	case nil, missing, bson.Undefined:
		return nil, nil
	case bool:
		return map[bool]int64{true: 1}[v], nil
	case bson.DateTime:
		return int64(v), nil
	case string:
		n, err := strconv.ParseInt(v, 10, 64)
		if err != nil {
			return nil, refuse(241, "Failed to parse number '%s' in $convert with no onError value", v)
		}
		return n, nil
	case int32, int64, float64, bson.Decimal128:
		if n, ok := truncated(v); ok {
			return n, nil
		}
		return nil, refuse(241,
			"Conversion would overflow target type in $convert with no onError value: %s", format(v))
	}
	return nil, conversion(values[0], "long")
}

func evaluateToInt(name string, values []any) (any, error) {
	if _, date := values[0].(bson.DateTime); date {
		return nil, conversion(values[0], "int")
	}
	v, err := evaluateToLong(name, values)
	if v == nil || err != nil {
		return nil, err
	}
	n := v.(int64)
	if n < math.MinInt32 || n > math.MaxInt32 {
		return nil, refuse(241, "Conversion would overflow target type in $convert with no onError value: %d", n)
	}
	return int32(n), nil
}

func evaluateToDouble(_ string, values []any) (any, error) {
	switch v := values[0].(type) {
	case nil, missing, bson.Undefined:
		return nil, nil
	case bool:
		return map[bool]float64{true: 1}[v], nil
	case bson.DateTime:
		return float64(v), nil
	case string:
		f, err := strconv.ParseFloat(v, 64)
		if err != nil {
			return nil, refuse(241, "Failed to parse number '%s' in $convert with no onError value", v)
		}
		return f, nil
	case int32, int64, float64, bson.Decimal128:
		if exact, special := rational(v); special == 0 {
			f, _ := exact.Float64()
			return f, nil
		}
		if f, ok := v.(float64); ok {
			return f, nil
		}
	}
	return nil, conversion(values[0], "double")
}

func evaluateToDate(_ string, values []any) (any, error) {
	switch v := values[0].(type) {
	case nil, missing, bson.Undefined:
		return nil, nil
	case bson.DateTime:
		return v, nil
	case bson.Timestamp:
		return bson.DateTime(int64(v.T) * 1000), nil
	case bson.ObjectID:
		return bson.NewDateTimeFromTime(v.Timestamp()), nil
	case int64, float64, bson.Decimal128:
		if n, ok := truncated(v); ok {
			return bson.DateTime(n), nil
		}
	case string:
		if t, err := time.Parse(time.RFC3339Nano, v); err == nil {
			return bson.NewDateTimeFromTime(t), nil
		}
		return nil, refuse(241, "Error parsing date string '%s'", v)
	}
	return nil, conversion(values[0], "date")
}

func evaluateToBool(_ string, values []any) (any, error) {
	if absent(values[0]) {
		return nil, nil
	}
	return truth(values[0]), nil
}

func evaluateToString(_ string, values []any) (any, error) {
	switch v := values[0].(type) {
	case nil, missing, bson.Undefined:
		return nil, nil
	case string:
		return v, nil
	case bson.ObjectID:
		return v.Hex(), nil
	case bson.DateTime:
		return v.Time().UTC().Format("2006-01-02T15:04:05.000Z"), nil
	case float64:
		return strconv.FormatFloat(v, 'g', -1, 64), nil
	case bool, int32, int64, bson.Decimal128:
		return format(v), nil
	}
	return nil, conversion(values[0], "string")
}
