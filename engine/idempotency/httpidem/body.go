package httpidem

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/fencepost-sim/fencepost/engine/idempotency"
)

// Labels of fingerprints. A change of an algorithm gets a new label, so that a rolling deploy compares nothing that cannot
// be compared.
const (
	wholeLabel   = "c1" // c1:digest, of the body's meaning
	partialLabel = "r1" // r1:n:digest, of the first n bytes as they came
)

// requestBody is what the middleware knows about a request's body.
type requestBody struct {
	mediaType, query string
	contentType      string
	fingerprint      idempotency.Fingerprint // known before the handler runs; empty for large bodies

	original io.ReadCloser
	read     []byte       // the whole body, if it fits into memory
	whole    bytes.Reader // on it
	rest     io.Reader    // else: what was read of it, and what follows
	partial  *hashing     // hashes what the handler reads, if the fingerprint is not known before
	skip     bool
}

// readBody reads a body that fits into memory, and no more than a byte beyond. A body that cannot be read to its end is left to the
// handler to judge, as one that is too large.
func (m *mount) readBody(r *http.Request) (*requestBody, error) {
	b := &requestBody{original: r.Body, skip: m.options.SkipBody}
	if b.skip {
		return b, nil
	}
	b.contentType = r.Header.Get("Content-Type")
	b.mediaType, b.query = mediaType(b.contentType), sortedQuery(r.URL.RawQuery)
	if r.Body == nil || r.Body == http.NoBody || r.ContentLength == 0 {
		b.fingerprint = b.wholePrint(nil)
		return b, nil
	}
	if r.ContentLength > m.options.MaxHashedBody {
		b.rest = r.Body
		return b, nil
	}
	read, chunks, err := readUpTo(r.Body, r.ContentLength, m.options.MaxHashedBody)
	switch {
	case err != nil: // what the body says when it is read again, and else the error
		b.rest = io.MultiReader(append(chunks, r.Body, failed{err})...)
	case chunks != nil:
		b.rest = io.MultiReader(append(chunks, r.Body)...)
	default:
		b.read = read
		b.fingerprint = b.wholePrint(read)
	}
	return b, nil
}

type failed struct{ err error }

func (f failed) Read([]byte) (int, error) { return 0, f.err }

// chunkSize is how much of a body of unknown length is read into one piece. Pieces are not joined, or grown, before the end is
// seen, so that a large body costs no more than the limit.
const chunkSize = 64 << 10

// readUpTo reads the body to its end, or a little more than the limit, which it returns in pieces, as it does with what came before
// an error. A known length is read into one piece of that size, and a byte more: a middleware that decompresses
// may have left the length of what came, and then the body is longer.
func readUpTo(body io.Reader, known, limit int64) (whole []byte, pieces []io.Reader, err error) {
	size := int64(chunkSize)
	if known > 0 {
		size = known + 1
	}
	var chunks [][]byte
	for total := int64(0); total <= limit; {
		chunk := make([]byte, size)
		n, err := fill(body, chunk)
		chunks, total = append(chunks, chunk[:n]), total+int64(n)
		switch {
		case err == io.EOF && total <= limit && (known <= 0 || total == known):
			if len(chunks) == 1 {
				return chunks[0], nil, nil
			}
			return bytes.Join(chunks, nil), nil, nil
		case err != nil && err != io.EOF:
			return nil, readers(chunks), err
		case err == io.EOF: // beyond the limit, or shorter than was said
			return nil, readers(chunks), nil
		}
		known, size = 0, chunkSize // longer than was said
	}
	return nil, readers(chunks), nil
}

// fill reads until the chunk is full, and returns the reader's own error: io.ReadFull would not tell the end of a body from one that
// was cut off.
func fill(body io.Reader, chunk []byte) (n int, err error) {
	for n < len(chunk) && err == nil {
		var more int
		more, err = body.Read(chunk[n:])
		n += more
	}
	return n, err
}

func readers(chunks [][]byte) []io.Reader {
	pieces := make([]io.Reader, len(chunks))
	for i, chunk := range chunks {
		pieces[i] = bytes.NewReader(chunk)
	}
	return pieces
}

// attach gives the handler a body with the very bytes that came.
func (b *requestBody) attach(r *http.Request) *http.Request {
	if b.skip || (b.read == nil && b.rest == nil) {
		return r
	}
	if b.rest != nil {
		b.partial = &hashing{from: b.rest, hash: b.begin(partialLabel)}
	}
	b.whole.Reset(b.read)
	r.Body = b
	return r
}

// Read is what the handler reads.
func (b *requestBody) Read(p []byte) (int, error) {
	if b.partial != nil {
		return b.partial.Read(p)
	}
	return b.whole.Read(p)
}

// Close closes the original.
func (b *requestBody) Close() error { return b.original.Close() }

// hashing hashes what is read through it.
type hashing struct {
	from io.Reader
	hash hash.Hash
	n    int64
}

func (h *hashing) Read(p []byte) (int, error) {
	n, err := h.from.Read(p)
	_, _ = h.hash.Write(p[:n]) // never fails
	h.n += int64(n)
	return n, err
}

// final is the fingerprint to store with the answer: empty if the one of the claim stands.
func (b *requestBody) final() idempotency.Fingerprint {
	if b.partial == nil {
		return ""
	}
	return partialPrint(b.partial.n, b.partial.hash)
}

func partialPrint(n int64, h hash.Hash) idempotency.Fingerprint {
	return idempotency.Fingerprint(fmt.Sprintf("%s:%d:%s", partialLabel, n, hex.EncodeToString(h.Sum(nil))))
}

// preamble appends what belongs to a digest beside the body, each part with its length before it.
func (b *requestBody) preamble(to []byte, kind string) []byte {
	for _, part := range [...]string{"fencepost.http", kind, b.mediaType, b.query} {
		to = append(binary.BigEndian.AppendUint64(to, uint64(len(part))), part...)
	}
	return to
}

func (b *requestBody) begin(kind string) hash.Hash {
	h := sha256.New()
	_, _ = h.Write(b.preamble(nil, kind)) // never fails
	return h
}

// wholePrint is the fingerprint of a whole body: JSON with sorted names and without white space, forms by their fields, everything else,
// and whatever is malformed, by its bytes. The form is part of the digest, so that no two forms meet.
func (b *requestBody) wholePrint(body []byte) idempotency.Fingerprint {
	if len(body) > 0 && (b.mediaType == "application/json" || strings.HasSuffix(b.mediaType, "+json")) {
		c := canonicalizers.Get().(*canonicalizer)
		defer c.release()
		if image, ok := c.canonicalize(b.preamble(c.out[:0], jsonForm), body); ok {
			return wholeText(sha256.Sum256(image))
		}
	}
	form, canonical := canonical(b.mediaType, b.contentType, body)
	h := b.begin(form)
	_, _ = h.Write(canonical) // never fails
	return wholeText([sha256.Size]byte(h.Sum(nil)))
}

func wholeText(sum [sha256.Size]byte) idempotency.Fingerprint {
	var text [len(wholeLabel) + 1 + 2*sha256.Size]byte
	copy(text[:], wholeLabel+":")
	hex.Encode(text[len(wholeLabel)+1:], sum[:])
	return idempotency.Fingerprint(text[:])
}

// largestRecomputed bounds what is read into memory when another release, with another MaxHashedBody, has stored a fingerprint
// of the whole body.
const largestRecomputed = 16 << 20

// matches tells whether the stored fingerprint may be this request's. It is asked when there is an answer to replay, and may
// use the body up.
func (b *requestBody) matches(stored idempotency.Fingerprint) bool {
	label, rest, _ := strings.Cut(string(stored), ":")
	switch {
	case stored == "" || b.skip:
		return true
	case label == partialLabel:
		length, _, _ := strings.Cut(rest, ":")
		n, err := strconv.ParseInt(length, 10, 64)
		return err == nil && b.partialMatches(stored, n)
	case label == wholeLabel && b.fingerprint == "":
		body, err := io.ReadAll(io.LimitReader(b.reader(), largestRecomputed+1))
		return err == nil && len(body) <= largestRecomputed && b.wholePrint(body) == stored
	case label == wholeLabel:
		return b.fingerprint == stored
	}
	return true // an algorithm that this release does not know
}

func (b *requestBody) partialMatches(stored idempotency.Fingerprint, n int64) bool {
	h := b.begin(partialLabel)
	copied, err := io.CopyN(h, b.reader(), n)
	return err == nil && copied == n && partialPrint(n, h) == stored
}

func (b *requestBody) reader() io.Reader {
	if b.rest == nil {
		return bytes.NewReader(b.read)
	}
	return b.rest
}

// mediaType is the type without its parameters, in lower case.
func mediaType(contentType string) string {
	bare, _, _ := strings.Cut(contentType, ";")
	return strings.ToLower(strings.TrimSpace(bare))
}

// sortedQuery is the query with its names in order, and the values of each name in theirs.
func sortedQuery(raw string) string {
	if raw == "" {
		return ""
	}
	values, err := url.ParseQuery(raw)
	if err != nil {
		return raw
	}
	return values.Encode()
}
