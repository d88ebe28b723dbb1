package redissim

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fencepost-sim/fencepost/engine/idempotency/record"
	"github.com/fencepost-sim/fencepost/engine/idempotency/redisport"
)

// Options configures a Server.
type Options struct {
	// Seed decides in which order SCAN finds keys.
	Seed uint64
	// Evicts makes Check fail, as a server with an eviction policy does.
	Evicts bool
}

// Server is one Redis. Its zero value is not usable; see New.
type Server struct {
	options Options
	life    uint64 // counts the processes that served: their hash seeds and run ids differ
	offset  time.Duration
	refusal error

	values map[string]value
	table  *table
	undo   []undo
}

// value is what lies under a key: a claim's record, a lease, or something of somebody else.
type value struct {
	record  record.Record
	lease   record.Lease
	foreign bool
	version string // of a record, if not ours
}

// undo restores a key to what it was before a write.
type undo struct {
	key    string
	before value
	there  bool
}

// keepUndo is how many writes a failover can lose at the most.
const keepUndo = 1024

// New returns an empty server.
func New(options Options) *Server {
	return &Server{options: options, values: map[string]value{}, table: newTable(options.Seed)}
}

// Run runs the calls in order. An error means that the server refused the call, and those behind it.
func (s *Server) Run(now time.Time, calls ...redisport.Call) ([]redisport.Reply, error) {
	if s.refusal != nil {
		return nil, s.refusal
	}
	now = now.Add(s.offset)
	replies := make([]redisport.Reply, len(calls))
	for i, call := range calls {
		step, known := transitions[call.Script.Name]
		if !known {
			return nil, fmt.Errorf("%w: redissim does not know the script %q", redisport.ErrRefused, call.Script.Name)
		}
		reply, err := step(s, now, call)
		if err != nil {
			return nil, fmt.Errorf("%w: script %s: %w", redisport.ErrRefused, call.Script.Name, err)
		}
		replies[i] = reply
	}
	return replies, nil
}

// Scan is one step of SCAN with COUNT and a prefix to MATCH.
func (s *Server) Scan(now time.Time, scan redisport.Scan) (page redisport.Page, err error) {
	if s.refusal != nil {
		return page, s.refusal
	}
	cursor, err := s.cursor(scan.Cursor)
	if err != nil {
		return page, err
	}
	var found []string
	for rounds := 10 * scan.Count; ; rounds-- { // COUNT bounds the keys before MATCH; ten times as many buckets may be empty
		cursor = s.table.scan(cursor, func(key string) { found = append(found, key) })
		if cursor == 0 || rounds <= 0 || len(found) >= scan.Count {
			break
		}
	}
	for _, key := range found {
		if strings.HasPrefix(key, scan.Prefix) && s.live(key, now.Add(s.offset)) {
			page.Keys = append(page.Keys, key)
		}
	}
	if cursor != 0 {
		page.Next = fmt.Sprintf("%d|%d", s.life, cursor)
	}
	return page, nil
}

// cursor reads a cursor. One of an earlier life of the server means the beginning.
func (s *Server) cursor(text string) (uint64, error) {
	if text == "" {
		return 0, nil
	}
	life, at, _ := strings.Cut(text, "|")
	cursor, err := strconv.ParseUint(at, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%w: cursor %q", redisport.ErrRefused, text)
	}
	if life != strconv.FormatUint(s.life, 10) {
		return 0, nil
	}
	return cursor, nil
}

// live tells whether the key is there, and drops it if it has expired: expiry is lazy.
func (s *Server) live(key string, now time.Time) bool {
	v := s.values[key]
	if v.foreign || v.version != "" {
		return true
	}
	if v.record.Live(now).State == record.Absent && v.lease.Live(now) == (record.Lease{}) {
		s.drop(key)
		return false
	}
	return true
}

// get returns the live value of a key.
func (s *Server) get(key string, now time.Time) value {
	v, there := s.values[key]
	if !there || !s.live(key, now) {
		return value{}
	}
	return v
}

// put writes a value, and drop deletes a key; both can be undone by a failover.
func (s *Server) put(key string, v value) {
	before, there := s.values[key]
	s.remember(undo{key, before, there})
	if !there {
		s.table.add(key)
	}
	s.values[key] = v
}

func (s *Server) drop(key string) {
	before, there := s.values[key]
	if !there {
		return
	}
	s.remember(undo{key, before, true})
	s.table.remove(key)
	delete(s.values, key)
}

func (s *Server) remember(u undo) {
	if len(s.undo) == keepUndo {
		s.undo = append(s.undo[:0], s.undo[keepUndo/2:]...)
	}
	s.undo = append(s.undo, u)
}

// Len is the number of keys, expired ones included.
func (s *Server) Len() int { return len(s.values) }

// Record returns the record of a claim as it is stored.
func (s *Server) Record(now time.Time, key string) record.Record {
	return s.get(key, now.Add(s.offset)).record
}

// Foreign stores a key that is nobody's claim.
func (s *Server) Foreign(key string) { s.put(key, value{foreign: true}) }

// OtherVersion stores a record that a newer release has written.
func (s *Server) OtherVersion(key, version string) { s.put(key, value{version: version}) }

// Flush is FLUSHALL.
func (s *Server) Flush() {
	s.values, s.table, s.undo = map[string]value{}, newTable(s.table.seed), nil
}

// Evict drops a key under memory pressure.
func (s *Server) Evict(key string) { s.drop(key) }

// JumpClock sets the server's clock forward or back.
func (s *Server) JumpClock(by time.Duration) { s.offset += by }

// Failover puts a replica into the place of the server, which has not seen the last writes (fewer, if there were not so many), and whose clock
// differs by the jump.
func (s *Server) Failover(lostWrites int, jump time.Duration) (lost int) {
	for lost < lostWrites && len(s.undo) > 0 {
		last := s.undo[len(s.undo)-1]
		s.undo = s.undo[:len(s.undo)-1]
		lost++
		if last.there {
			s.values[last.key] = last.before
		} else {
			delete(s.values, last.key)
		}
	}
	s.life++
	s.rebuild()
	s.JumpClock(jump)
	return lost
}

// Restart replaces the server's process, with all its data.
func (s *Server) Restart() { s.Failover(0, 0) }

// Errors with which a server refuses every command for a while.
var (
	ErrReadOnly   = fmt.Errorf("%w: READONLY You can't write against a read only replica", redisport.ErrRefused)
	ErrLoading    = fmt.Errorf("%w: LOADING Redis is loading the dataset in memory", redisport.ErrRefused)
	ErrMasterDown = fmt.Errorf("%w: MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'", redisport.ErrRefused)
)

// Refuse makes the server answer every call with the error; nil makes it serve again.
func (s *Server) Refuse(err error) { s.refusal = err }

// ErrLost is what a client gets when a request or its reply is lost.
var ErrLost = errors.New("redissim: connection lost")

// Check is what redisport.Port.Check finds.
func (s *Server) Check() error {
	if s.options.Evicts {
		return redisport.ErrEvicts
	}
	return s.refusal
}

// Dump is the content of the server as text, sorted by key, with the write that a failover would lose first: what two servers must agree
// in to be in the same state.
func (s *Server) Dump() (lines []string) {
	for _, key := range slices.Sorted(maps.Keys(s.values)) {
		lines = append(lines, fmt.Sprint(key, s.values[key]))
	}
	if len(s.undo) > 0 {
		lines = append(lines, fmt.Sprint("undo ", s.undo[len(s.undo)-1]))
	}
	return append(lines, fmt.Sprint(s.life, s.offset, s.refusal))
}
