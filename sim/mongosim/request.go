package mongosim

import (
	"errors"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/fencepost-sim/fencepost/engine/store"
)

// Request is a store.Command with what drivers can ask for and the engine does not.
type Request struct {
	store.Command
	Skip         int64    // Find
	HintKeys     bson.D   // the index by its key pattern, in the place of Hint
	Let          bson.D   // variables for expressions
	ArrayFilters []bson.D // Update, FindAndModify: for $[identifier]
	Remove       bool     // FindAndModify: delete the document
}

// Outcome is a store.Reply with what drivers learn and the engine does not.
type Outcome struct {
	store.Reply
	// Existing: a FindAndModify changed a document that was there.
	Existing bool
	// Created is the _id of the document that a FindAndModify inserted, or nil.
	Created any
}

// Caller says on whose behalf a request runs. The zero value, but for Now, is a client without a session.
type Caller struct {
	Now time.Time // of the server's wall clock
	// Statement names a write, so that the server recognises it when it is sent again; nil for others.
	Statement *Statement
	// Transaction is the one that the request belongs to, or nil.
	Transaction *Transaction
	// At makes a read see the data of that time.
	At *ReadAt
	// Majority makes a read see only what a majority of the members has.
	Majority bool
	// SecondaryOK lets a member that is not primary answer a read.
	SecondaryOK bool
}

// ErrBlocked is returned for a write to a document that a transaction has changed which has not ended. Nothing has been done. A
// server lets such a write wait; the caller runs it again after a transaction has ended.
var ErrBlocked = errors.New("mongosim: a transaction that has not ended holds the document")

// Run applies one command atomically at the given time of the server's wall clock. An error is a *store.Error, or ErrBlocked; with
// the former, the reply counts what was done before.
func (s *Server) Run(now time.Time, database string, command store.Command) (store.Reply, error) {
	request := Request{Command: command}
	outcome, err := s.Execute(Caller{Now: now, SecondaryOK: true}, database, &request)
	return outcome.Reply, err
}

// Execute is Run for any caller, with all that a request can ask for.
func (s *Server) Execute(caller Caller, database string, request *Request) (outcome Outcome, err error) {
	err = s.within(caller, writes(request.Kind), func() error {
		outcome, err = s.execute(database, request)
		return err
	})
	return outcome, err
}

func writes(kind store.Kind) bool {
	switch kind {
	case store.Find, store.ListCollections, store.ListIndexes, store.Hello:
		return false
	}
	return true
}

// within runs an operation for a caller: with the caller's view of the data, in the caller's transaction, and without any effect if
// the operation is blocked.
func (s *Server) within(caller Caller, writes bool, run func() error) error {
	s.now = caller.Now
	if err := s.checkRole(writes, caller.SecondaryOK); err != nil {
		return err
	}
	if caller.Transaction == nil && caller.At == nil && !caller.Majority && caller.Statement == nil && len(s.open) == 0 {
		return run()
	}
	view, err := s.snapshot(&caller)
	if err != nil {
		return err
	}
	mark := len(s.oplog)
	s.view, s.statement, s.transaction = view, caller.Statement, caller.Transaction
	defer func() { s.view, s.statement, s.transaction = nil, nil, nil }()
	if t := caller.Transaction; t != nil {
		if s.view = &t.view; t.ended() {
			return t.gone()
		}
	}
	err = run()
	if s.view != nil && s.view.failure != nil {
		err, s.view.failure = s.view.failure, nil
	}
	if errors.Is(err, ErrBlocked) {
		s.rewind(mark)
	}
	if err != nil && caller.Transaction != nil {
		s.abort(caller.Transaction)
	}
	return err
}

// rewind takes back what a write has done since the mark.
func (s *Server) rewind(mark int) {
	for len(s.oplog) > mark {
		last := &s.oplog[len(s.oplog)-1]
		if err := s.catalog.undo(last); err != nil {
			panic("mongosim: a write cannot be taken back: " + err.Error())
		}
		s.oplog = s.oplog[:len(s.oplog)-1]
	}
}

func (s *Server) execute(database string, request *Request) (Outcome, error) {
	if request.Kind == store.Hello {
		return reply(store.Reply{Document: s.hello()}, nil)
	}
	if err := checkDatabase(database); err != nil {
		return Outcome{}, err
	}
	if request.Kind == store.ListCollections {
		return reply(s.listCollections(database, request))
	}
	if err := checkCollection(database, request.Collection); err != nil {
		return Outcome{}, err
	}
	switch request.Kind {
	case store.Find:
		return reply(s.find(database, request))
	case store.Insert:
		return reply(s.batch(database, request, s.insert))
	case store.Update:
		return reply(s.batch(database, request, s.update))
	case store.FindAndModify:
		return s.findAndModify(database, request)
	case store.Delete:
		return reply(s.delete(database, request))
	case store.CreateCollection:
		s.create(database, request.Collection)
		return Outcome{}, nil
	case store.CreateIndexes:
		return Outcome{}, s.createIndexes(database, request)
	case store.ListIndexes:
		return reply(s.listIndexes(database, request))
	}
	return Outcome{}, refuse(codeCommandNotFound, "no such command: '%s'", string(request.Kind))
}

func reply(r store.Reply, err error) (Outcome, error) { return Outcome{Reply: r}, err }

func checkDatabase(name string) error {
	if name == "" || len(name) > 63 || strings.ContainsAny(name, "/\\. \"$\x00") {
		return refuse(codeInvalidNamespace, "Invalid database name: '%s'", name)
	}
	return nil
}

func checkCollection(database, name string) error {
	if name == "" || strings.HasPrefix(name, ".") || strings.HasSuffix(name, ".") || strings.ContainsAny(name, "$\x00") {
		return refuse(codeInvalidNamespace, "Invalid namespace specified '%s.%s'", database, name)
	}
	return nil
}
