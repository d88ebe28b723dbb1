package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"slices"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// encode makes a message of an opcode and what follows the header.
func encode(opcode int32, payload ...[]byte) []byte {
	content := bytes.Join(payload, nil)
	header := make([]byte, headerSize)
	binary.LittleEndian.PutUint32(header[0:], uint32(headerSize+len(content)))
	binary.LittleEndian.PutUint32(header[4:], 7)
	binary.LittleEndian.PutUint32(header[12:], uint32(opcode))
	return append(header, content...)
}

func flags(bits uint32) []byte { return binary.LittleEndian.AppendUint32(nil, bits) }

func document(d bson.D) []byte {
	encoded, err := bson.Marshal(d)
	if err != nil {
		panic(err)
	}
	return encoded
}

func body(d bson.D) []byte { return append([]byte{0}, document(d)...) }

func sequence(name string, documents ...bson.D) []byte {
	content := append([]byte(name), 0)
	for _, d := range documents {
		content = append(content, document(d)...)
	}
	return append(binary.LittleEndian.AppendUint32([]byte{1}, uint32(4+len(content))), content...)
}

func summed(message []byte) []byte {
	binary.LittleEndian.PutUint32(message, uint32(len(message)+4))
	return binary.LittleEndian.AppendUint32(message, crc32.Checksum(message, crc32.MakeTable(crc32.Castagnoli)))
}

var (
	ping = bson.D{{Key: "ping", Value: int32(1)}, {Key: "$db", Value: "admin"}}
	one  = bson.D{{Key: "_id", Value: int32(1)}}
	two  = bson.D{{Key: "_id", Value: int32(2)}}
)

func TestSectionsInAnyOrderMakeOneBody(t *testing.T) {
	want := document(append(slices.Clone(ping), bson.E{Key: "documents", Value: bson.A{one, two}}))
	for name, encoded := range map[string][]byte{
		"body first":    encode(opMsg, flags(0), body(ping), sequence("documents", one, two)),
		"body last":     encode(opMsg, flags(0), sequence("documents", one, two), body(ping)),
		"with checksum": summed(encode(opMsg, flags(flagChecksumPresent), body(ping), sequence("documents", one, two))),
		"optional flag": encode(opMsg, flags(1<<16), body(ping), sequence("documents", one, two)),
	} {
		m, err := readMessage(bytes.NewReader(encoded))
		if err != nil || m.id != 7 || m.oneWay || !bytes.Equal(document(m.body), want) {
			t.Errorf("%s: got %+v, %v", name, m, err)
		}
	}
	m, err := readMessage(bytes.NewReader(encode(opMsg, flags(flagMoreToCome), body(ping))))
	if err != nil || !m.oneWay {
		t.Errorf("a one-way message is %+v, %v", m, err)
	}
}

func TestMalformedMessagesAreRefused(t *testing.T) {
	deep := bson.D{}
	for range maxDepth + 1 {
		deep = bson.D{{Key: "in", Value: deep}}
	}
	tooLong := encode(opMsg, flags(0), body(ping))
	binary.LittleEndian.PutUint32(tooLong, maxMessageSize+1)
	tooShort := encode(opMsg)
	binary.LittleEndian.PutUint32(tooShort, headerSize-1)
	lyingSequence := sequence("documents", one)
	binary.LittleEndian.PutUint32(lyingSequence[1:], 1000)
	lyingBody := body(ping)
	binary.LittleEndian.PutUint32(lyingBody[1:], 1000)
	brokenBody := body(ping)
	brokenBody[5] = 0x42 // no such type
	wrongSum := summed(encode(opMsg, flags(flagChecksumPresent), body(ping)))
	wrongSum[len(wrongSum)-1] ^= 1

	for name, encoded := range map[string][]byte{
		"unknown opcode":          encode(1, flags(0), body(ping)),
		"compressed":              encode(2012, flags(0), body(ping)),
		"too long":                tooLong,
		"too short":               tooShort,
		"no flags":                encode(opMsg, []byte{0, 0}),
		"required flag":           encode(opMsg, flags(1<<2), body(ping)),
		"no section":              encode(opMsg, flags(0)),
		"empty body":              encode(opMsg, flags(0), body(bson.D{})),
		"two bodies":              encode(opMsg, flags(0), body(ping), body(ping)),
		"unknown kind":            encode(opMsg, flags(0), body(ping), []byte{2}),
		"only a sequence":         encode(opMsg, flags(0), sequence("documents", one)),
		"field twice":             encode(opMsg, flags(0), body(ping), sequence("ping", one)),
		"sequence twice":          encode(opMsg, flags(0), body(ping), sequence("a", one), sequence("a", one)),
		"sequence beyond the end": encode(opMsg, flags(0), body(ping), lyingSequence),
		"sequence without a name": encode(opMsg, flags(0), body(ping), []byte{1, 5, 0, 0, 0, 'x'}),
		"body beyond the end":     encode(opMsg, flags(0), lyingBody),
		"unknown BSON type":       encode(opMsg, flags(0), brokenBody),
		"too deep":                encode(opMsg, flags(0), body(deep)),
		"wrong checksum":          wrongSum,
		"no checksum":             encode(opMsg, flags(flagChecksumPresent)),
		"query on a collection":   encode(opQuery, flags(0), []byte("db.coll\x00"), make([]byte, 8), document(ping)),
		"query cut off":           encode(opQuery, flags(0), []byte("admin.$cmd")),
		"query without a command": encode(opQuery, flags(0), []byte("admin.$cmd\x00"), make([]byte, 8), document(bson.D{})),
	} {
		if m, err := readMessage(bytes.NewReader(encoded)); !errors.Is(err, errMalformed) {
			t.Errorf("%s: got %+v, %v", name, m, err)
		}
	}
}

func TestAConnectionMayEndBetweenMessagesButNotWithinOne(t *testing.T) {
	whole := encode(opMsg, flags(0), body(ping))
	for n := range len(whole) {
		_, err := readMessage(bytes.NewReader(whole[:n]))
		if (n == 0) != (err == io.EOF) || err == nil {
			t.Errorf("after %d bytes: %v", n, err)
		}
	}
}

// What was decoded must not change with the buffer that it was decoded from.
func TestDecodedValuesOwnTheirMemory(t *testing.T) {
	want := bson.D{{Key: "ping", Value: bson.Binary{Data: []byte("data")}}, {Key: "text", Value: "text"}}
	raw := document(want)
	got, _, err := takeDocument(raw)
	if err != nil {
		t.Fatal(err)
	}
	clear(raw)
	if !bytes.Equal(document(got), document(want)) {
		t.Errorf("got %v", got)
	}
}

func FuzzReadMessage(f *testing.F) {
	f.Add(encode(opMsg, flags(0), body(ping), sequence("documents", one, two)))
	f.Add(summed(encode(opMsg, flags(flagChecksumPresent), body(ping))))
	f.Add(encode(opQuery, flags(0), []byte("admin.$cmd\x00"), make([]byte, 8), document(ping)))
	f.Fuzz(func(t *testing.T, input []byte) {
		m, err := readMessage(bytes.NewReader(input))
		if err != nil {
			return
		}
		if len(m.body) == 0 {
			t.Error("a message without a body")
		}
		if _, err := encodeReply(m, 1, m.body, false); err != nil {
			t.Errorf("what was read cannot be written: %v", err)
		}
	})
}
