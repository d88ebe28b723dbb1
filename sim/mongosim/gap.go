package mongosim

import (
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// A server takes the timestamp of $currentDate while it builds the new document, and makes the document visible when
// its storage transaction commits, which can be after that of a write with a later timestamp
// (src/mongo/db/update/current_date_node.cpp, src/mongo/db/exec/upsert_stage.cpp). Reserve and Stamped
// let a simulation put other commands between the two.

// Reserve takes the next time of the server's logical clock.
func (s *Server) Reserve(now time.Time) bson.Timestamp {
	s.now = now
	return s.tick()
}

// Stamped gives the commands that run inside a timestamp that was reserved before.
func (s *Server) Stamped(reserved bson.Timestamp, inside func()) {
	s.modifiers.stamp = func() bson.Timestamp { return reserved }
	defer func() { s.modifiers.stamp = s.tick }()
	inside()
}
