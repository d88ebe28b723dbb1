package redisstore

import (
	"context"
	"fmt"

	"github.com/fencepost-sim/fencepost/engine/idempotency"
	"github.com/fencepost-sim/fencepost/engine/idempotency/redisport"
)

// Sweep implements idempotency.Store: one step of SCAN, and one round trip for all keys of the service that it found.
// COUNT is about the whole database, so a step may find none of them.
func (s *Store) Sweep(ctx context.Context, cursor idempotency.Cursor, limit int) (page idempotency.SweepPage, err error) {
	found, err := s.port.Scan(ctx, redisport.Scan{Cursor: string(cursor), Prefix: s.prefix, Count: limit})
	if err != nil {
		return page, fmt.Errorf("redis: scan: %w", err)
	}
	page = idempotency.SweepPage{Next: idempotency.Cursor(found.Next), Scanned: limit, Matched: len(found.Keys)}
	if len(found.Keys) == 0 {
		return page, nil
	}
	calls := make([]redisport.Call, len(found.Keys))
	for i, key := range found.Keys {
		calls[i] = redisport.Call{Script: redisport.Sweep, Key: key}
	}
	replies, err := s.port.Run(ctx, calls...)
	if err != nil {
		return page, fmt.Errorf("redis: sweep: %w", err)
	}
	for _, reply := range replies {
		if len(reply) == 1 && reply[0] == "released" {
			page.Released++
		}
	}
	return page, nil
}

// SweepTurn implements idempotency.Store.
func (s *Store) SweepTurn(ctx context.Context, r idempotency.SweepRequest) (idempotency.SweepTurn, error) {
	step := redisport.LeaseStep{Verb: redisport.Acquire, Key: s.sweep, Token: r.Token, TTL: r.Lease}
	cursor := string(r.Cursor)
	switch {
	case r.Finish:
		step.Verb, step.Cursor = redisport.GiveUp, &cursor
	case r.Save:
		step.Verb, step.Cursor = redisport.Renew, &cursor
	}
	state, err := step.Run(ctx, s.port)
	return idempotency.SweepTurn{Held: state.Held, Cursor: idempotency.Cursor(state.Cursor)}, err
}
