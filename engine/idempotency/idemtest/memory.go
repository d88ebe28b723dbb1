// Package idemtest has what tests of code with guards need: a store in memory, a store that fails on purpose, and the contract
// that every store keeps.
package idemtest

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fencepost-sim/fencepost/engine/idempotency"
	"github.com/fencepost-sim/fencepost/engine/idempotency/record"
)

// Memory is a store in the memory of one process. The zero value is empty and ready.
type Memory struct {
	// Now is the store's clock; nil means time.Now.
	Now func() time.Time

	mu      sync.Mutex
	records map[idempotency.Key]record.Record
	sweeper record.Lease
}

var _ idempotency.Store = (*Memory)(nil)

// step runs one transition on the live record of the key and keeps what it left.
func (m *Memory) step(ctx context.Context, key idempotency.Key, transition func(now time.Time, r *record.Record)) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now()
	r := m.records[key].Live(now)
	transition(now, &r)
	if r.State == record.Absent {
		delete(m.records, key)
		return nil
	}
	if m.records == nil {
		m.records = map[idempotency.Key]record.Record{}
	}
	m.records[key] = r
	return nil
}

func (m *Memory) now() time.Time {
	if m.Now != nil {
		return m.Now()
	}
	return time.Now()
}

// Claim implements idempotency.Store.
func (m *Memory) Claim(ctx context.Context, key idempotency.Key, request idempotency.ClaimRequest) (result idempotency.ClaimResult, err error) {
	err = m.step(ctx, key, func(now time.Time, r *record.Record) {
		result = r.Claim(now, request)
		result.Result.Payload = slices.Clone(result.Result.Payload)
	})
	return result, err
}

// owned runs a transition that only the owner of the claim may make.
func (m *Memory) owned(ctx context.Context, claim idempotency.Claim, transition func(now time.Time, r *record.Record) bool) error {
	held := false
	err := m.step(ctx, claim.Key, func(now time.Time, r *record.Record) { held = transition(now, r) })
	if err == nil && !held {
		err = idempotency.ErrLostClaim
	}
	return err
}

// Extend implements idempotency.Store.
func (m *Memory) Extend(ctx context.Context, claim idempotency.Claim, lease time.Duration) error {
	return m.owned(ctx, claim, func(now time.Time, r *record.Record) bool { return r.Extend(now, claim.Token, lease) })
}

// Complete implements idempotency.Store.
func (m *Memory) Complete(ctx context.Context, claim idempotency.Claim, fingerprint idempotency.Fingerprint, result idempotency.Result, ttl time.Duration) error {
	result.Payload = slices.Clone(result.Payload)
	return m.owned(ctx, claim, func(now time.Time, r *record.Record) bool {
		return r.Complete(now, claim.Token, fingerprint, result, ttl)
	})
}

// Release implements idempotency.Store.
func (m *Memory) Release(ctx context.Context, claim idempotency.Claim) error {
	return m.owned(ctx, claim, func(_ time.Time, r *record.Record) bool { return r.Release(claim.Token) })
}

// Tombstone implements idempotency.Store.
func (m *Memory) Tombstone(ctx context.Context, key idempotency.Key, ttl time.Duration) (result idempotency.TombstoneResult, err error) {
	err = m.step(ctx, key, func(now time.Time, r *record.Record) { result = r.Tombstone(now, ttl) })
	return result, err
}

// Sweep implements idempotency.Store. The cursor is the last key that was seen.
func (m *Memory) Sweep(ctx context.Context, cursor idempotency.Cursor, limit int) (page idempotency.SweepPage, err error) {
	for _, key := range m.after(cursor, limit) {
		err = m.step(ctx, key, func(now time.Time, r *record.Record) {
			if r.Sweep(now) {
				page.Released++
			}
		})
		if err != nil {
			return page, err
		}
		page.Scanned++
		page.Next = idempotency.Cursor(key)
	}
	if page.Scanned < limit {
		page.Next = ""
	}
	page.Matched = page.Scanned
	return page, nil
}

func (m *Memory) after(cursor idempotency.Cursor, limit int) []idempotency.Key {
	m.mu.Lock()
	defer m.mu.Unlock()
	var keys []idempotency.Key
	for key := range m.records {
		if strings.Compare(string(key), string(cursor)) > 0 {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys[:min(limit, len(keys))]
}

// SweepTurn implements idempotency.Store.
func (m *Memory) SweepTurn(ctx context.Context, request idempotency.SweepRequest) (idempotency.SweepTurn, error) {
	if ctx.Err() != nil {
		return idempotency.SweepTurn{}, context.Cause(ctx)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now()
	m.sweeper = m.sweeper.Live(now)
	turn := idempotency.SweepTurn{}
	cursor := string(request.Cursor)
	switch {
	case request.Finish:
		turn.Held = m.sweeper.Release(now, request.Token, &cursor)
	case request.Save:
		turn.Held = m.sweeper.Renew(now, request.Token, request.Lease, &cursor)
	default:
		turn.Held, _ = m.sweeper.Acquire(now, request.Token, request.Lease)
	}
	turn.Cursor = idempotency.Cursor(m.sweeper.Cursor)
	return turn, nil
}

// Len tells how many records there are, expired ones included.
func (m *Memory) Len() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.records)
}

// Record returns the record of a key.
func (m *Memory) Record(key idempotency.Key) record.Record {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.records[key].Live(m.now())
}

// Flush forgets everything, as a server does that lost its data.
func (m *Memory) Flush() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.records, m.sweeper = nil, record.Lease{}
}
