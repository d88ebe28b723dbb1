package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// The codec of messages. Source: MongoDB's manual, "MongoDB Wire Protocol", and the driver specification "OP_MSG".

const (
	opReply = 1
	opQuery = 2004
	opMsg   = 2013

	headerSize = 16
	// maxMessageSize is the maxMessageSizeBytes that servers announce in hello.
	maxMessageSize = 48_000_000
)

// Flag bits of OP_MSG. A receiver must refuse unknown bits among the lower sixteen and ignore the others.
const (
	flagChecksumPresent = 1 << 0
	flagMoreToCome      = 1 << 1
	flagExhaustAllowed  = 1 << 16
	flagsRequired       = 0xffff
	flagsKnown          = flagChecksumPresent | flagMoreToCome
)

// errMalformed is wrapped by the errors about bytes that are not a message that this server understands. There is no way to
// answer them; the connection is closed.
var errMalformed = errors.New("wire: malformed message")

func malformed(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errMalformed, fmt.Sprintf(format, args...))
}

// message is one request. The body of a command carries its document sequences as array fields.
type message struct {
	id     int32
	opcode int32
	body   bson.D
	// oneWay means that the client does not read a reply (moreToCome).
	oneWay bool
	// exhaust means that the client reads any number of replies (exhaustAllowed).
	exhaust bool
}

// readMessage reads one message. It returns io.EOF when the connection ended between messages.
func readMessage(r io.Reader) (message, error) {
	var header [headerSize]byte
	if _, err := io.ReadFull(r, header[:]); err != nil {
		return message{}, err
	}
	length := int64(int32(binary.LittleEndian.Uint32(header[0:])))
	m := message{
		id:     int32(binary.LittleEndian.Uint32(header[4:])),
		opcode: int32(binary.LittleEndian.Uint32(header[12:])),
	}
	if length < headerSize || length > maxMessageSize {
		return message{}, malformed("a length of %d bytes", length)
	}
	// The buffer grows with what arrives, so a header that lies costs nothing.
	payload := bytes.NewBuffer(nil)
	if _, err := io.CopyN(payload, r, length-headerSize); err != nil {
		return message{}, fmt.Errorf("read the rest of a message: %w", err)
	}
	var err error
	switch m.opcode {
	case opMsg:
		err = m.parse(header[:], payload.Bytes())
	case opQuery:
		m.body, err = parseQuery(payload.Bytes())
	default:
		err = malformed("opcode %d", m.opcode)
	}
	return m, err
}

// parse reads the flags and sections of an OP_MSG.
func (m *message) parse(header, payload []byte) (err error) {
	if len(payload) < 4 {
		return malformed("no flags")
	}
	flags := binary.LittleEndian.Uint32(payload)
	if unknown := flags & flagsRequired &^ flagsKnown; unknown != 0 {
		return malformed("unknown required flag bits %#x", unknown)
	}
	rest := payload[4:]
	if flags&flagChecksumPresent != 0 {
		if rest, err = checkSum(header, payload); err != nil {
			return err
		}
	}
	m.oneWay, m.exhaust = flags&flagMoreToCome != 0, flags&flagExhaustAllowed != 0
	m.body, err = parseSections(rest)
	return err
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// checkSum verifies the CRC-32C at the end of a message, and returns the sections before it.
func checkSum(header, payload []byte) ([]byte, error) {
	if len(payload) < 8 {
		return nil, malformed("no checksum")
	}
	covered, sum := payload[:len(payload)-4], binary.LittleEndian.Uint32(payload[len(payload)-4:])
	if crc32.Update(crc32.Checksum(header, castagnoli), castagnoli, covered) != sum {
		return nil, malformed("wrong checksum")
	}
	return covered[4:], nil
}

// parseSections reads one kind-0 section, the body, and any number of kind-1 sections, in any order.
func parseSections(rest []byte) (bson.D, error) {
	var body bson.D
	var sequences bson.D
	for len(rest) > 0 {
		kind := rest[0]
		var err error
		switch rest = rest[1:]; kind {
		case 0:
			if body != nil {
				return nil, malformed("two bodies")
			}
			body, rest, err = takeDocument(rest)
		case 1:
			var sequence bson.E
			sequence, rest, err = takeSequence(rest)
			sequences = append(sequences, sequence)
		default:
			err = malformed("section kind %d", kind)
		}
		if err != nil {
			return nil, err
		}
	}
	if len(body) == 0 {
		return nil, malformed("no body")
	}
	for _, sequence := range sequences {
		if has(body, sequence.Key) {
			return nil, malformed("field %q twice", sequence.Key)
		}
		body = append(body, sequence)
	}
	return body, nil
}

// takeDocument decodes the document at the start of the bytes and returns what follows. Nothing
// of the result shares memory with the bytes.
func takeDocument(b []byte) (bson.D, []byte, error) {
	if len(b) < 4 {
		return nil, nil, malformed("a document is cut off")
	}
	length := int64(int32(binary.LittleEndian.Uint32(b)))
	if length < 5 || length > int64(len(b)) {
		return nil, nil, malformed("a document of %d bytes", length)
	}
	raw := bson.Raw(b[:length])
	if err := validate(raw, 0); err != nil {
		return nil, nil, err
	}
	document := bson.D{}
	if err := bson.Unmarshal(raw, &document); err != nil {
		return nil, nil, malformed("%v", err)
	}
	return document, b[length:], nil
}

// maxDepth is how deep servers let BSON nest when they parse it; what is stored may nest half as deep.
const maxDepth = 200

// validate checks the structure of a document without following it deeper than allowed, which
// could exhaust the stack.
func validate(raw bson.Raw, depth int) error {
	if depth > maxDepth {
		return malformed("documents nest deeper than %d levels", maxDepth)
	}
	elements, err := raw.Elements()
	if err != nil {
		return malformed("%v", err)
	}
	for _, element := range elements {
		value := element.Value()
		inner, isDocument := value.DocumentOK()
		if !isDocument {
			if array, isArray := value.ArrayOK(); isArray {
				inner, isDocument = bson.Raw(array), true
			}
		}
		if isDocument {
			err = validate(inner, depth+1)
		} else {
			err = value.Validate()
		}
		if err != nil {
			return malformed("%v", err)
		}
	}
	return nil
}

// takeSequence reads a kind-1 section: its size, the name of the field that it stands for, and documents.
func takeSequence(b []byte) (bson.E, []byte, error) {
	if len(b) < 4 {
		return bson.E{}, nil, malformed("a sequence is cut off")
	}
	size := int64(int32(binary.LittleEndian.Uint32(b)))
	if size < 5 || size > int64(len(b)) {
		return bson.E{}, nil, malformed("a sequence of %d bytes", size)
	}
	content, rest := b[4:size], b[size:]
	end := bytes.IndexByte(content, 0)
	if end < 0 {
		return bson.E{}, nil, malformed("a sequence without a name")
	}
	name := string(content[:end])
	content = content[end+1:]
	documents := bson.A{}
	for len(content) > 0 {
		document, after, err := takeDocument(content)
		if err != nil {
			return bson.E{}, nil, err
		}
		documents, content = append(documents, document), after
	}
	return bson.E{Key: name, Value: documents}, rest, nil
}

// parseQuery reads an OP_QUERY, which is a command on the collection $cmd.
func parseQuery(b []byte) (bson.D, error) {
	if len(b) < 4 {
		return nil, malformed("no flags")
	}
	b = b[4:]
	end := bytes.IndexByte(b, 0)
	if end < 0 || len(b) < end+1+8 {
		return nil, malformed("a query is cut off")
	}
	database, command := bytes.CutSuffix(b[:end], []byte(".$cmd"))
	if !command {
		return nil, malformed("OP_QUERY on %q, which is not a command", b[:end])
	}
	body, _, err := takeDocument(b[end+1+8:]) // numberToSkip and numberToReturn say nothing about a command
	if err != nil {
		return nil, err
	}
	if len(body) == 0 {
		return nil, malformed("no command")
	}
	return append(body, bson.E{Key: "$db", Value: string(database)}), nil
}

// encodeReply makes the answer to a message: OP_REPLY to an OP_QUERY, otherwise OP_MSG. more means that another follows.
func encodeReply(to message, id int32, body bson.D, more bool) ([]byte, error) {
	document, err := bson.Marshal(body)
	if err != nil {
		return nil, fmt.Errorf("encode a reply: %w", err)
	}
	opcode, prefix := int32(opMsg), make([]byte, 5) // no flags, one section of kind 0
	if more {
		binary.LittleEndian.PutUint32(prefix, flagMoreToCome)
	}
	if to.opcode == opQuery {
		opcode, prefix = opReply, make([]byte, 20)
		binary.LittleEndian.PutUint32(prefix[0:], 1<<3) // AwaitCapable, as every server says
		binary.LittleEndian.PutUint32(prefix[16:], 1)   // one document
	}
	length := headerSize + len(prefix) + len(document)
	if length > maxMessageSize {
		return nil, fmt.Errorf("wire: a reply of %d bytes", length)
	}
	out := make([]byte, headerSize, length)
	binary.LittleEndian.PutUint32(out[0:], uint32(length))
	binary.LittleEndian.PutUint32(out[4:], uint32(id))
	binary.LittleEndian.PutUint32(out[8:], uint32(to.id))
	binary.LittleEndian.PutUint32(out[12:], uint32(opcode))
	return append(append(out, prefix...), document...), nil
}
