package sim

import (
	"context"
	"errors"

	"github.com/fencepost-sim/fencepost/engine/store"
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

// applyParts lets other tasks come between the parts of a batch.
func (s *simulatedStore) applyParts(ctx context.Context, command store.Command, between func()) (store.Reply, error) {
	first := true
	return command.Gather(func(part store.Command) (store.Reply, error) {
		if !first {
			between()
		}
		first = false
		return s.apply(ctx, part)
	})
}

// apply lets the model run one part, and waits as long as somebody's transaction is in its way.
func (s *simulatedStore) apply(ctx context.Context, part store.Command) (store.Reply, error) {
	w := s.connection.process.world
	for {
		reply, err := w.model.Run(w.ServerNow(), Database, part)
		if !errors.Is(err, mongosim.ErrBlocked) {
			return reply, err
		}
		if err := s.connection.Wait(ctx, mongosim.TransactionLifetime); err != nil {
			return store.Reply{}, err
		}
		w.model.ExpireTransactions(w.ServerNow())
	}
}

// concerned is how many documents a reply is about.
func concerned(reply store.Reply) int64 {
	n := reply.Inserted + reply.Matched + int64(len(reply.Documents))
	if reply.Document != nil || reply.Upserted != nil {
		n++
	}
	return n
}
