package mongosim

import (
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/fencepost-sim/fencepost/engine/store"
)

// A server takes the timestamp of $currentDate while it builds the new document, and makes the document visible when
// its storage transaction commits, which can be after that of a write with a later timestamp
// (src/mongo/db/update/current_date_node.cpp, src/mongo/db/exec/upsert_stage.cpp). Reserve and RunReserved
// let a simulation put other commands between the two.

// Reserve takes the next time of the server's logical clock.
func (s *Server) Reserve(now time.Time) bson.Timestamp {
	s.now = now
	return s.tick()
}

// RunReserved is Run, but the command's server-side timestamps are one that was reserved before.
func (s *Server) RunReserved(now time.Time, reserved bson.Timestamp, database string, command store.Command) (store.Reply, error) {
	s.modifiers.stamp = func() bson.Timestamp { return reserved }
	defer func() { s.modifiers.stamp = s.tick }()
	return s.Run(now, database, command)
}
