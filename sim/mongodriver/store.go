package mongodriver

import (
	"context"
	"errors"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/fencepost-sim/fencepost/engine/store"
	"github.com/fencepost-sim/fencepost/engine/store/mongostore"
	"github.com/fencepost-sim/fencepost/sim"
)

// step is the step of the protocol that a command of the driver belongs to. It travels in the context, since not every command has a comment.
type step struct {
	point, kind string
	statements  bool      // the command has several
	stream      bool      // it reads a change stream
	feed        *sim.Feed // of the change stream
}

type stepKey struct{}

// Through is the way through the driver, for sim.Config.Through. Where no request or reply is lost, a run takes the same steps and writes the same
// journal as on the shortest way.
func Through(w *sim.World) func(p *sim.Process) store.Store {
	clients := In(w)
	return func(p *sim.Process) store.Store {
		client, err := clients.Connect(p)
		if err != nil {
			panic(err) // the options are ours and fixed
		}
		return &driverStore{mongostore.New(client.Database(sim.Database)), p.Connect()}
	}
}

// driverStore tells the exchange which step of the protocol a command is.
type driverStore struct {
	inner      *mongostore.Store
	connection *sim.Connection
}

var _ store.Store = (*driverStore)(nil)

func (s *driverStore) Run(ctx context.Context, c store.Command) (store.Reply, error) {
	if s.connection.Check(); ctx.Err() != nil {
		return store.Reply{}, context.Cause(ctx)
	}
	this := &step{point: string(c.Point), kind: string(c.Kind), statements: len(c.Statements) > 0}
	return s.inner.Run(context.WithValue(ctx, stepKey{}, this), c)
}

func (s *driverStore) Watch(ctx context.Context, watch store.Watch) (store.Stream, error) {
	if s.connection.Check(); ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	this := &step{point: string(watch.Point), kind: sim.KindWatch}
	inner, err := s.inner.Watch(context.WithValue(ctx, stepKey{}, this), watch)
	if err != nil {
		return nil, err
	}
	this.stream = true
	this.feed.Open()
	s.connection.StreamOpened(this.point)
	return &driverStream{inner, s.connection, this}, nil
}

// driverStream gives way, and tells the journal, as the stream of the shortest way does.
type driverStream struct {
	inner      store.Stream
	connection *sim.Connection
	step       *step
}

func (s *driverStream) Next(ctx context.Context) (store.Change, error) {
	if s.connection.Pause(); ctx.Err() != nil {
		return store.Change{}, context.Cause(ctx)
	}
	change, err := s.inner.Next(context.WithValue(ctx, stepKey{}, s.step))
	switch {
	case err == nil:
		s.connection.Notified(change)
	case ctx.Err() == nil && !errors.Is(err, store.ErrStreamClosed):
		s.connection.StreamFailed(s.step.point, err)
	}
	return change, err
}

func (s *driverStream) Token() bson.D { return s.inner.Token() }

func (s *driverStream) Close(ctx context.Context) error {
	s.step.feed.Close()
	return s.inner.Close(context.WithValue(ctx, stepKey{}, s.step))
}
