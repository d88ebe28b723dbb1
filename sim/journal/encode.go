package journal

import (
	"encoding/hex"
	"fmt"
	"strconv"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// AppendLine appends the event in its stable encoding: one JSON object, without line break, whose fields come in a fixed order and
// are left out when empty. Two events are equal if and only if their lines are.
func (j *Journal) AppendLine(line []byte, event *Event) []byte {
	line = append(line, `{"step":`...)
	line = strconv.AppendInt(line, int64(event.Step), 10)
	line = append(line, `,"time":`...)
	line = strconv.AppendInt(line, int64(event.Time), 10)
	line = appendString(line, "kind", event.Kind.String())
	if event.Process != 0 {
		line = appendString(line, "process", j.ProcessName(event.Process))
	}
	line = appendNumber(line, "task", int64(event.Task))
	line = appendString(line, "point", event.Point)
	line = appendString(line, "name", event.Name)
	line = appendString(line, "collection", event.Collection)
	line = appendString(line, "key", event.Key)
	line = appendString(line, "group", event.Group)
	line = appendString(line, "delivery", event.Delivery)
	line = appendNumber(line, "number", event.Number)
	line = appendNumber(line, "span", int64(event.Span))
	line = appendString(line, "error", event.Error)
	if event.Document != nil {
		line = append(line, `,"document":`...)
		line = appendValue(line, event.Document)
	}
	return append(line, '}')
}

// Line returns the encoded event as a string.
func (j *Journal) Line(event *Event) string { return string(j.AppendLine(nil, event)) }

func appendString(line []byte, key, value string) []byte {
	if value == "" {
		return line
	}
	line = append(line, ',', '"')
	line = append(line, key...)
	line = append(line, '"', ':')
	return appendQuoted(line, value)
}

func appendNumber(line []byte, key string, value int64) []byte {
	if value == 0 {
		return line
	}
	line = append(line, ',', '"')
	line = append(line, key...)
	line = append(line, '"', ':')
	return strconv.AppendInt(line, value, 10)
}

// appendQuoted writes a JSON string. Bytes that are not UTF-8 become U+FFFD, as JSON demands.
func appendQuoted(line []byte, text string) []byte {
	line = append(line, '"')
	for _, r := range text {
		switch {
		case r == '"' || r == '\\':
			line = append(line, '\\', byte(r))
		case r < 0x20 || r == 0x7f:
			line = fmt.Appendf(line, `\u%04x`, r)
		default:
			line = append(line, string(r)...)
		}
	}
	return append(line, '"')
}

// appendValue writes a BSON value in the manner of MongoDB's canonical Extended JSON, so that types are told apart.
func appendValue(line []byte, value any) []byte {
	switch v := value.(type) {
	case nil:
		return append(line, "null"...)
	case bool:
		return strconv.AppendBool(line, v)
	case string:
		return appendQuoted(line, v)
	case int32:
		return strconv.AppendInt(line, int64(v), 10)
	case int64:
		line = append(line, `{"$numberLong":"`...)
		return append(strconv.AppendInt(line, v, 10), `"}`...)
	case float64:
		line = append(line, `{"$numberDouble":"`...)
		return append(strconv.AppendFloat(line, v, 'g', -1, 64), `"}`...)
	case bson.DateTime:
		line = append(line, `{"$date":"`...)
		return append(v.Time().UTC().AppendFormat(line, time.RFC3339Nano), `"}`...)
	case bson.Timestamp:
		return fmt.Appendf(line, `{"$timestamp":{"t":%d,"i":%d}}`, v.T, v.I)
	case bson.ObjectID:
		return fmt.Appendf(line, `{"$oid":"%s"}`, v.Hex())
	case bson.Binary:
		return fmt.Appendf(line, `{"$binary":{"hex":"%s","subType":"%02x"}}`, hex.EncodeToString(v.Data), v.Subtype)
	case bson.D:
		return appendDocument(line, v)
	case bson.A:
		line = append(line, '[')
		for i, element := range v {
			if i > 0 {
				line = append(line, ',')
			}
			line = appendValue(line, element)
		}
		return append(line, ']')
	default:
		return appendQuoted(line, fmt.Sprintf("%T(%v)", v, v))
	}
}

func appendDocument(line []byte, document bson.D) []byte {
	line = append(line, '{')
	for i, field := range document {
		if i > 0 {
			line = append(line, ',')
		}
		line = appendQuoted(line, field.Key)
		line = append(line, ':')
		line = appendValue(line, field.Value)
	}
	return append(line, '}')
}
