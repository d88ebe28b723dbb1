// Package redisport is the port between the idempotency guards and Redis: what is asked of a server, as data.
//
// Each step is one Lua script on one key, so it is atomic, works on a Redis Cluster, and is one round trip. In
// production the Port is package goredis, a thin adapter; in a simulation it is sim/redissim, which knows each script as a named
// transition. One contract suite runs on both, so that script and transition cannot drift.
//
// Redis 6 or newer: scripts call TIME before they write, which needs the replication of effects.
package redisport

import (
	"context"
	"errors"
)

// Call is one script on one key.
type Call struct {
	Script *Script
	Key    string
	Args   []string
}

// Reply is what a script answered. Numbers are in decimal.
type Reply []string

// Port runs scripts. Implementations are safe for use by several tasks at once and bound the time of every call.
//
// An error says nothing about which of the calls were applied, unless it wraps ErrRefused. Calls may be applied twice if the
// network client repeats them: every script can bear that.
type Port interface {
	// Run sends the calls in one round trip, and returns a reply for each. The calls are not atomic together.
	Run(ctx context.Context, calls ...Call) ([]Reply, error)
	// Scan is one step of a walk over the keys of all masters: a key that is there all the time is seen at least once.
	Scan(ctx context.Context, scan Scan) (Page, error)
	// Check loads the scripts, and returns an error if the server evicts keys that have not expired.
	Check(ctx context.Context) error
}

// ErrRefused is wrapped by errors of calls of which none was applied.
var ErrRefused = errors.New("refused by the server")

// ErrEvicts means that the server may drop claims to make room. See "maxmemory-policy" in Redis's documentation.
var ErrEvicts = errors.New("redis evicts keys: maxmemory-policy must be noeviction")

// ErrNotReplicated means that a call was applied, and that fewer replicas than demanded have confirmed it.
var ErrNotReplicated = errors.New("too few replicas have confirmed the write")

// Scan asks for the next keys.
type Scan struct {
	Cursor string // empty: from the beginning
	Prefix string // of the keys that are wanted, without pattern characters
	Count  int    // how many keys of the whole database to look at, as a hint
}

// Page is the answer to a Scan.
type Page struct {
	Next string // empty: the end
	Keys []string
}
