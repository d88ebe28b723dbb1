package mongosim

import (
	"fmt"
	"strconv"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// A resume token names a place in the oplog. It looks like a server's: a document with one string of
// hexadecimal digits that starts with 82 and the time; the rest is ours. Applications may not read it.

type tokenKind string

const (
	tokenEvent      tokenKind = "46" // after an event
	tokenInvalidate tokenKind = "49" // after the event that ended the stream
	tokenMark       tokenKind = "4D" // after all that there was up to then
)

// resumePoint is what a token says.
type resumePoint struct {
	time  bson.Timestamp
	index uint32
	kind  tokenKind
}

func (p resumePoint) token() bson.D {
	return bson.D{{Key: "_data", Value: fmt.Sprintf("82%08X%08X%s%08X", p.time.T, p.time.I, string(p.kind), p.index)}}
}

func parseToken(d bson.D) (resumePoint, error) {
	bad := func() (resumePoint, error) {
		return resumePoint{}, refuse(codeInvalidResumeToken, "Invalid resume token: %s", format(d))
	}
	d, err := normalizeDocument(d)
	if err != nil {
		return bad()
	}
	data, ok := get(d, "_data").(string)
	if !ok || len(data) != 28 || data[:2] != "82" {
		return bad()
	}
	seconds, errT := strconv.ParseUint(data[2:10], 16, 32)
	increment, errI := strconv.ParseUint(data[10:18], 16, 32)
	index, errX := strconv.ParseUint(data[20:], 16, 32)
	if errT != nil || errI != nil || errX != nil {
		return bad()
	}
	p := resumePoint{bson.Timestamp{T: uint32(seconds), I: uint32(increment)}, uint32(index), tokenKind(data[18:20])}
	switch p.kind {
	case tokenEvent, tokenInvalidate, tokenMark:
		return p, nil
	}
	return bad()
}
