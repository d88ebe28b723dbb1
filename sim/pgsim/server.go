package pgsim

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/fencepost-sim/fencepost/engine/idempotency/pgport"
)

// Effect is the business write of tests and simulations: one more row for the key $1 in a table without a unique key.
var Effect = &pgport.Statement{Name: "effect", SQL: `INSERT INTO effects (id) VALUES ($1)`}

// Server is one database.
type Server struct {
	table, index bool
	shape        string // of a table that somebody else has made
	rows         []*row // in the order of insertion
	effects      []string
	open         []*transaction
	lastID       int
	commits      []commit // in order
	migrating    int      // transaction that holds the advisory lock
	clients      []*Client
}

// row is a claim.
type row struct {
	event, topic string
	at           time.Time
	inserter     int // transaction that has not committed yet; zero if committed
	deleter      int // transaction that has deleted it and not committed yet
	commit       int // number of the commit that made it
}

// commit is what one transaction changed.
type commit struct {
	inserted, deleted []*row
	effects           []string
	table, index      bool // made by it
}

// transaction is an open transaction.
type transaction struct {
	id          int
	isolation   pgport.Isolation
	snapshot    int // commits that it sees; -1 before its first statement
	began       time.Time
	changes     commit
	failed      bool
	waitsFor    int
	lockTimeout time.Duration
}

// New returns an empty database.
func New() *Server { return &Server{} }

// begin opens a transaction.
func (s *Server) begin(now time.Time, isolation pgport.Isolation) *transaction {
	s.lastID++
	t := &transaction{id: s.lastID, isolation: isolation, snapshot: -1, began: now}
	s.open = append(s.open, t)
	return t
}

func refuse(code, format string, values ...any) error {
	return &pgport.Error{Code: code, Message: fmt.Sprintf(format, values...)}
}

// answer is what a statement came to: rows and a text, or the transaction to wait for.
type answer struct {
	rows    int64
	text    string
	waitFor int
}

// exec runs one statement of an open transaction. An error fails the transaction.
func (s *Server) exec(t *transaction, now time.Time, statement *pgport.Statement, args []any) (a answer, err error) {
	if t.failed {
		return a, refuse(pgport.InFailedTransaction, "current transaction is aborted, commands ignored until end of transaction block")
	}
	if t.snapshot < 0 {
		t.snapshot = len(s.commits)
	}
	t.waitsFor = 0
	switch statement.Name {
	case pgport.MigrationLock.Name:
		a, err = s.migrationLock(t)
	case pgport.CreateTable.Name:
		s.createTable(t)
	case pgport.CreateIndex.Name:
		t.changes.index, s.index = !s.index, true
	case pgport.Shape.Name:
		a.text = s.shapeText()
	case pgport.LockTimeout.Name:
		err = t.setLockTimeout(args)
		a.text = fmt.Sprint(args...)
	case pgport.Claim.Name:
		a, err = s.claim(t, args)
	case pgport.Sweep.Name:
		a.rows = s.sweep(t, args)
	case Effect.Name:
		t.changes.effects, a.rows = append(t.changes.effects, args[0].(string)), 1
	default:
		err = refuse("0A000", "pgsim does not know the statement %q", statement.Name)
	}
	if a.waitFor != 0 {
		if t.waitsFor = a.waitFor; s.deadlock(t) {
			err = refuse(pgport.DeadlockDetected, "deadlock detected")
		}
	}
	t.failed = t.failed || err != nil
	return a, err
}

func (t *transaction) setLockTimeout(args []any) error {
	ms, err := strconv.ParseInt(args[0].(string), 10, 64)
	if err != nil {
		return refuse("22023", "invalid value for parameter \"lock_timeout\": %q", args[0])
	}
	t.lockTimeout = time.Duration(ms) * time.Millisecond
	return nil
}

func (s *Server) migrationLock(t *transaction) (a answer, err error) {
	if s.migrating != 0 && s.migrating != t.id {
		a.waitFor = s.migrating
		return a, nil
	}
	s.migrating = t.id
	return a, nil
}

func (s *Server) createTable(t *transaction) {
	if !s.table {
		t.changes.table, s.table = true, true
	}
}

func (s *Server) shapeText() string {
	switch {
	case s.shape != "":
		return s.shape
	case s.table:
		return pgport.ExpectedShape
	}
	return "no table; key none"
}

// claim is INSERT … ON CONFLICT DO NOTHING: it waits for whoever has the key in an open transaction, and for whoever is deleting it. Above
// read committed, a row that the snapshot does not show cannot be passed over in silence (manual, 13.2.2).
func (s *Server) claim(t *transaction, args []any) (a answer, err error) {
	if !s.table {
		return a, refuse("42P01", "relation %q does not exist", pgport.Table)
	}
	event, topic := args[0].(string), args[1].(string)
	for _, r := range s.rows {
		if r.event != event || r.topic != topic || r.deleter == t.id {
			continue
		}
		switch {
		case r.inserter == t.id:
			return a, nil
		case r.inserter != 0:
			a.waitFor = r.inserter
			return a, nil
		case r.deleter != 0:
			a.waitFor = r.deleter
			return a, nil
		case r.commit > t.snapshot && (t.isolation == pgport.RepeatableRead || t.isolation == pgport.Serializable):
			return a, refuse(pgport.SerializationFailure, "could not serialize access due to concurrent update")
		}
		return a, nil
	}
	r := &row{event: event, topic: topic, at: t.began, inserter: t.id} // now() is when the transaction began
	s.rows = append(s.rows, r)
	t.changes.inserted = append(t.changes.inserted, r)
	a.rows = 1
	return a, nil
}

// sweep deletes the oldest claims, and passes over those that others have locked.
func (s *Server) sweep(t *transaction, args []any) (deleted int64) {
	limit := t.began.Add(-time.Duration(args[0].(int64)) * time.Microsecond)
	var old []*row
	for _, r := range s.rows {
		if r.inserter == 0 && r.deleter == 0 && r.at.Before(limit) {
			old = append(old, r)
		}
	}
	slices.SortStableFunc(old, func(a, b *row) int { return a.at.Compare(b.at) })
	for _, r := range old[:min(len(old), int(args[1].(int64)))] {
		r.deleter = t.id
		t.changes.deleted = append(t.changes.deleted, r)
		deleted++
	}
	return deleted
}

// deadlock tells whether the transaction waits for itself, through others.
func (s *Server) deadlock(t *transaction) bool {
	for at := t.waitsFor; at != 0; {
		if at == t.id {
			return true
		}
		i := slices.IndexFunc(s.open, func(o *transaction) bool { return o.id == at })
		if i < 0 {
			return false
		}
		at = s.open[i].waitsFor
	}
	return false
}

// timeOut fails a statement that waited for too long.
func (s *Server) timeOut(t *transaction) error {
	t.failed, t.waitsFor = true, 0
	return refuse(pgport.LockNotAvailable, "canceling statement due to lock timeout")
}

// end closes a transaction. A failed one is rolled back, whatever was asked.
func (s *Server) end(t *transaction, commit bool) error {
	i := slices.Index(s.open, t)
	if i < 0 {
		return nil
	}
	s.open = slices.Delete(s.open, i, i+1)
	if s.migrating == t.id {
		s.migrating = 0
	}
	if !commit || t.failed {
		s.undo(t.changes)
		if commit {
			return refuse(pgport.InFailedTransaction, "commit unexpectedly resulted in rollback")
		}
		return nil
	}
	s.commits = append(s.commits, t.changes)
	for _, r := range t.changes.inserted {
		r.inserter, r.commit = 0, len(s.commits)
	}
	s.rows = slices.DeleteFunc(s.rows, func(r *row) bool { return slices.Contains(t.changes.deleted, r) })
	s.effects = append(s.effects, t.changes.effects...)
	return nil
}

// undo takes the changes of an open transaction back.
func (s *Server) undo(c commit) {
	s.rows = slices.DeleteFunc(s.rows, func(r *row) bool { return slices.Contains(c.inserted, r) })
	for _, r := range c.deleted {
		r.deleter = 0
	}
	s.table, s.index = s.table && !c.table, s.index && !c.index
}

// Effects is how often the effect of the key is committed.
func (s *Server) Effects(key string) (count int) {
	for _, effect := range s.effects {
		if effect == key {
			count++
		}
	}
	return count
}

// Claimed tells whether the claim of an event is committed.
func (s *Server) Claimed(event, topic string) bool {
	return slices.ContainsFunc(s.rows, func(r *row) bool { return r.inserter == 0 && r.event == event && r.topic == topic })
}

// Foreign makes a table of another shape, as another library may have made it.
func (s *Server) Foreign(shape string) { s.table, s.shape = true, shape }

// Failover puts a replica into the place of the server, which has not seen the last commits. Open transactions are gone.
func (s *Server) Failover(lostCommits int) {
	for len(s.open) > 0 {
		_ = s.end(s.open[0], false)
	}
	for ; lostCommits > 0 && len(s.commits) > 0; lostCommits-- {
		last := s.commits[len(s.commits)-1]
		s.commits = s.commits[:len(s.commits)-1]
		s.undo(last)
		s.rows = append(s.rows, last.deleted...)
		s.effects = s.effects[:len(s.effects)-len(last.effects)]
	}
}
