package mongosim

import (
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/fencepost-sim/fencepost/engine/store"
)

// Transactions see the data as it was when they began, and their own writes. Of two that change the same document the first
// to do so goes on; the other fails at once with WriteConflict. Writes outside of transactions wait instead. Nobody
// sees a transaction's writes before it commits, and then all of them at once.
// Source: manual, "Transactions", and "Production Considerations", "In-progress Transactions and Write Conflicts".

// Transaction is a multi-document transaction under way.
type Transaction struct {
	view
	session string
	number  int64
	entries []Entry
	state   transactionState
	expires time.Time
	commit  bson.Timestamp
}

type transactionState uint8

const (
	inProgress transactionState = iota
	committed
	aborted
)

// TransactionLifetime is how long a transaction may last. Source: manual, transactionLifetimeLimitSeconds.
const TransactionLifetime = 60 * time.Second

func (t *Transaction) ended() bool { return t.state != inProgress }

func (t *Transaction) gone() error {
	return t.without("Transaction with { txnNumber: %d } has been aborted.")
}

// without is the error of a statement whose transaction is not there.
func (t *Transaction) without(format string) error {
	if t.state == committed {
		return refuse(codeTransactionCommitted, "Transaction with { txnNumber: %d } has been committed.", t.number)
	}
	return transient(refuse(codeNoSuchTransaction, format, t.number))
}

// Begin starts the transaction with the number in a session. What the session did before has ended.
func (s *Server) Begin(now time.Time, session string, number int64) (*Transaction, error) {
	s.now = now
	if s.options.Standalone {
		return nil, refuse(codeIllegalOperation, "Transaction numbers are only allowed on a replica set member or mongos")
	}
	if err := s.checkRole(true, false); err != nil {
		return nil, transient(err)
	}
	m := s.session(session)
	switch {
	case number < m.number:
		return nil, tooOld(session, number, m.number)
	case number == m.number:
		if m.transaction == nil || m.transaction.state != aborted || len(m.statements) > 0 {
			return nil, refuse(50911, "Cannot start a transaction at given transaction number %d a transaction with the same number is in state %s",
				number, m.describe())
		}
	}
	s.leave(m)
	m.start(number)
	t := &Transaction{view: *s.viewAt(len(s.oplog)), session: session, number: number, expires: now.Add(TransactionLifetime)}
	m.transaction, s.open = t, append(s.open, t)
	return t, nil
}

func tooOld(session string, number, newest int64) error {
	return refuse(codeTransactionTooOld, "Cannot start transaction with { txnNumber: %d } on session %x because a newer transaction "+
		"with txnNumber %d has already started on this session.", number, session, newest)
}

func (m *memory) describe() string {
	switch {
	case m.transaction == nil && !m.committed:
		return "None"
	case m.committed:
		return "TransactionCommitted"
	case m.transaction.state == aborted:
		return "TransactionAborted"
	}
	return "TransactionInProgress"
}

// Continue returns the transaction of a session for its next statement.
func (s *Server) Continue(now time.Time, session string, number int64) (*Transaction, error) {
	s.now = now
	s.expireTransactions()
	if s.options.Standalone {
		return nil, refuse(codeIllegalOperation, "Transaction numbers are only allowed on a replica set member or mongos")
	}
	m := s.session(session)
	switch {
	case number < m.number:
		return nil, tooOld(session, number, m.number)
	case number > m.number || m.transaction == nil && !m.committed:
		return nil, transient(refuse(codeNoSuchTransaction, "Given transaction number %d does not match any in-progress transactions. "+
			"The active transaction number is %d", number, m.number))
	case m.committed:
		return &Transaction{session: session, number: number, state: committed, commit: s.LastWrite()}, nil
	}
	return m.transaction, nil
}

// Commit makes the transaction's writes visible. To commit it again is a success.
func (s *Server) Commit(now time.Time, t *Transaction) error {
	s.now = now
	if t.state == committed {
		return nil
	}
	if err := s.checkRole(true, false); err != nil {
		return err
	}
	if t.ended() {
		return t.gone()
	}
	if len(t.entries) > 0 {
		t.commit = s.tick()
	}
	for i := range t.entries {
		e := t.entries[i]
		e.Time, e.Index = t.commit, uint32(i)
		if err := s.catalog.apply(&e, s.options.Seed); err != nil {
			panic("mongosim: a transaction cannot be committed: " + err.Error())
		}
		s.append(e)
	}
	t.state = committed
	s.session(t.session).committed = true
	s.close(t)
	return nil
}

// Abort ends the transaction without a trace.
func (s *Server) Abort(now time.Time, t *Transaction) error {
	s.now = now
	if t.ended() {
		return t.gone()
	}
	s.abort(t)
	return nil
}

func (s *Server) abort(t *Transaction) {
	if !t.ended() {
		t.state = aborted
		s.close(t)
	}
}

func (s *Server) close(t *Transaction) {
	t.copies, t.entries = catalog{}, nil
	for i, other := range s.open {
		if other == t {
			s.open = append(s.open[:i:i], s.open[i+1:]...)
			return
		}
	}
}

// ExpireTransactions aborts those that have lasted too long.
func (s *Server) ExpireTransactions(now time.Time) {
	s.now = now
	s.expireTransactions()
}

func (s *Server) expireTransactions() {
	for i := 0; i < len(s.open); {
		if s.open[i].expires.After(s.now) {
			i++
		} else {
			s.abort(s.open[i])
		}
	}
}

const labelTransient = store.LabelTransientTransaction

func writeConflict() error {
	return transient(refuse(codeWriteConflict, "Caused by :: Write conflict during plan execution and yielding is disabled. :: "+
		"Please retry your operation or multi-document transaction."))
}

// guard refuses a write that another transaction is in the way of. after is nil for a deletion.
func (s *Server) guard(c *collection, id any, after bson.D) error {
	t := s.transaction
	if t == nil && len(s.open) == 0 {
		return nil
	}
	for _, other := range s.open {
		if other != t && other.holds(c, id, after) {
			if t == nil {
				return ErrBlocked
			}
			return writeConflict()
		}
	}
	if t == nil {
		return nil
	}
	for i := t.position; i < len(s.oplog); i++ {
		if e := &s.oplog[i]; e.ID != nil && e.Collection == c.name && e.Database == c.database && equal(e.ID, id) {
			return writeConflict()
		}
	}
	if after != nil && s.taken(t, c, id, after) {
		return writeConflict()
	}
	return nil
}

// holds reports whether the transaction has written the document, or one with the same key in a unique index.
func (t *Transaction) holds(c *collection, id any, after bson.D) bool {
	for i := range t.entries {
		e := &t.entries[i]
		if e.Collection != c.name || e.Database != c.database || e.ID == nil {
			continue
		}
		if equal(e.ID, id) {
			return true
		}
		for _, x := range c.indexes {
			if after != nil && e.After != nil && x.unique() && !x.isID() && x.share(after, e.After) {
				return true
			}
		}
	}
	return false
}

// taken reports whether a document that was committed after the transaction began has a key of the new one in a unique index.
func (s *Server) taken(t *Transaction, c *collection, id any, after bson.D) bool {
	for i := t.position; i < len(s.oplog); i++ {
		e := &s.oplog[i]
		if e.After == nil || e.Collection != c.name || e.Database != c.database || equal(e.ID, id) {
			continue
		}
		for _, x := range c.indexes {
			if x.unique() && !x.isID() && x.share(after, e.After) {
				return true
			}
		}
	}
	return false
}

// share reports whether two documents have a key in common.
func (x *index) share(a, b bson.D) bool {
	one, err := x.keysOf(a)
	if err != nil {
		return false
	}
	other, err := x.keysOf(b)
	if err != nil {
		return false
	}
	common := false
	one.each(func(key string) { other.each(func(o string) { common = common || key == o }) })
	return common
}
