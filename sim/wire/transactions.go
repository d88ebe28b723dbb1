package wire

import (
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/fencepost-sim/fencepost/sim/mongosim"
)

// Sessions, retryable writes and transactions as clients ask for them. Sources: the drivers' specifications "Sessions", "Retryable
// Writes" and "Transactions".

// readSession reads lsid, txnNumber, autocommit and startTransaction, and checks that they go together.
func (r *request) readSession() {
	r.session = r.sessionKey(r.embedded("lsid"))
	r.numbered = has(r.document, "txnNumber")
	r.number = r.number64("txnNumber")
	autocommit, given := find(r.document, "autocommit")
	r.transaction = given
	starts := r.flag("startTransaction")
	ends := r.name == "commitTransaction" || r.name == "abortTransaction"
	switch {
	case r.err != nil:
	case r.numbered && r.session == "":
		r.fail(refuse(codeInvalidOptions, "Transaction number requires a session ID to also be specified"))
	case given && !r.numbered:
		r.fail(refuse(codeInvalidOptions, "'autocommit' field requires a transaction number to also be specified"))
	case given && autocommit != false:
		r.fail(refuse(codeInvalidOptions, "Specifying autocommit=true is not allowed."))
	case has(r.document, "startTransaction") && !given:
		r.fail(refuse(codeInvalidOptions, "'startTransaction' field requires 'autocommit' field to also be specified"))
	case has(r.document, "startTransaction") && !starts:
		r.fail(refuse(codeInvalidOptions, "Specifying startTransaction=false is not allowed."))
	case ends && !given:
		r.fail(refuse(codeInvalidOptions, "%s must be run within a transaction", r.name))
	case given && !ends && !r.command.transaction:
		r.fail(refuse(codeNotInTransaction, "Cannot run '%s' in a multi-document transaction.", r.name))
	case r.numbered && !given && !r.command.retryable:
		r.fail(refuse(codeNotARetryableWrite, "txnNumber may only be provided for multi-document transactions and retryable write commands. "+
			"autocommit:false was not provided, and %s is not a retryable write command.", r.name))
	case r.numbered && r.number < 0:
		r.fail(refuse(codeInvalidOptions, "Transaction number cannot be negative"))
	case r.numbered && r.model.Standalone():
		r.fail(refuse(codeIllegalOperation, "Transaction numbers are only allowed on a replica set member or mongos"))
	}
}

// sessionKey is the client's id of a session, or empty.
func (a *arguments) sessionKey(lsid bson.D) string {
	id, ok := find(lsid, "id")
	if !ok {
		return ""
	}
	uuid, ok := id.(bson.Binary)
	if !ok {
		a.mismatch("lsid.id", id, "binData")
	}
	return string(uuid.Data)
}

// enterTransaction begins the command's transaction, or goes on with it.
func (r *request) enterTransaction() (err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if has(r.document, "startTransaction") {
		r.current, err = r.model.Begin(r.now(), r.session, r.number)
		return err
	}
	r.current, err = r.model.Continue(r.now(), r.session, r.number)
	return err
}

func (r *request) commitTransaction() (bson.D, error) {
	return r.endTransaction(func(t *mongosim.Transaction) error { return r.model.Commit(r.now(), t) })
}

func (r *request) abortTransaction() (bson.D, error) {
	return r.endTransaction(func(t *mongosim.Transaction) error { return r.model.Abort(r.now(), t) })
}

func (r *request) endTransaction(end func(t *mongosim.Transaction) error) (bson.D, error) {
	err := r.locked(func() error {
		t, err := r.model.Continue(r.now(), r.session, r.number)
		if err != nil {
			return err
		}
		defer r.wake() // what waited for its documents
		return end(t)
	})
	return bson.D{}, err
}

func (r *request) endSessions() (bson.D, error) {
	for _, element := range r.array(r.name) {
		lsid, _ := element.(bson.D)
		key := r.sessionKey(lsid)
		r.mu.Lock()
		r.model.EndSession(key)
		r.wake()
		r.mu.Unlock()
	}
	return bson.D{}, r.err
}

// killAllSessions aborts all transactions and forgets all cursors.
func (r *request) killAllSessions() (bson.D, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, n := range r.nodes {
		n.model.KillTransactions()
	}
	r.wake()
	return bson.D{}, nil
}

// startSession and refreshSessions have nothing to do: a session is known from its first write on, and never expires.
func (r *request) startSession() (bson.D, error) {
	id := bson.NewObjectID()
	uuid := append(append([]byte{}, id[:]...), 0, 0, 0, 0)
	return bson.D{
		{Key: "id", Value: bson.D{{Key: "id", Value: bson.Binary{Subtype: bson.TypeBinaryUUID, Data: uuid}}}},
		{Key: "timeoutMinutes", Value: int32(sessionTimeoutMinutes)},
	}, nil
}

const sessionTimeoutMinutes = 30

func (r *request) nothing() (bson.D, error) { return bson.D{}, r.err }
