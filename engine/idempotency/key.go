package idempotency

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"strings"
)

// Key names what must happen once. It is made of letters, digits, ':', '{', '}' by the functions of this package; the store puts its
// own prefix before it.
type Key string

// domainRequest separates digests of requests from all other uses of SHA-256.
const domainRequest = "fencepost.idempotency.request.v1"

// RequestDigest is the key of a request: SHA-256 over a domain label and the parts, each preceded by its length. Because of the
// lengths, no two different lists of parts have the same pre-image.
func RequestDigest(parts ...[]byte) Key {
	const prefix = "req:"
	var space [512]byte
	sum := sha256.Sum256(preImage(space[:0], domainRequest, parts...))
	var text [len(prefix) + 2*sha256.Size]byte
	copy(text[:], prefix)
	hex.Encode(text[len(prefix):], sum[:])
	return Key(text[:])
}

// framed is the digest of parts that are texts, under another domain label: keys of different kinds never meet.
func framed(domain string, parts ...string) string {
	asBytes := make([][]byte, len(parts))
	for i, part := range parts {
		asBytes[i] = []byte(part)
	}
	sum := sha256.Sum256(preImage(nil, domain, asBytes...))
	return hex.EncodeToString(sum[:])
}

// preImage appends what is hashed: it can be read back in one way only.
func preImage(image []byte, domain string, parts ...[]byte) []byte {
	image = append(binary.BigEndian.AppendUint64(image, uint64(len(domain))), domain...)
	for _, part := range parts {
		image = append(binary.BigEndian.AppendUint64(image, uint64(len(part))), part...)
	}
	return image
}

// ComputeKey is the hexadecimal SHA-256 of the parts, one after the other, without lengths: what other libraries of the D163
// contract compute, so that they find each other's keys.
//
// Never use it for requests: "/a"+"dmin" and "/admin" are one to it. RequestDigest is for those.
func ComputeKey(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "")))
	return hex.EncodeToString(sum[:])
}
