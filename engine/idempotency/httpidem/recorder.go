package httpidem

import (
	"bufio"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"
)

// recorder stands between a handler and its client. It holds the answer back until it is stored, and gives up holding it back, for good,
// when it is a stream, too large, too slow, flushed or hijacked.
//
// The mutex is for the drain timer, the only one who comes besides the handler.
type recorder struct {
	client  http.ResponseWriter
	options *Options

	mu       sync.Mutex
	header   http.Header // the handler's
	sent     snapshot    // as it was at WriteHeader
	status   int         // zero before WriteHeader
	body     []byte
	passing  bool // what comes goes to the client
	hijacked bool
	over     bool // the handler has returned or panicked
	timer    *time.Timer
}

func newRecorder(client http.ResponseWriter, options *Options) *recorder {
	header := http.Header{}
	maps.Copy(header, client.Header())
	return &recorder{client: client, options: options, header: header}
}

// Unwrap lets http.ResponseController find what this type does not have.
func (w *recorder) Unwrap() http.ResponseWriter { return w.client }

// Header implements http.ResponseWriter.
func (w *recorder) Header() http.Header { return w.header }

// WriteHeader implements http.ResponseWriter.
func (w *recorder) WriteHeader(status int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.writeHeader(status)
}

func (w *recorder) writeHeader(status int) {
	if status < 100 || status > 999 { // as net/http does: now, and not when the answer is sent
		panic(fmt.Sprintf("invalid WriteHeader code %v", status))
	}
	switch {
	case w.passing:
		w.client.WriteHeader(status) // superfluous: net/http says so in its log
	case w.status != 0: // the same, but nothing was sent yet
	case status >= 100 && status <= 199 && status != http.StatusSwitchingProtocols:
		replaceHeader(w.client.Header(), w.header) // not the answer yet
		w.client.WriteHeader(status)
	default:
		w.status = status
		w.sent.take(w.header)
		if w.unstorable() {
			w.pass()
			return
		}
		w.timer = time.AfterFunc(w.options.DrainTimeout, w.drained)
	}
}

// streams are the types whose bytes are for now.
var streams = []string{"text/event-stream", "application/x-ndjson"}

// unstorable tells by the header that the answer will not be stored.
func (w *recorder) unstorable() bool {
	if w.status == http.StatusSwitchingProtocols || slices.Contains(streams, mediaType(w.sent.get("Content-Type"))) {
		return true
	}
	length, err := strconv.ParseInt(w.sent.get("Content-Length"), 10, 64)
	return err == nil && length > w.options.MaxCachedResponse
}

// Write implements http.ResponseWriter.
func (w *recorder) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.hijacked {
		return 0, http.ErrHijacked
	}
	if w.status == 0 {
		w.writeHeader(http.StatusOK)
	}
	if !w.passing && int64(len(w.body)+len(p)) > w.options.MaxCachedResponse {
		w.pass()
	}
	if w.passing {
		return w.client.Write(p)
	}
	if w.status == http.StatusNoContent || w.status == http.StatusNotModified {
		return 0, http.ErrBodyNotAllowed
	}
	w.body = append(w.body, p...)
	return len(p), nil
}

// pass sends what was held back and stops holding back.
func (w *recorder) pass() {
	w.passing = true
	w.stop()
	w.sent.restore(w.client.Header())
	w.client.WriteHeader(w.status)
	if len(w.body) > 0 {
		_, _ = w.client.Write(w.body) // the client may be gone; the next write tells the handler
	}
	w.body = nil
}

func (w *recorder) stop() {
	if w.timer != nil {
		w.timer.Stop()
	}
}

// drained is called when the handler took too long from its first byte: its client must not wait any longer.
func (w *recorder) drained() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over || w.passing {
		return
	}
	w.pass()
	_ = http.NewResponseController(w.client).Flush() // not every writer can
}

// FlushError is called by http.ResponseController. What is flushed is on its way.
func (w *recorder) FlushError() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.hijacked {
		return http.ErrHijacked
	}
	if w.status == 0 {
		w.writeHeader(http.StatusOK)
	}
	if !w.passing {
		w.pass()
	}
	return http.NewResponseController(w.client).Flush()
}

// hijack hands the connection over to the handler.
func (w *recorder) hijack() (net.Conn, *bufio.ReadWriter, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	connection, buffered, err := http.NewResponseController(w.client).Hijack()
	if err == nil {
		w.hijacked, w.passing = true, true
		w.stop()
	}
	return connection, buffered, err
}

// finish ends the recording. It returns the status, and whether the whole answer is in hand.
func (w *recorder) finish() (status int, whole bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.over = true
	w.stop()
	if w.status == 0 && !w.hijacked {
		w.status = http.StatusOK
		w.sent.take(w.header)
	}
	return w.status, !w.passing
}

// abandon ends the recording of a handler that did not return.
func (w *recorder) abandon() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.over = true
	w.stop()
}

// markNotStored tells the client that a repetition would not get this answer. It is too late if the answer is on its way.
func (w *recorder) markNotStored() {
	if !w.passing {
		w.sent.lines = append(w.sent.lines, line{StoredHeader, []string{"false"}})
	}
}

func (w *recorder) encode() []byte {
	return encodeResponse(w.status, w.sent.lines, w.options.ReplayHeaders, w.body)
}

// send answers, or adds the trailers of an answer that is on its way.
func (w *recorder) send() {
	switch {
	case w.hijacked:
	case w.passing:
		replaceHeader(w.client.Header(), w.header)
	default:
		w.pass()
		replaceHeader(w.client.Header(), w.header) // trailers that were set after WriteHeader
	}
}

func replaceHeader(to, from http.Header) {
	clear(to)
	maps.Copy(to, from)
}

// A handler may ask its writer for http.Flusher and http.Hijacker by a type assertion. It must get an answer that is true of the
// client's writer, so there are four types.
type (
	flusher         struct{ *recorder }
	hijacker        struct{ *recorder }
	flusherHijacker struct{ *recorder }
)

func (w flusher) Flush()         { _ = w.FlushError() }
func (w flusherHijacker) Flush() { _ = w.FlushError() }

func (w hijacker) Hijack() (net.Conn, *bufio.ReadWriter, error)        { return w.hijack() }
func (w flusherHijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) { return w.hijack() }

// forHandler returns the recorder with the abilities of the client's writer.
func (w *recorder) forHandler() http.ResponseWriter {
	flushes, hijacks := has[http.Flusher](w.client), has[http.Hijacker](w.client)
	switch {
	case flushes && hijacks:
		return flusherHijacker{w}
	case flushes:
		return flusher{w}
	case hijacks:
		return hijacker{w}
	}
	return w
}

// has tells whether the writer, or one that it wraps, has an ability.
func has[T any](w http.ResponseWriter) bool {
	for {
		if _, ok := w.(T); ok {
			return true
		}
		wrapper, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			return false
		}
		w = wrapper.Unwrap()
	}
}
