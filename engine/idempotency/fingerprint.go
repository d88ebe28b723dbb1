package idempotency

import "strings"

// Fingerprint tells requests with one key apart: a label that names the algorithm, a colon, and a digest, for example
// "c1:9f86…". The empty Fingerprint is not known, and differs from nothing.
//
// Labels that begin with 'r' mark digests of the part of a body that was read, so that two of them may describe the same
// request: only who can read the body again can compare them.
type Fingerprint string

// Label names the algorithm.
func (f Fingerprint) Label() string {
	label, _, _ := strings.Cut(string(f), ":")
	return label
}

// Partial tells whether the fingerprint covers only what was read of the request.
func (f Fingerprint) Partial() bool { return strings.HasPrefix(string(f), "r") }

// Differs tells whether the two are known to describe different requests. Fingerprints of different algorithms, as
// a rolling deploy makes them, do not.
func (f Fingerprint) Differs(other Fingerprint) bool {
	return f != "" && other != "" && f != other && !f.Partial() && f.Label() == other.Label()
}
