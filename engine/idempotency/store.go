package idempotency

import (
	"context"
	"encoding/hex"
	"time"
)

// Store keeps one record a key. Each method is one atomic step, and one round trip. Implementations are safe for use by several
// tasks at once, and bound the time of each call themselves.
//
// Leases are judged by the store's clock alone. An error that is none of this package's says nothing about whether the
// step was applied; every step may be repeated with the same token.
type Store interface {
	// Claim takes the key if it is free, or if the lease of its claim has lapsed.
	Claim(ctx context.Context, key Key, request ClaimRequest) (ClaimResult, error)
	// Extend makes the lease last that long from now. ErrLostClaim if the claim is not the caller's.
	Extend(ctx context.Context, claim Claim, lease time.Duration) error
	// Complete stores the result for ttl. It is accepted after the lease has lapsed, as long as nobody took the claim over; else
	// ErrLostClaim. An empty fingerprint leaves the one of the claim.
	Complete(ctx context.Context, claim Claim, fingerprint Fingerprint, result Result, ttl time.Duration) error
	// Release frees the key. ErrLostClaim if it is held or completed by somebody; no error if it is free.
	Release(ctx context.Context, claim Claim) error
	// Tombstone closes the key for ttl: no later Claim gets it. A claim whose lease lasts is left alone (Held).
	Tombstone(ctx context.Context, key Key, ttl time.Duration) (TombstoneResult, error)
	// Sweep releases lapsed claims among the next records after the cursor. Limit is a hint of how many records of the
	// whole database to look at.
	Sweep(ctx context.Context, cursor Cursor, limit int) (SweepPage, error)
	// SweepTurn takes, keeps or gives back the right to sweep, which one process of a service has at a time, together with the
	// place at which the next pass goes on.
	SweepTurn(ctx context.Context, request SweepRequest) (SweepTurn, error)
}

// Checker is a Store that can tell at Start whether its server can be trusted with claims.
type Checker interface {
	Check(ctx context.Context) error
}

// Token is 128 bits that only the owner of a claim knows.
type Token [16]byte

func (t Token) String() string { return hex.EncodeToString(t[:]) }

// Claim is what its owner shows to the store. A fence is larger than all earlier ones of the same key: a receiver of side effects
// that remembers the largest one can refuse an owner who was overtaken.
type Claim struct {
	Key   Key
	Token Token
	Fence uint64
}

// ClaimRequest asks for a key.
type ClaimRequest struct {
	Token       Token
	Lease       time.Duration // how long the claim holds without Extend
	TTL         time.Duration // how long the record is kept
	Fingerprint Fingerprint
	Pin         bool // if this execution dies, nobody may take over
}

// State is what a Claim found.
type State uint8

// The answers to a Claim.
const (
	Claimed    State = iota + 1 // the key was free
	Takeover                    // its owner's lease had lapsed
	InFlight                    // somebody else works on it
	Replay                      // it is completed
	Mismatch                    // its fingerprint differs
	Pinned                      // its owner's lease had lapsed, and nobody may take over
	Tombstoned                  // it is closed
)

var stateNames = [...]string{"none", "claimed", "takeover", "in flight", "replay", "mismatch", "pinned", "tombstoned"}

func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return "unknown"
}

// ClaimResult is the answer to a Claim.
type ClaimResult struct {
	State       State
	Fence       uint64        // Claimed, Takeover
	LeaseLeft   time.Duration // InFlight
	Fingerprint Fingerprint   // InFlight, Replay: the stored one
	Result      Result        // Replay
}

// ResultKind says what a Result holds.
type ResultKind uint8

// The kinds of results.
const (
	Success   ResultKind = iota + 1 // Payload is the encoded value
	Rejection                       // Payload is a google.rpc.Status
	NotStored                       // executed to the end; the result could not be kept
)

// Result is the stored outcome of an execution.
type Result struct {
	Kind    ResultKind
	Payload []byte
}

// TombstoneResult is the answer to a Tombstone.
type TombstoneResult struct {
	Held      bool          // somebody works on the key: nothing was changed
	LeaseLeft time.Duration // if Held
	Ran       bool          // the key was claimed at some time, so its work may have been done
}

// Cursor is a place in a sweep. The empty one is the beginning, and the end. Only the store understands others.
type Cursor string

// SweepPage is the answer to a Sweep.
type SweepPage struct {
	Next     Cursor
	Scanned  int // records of the whole database that the server was asked to look at
	Matched  int // records of the service among them
	Released int
}

// SweepRequest is about the right to sweep.
type SweepRequest struct {
	Token  Token
	Lease  time.Duration
	Save   bool // keep the turn, and store Cursor
	Finish bool // give the turn back, and store Cursor
	Cursor Cursor
}

// SweepTurn is the answer to a SweepRequest.
type SweepTurn struct {
	Held   bool   // the turn is the caller's (after Finish: was)
	Cursor Cursor // where to go on
}
