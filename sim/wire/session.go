package wire

import (
	"slices"
	"sync"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// session is what the server remembers of a client's session so that a write that is sent twice is applied once: the number of
// its last retryable write, and the reply to it. Source: MongoDB's specification "Retryable Writes".
//
// A server remembers each statement of a batch; this one remembers the reply to the command. The two
// differ only for a batch that failed half-way as a whole, of which MongoDB would not repeat the first half.
type session struct {
	mu     sync.Mutex // held while a retryable write of the session runs
	number int64
	reply  bson.D // nil until the write with the number has been applied
}

// runOnce runs a write with a transaction number, unless it has run before, in which case it repeats the reply. An
// error that is about the command as a whole is not remembered: the write has not happened, and may be tried again.
func (r *request) runOnce(run func(*request) (bson.D, error)) (bson.D, error) {
	key := r.sessionKey()
	if r.err == nil && key == "" {
		r.err = refuse(codeInvalidOptions, "Transaction number requires a session ID to also be specified")
	}
	if r.err == nil && r.standalone {
		r.err = refuse(codeIllegalOperation, "Transaction numbers are only allowed on a replica set member or mongos")
	}
	number := r.number("txnNumber")
	if r.err != nil {
		return nil, r.err
	}
	s := r.session(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case number < s.number:
		return nil, refuse(codeTransactionTooOld, "Retryable write with txnNumber %d is prohibited because %d has already started", number, s.number)
	case number == s.number && s.reply != nil:
		return s.reply, nil
	}
	s.number, s.reply = number, nil
	reply, err := run(r)
	s.reply = slices.Clip(reply) // whoever appends to it gets a copy
	return s.reply, err
}

// sessionKey is the client's id of its session, or empty.
func (r *request) sessionKey() string {
	id, ok := find(r.embedded("lsid"), "id")
	if !ok {
		return ""
	}
	uuid, ok := id.(bson.Binary)
	if !ok {
		r.mismatch("lsid.id", id)
	}
	return string(uuid.Data)
}

// session returns the server's memory of the session with the key. It lasts until the client ends the session.
func (s *Server) session(key string) *session {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sessions[key] == nil {
		s.sessions[key] = &session{number: -1}
	}
	return s.sessions[key]
}

func (r *request) endSessions() (bson.D, error) {
	ended := r.value("endSessions")
	list, ok := ended.(bson.A)
	if !ok {
		r.mismatch("endSessions", ended)
		return nil, r.err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, element := range list {
		lsid, _ := element.(bson.D)
		id, _ := find(lsid, "id")
		uuid, _ := id.(bson.Binary)
		delete(r.sessions, string(uuid.Data))
	}
	return bson.D{}, nil
}
