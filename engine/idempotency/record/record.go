// Package record is the state machine of one claim's record: transitions on plain data, apart from the I/O that feeds them.
//
// The Lua scripts of package redisport are the same transitions for a real server. The in-memory store of package idemtest and the
// Redis model of sim/redissim use these; one contract suite runs on all, so that they cannot drift.
package record

import (
	"time"

	"github.com/fencepost-sim/fencepost/engine/idempotency"
)

// State is the state of a record. The zero State is an absent record.
type State byte

// The states of a record, as the scripts write them.
const (
	Absent    State = 0
	Claimed   State = 'P' // pending: somebody works on it, or died
	Completed State = 'C'
	Closed    State = 'X' // a tombstone
)

// Record is what is stored under a key. Expires is when the store forgets it; the others are the scripts' fields.
type Record struct {
	State       State
	Token       idempotency.Token
	Fence       uint64
	LeaseUntil  int64 // Unix milliseconds of the store's clock
	Fingerprint idempotency.Fingerprint
	Result      idempotency.Result
	Pin         bool
	Ran         bool // of a tombstone: the key was claimed before
	Expires     int64
}

// Live returns the record, or an absent one if it has expired at the time.
func (r Record) Live(now time.Time) Record {
	if r.Expires != 0 && r.Expires <= now.UnixMilli() {
		return Record{}
	}
	return r
}

// NextFence grows with every claim of a key, and also when the record was lost: the store's microseconds are larger than any that
// it gave before (unless its clock was set back by more than it was away).
func NextFence(previous uint64, now time.Time) uint64 {
	return max(previous+1, uint64(now.UnixMicro()))
}

// Claim is the transition of Store.Claim.
func (r *Record) Claim(now time.Time, request idempotency.ClaimRequest) idempotency.ClaimResult {
	ms := now.UnixMilli()
	switch r.State {
	case Absent:
		r.Fence = NextFence(0, now)
		return r.take(ms, request, idempotency.Claimed)
	case Closed:
		return idempotency.ClaimResult{State: idempotency.Tombstoned}
	case Completed:
		if r.Fingerprint.Differs(request.Fingerprint) {
			return idempotency.ClaimResult{State: idempotency.Mismatch}
		}
		return idempotency.ClaimResult{State: idempotency.Replay, Fingerprint: r.Fingerprint, Result: r.Result}
	}
	switch {
	case r.Token == request.Token: // the reply to this very claim was lost
		return r.take(ms, request, idempotency.Claimed)
	case r.Fingerprint.Differs(request.Fingerprint):
		return idempotency.ClaimResult{State: idempotency.Mismatch}
	case r.LeaseUntil > ms:
		left := time.Duration(r.LeaseUntil-ms) * time.Millisecond
		return idempotency.ClaimResult{State: idempotency.InFlight, LeaseLeft: left, Fingerprint: r.Fingerprint}
	case r.Pin || request.Pin:
		return idempotency.ClaimResult{State: idempotency.Pinned}
	}
	r.Fence = NextFence(r.Fence, now)
	return r.take(ms, request, idempotency.Takeover)
}

func (r *Record) take(ms int64, request idempotency.ClaimRequest, state idempotency.State) idempotency.ClaimResult {
	r.State, r.Token, r.Fingerprint, r.Pin = Claimed, request.Token, request.Fingerprint, request.Pin
	r.LeaseUntil = ms + request.Lease.Milliseconds()
	r.Expires = ms + max(request.TTL, request.Lease).Milliseconds()
	return idempotency.ClaimResult{State: state, Fence: r.Fence}
}

// Extend is the transition of Store.Extend; it tells whether the claim is the token's.
func (r *Record) Extend(now time.Time, token idempotency.Token, lease time.Duration) bool {
	if r.State != Claimed || r.Token != token {
		return false
	}
	r.LeaseUntil = now.UnixMilli() + lease.Milliseconds()
	r.Expires = max(r.Expires, r.LeaseUntil)
	return true
}

// Complete is the transition of Store.Complete.
func (r *Record) Complete(now time.Time, token idempotency.Token, fingerprint idempotency.Fingerprint, result idempotency.Result, ttl time.Duration) bool {
	if (r.State != Claimed && r.State != Completed) || r.Token != token {
		return false
	}
	if r.State == Completed {
		return true // the reply to this very step was lost
	}
	if fingerprint != "" {
		r.Fingerprint = fingerprint
	}
	r.State, r.Result, r.LeaseUntil = Completed, result, 0
	r.Expires = now.UnixMilli() + ttl.Milliseconds()
	return true
}

// Release is the transition of Store.Release.
func (r *Record) Release(token idempotency.Token) bool {
	switch {
	case r.State == Absent:
		return true // the reply to this very step was lost, or the store lost the record
	case r.State != Claimed || r.Token != token:
		return false
	}
	*r = Record{}
	return true
}

// Tombstone is the transition of Store.Tombstone.
func (r *Record) Tombstone(now time.Time, ttl time.Duration) idempotency.TombstoneResult {
	ms := now.UnixMilli()
	if r.State == Claimed && r.LeaseUntil > ms {
		return idempotency.TombstoneResult{Held: true, LeaseLeft: time.Duration(r.LeaseUntil-ms) * time.Millisecond}
	}
	ran := r.State == Claimed || r.State == Completed || r.Ran
	*r = Record{State: Closed, Ran: ran, Fence: r.Fence, Expires: ms + ttl.Milliseconds()}
	return idempotency.TombstoneResult{Ran: ran}
}

// Sweep is what a sweeper does to one record; it tells whether the record was released.
func (r *Record) Sweep(now time.Time) bool {
	if r.State != Claimed || r.Pin || r.LeaseUntil > now.UnixMilli() {
		return false
	}
	*r = Record{}
	return true
}
