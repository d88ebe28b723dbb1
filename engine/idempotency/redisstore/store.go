// Package redisstore keeps claims in Redis.
//
// Redis gives each step atomicity and one clock, and forgets the last writes at a failover, everything at a flush, and keys of
// its choice under an eviction policy: Start refuses such a policy, and no option of a client can undo the first two. What must
// survive them belongs into package durable.
package redisstore

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fencepost-sim/fencepost/engine/idempotency"
	"github.com/fencepost-sim/fencepost/engine/idempotency/redisport"
	"github.com/fencepost-sim/fencepost/engine/idempotency/redisport/goredis"
)

// Store keeps claims in Redis, under keys that begin with "idem:", the service, and another colon.
type Store struct {
	port   redisport.Port
	prefix string
	sweep  string
}

var (
	_ idempotency.Store   = (*Store)(nil)
	_ idempotency.Checker = (*Store)(nil)
)

// services are the names that can be part of a pattern without meaning more than themselves, and none of which begins with another
// one and a colon.
var services = regexp.MustCompile(`^[A-Za-z0-9._-]{1,100}$`)

// New returns a store for the service on a client, which stays the caller's to close.
func New(client redis.UniversalClient, serviceID string, options goredis.Options) (*Store, error) {
	port, err := goredis.New(client, options)
	if err != nil {
		return nil, err
	}
	return Over(port, serviceID)
}

// Over returns a store for the service on a port.
func Over(port redisport.Port, serviceID string) (*Store, error) {
	if !services.MatchString(serviceID) {
		return nil, &idempotency.ConfigurationError{Field: "serviceID", Value: serviceID, Allowed: "1 to 100 letters, digits, '.', '_' and '-'"}
	}
	return &Store{port: port, prefix: "idem:" + serviceID + ":", sweep: "idem-sweep:" + serviceID}, nil
}

// Init is the whole bootstrap of a guard on Redis: it makes the store, checks the server, and arms the sweeper. The configuration's Store
// must be nil.
func Init(ctx context.Context, client redis.UniversalClient, serviceID string, config idempotency.Config) (*idempotency.Guard, error) {
	if config.Store != nil {
		return nil, &idempotency.ConfigurationError{Field: "Config.Store", Value: config.Store, Allowed: "nil: Init makes it"}
	}
	store, err := New(client, serviceID, goredis.Options{})
	if err != nil {
		return nil, err
	}
	config.Store = store
	return idempotency.Init(ctx, config)
}

// Check implements idempotency.Checker.
func (s *Store) Check(ctx context.Context) error { return s.port.Check(ctx) }

// run makes one call on the record of the key.
func (s *Store) run(ctx context.Context, script *redisport.Script, key idempotency.Key, parts int, args ...string) (redisport.Reply, error) {
	reply, err := redisport.Run(ctx, s.port, redisport.Call{Script: script, Key: s.prefix + string(key), Args: args}, parts)
	if err != nil {
		return nil, err
	}
	if reply[0] == "version" {
		return nil, &idempotency.VersionError{Key: key, Version: reply[1]}
	}
	return reply, nil
}

// words are the answers to a claim.
var words = map[string]idempotency.State{
	"claimed": idempotency.Claimed, "takeover": idempotency.Takeover, "in flight": idempotency.InFlight, "replay": idempotency.Replay,
	"mismatch": idempotency.Mismatch, "pinned": idempotency.Pinned, "tombstoned": idempotency.Tombstoned,
}

// Claim implements idempotency.Store.
func (s *Store) Claim(ctx context.Context, key idempotency.Key, r idempotency.ClaimRequest) (result idempotency.ClaimResult, err error) {
	pin := "0"
	if r.Pin {
		pin = "1"
	}
	reply, err := s.run(ctx, redisport.Claim, key, 6, r.Token.String(), redisport.Milliseconds(r.Lease), redisport.Milliseconds(r.TTL), string(r.Fingerprint), pin)
	if err != nil {
		return result, err
	}
	result.State = words[reply[0]]
	result.Fingerprint = idempotency.Fingerprint(reply[3])
	if result.Fence, err = strconv.ParseUint(reply[1], 10, 64); err != nil {
		return result, fmt.Errorf("redis: the claim's fence: %w", err)
	}
	if result.LeaseLeft, err = redisport.Span(reply[2]); err != nil {
		return result, err
	}
	if result.State == idempotency.Replay {
		result.Result, err = parseResult(reply[4], reply[5])
	}
	return result, err
}

func parseResult(kind, payload string) (idempotency.Result, error) {
	number, err := strconv.ParseUint(kind, 10, 8)
	if err != nil {
		return idempotency.Result{}, fmt.Errorf("redis: the kind of a stored result: %w", err)
	}
	return idempotency.Result{Kind: idempotency.ResultKind(number), Payload: []byte(payload)}, nil
}

// owned makes a step that only the owner of a claim may make.
func (s *Store) owned(ctx context.Context, script *redisport.Script, claim idempotency.Claim, args ...string) error {
	reply, err := s.run(ctx, script, claim.Key, 1, append([]string{claim.Token.String()}, args...)...)
	if err == nil && reply[0] != "held" {
		err = idempotency.ErrLostClaim
	}
	return err
}

// Extend implements idempotency.Store.
func (s *Store) Extend(ctx context.Context, claim idempotency.Claim, lease time.Duration) error {
	return s.owned(ctx, redisport.Extend, claim, redisport.Milliseconds(lease))
}

// Complete implements idempotency.Store.
func (s *Store) Complete(ctx context.Context, claim idempotency.Claim, fingerprint idempotency.Fingerprint, result idempotency.Result, ttl time.Duration) error {
	return s.owned(ctx, redisport.Complete, claim,
		string(fingerprint), strconv.Itoa(int(result.Kind)), string(result.Payload), redisport.Milliseconds(ttl))
}

// Release implements idempotency.Store.
func (s *Store) Release(ctx context.Context, claim idempotency.Claim) error {
	return s.owned(ctx, redisport.Release, claim)
}

// Tombstone implements idempotency.Store.
func (s *Store) Tombstone(ctx context.Context, key idempotency.Key, ttl time.Duration) (result idempotency.TombstoneResult, err error) {
	replies, err := s.port.Run(ctx, redisport.Call{Script: redisport.Tombstone, Key: s.prefix + string(key), Args: []string{redisport.Milliseconds(ttl)}})
	if err != nil {
		return result, fmt.Errorf("redis: tombstone: %w", err)
	}
	switch reply := replies[0]; {
	case len(reply) == 2 && reply[0] == "in flight":
		result.Held = true
		result.LeaseLeft, err = redisport.Span(reply[1])
	case len(reply) == 2 && reply[0] == "version":
		err = &idempotency.VersionError{Key: key, Version: reply[1]}
	case len(reply) == 1 && (reply[0] == "ran" || reply[0] == "never"):
		result.Ran = reply[0] == "ran"
	default:
		err = fmt.Errorf("redis: tombstone answered %q", reply)
	}
	return result, err
}
