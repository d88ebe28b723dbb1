package httpidem

import (
	"bytes"
	"cmp"
	"slices"
	"strconv"
	"sync"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// deepest is how far JSON may be nested to be compared by meaning.
const deepest = 64

var canonicalizers = sync.Pool{New: func() any { return &canonicalizer{} }}

// canonicalizer writes JSON with sorted names and no white space. Numbers keep their text: rounded to a float64, 2^53 and 2^53+1
// would be one, and an amount could be replayed for another. Strings are unescaped and escaped again, so that "\u0041"
// is "A".
//
// What is no JSON (RFC 8259), what two parsers could read in two ways (names that repeat, or differ in nothing but case, invalid
// UTF-8, unpaired surrogates) and what is nested too deeply is refused. The scratch space is kept for the next body: encoding/json would
// allocate for every value.
type canonicalizer struct {
	source  []byte
	at      int
	depth   int
	out     []byte
	members []member // of all objects that are open
	sorted  []byte
}

// member is one name and its value in out.
type member struct{ begin, nameEnd, end int }

// largestKept bounds the scratch space that is kept.
const largestKept = 64 << 10

func (c *canonicalizer) release() {
	c.source = nil
	if cap(c.out) <= largestKept && cap(c.sorted) <= largestKept {
		canonicalizers.Put(c)
	}
}

// canonicalize appends the canonical text to what is in out already. The result is valid until release.
func (c *canonicalizer) canonicalize(out, source []byte) ([]byte, bool) {
	c.source, c.at, c.depth = source, 0, 0
	c.out, c.members = out, c.members[:0]
	ok := c.value() && c.next() == end
	return c.out, ok
}

// end is what next and peek return behind the last byte. No JSON has it outside of strings.
const end = 0

func (c *canonicalizer) peek() byte {
	if c.at < len(c.source) {
		return c.source[c.at]
	}
	return end
}

// next skips white space and returns the byte there.
func (c *canonicalizer) next() byte {
	for c.at < len(c.source) {
		switch b := c.source[c.at]; b {
		case ' ', '\t', '\n', '\r':
			c.at++
		case end:
			return 0xFF // a NUL byte is not the end
		default:
			return b
		}
	}
	return end
}

// accept skips white space and the byte, if it is there.
func (c *canonicalizer) accept(b byte) bool {
	if c.next() != b {
		return false
	}
	c.at++
	return true
}

func (c *canonicalizer) value() bool {
	switch b := c.next(); b {
	case '{':
		return c.nested(c.object)
	case '[':
		return c.nested(c.array)
	case '"':
		return c.text()
	case 't':
		return c.literal("true")
	case 'f':
		return c.literal("false")
	case 'n':
		return c.literal("null")
	default:
		return c.number()
	}
}

func (c *canonicalizer) literal(word string) bool {
	if !bytes.HasPrefix(c.source[c.at:], []byte(word)) {
		return false
	}
	c.at += len(word)
	c.out = append(c.out, word...)
	return true
}

// number copies a number as it is written (RFC 8259, section 6).
func (c *canonicalizer) number() bool {
	begin := c.at
	if c.peek() == '-' {
		c.at++
	}
	if c.peek() == '0' {
		c.at++
	} else if !c.digits() {
		return false
	}
	if c.peek() == '.' {
		if c.at++; !c.digits() {
			return false
		}
	}
	if b := c.peek(); b == 'e' || b == 'E' {
		c.at++
		if b := c.peek(); b == '+' || b == '-' {
			c.at++
		}
		if !c.digits() {
			return false
		}
	}
	c.out = append(c.out, c.source[begin:c.at]...)
	return true
}

func (c *canonicalizer) digits() bool {
	begin := c.at
	for b := c.peek(); '0' <= b && b <= '9'; b = c.peek() {
		c.at++
	}
	return c.at > begin
}

func (c *canonicalizer) nested(read func() bool) bool {
	c.at++ // the opening bracket
	if c.depth++; c.depth > deepest {
		return false
	}
	ok := read()
	c.depth--
	return ok
}

func (c *canonicalizer) array() bool {
	c.out = append(c.out, '[')
	for first := true; !c.accept(']'); first = false {
		if !first {
			if !c.accept(',') {
				return false
			}
			c.out = append(c.out, ',')
		}
		if !c.value() {
			return false
		}
	}
	c.out = append(c.out, ']')
	return true
}

func (c *canonicalizer) object() bool {
	start, first := len(c.out), len(c.members)
	for !c.accept('}') {
		if len(c.members) > first && !c.accept(',') {
			return false
		}
		m := member{begin: len(c.out)}
		if c.next() != '"' || !c.text() {
			return false
		}
		m.nameEnd = len(c.out)
		if !c.accept(':') {
			return false
		}
		c.out = append(c.out, ':')
		if !c.value() {
			return false
		}
		m.end = len(c.out)
		c.members = append(c.members, m)
	}
	return c.sort(start, first)
}

func (c *canonicalizer) name(m member) []byte { return c.out[m.begin:m.nameEnd] }

// sort puts the members of the object that has just ended in the order of their names, unless one is there twice.
func (c *canonicalizer) sort(start, first int) bool {
	members := c.members[first:]
	if !c.distinct(members) {
		return false
	}
	slices.SortFunc(members, func(a, b member) int { return bytes.Compare(c.name(a), c.name(b)) })
	c.sorted = append(c.sorted[:0], '{')
	for i, m := range members {
		if i > 0 {
			if bytes.Equal(c.name(members[i-1]), c.name(m)) {
				return false
			}
			c.sorted = append(c.sorted, ',')
		}
		c.sorted = append(c.sorted, c.out[m.begin:m.end]...)
	}
	c.sorted = append(c.sorted, '}')
	c.out = append(c.out[:start], c.sorted...)
	c.members = c.members[:first]
	return true
}

// distinct reports whether no two of the names differ in nothing but case. To encoding/json they are one name if the struct has a
// field for it, and the last of them counts: with the names sorted, which one that was would be forgotten.
func (c *canonicalizer) distinct(members []member) bool {
	if !slices.ContainsFunc(members, func(m member) bool { return slices.ContainsFunc(c.name(m), foldable) }) {
		return true
	}
	slices.SortFunc(members, func(a, b member) int { return compareFolded(c.name(a), c.name(b)) })
	for i := range members[1:] {
		if compareFolded(c.name(members[i]), c.name(members[i+1])) == 0 {
			return false
		}
	}
	return true
}

// foldable reports whether the byte may be part of a letter that is not a small one of ASCII.
func foldable(b byte) bool { return 'A' <= b && b <= 'Z' || b >= utf8.RuneSelf }

// compareFolded compares texts by the least of the letters that are the same but for case.
func compareFolded(a, b []byte) int {
	for len(a) > 0 && len(b) > 0 {
		r, size := utf8.DecodeRune(a)
		s, width := utf8.DecodeRune(b)
		if order := cmp.Compare(folded(r), folded(s)); order != 0 {
			return order
		}
		a, b = a[size:], b[width:]
	}
	return cmp.Compare(len(a), len(b))
}

func folded(r rune) rune {
	if r < utf8.RuneSelf {
		if 'a' <= r && r <= 'z' {
			r -= 'a' - 'A'
		}
		return r
	}
	for {
		next := unicode.SimpleFold(r)
		if next <= r {
			return next
		}
		r = next
	}
}

// text copies a string, unescaped as far as JSON allows.
func (c *canonicalizer) text() bool {
	c.at++
	c.out = append(c.out, '"')
	for c.at < len(c.source) {
		begin := c.at
		for c.at < len(c.source) && plain[c.source[c.at]] {
			c.at++
		}
		c.out = append(c.out, c.source[begin:c.at]...)
		switch b := c.peek(); {
		case b == '"':
			c.at++
			c.out = append(c.out, '"')
			return true
		case b == '\\':
			if !c.escape() {
				return false
			}
		case b < utf8.RuneSelf: // a control character, or the end
			return false
		default:
			r, size := utf8.DecodeRune(c.source[c.at:])
			if r == utf8.RuneError && size == 1 {
				return false
			}
			c.out = append(c.out, c.source[c.at:c.at+size]...)
			c.at += size
		}
	}
	return false
}

// plain are the bytes that stand for themselves in a string.
var plain = func() (table [256]bool) {
	for b := byte(0x20); b < utf8.RuneSelf; b++ {
		table[b] = b != '"' && b != '\\'
	}
	return table
}()

// escapes are the short ones (RFC 8259, section 7).
var escapes = map[byte]rune{'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}

// escape reads one escape, or two that make a surrogate pair.
func (c *canonicalizer) escape() bool {
	c.at++ // the backslash
	r, short := escapes[c.peek()]
	if short {
		c.at++
	} else {
		var ok bool
		if r, ok = c.unicode(); !ok {
			return false
		}
		if utf16.IsSurrogate(r) {
			c.at++
			low, ok := c.unicode()
			if r = utf16.DecodeRune(r, low); !ok || r == utf8.RuneError || c.source[c.at-6] != '\\' {
				return false
			}
		}
	}
	switch {
	case r == '"' || r == '\\':
		c.out = append(c.out, '\\', byte(r))
	case r < 0x20:
		c.out = append(c.out, '\\', 'u', '0', '0', "0123456789abcdef"[r>>4], "0123456789abcdef"[r&15])
	default:
		c.out = utf8.AppendRune(c.out, r)
	}
	return true
}

// unicode reads the letter u and four digits.
func (c *canonicalizer) unicode() (rune, bool) {
	if c.peek() != 'u' || c.at+5 > len(c.source) {
		return 0, false
	}
	n, err := strconv.ParseUint(string(c.source[c.at+1:c.at+5]), 16, 16)
	c.at += 5
	return rune(n), err == nil
}
