package mongosim

import (
	"encoding/binary"
	"math"
	"math/big"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// Index keys are byte strings whose plain order is the order of the values they stand for, so that an
// index compares keys without looking at types. A descending component has all its bits inverted.
//
// Every value's encoding starts with its class, a byte between 1 and 127 (128 to 254 when inverted), and no
// encoding is the beginning of another. So 0xFF after a whole number of components stands above all
// keys that begin with them, and a class byte alone stands below all values of the class.

const above = "\xff"

// appendKey appends the encoding of one component.
func appendKey(b []byte, v any, descending bool) []byte {
	start := len(b)
	b = appendValue(b, v)
	if descending {
		invert(b[start:])
	}
	return b
}

func invert(b []byte) {
	for i := range b {
		b[i] = ^b[i]
	}
}

// keyOf returns the encoding of one ascending value.
func keyOf(v any) string {
	var buffer [64]byte
	return string(appendValue(buffer[:0], v))
}

func appendValue(b []byte, v any) []byte {
	c := classOf(v)
	b = append(b, byte(c))
	switch c {
	case classString:
		return appendText(b, text(v))
	case classNumber:
		return appendNumber(b, v)
	case classDate:
		return binary.BigEndian.AppendUint64(b, uint64(v.(bson.DateTime))^1<<63)
	case classTimestamp:
		t := v.(bson.Timestamp)
		return binary.BigEndian.AppendUint64(b, uint64(t.T)<<32|uint64(t.I))
	case classObjectID:
		id := v.(bson.ObjectID)
		return append(b, id[:]...)
	case classBool:
		if v.(bool) {
			return append(b, 2)
		}
		return append(b, 1)
	case classObject:
		return appendDocument(b, v.(bson.D))
	case classArray:
		for _, e := range v.(bson.A) {
			b = appendValue(b, e)
		}
		return append(b, 0)
	case classBinary:
		x := v.(bson.Binary)
		b = binary.BigEndian.AppendUint32(b, uint32(len(x.Data)))
		return append(append(b, x.Subtype), x.Data...)
	case classRegex:
		x := v.(bson.Regex)
		return appendText(appendText(b, x.Pattern), x.Options)
	case classCode:
		return appendText(b, string(v.(bson.JavaScript)))
	case classScoped:
		x := v.(bson.CodeWithScope)
		return appendValue(appendText(b, string(x.Code)), x.Scope)
	case classDBPointer:
		x := v.(bson.DBPointer)
		b = binary.BigEndian.AppendUint32(b, uint32(len(x.DB)))
		return append(append(b, x.DB...), x.Pointer[:]...)
	}
	return b // the classes with one value
}

// appendDocument writes class, name and value of each field, in the order in which compareDocuments looks at them.
func appendDocument(b []byte, d bson.D) []byte {
	for i := range d {
		b = append(b, byte(classOf(d[i].Value)))
		b = appendText(b, d[i].Key)
		b = appendValue(b, d[i].Value)
	}
	return append(b, 0)
}

// appendText ends a string by 00 01, and writes a zero byte in it as 00 FF.
func appendText(b []byte, s string) []byte {
	for {
		i := strings.IndexByte(s, 0)
		if i < 0 {
			return append(append(b, s...), 0, 1)
		}
		b = append(append(b, s[:i]...), 0, 0xff)
		s = s[i+1:]
	}
}

// appendNumber writes the largest float64 that is not above the number, and then what is left, which is nothing
// for all but huge integers and decimals.
func appendNumber(b []byte, v any) []byte {
	switch v := v.(type) {
	case int32:
		return append(appendFloat(b, float64(v)), 0)
	case float64:
		return append(appendFloat(b, v), 0)
	case int64:
		if v >= -1<<53 && v <= 1<<53 {
			return append(appendFloat(b, float64(v)), 0)
		}
	}
	exact, special := rational(v)
	switch special {
	case -2:
		return append(appendFloat(b, math.NaN()), 0)
	case -1, 1:
		return append(appendFloat(b, math.Inf(special)), 0)
	}
	return appendRational(b, exact)
}

func appendFloat(b []byte, f float64) []byte {
	if math.IsNaN(f) {
		return binary.BigEndian.AppendUint64(b, 0)
	}
	if f == 0 {
		f = 0 // also for -0
	}
	bits := math.Float64bits(f)
	if bits>>63 == 1 {
		bits = ^bits
	} else {
		bits |= 1 << 63
	}
	return binary.BigEndian.AppendUint64(b, bits)
}

// decimalShift is a power of ten that makes every finite float64 and Decimal128, and their difference, an integer.
const decimalShift = 7400

func appendRational(b []byte, exact *big.Rat) []byte {
	floor, _ := exact.Float64()
	if math.IsInf(floor, 1) {
		floor = math.MaxFloat64
	}
	rest := new(big.Rat)
	if !math.IsInf(floor, -1) && rest.SetFloat64(floor).Cmp(exact) > 0 {
		floor = math.Nextafter(floor, math.Inf(-1))
	}
	if math.IsInf(floor, -1) {
		// Below all float64: counted from a number that is below all decimals.
		rest.SetInt(new(big.Int).Exp(big.NewInt(10), big.NewInt(decimalShift), nil))
		return appendRest(appendFloat(b, floor), rest.Add(rest, exact))
	}
	rest.SetFloat64(floor)
	return appendRest(appendFloat(b, floor), rest.Sub(exact, rest))
}

// appendRest writes a number that is not negative: nothing, or the number of its digits and the digits.
func appendRest(b []byte, rest *big.Rat) []byte {
	if rest.Sign() == 0 {
		return append(b, 0)
	}
	shift := new(big.Int).Exp(big.NewInt(10), big.NewInt(decimalShift), nil)
	scaled := shift.Mul(shift, rest.Num())
	digits := scaled.Quo(scaled, rest.Denom()).String()
	b = append(b, 1)
	b = binary.BigEndian.AppendUint16(b, uint16(len(digits)))
	return append(append(b, strings.TrimRight(digits, "0")...), 0)
}
