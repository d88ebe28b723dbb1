package mongosim

import (
	"encoding/hex"
	"fmt"
	"math"
	"strconv"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// format writes a value the way servers write it into error messages.
func format(v any) string {
	var b strings.Builder
	formatTo(&b, v)
	return b.String()
}

func formatTo(b *strings.Builder, v any) {
	switch v := v.(type) {
	case nil:
		b.WriteString("null")
	case string:
		fmt.Fprintf(b, "%q", v)
	case bson.Symbol:
		fmt.Fprintf(b, "%q", string(v))
	case float64:
		b.WriteString(formatFloat(v))
	case bson.DateTime:
		fmt.Fprintf(b, "new Date(%d)", int64(v))
	case bson.Timestamp:
		fmt.Fprintf(b, "Timestamp(%d, %d)", v.T, v.I)
	case bson.ObjectID:
		fmt.Fprintf(b, "ObjectId('%s')", v.Hex())
	case bson.Binary:
		formatBinary(b, v)
	case bson.Regex:
		fmt.Fprintf(b, "/%s/%s", v.Pattern, v.Options)
	case bson.Decimal128:
		fmt.Fprintf(b, "%s", v.String())
	case bson.D:
		formatDocument(b, v)
	case bson.A:
		formatArray(b, v)
	case bson.MinKey:
		b.WriteString("MinKey")
	case bson.MaxKey:
		b.WriteString("MaxKey")
	case bson.Undefined:
		b.WriteString("undefined")
	case missing:
		b.WriteString("MISSING")
	default:
		fmt.Fprintf(b, "%v", v) // numbers, bool, code
	}
}

func formatFloat(f float64) string {
	if f == math.Trunc(f) && math.Abs(f) < 1e15 {
		return strconv.FormatFloat(f, 'f', 1, 64)
	}
	return strconv.FormatFloat(f, 'g', -1, 64)
}

func formatBinary(b *strings.Builder, v bson.Binary) {
	if v.Subtype == bson.TypeBinaryUUID && len(v.Data) == 16 {
		h := hex.EncodeToString(v.Data)
		fmt.Fprintf(b, "UUID(\"%s-%s-%s-%s-%s\")", h[:8], h[8:12], h[12:16], h[16:20], h[20:])
		return
	}
	fmt.Fprintf(b, "BinData(%d, %s)", v.Subtype, strings.ToUpper(hex.EncodeToString(v.Data)))
}

func formatDocument(b *strings.Builder, d bson.D) {
	if len(d) == 0 {
		b.WriteString("{}")
		return
	}
	for i := range d {
		b.WriteString([]string{"{ ", ", "}[min(i, 1)])
		b.WriteString(d[i].Key)
		b.WriteString(": ")
		formatTo(b, d[i].Value)
	}
	b.WriteString(" }")
}

func formatArray(b *strings.Builder, a bson.A) {
	if len(a) == 0 {
		b.WriteString("[]")
		return
	}
	for i := range a {
		b.WriteString([]string{"[ ", ", "}[min(i, 1)])
		formatTo(b, a[i])
	}
	b.WriteString(" ]")
}
