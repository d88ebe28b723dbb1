package wire

import (
	"errors"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/fencepost-sim/fencepost/engine/store"
	"github.com/fencepost-sim/fencepost/sim/mongosim"
)

// request is one command on its way.
type request struct {
	*Server
	arguments
	connection *connection
	model      *mongosim.Server
	name       string
	command    *command
	database   string
	point      store.Point // what the client sent as comment
	exhaust    bool        // the client takes several replies

	session     string // the client's id of its session, or empty
	number      int64  // txnNumber
	numbered    bool
	transaction bool // the command belongs to one
	current     *mongosim.Transaction
	write       writeConcern
	read        readConcern

	opTime   bson.Timestamp // of the last write when the command ended
	wrote    bool
	located  bool      // the command has looked at the model, and changes is set
	changes  int64     // of the model's role, when it did so first
	length   int       // of the oplog when it did so last: so much must be acknowledged
	deadline time.Time // of maxTimeMS; zero without
	stream   bool      // the command is about a change stream
}

// ErrHangUp ends the connection without a reply.
var ErrHangUp = errors.New("wire: the server hangs up")

// answer runs the command of a message and makes its reply. streaming means that the client takes another reply to the same request, end
// that the connection is to be closed instead.
func (c *connection) answer(m *message) (body bson.D, streaming, end bool) {
	r := &request{
		Server: c.server, arguments: arguments{document: m.body}, connection: c, model: c.node.model,
		name: m.body[0].Key, exhaust: m.exhaust,
	}
	if m.opcode == opQuery && !slices.Contains([]string{"hello", "isMaster", "ismaster"}, r.name) {
		return errorReply(refuse(codeUnsupportedOpQuery, "OP_QUERY is no longer supported, but for the first hello")), false, false
	}
	reply, err := r.perform()
	if errors.Is(err, ErrHangUp) {
		return nil, false, true
	}
	m.body = r.document
	return reply, r.exhaust && r.life.Err() == nil, false
}

// perform runs the command with the fail points that concern it, and completes the reply.
func (r *request) perform() (bson.D, error) {
	if err := r.prepare(); err != nil {
		r.exhaust = false
		return r.complete(nil, err, nil), nil
	}
	if fault := r.planned(); fault != nil {
		return r.inflict(*fault)
	}
	struck := r.strike()
	if struck != nil {
		if err := r.block(struck); err != nil {
			return r.complete(nil, err, struck), nil
		}
		if struck.close {
			return nil, ErrHangUp
		}
		if struck.code != 0 {
			r.exhaust = false
			return r.complete(nil, struck.error(), struck), nil
		}
	}
	reply, err := r.run()
	if errors.Is(err, ErrHangUp) {
		return nil, err
	}
	if err != nil {
		r.exhaust = false
	}
	return r.complete(reply, err, struck), nil
}

// prepare reads what all commands have in common.
func (r *request) prepare() error {
	command, known := commands[r.name]
	if !known {
		return refuse(codeCommandNotFound, "no such command: '%s'", r.name)
	}
	r.command = &command
	r.database = r.text("$db")
	if comment, ok := r.value("comment").(string); ok {
		r.point = store.Point(comment)
	}
	if err := r.only(r.name, command.fieldSet(r.name)); err != nil {
		return err
	}
	if has(r.document, "maxTimeMS") {
		milliseconds := r.number64("maxTimeMS")
		if milliseconds < 0 {
			return refuse(codeBadValue, "BSON field 'maxTimeMS' value must be >= 0, actual value '%d'", milliseconds)
		}
		if milliseconds > 0 && r.name != "getMore" {
			r.deadline = r.clock().Add(time.Duration(milliseconds) * time.Millisecond)
		}
	}
	r.readSession()
	r.readConcerns()
	r.stream = r.isAboutStream()
	if r.err == nil && command.admin && r.database != "admin" {
		r.err = refuse(codeUnauthorized, "%s may only be run against the admin database.", r.name)
	}
	if r.err == nil {
		r.err = r.checkVersionedAPI()
	}
	return r.err
}

// run runs the command once all is known about it.
func (r *request) run() (bson.D, error) {
	if heard, ok := find(r.embedded("$clusterTime"), "clusterTime"); ok {
		if t, ok := heard.(bson.Timestamp); ok {
			r.mu.Lock()
			r.model.Gossip(t)
			r.mu.Unlock()
		}
	}
	if r.transaction && r.name != "commitTransaction" && r.name != "abortTransaction" {
		if err := r.enterTransaction(); err != nil {
			return nil, err
		}
	}
	if err := r.awaitClusterTime(); err != nil {
		return nil, err
	}
	return r.command.run(r)
}

// caller is on whose behalf the model runs a read, or a write that is not numbered.
func (r *request) caller() mongosim.Caller {
	c := mongosim.Caller{
		Now: r.now(), Transaction: r.current, SecondaryOK: r.secondaryOK(),
		Majority: r.read.level == "majority" || r.read.level == "linearizable",
	}
	if r.transaction {
		c.Statement = &mongosim.Statement{Session: r.session, Number: r.number, InTransaction: true}
	}
	if r.read.snapshot {
		c.At = &mongosim.ReadAt{Time: r.read.at}
	}
	return c
}

// locked runs a function with the model, again and again as long as a transaction is in its way.
func (r *request) locked(run func() error) error {
	if r.err != nil {
		return r.err
	}
	for {
		r.mu.Lock()
		before := r.model.OplogLen()
		if !r.located {
			r.changes, r.located = r.model.StateChanges(), true
		}
		err := run()
		if r.model.OplogLen() != before {
			r.wrote = true
			r.spread()
		}
		r.opTime, r.length = r.model.LastWrite(), r.model.OplogLen()
		changed := r.changed
		r.mu.Unlock()
		if !errors.Is(err, mongosim.ErrBlocked) {
			return err
		}
		if err := r.wait(changed); err != nil {
			return err
		}
	}
}

// spread lets the secondaries have what was written, and wakes those who wait for it. The caller holds the lock.
func (s *Server) spread() {
	if set := s.nodes[0].model.Set(); set != nil && s.replicate {
		set.ReplicateAll(s.now())
	}
	s.wake()
}

// wait waits for a change of whatever kind, or for the command's time limit.
func (r *request) wait(changed <-chan struct{}) error {
	patience := mongosim.TransactionLifetime
	if !r.deadline.IsZero() {
		patience = min(patience, max(0, r.deadline.Sub(r.clock())))
	}
	timedOut, err := r.await(changed, patience, nil)
	switch {
	case err != nil || !timedOut:
		return err
	case !r.deadline.IsZero() && !r.clock().Before(r.deadline):
		return refuse(codeMaxTimeMSExpired, "operation exceeded time limit")
	}
	// A transaction that nobody ends is aborted when its time is over.
	r.mu.Lock()
	defer r.mu.Unlock()
	r.model.ExpireTransactions(r.now())
	return nil
}

// isAboutStream reports whether the command opens or reads a change stream, which decides the labels of its errors.
func (r *request) isAboutStream() bool {
	switch r.name {
	case "aggregate":
		pipeline := r.documents("pipeline")
		return len(pipeline) > 0 && len(pipeline[0]) > 0 && pipeline[0][0].Key == "$changeStream"
	case "getMore":
		r.mu.Lock()
		defer r.mu.Unlock()
		c := r.cursor(r.number64(r.name))
		return c != nil && c.stream != nil
	}
	return false
}

// collection is the name that the command's first field carries.
func (r *request) collection() string {
	name, ok := r.value(r.name).(string)
	if !ok && r.err == nil {
		r.err = refuse(codeInvalidNamespace, "collection name has invalid type %s", typeName(r.value(r.name)))
	}
	return name
}
