package sim

import (
	"context"
	"errors"
	"slices"

	"github.com/fencepost-sim/fencepost/engine/store"
	"github.com/fencepost-sim/fencepost/internal/defect"
	"github.com/fencepost-sim/fencepost/sim/mongosim"
)

// simulatedStore is the shortest way from a process to the database: commands go to the model as they are.
type simulatedStore struct{ connection *Connection }

var _ store.Store = (*simulatedStore)(nil)

// Run sends the command to the model.
func (s *simulatedStore) Run(ctx context.Context, command store.Command) (reply store.Reply, err error) {
	if s.connection.Check(); ctx.Err() != nil {
		return store.Reply{}, context.Cause(ctx)
	}
	err = s.connection.Exchange(Message{
		Point: string(command.Point), Kind: string(command.Kind), Collection: command.Collection,
		Apply: func(between func()) (_ int64, err error) {
			reply, err = s.applyParts(ctx, command, between)
			return concerned(reply), err
		},
	})
	if errors.Is(err, store.ErrUnknownOutcome) {
		reply = store.Reply{}
	}
	return reply, err
}

// applyParts lets other tasks come between the parts of a batch, and waits until the whole is acknowledged.
func (s *simulatedStore) applyParts(ctx context.Context, command store.Command, between func()) (store.Reply, error) {
	first, server := true, s.connection.server()
	role := server.StateChanges()
	reply, err := command.Gather(func(part store.Command) (store.Reply, error) {
		if !first {
			between()
		}
		first = false
		return s.apply(ctx, server, part)
	})
	if s.unconcerned(command.Kind, err) {
		return reply, err
	}
	if lost := s.connection.awaitMajority(ctx, server, role); lost != nil {
		return store.Reply{}, lost
	}
	return reply, err
}

// unconcerned reports whether an answer is given without looking at the write concern: that of a read, of the only member, and an error
// that the command as a whole failed with. Those of single documents wait, as do writes that changed nothing, since they tell
// of what others wrote (MongoDB's src/mongo/db/repl/repl_client_info.h, setLastOpToSystemLastOpTime).
func (s *simulatedStore) unconcerned(kind store.Kind, err error) bool {
	w := s.connection.process.world
	switch {
	case w.set == nil || w.config.Defects.Has(defect.WriteConcernOne) || !writes(kind) || errors.Is(err, store.ErrUnknownOutcome):
		return true
	case err == nil:
		return false
	}
	return kind != store.Insert && kind != store.Update && kind != store.Delete
}

// apply lets the server run one part, and waits as long as somebody's transaction is in its way.
func (s *simulatedStore) apply(ctx context.Context, server *mongosim.Server, part store.Command) (store.Reply, error) {
	w := s.connection.process.world
	for {
		if !server.IsPrimary() {
			return store.Reply{}, errSteppedDown
		}
		outcome, err := server.Execute(w.caller(part.Kind), Database, &mongosim.Request{Command: part})
		if !errors.Is(err, mongosim.ErrBlocked) {
			return outcome.Reply, err
		}
		if err := s.connection.Wait(ctx, mongosim.TransactionLifetime); err != nil {
			return store.Reply{}, err
		}
		server.ExpireTransactions(w.ServerNow())
	}
}

func writes(kind store.Kind) bool {
	return !slices.Contains([]store.Kind{store.Find, store.ListCollections, store.ListIndexes, store.Hello}, kind)
}

// concerned is how many documents a reply is about.
func concerned(reply store.Reply) int64 {
	n := reply.Inserted + reply.Matched + int64(len(reply.Documents))
	if reply.Document != nil || reply.Upserted != nil {
		n++
	}
	return n
}
