package mongosim

import (
	"slices"
	"sort"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// Operation says what an oplog entry did.
type Operation string

// The operations. The first four are also the operationType of their change events.
const (
	Insert        Operation = "insert"
	Update        Operation = "update"
	Replace       Operation = "replace"
	Delete        Operation = "delete"
	Create        Operation = "create" // a collection
	CreateIndexes Operation = "createIndexes"
	Drop          Operation = "drop" // a collection
)

// Entry is one applied write. Its documents must not be changed. A standalone keeps entries too: they are
// how a simulation sees what was done.
type Entry struct {
	Time                 bson.Timestamp
	Wall                 bson.DateTime
	Operation            Operation
	Database, Collection string
	ID                   any
	Before, After        bson.D // whole documents; nil where there is none
	Expired              bool   // deleted by the TTL monitor
}

func (s *Server) log(e Entry) {
	e.Time, e.Wall = s.tick(), bson.NewDateTimeFromTime(s.now)
	if len(s.oplog) == cap(s.oplog) {
		s.oplog = slices.Grow(s.oplog, max(16, len(s.oplog))) // append alone would copy a long log more often
	}
	s.oplog = append(s.oplog, e)
}

// OplogLen returns the number of entries.
func (s *Server) OplogLen() int { return len(s.oplog) }

// OplogSince returns the entries from number n on. They are the server's own, not a copy.
func (s *Server) OplogSince(n int) []Entry { return s.oplog[n:len(s.oplog):len(s.oplog)] }

// ForgetHistory makes change streams and resume tokens that have not yet seen entry n fail, as when a server has
// overwritten the oldest part of its oplog. OplogSince still has them.
func (s *Server) ForgetHistory(n int) { s.history = min(max(s.history, n), len(s.oplog)) }

// after returns the number of the first entry later than the time.
func (s *Server) after(t bson.Timestamp) int {
	return sort.Search(len(s.oplog), func(i int) bool { return s.oplog[i].Time.After(t) })
}
