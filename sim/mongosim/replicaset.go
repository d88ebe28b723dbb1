package mongosim

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fencepost-sim/fencepost/engine/store"
)

// ReplicaSet is a group of servers that replicate the primary's oplog. Nothing happens in it by itself: a simulation, or the wire
// server, says when a member replicates, who is elected, and which member is cut off, and so chooses what can go wrong:
//
//   - between a write and Replicate, the write is acknowledged by the primary alone (w: 1), and secondaries are stale;
//   - StepDown leaves the set without a primary until Elect;
//   - Isolate and Elect make a second primary: the old one, which cannot know, goes on answering until StepDown, Heal, or a
//     message from the new one; what it has written meanwhile is rolled back when it replicates again.
//
// It is not safe for concurrent use, and neither are its servers.
//
// Source: manual, "Replica Set Elections", "Rollbacks During Replica Set Failover"; the commit point and the election
// rule are those of the protocol that MongoDB calls pv1 (src/mongo/db/repl/README.md).
type ReplicaSet struct {
	name    string
	members []*Server
	term    int64
	cut     []bool // members that the others cannot reach
}

// Errors of the replica set.
var (
	ErrNoMajority   = errors.New("mongosim: no majority of the members can be reached")
	ErrNotElectable = errors.New("mongosim: the candidate's oplog is behind that of a voter")
)

// NewReplicaSet returns a set with as many members, of which the first is the primary.
func NewReplicaSet(options Options, members int) *ReplicaSet {
	options.Standalone = false
	set := &ReplicaSet{name: cmp.Or(options.Name, replicaSetName), term: 1, cut: make([]bool, members)}
	for i := range members {
		s := New(options)
		s.set, s.member = set, i
		if i > 0 {
			s.role = secondary
		}
		set.members = append(set.members, s)
	}
	return set
}

// Members returns the servers.
func (r *ReplicaSet) Members() []*Server { return r.members }

// Primary returns the primary of the highest term, or nil. A deposed one that does not know it yet is not meant.
func (r *ReplicaSet) Primary() *Server {
	for _, s := range r.members {
		if s.role == primary && s.term == r.term {
			return s
		}
	}
	return nil
}

func (r *ReplicaSet) check(member int) {
	if member < 0 || member >= len(r.members) {
		panic(fmt.Sprintf("mongosim: member %d of a set of %d", member, len(r.members)))
	}
}

// Isolate cuts a member off from the others. Clients still reach it.
func (r *ReplicaSet) Isolate(member int) { r.check(member); r.cut[member] = true }

// Heal connects a member again. A deposed primary learns of the new term and steps down.
func (r *ReplicaSet) Heal(now time.Time, member int) {
	r.check(member)
	r.cut[member] = false
	for i, s := range r.members {
		if !r.cut[i] && s.role == primary && s.term < r.term {
			s.stepDown(now)
		}
	}
	r.advance()
}

// StepDown makes a member a secondary, as a primary becomes one that is told to or that has seen no majority for an election timeout. Its
// open transactions are aborted.
func (r *ReplicaSet) StepDown(now time.Time, member int) {
	r.check(member)
	r.members[member].stepDown(now)
}

func (s *Server) stepDown(now time.Time) {
	s.now = now
	s.KillTransactions()
	if s.role == primary {
		s.role = secondary
		s.changes++
	}
}

// Elect makes a member the primary of a new term. It fails if it cannot reach a majority of members whose oplogs are not ahead of its
// own. Other primaries within reach step down.
func (r *ReplicaSet) Elect(now time.Time, candidate int) error {
	r.check(candidate)
	if r.cut[candidate] && len(r.members) > 1 {
		return ErrNoMajority
	}
	c := r.members[candidate]
	votes, reached := 0, 0
	for i, s := range r.members {
		if i != candidate && r.cut[i] {
			continue
		}
		reached++
		if !s.ahead(c) {
			votes++
		}
	}
	switch majority := len(r.members)/2 + 1; {
	case reached < majority:
		return ErrNoMajority
	case votes < majority:
		return ErrNotElectable
	}
	r.term++
	for i, s := range r.members {
		if i != candidate && !r.cut[i] {
			s.stepDown(now)
		}
	}
	c.now, c.role, c.term = now, primary, r.term
	c.changes++
	c.log(Entry{Operation: Noop})
	r.advance()
	return nil
}

// ahead compares the ends of two oplogs.
func (s *Server) ahead(o *Server) bool {
	mine, theirs := s.lastTerm(), o.lastTerm()
	return mine > theirs || mine == theirs && len(s.oplog) > len(o.oplog)
}

func (s *Server) lastTerm() int64 {
	if len(s.oplog) == 0 {
		return 0
	}
	return s.oplog[len(s.oplog)-1].Term
}

// Replicate lets a member take up to limit entries (all of them if limit is negative) from the primary, after taking back those that the
// primary does not have. It returns how many it took and the entries that were rolled back, oldest first. Without
// a primary within reach it does nothing.
func (r *ReplicaSet) Replicate(now time.Time, member, limit int) (applied int, rolledBack []Entry) {
	r.check(member)
	s, source := r.members[member], r.Primary()
	if source == nil || s == source || r.cut[member] || r.cut[source.member] {
		return 0, nil
	}
	if s.role == primary {
		s.stepDown(now)
	}
	s.now, s.term = now, source.term
	common := commonLength(s.oplog, source.oplog)
	rolledBack = s.rollBack(common)
	for len(s.oplog) < len(source.oplog) && (limit < 0 || applied < limit) {
		s.take(source.oplog[len(s.oplog)])
		applied++
	}
	r.advance()
	return applied, rolledBack
}

// ReplicateAll lets every member within reach take everything.
func (r *ReplicaSet) ReplicateAll(now time.Time) {
	for i := range r.members {
		r.Replicate(now, i, -1)
	}
}

// commonLength is how many entries two oplogs share. Two entries at the same place with the same term are the same, and so
// are all before them.
func commonLength(a, b []Entry) int {
	n := min(len(a), len(b))
	for n > 0 && a[n-1].Term != b[n-1].Term {
		n--
	}
	return n
}

// take applies an entry of another member.
func (s *Server) take(e Entry) {
	if err := s.catalog.apply(&e, s.options.Seed); err != nil {
		panic("mongosim: a member cannot apply an entry of the oplog: " + err.Error())
	}
	if e.Time.After(s.clusterTime) {
		s.clusterTime = e.Time
	}
	s.oplog = append(s.oplog, e)
	if e.Origin != nil {
		s.remember(&s.oplog[len(s.oplog)-1])
	}
}

// rollBack goes back to an earlier length of the oplog by applying all of it anew.
func (s *Server) rollBack(length int) []Entry {
	if length == len(s.oplog) {
		return nil
	}
	undone := slices.Clone(s.oplog[length:])
	kept := s.oplog[:length]
	s.catalog, s.sessions, s.oplog, s.majority = catalog{}, nil, nil, nil
	for _, e := range kept {
		s.take(e)
	}
	s.changes++
	return undone
}

// advance moves the commit points: the primary's to what a majority has, if the newest of that is of its term; those of the members
// within reach after it.
func (r *ReplicaSet) advance() {
	p := r.Primary()
	if p == nil || r.cut[p.member] && len(r.members) > 1 {
		return
	}
	lengths := make([]int, 0, len(r.members))
	for _, s := range r.members {
		lengths = append(lengths, commonLength(s.oplog, p.oplog))
	}
	slices.Sort(lengths)
	n := lengths[(len(lengths)-1)/2] // what at least a majority has
	if n > p.committed && p.oplog[n-1].Term == p.term {
		p.committed = n
	}
	for i, s := range r.members {
		if !r.cut[i] {
			s.committed = max(s.committed, min(p.committed, commonLength(s.oplog, p.oplog)))
		}
	}
}

// Replicated counts the members that have the first n entries of a server's oplog.
func (s *Server) Replicated(n int) int {
	if s.set == nil {
		return 1
	}
	count := 0
	for i, o := range s.set.members {
		if o == s || !s.set.cut[i] && !s.set.cut[s.member] && commonLength(o.oplog, s.oplog) >= n {
			count++
		}
	}
	return count
}

// MajorityCommitted reports whether the first n entries of the oplog can no longer be rolled back, as far as this server knows.
func (s *Server) MajorityCommitted(n int) bool { return s.CommittedLen() >= n }

// CommittedLen is how many entries of the oplog can no longer be rolled back, as far as this server knows.
func (s *Server) CommittedLen() int {
	if s.set == nil || len(s.set.members) == 1 {
		return len(s.oplog)
	}
	return s.committed
}

// StateChanges counts what makes a client look at the server anew: elections, step-downs, rollbacks.
func (s *Server) StateChanges() int64 { return s.changes }

// Set returns the replica set of the server, or nil for a standalone.
func (s *Server) Set() *ReplicaSet { return s.set }

// Member is the server's place in its set.
func (s *Server) Member() int { return s.member }

type role uint8

const (
	primary role = iota
	secondary
)

// IsPrimary reports whether the server believes to be the primary.
func (s *Server) IsPrimary() bool { return s.role == primary }

// checkRole refuses what only a primary does. Codes: the drivers' specification "Server Discovery and Monitoring".
func (s *Server) checkRole(writes, secondaryOK bool) error {
	switch {
	case s.role == primary:
		return nil
	case writes:
		return refuse(codeNotWritablePrimary, "not primary")
	case !secondaryOK:
		return refuse(codeNotPrimaryNoSecondaryOk, "not primary and secondaryOk=false")
	}
	return nil
}

// transient adds the label of errors after which the whole transaction may be tried again.
func transient(err error) error {
	var answer *store.Error
	if errors.As(err, &answer) && !answer.HasLabel(labelTransient) {
		answer.Labels = append(answer.Labels, labelTransient)
	}
	return err
}
