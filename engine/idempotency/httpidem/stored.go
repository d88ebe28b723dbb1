package httpidem

import (
	"encoding/binary"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/fencepost-sim/fencepost/engine/idempotency"
)

// storedVersion is the first byte of a stored answer.
const storedVersion = 1

// encodeResponse writes an answer: version, status, number of header lines, each name and value, body; numbers as varints, texts with
// their length before them. It sorts the lines, so that equal answers are stored as equal bytes.
func encodeResponse(status int, header []line, policy HeaderPolicy, body []byte) []byte {
	slices.SortFunc(header, func(a, b line) int { return strings.Compare(a.name, b.name) })
	count, size := 0, len(body)+32
	for _, l := range header {
		if policy(l.name) {
			count += len(l.values)
			for _, value := range l.values {
				size += len(l.name) + len(value) + 8
			}
		}
	}
	encoded := make([]byte, 0, size)
	encoded = append(encoded, storedVersion)
	encoded = binary.AppendUvarint(encoded, uint64(status))
	encoded = binary.AppendUvarint(encoded, uint64(count))
	for _, l := range header {
		if policy(l.name) {
			for _, value := range l.values {
				encoded = appendText(appendText(encoded, l.name), value)
			}
		}
	}
	return append(encoded, body...)
}

func appendText(to []byte, text string) []byte {
	return append(binary.AppendUvarint(to, uint64(len(text))), text...)
}

// sendStored answers with a stored answer. On an error nothing was sent.
func sendStored(w http.ResponseWriter, encoded []byte) error {
	d := decoder{left: encoded}
	if version := d.bytes(1); len(version) != 1 || version[0] != storedVersion {
		return fmt.Errorf("%w: the stored answer has an unknown format", idempotency.ErrResultNotStored)
	}
	status, lines := d.number(), d.number()
	fields := http.Header{}
	for ; lines > 0 && !d.broken; lines-- {
		name := string(d.bytes(d.number()))
		fields[name] = append(fields[name], string(d.bytes(d.number())))
	}
	if d.broken || status < 200 || status > 999 {
		return fmt.Errorf("%w: the stored answer is damaged", idempotency.ErrResultNotStored)
	}
	header := w.Header()
	for name, values := range fields {
		header[name] = values
	}
	header.Set(ReplayedHeader, "true")
	w.WriteHeader(int(status))
	if len(d.left) > 0 {
		_, _ = w.Write(d.left) // the client may be gone
	}
	return nil
}

type decoder struct {
	left   []byte
	broken bool
}

func (d *decoder) number() uint64 {
	n, size := binary.Uvarint(d.left)
	if size <= 0 {
		d.broken = true
		return 0
	}
	d.left = d.left[size:]
	return n
}

func (d *decoder) bytes(n uint64) []byte {
	if n > uint64(len(d.left)) {
		d.broken = true
		return nil
	}
	text := d.left[:n]
	d.left = d.left[n:]
	return text
}
