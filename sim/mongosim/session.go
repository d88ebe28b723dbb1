package mongosim

import (
	"slices"

	"github.com/fencepost-sim/fencepost/engine/store"
)

// What a server remembers of a session, so that a write which is sent twice is applied once. Every statement of a retryable
// write leaves its number in the oplog, from which each member learns it: a new primary recognises what the old one
// did, if it was not rolled back. A statement that changed nothing leaves nothing, and runs again.
// Source: the drivers' specification "Retryable Writes"; src/mongo/db/session/session_txn_record.idl.

// Statement is the identity of one write.
type Statement struct {
	Session string // the client's id of its session
	Number  int64  // txnNumber
	Place   int32  // in the batch, from 0
	// InTransaction: the write belongs to a multi-document transaction, which counts as a whole.
	InTransaction bool
}

// memory is what is known of a session.
type memory struct {
	number      int64
	statements  []Entry      // that have been carried out with the number
	transaction *Transaction // with the number, if it is one
	committed   bool
}

func (s *Server) session(id string) *memory {
	if s.sessions == nil {
		s.sessions = map[string]*memory{}
	}
	if s.sessions[id] == nil {
		s.sessions[id] = &memory{number: -1}
	}
	return s.sessions[id]
}

// remember learns from an entry of the oplog.
func (s *Server) remember(e *Entry) {
	m := s.session(e.Origin.Session)
	if e.Origin.Number != m.number {
		m.start(e.Origin.Number)
	}
	if e.Origin.InTransaction {
		m.committed = true
		return
	}
	m.statements = append(m.statements, *e)
}

func (m *memory) start(number int64) {
	*m = memory{number: number}
}

// Executed returns the entry that a statement made when it was sent before, or nil if it was not. An error means that the session has
// gone on to another transaction, or that the server does not remember sessions.
func (s *Server) Executed(statement *Statement) (*Entry, error) {
	if s.options.Standalone {
		return nil, refuse(codeIllegalOperation, "Transaction numbers are only allowed on a replica set member or mongos")
	}
	m := s.session(statement.Session)
	switch {
	case statement.Number < m.number && m.transaction != nil:
		return nil, refuse(codeTransactionTooOld, "Cannot start transaction with { txnNumber: %d } on session %x because a newer transaction "+
			"with txnNumber %d has already started on this session.", statement.Number, statement.Session, m.number)
	case statement.Number < m.number:
		return nil, refuse(codeTransactionTooOld, "Retryable write with txnNumber %d is prohibited on session %x because a newer "+
			"retryable write with txnNumber %d has already started on this session.", statement.Number, statement.Session, m.number)
	case statement.Number > m.number:
		s.leave(m)
		m.start(statement.Number)
	case m.transaction != nil || m.committed:
		return nil, refuse(50767+10, "Cannot run a retryable write with the txnNumber %d of a transaction", statement.Number)
	}
	i := slices.IndexFunc(m.statements, func(e Entry) bool { return e.Origin.Place == statement.Place })
	if i < 0 {
		return nil, nil
	}
	return &m.statements[i], nil
}

// leave aborts the transaction of a session that goes on to the next.
func (s *Server) leave(m *memory) {
	if m.transaction != nil && !m.transaction.ended() {
		s.abort(m.transaction)
	}
}

// EndSession forgets a session and aborts its transaction, if there is one under way. A retryable write of it that is sent
// after that counts as new.
func (s *Server) EndSession(id string) {
	if m := s.sessions[id]; m != nil {
		s.leave(m)
		delete(s.sessions, id)
	}
}

// KillTransactions aborts all transactions, as killAllSessions does.
func (s *Server) KillTransactions() {
	for len(s.open) > 0 {
		s.abort(s.open[0])
	}
}

// Repeat is the outcome of a statement that was carried out before, and left the entry.
func (s *Server) Repeat(e *Entry, request *Request) (Outcome, error) {
	var o Outcome
	switch e.Operation {
	case Insert:
		o.Inserted, o.Upserted, o.Created = 1, e.ID, e.ID
	case Delete:
		o.Matched, o.Existing = 1, true
	default:
		o.Matched, o.Modified, o.Existing = 1, 1, true
	}
	if request.Kind != store.FindAndModify {
		return o, nil
	}
	o.Document = e.Before
	if !request.ReturnBefore && e.Operation != Delete {
		o.Document = e.After
	}
	show, err := compileProjection(request.Projection)
	if show == nil || err != nil || o.Document == nil {
		return o, err
	}
	o.Document, err = show.apply(o.Document, s.moment())
	return o, err
}
