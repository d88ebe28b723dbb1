package mongosim

import (
	"slices"
	"sort"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/fencepost-sim/fencepost/engine/store"
)

// Operation says what an oplog entry did.
type Operation string

// The operations. But for Noop they are also the operationType of their change events.
const (
	Insert        Operation = "insert"
	Update        Operation = "update"
	Replace       Operation = "replace"
	Delete        Operation = "delete"
	Create        Operation = "create" // a collection
	Modify        Operation = "modify" // a collection, or its indexes, by collMod
	CreateIndexes Operation = "createIndexes"
	DropIndexes   Operation = "dropIndexes"
	Rename        Operation = "rename"
	Drop          Operation = "drop" // a collection
	DropDatabase  Operation = "dropDatabase"
	Noop          Operation = "noop" // a new primary's first entry
)

// Entry is one applied write. Its documents must not be changed. A standalone keeps entries too: they are
// how a simulation sees what was done.
type Entry struct {
	Time                 bson.Timestamp
	Index                uint32 // place among the entries with the same time, which a transaction makes
	Term                 int64  // of the primary that made it
	Wall                 bson.DateTime
	Operation            Operation
	Database, Collection string
	ID                   any
	Before, After        bson.D     // whole documents; nil where there is none
	Expired              bool       // deleted by the TTL monitor
	Images               bool       // change streams may show Before and After
	Origin               *Statement // of a retryable write or a transaction; otherwise nil
	Detail               *Detail    // of operations on collections and indexes
}

// Detail is what an operation on a collection did beside naming it.
type Detail struct {
	Indexes              []store.Index // that were created, dropped, or changed
	Settings             settings      // that the collection has now
	Database, Collection string        // Rename: the new name
	Replaced             bool          // Rename: another collection had that name
}

// log records a write that has been carried out: in the oplog, or in the transaction that it belongs to.
func (s *Server) log(e Entry) {
	if s.statement != nil && (e.ID != nil || s.statement.InTransaction) {
		e.Origin = s.statement
	}
	if t := s.transaction; t != nil {
		t.entries = append(t.entries, e)
		return
	}
	e.Time = s.tick()
	s.append(e)
}

func (s *Server) append(e Entry) {
	e.Wall, e.Term = bson.NewDateTimeFromTime(s.now), s.term
	if len(s.oplog) == cap(s.oplog) {
		s.oplog = slices.Grow(s.oplog, max(16, len(s.oplog))) // append alone would copy a long log more often
	}
	s.oplog = append(s.oplog, e)
	if e.Origin != nil {
		s.remember(&s.oplog[len(s.oplog)-1])
	}
}

// OplogLen returns the number of entries.
func (s *Server) OplogLen() int { return len(s.oplog) }

// OplogSince returns the entries from number n on. They are the server's own, not a copy.
func (s *Server) OplogSince(n int) []Entry { return s.oplog[n:len(s.oplog):len(s.oplog)] }

// ForgetHistory makes change streams and resume tokens that have not yet seen entry n fail, as when a server has
// overwritten the oldest part of its oplog. OplogSince still has them.
func (s *Server) ForgetHistory(n int) { s.history = min(max(s.history, n), len(s.oplog)) }

// after returns the number of the first entry later than the time, or than the one with the index at that time.
func (s *Server) after(t bson.Timestamp, index uint32) int {
	return sort.Search(len(s.oplog), func(i int) bool {
		e := &s.oplog[i]
		return e.Time.After(t) || e.Time.Equal(t) && e.Index > index
	})
}

// from returns the number of the first entry at the time or later.
func (s *Server) from(t bson.Timestamp) int {
	return sort.Search(len(s.oplog), func(i int) bool { return !s.oplog[i].Time.Before(t) })
}

// LastWrite is the time of the newest entry.
func (s *Server) LastWrite() bson.Timestamp {
	if len(s.oplog) == 0 {
		return bson.Timestamp{}
	}
	return s.oplog[len(s.oplog)-1].Time
}
