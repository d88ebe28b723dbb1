package httpidem

import (
	"net/http"
	"slices"
)

// HeaderPolicy says whether a header of an answer, by its canonical name, is stored and replayed.
type HeaderPolicy func(name string) bool

// replayed are the headers that describe the answer itself, and not the moment in which it was given.
var replayed = []string{"Content-Type", "Content-Encoding", "Content-Language", "Location", "Etag", "Last-Modified", "Link"}

// never are the headers of one connection or one message, and those that this package and net/http set themselves
// (RFC 9110, section 7.6.1).
var never = []string{
	"Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding",
	"Upgrade", "Content-Length", "Date", ReplayedHeader, StoredHeader,
}

// AllowList stores Content-Type, Content-Encoding, Content-Language, Location, ETag, Last-Modified, Link and the further headers. It
// leaves out cookies, dates, rate limits and trace ids.
func AllowList(further ...string) HeaderPolicy {
	names := slices.Clone(replayed)
	for _, name := range further {
		names = append(names, http.CanonicalHeaderKey(name))
	}
	return func(name string) bool { return slices.Contains(names, name) && !slices.Contains(never, name) }
}

// AllExcept stores every header but the named ones and those that belong to one connection. Set-Cookie should be among them: a cookie
// is replayed to whoever has the key.
func AllExcept(names ...string) HeaderPolicy {
	excepted := slices.Clone(never)
	for _, name := range names {
		excepted = append(excepted, http.CanonicalHeaderKey(name))
	}
	return func(name string) bool { return !slices.Contains(excepted, name) }
}

// line is one header of an answer, as it was when the handler said so.
type line struct {
	name   string
	values []string
}

// usualLines is how many headers most answers have at the most.
const usualLines = 12

// snapshot is what a header was. A map of its own would cost two allocations.
type snapshot struct {
	lines []line
	space [usualLines]line
}

func (s *snapshot) take(h http.Header) {
	s.lines = s.space[:0]
	for name, values := range h { // the order does not matter: see restore and encodeResponse
		s.lines = append(s.lines, line{name, values})
	}
}

// get returns the first value of a header, by its canonical name.
func (s *snapshot) get(name string) string {
	for _, l := range s.lines {
		if l.name == name && len(l.values) > 0 {
			return l.values[0]
		}
	}
	return ""
}

// restore makes a header what it was.
func (s *snapshot) restore(h http.Header) {
	clear(h)
	for _, l := range s.lines {
		h[l.name] = l.values
	}
}
