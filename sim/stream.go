package sim

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/fencepost-sim/fencepost/engine/store"
	"github.com/fencepost-sim/fencepost/sim/journal"
	"github.com/fencepost-sim/fencepost/sim/mongosim"
)

// stream is an open change stream of one process on the shortest way to the model.
type stream struct {
	feed
	connection *Connection
	point      string
	token      bson.D // of what Next has returned
}

// Watch opens a change stream: a read that is issued, applied and answered like any other.
func (s *simulatedStore) Watch(ctx context.Context, watch store.Watch) (store.Stream, error) {
	c := s.connection
	if c.Check(); ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	w := c.process.world
	var model *mongosim.Stream
	err := c.Exchange(Message{
		Point: string(watch.Point), Kind: KindWatch, Collection: watch.Collection,
		Apply: func(func()) (_ int64, err error) {
			model, err = c.server().OpenStream(Database, watch)
			return 0, err
		},
	})
	if err != nil {
		return nil, err
	}
	opened := &stream{connection: c, point: string(watch.Point), token: model.Token()}
	opened.feed = feed{process: c.process, next: func() (notification, bool, error) {
		change, available, err := model.Next()
		return notification{change: change}, available, err
	}}
	w.openFeed(&opened.feed)
	c.StreamOpened(opened.point)
	return opened, nil
}

// KindWatch is the Kind of a Message that opens a change stream.
const KindWatch = "watch"

// Next waits for a notification.
func (s *stream) Next(ctx context.Context) (store.Change, error) {
	s.connection.Pause()
	s.pump()
	s.wait(ctx)
	switch {
	case ctx.Err() != nil:
		return store.Change{}, context.Cause(ctx)
	case s.closed:
		return store.Change{}, store.ErrStreamClosed
	case len(s.queue) == 0:
		s.connection.StreamFailed(s.point, s.failure)
		return store.Change{}, s.failure
	}
	item := s.queue[0]
	s.queue, s.token = s.queue[1:], item.change.Token
	s.connection.Notified(item.change)
	return item.change, nil
}

// Token is the resume token of what Next has returned.
func (s *stream) Token() bson.D { return s.token }

// Close ends the stream; a reader wakes up.
func (s *stream) Close(context.Context) error {
	s.close()
	return nil
}

// StreamOpened puts into the journal that the running task has opened a change stream.
func (c *Connection) StreamOpened(point string) {
	w, t := c.begin()
	w.record(call{w, t, point, database}.event(journal.StreamOpened))
}

// StreamFailed puts into the journal that the running task's change stream has failed.
func (c *Connection) StreamFailed(point string, failure error) {
	w, t := c.begin()
	failed := call{w, t, point, database}.event(journal.StreamFailed)
	failed.Error = failure.Error()
	w.record(failed)
}

// Notified puts into the journal that the running task has seen a change.
func (c *Connection) Notified(change store.Change) {
	w, t := c.begin()
	w.record(journal.Event{Kind: journal.Notified, Process: c.process.index, Task: t.id, Key: notification{change: change}.key()})
}
