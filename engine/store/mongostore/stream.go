package mongostore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/fencepost-sim/fencepost/engine/store"
)

// ErrStreamEnded is returned by Next when the server ended the change stream, as it does after an invalidate event.
var ErrStreamEnded = errors.New("the server ended the change stream")

// stream is an open change stream. The driver's own is not safe for concurrent use, and its Next does not end when
// somebody else wants to close it, hence the semaphore and the way to cancel a Next. A cancellation reaches the driver on the goroutine that
// cancels, without another in between: in a simulation nothing may run beside anything else.
//
// An error is final: the driver gives a stream up when the context of a call to it ends, and so does this type.
// Whoever wants to go on opens a new stream with the token of the last change.
type stream struct {
	changes *mongo.ChangeStream
	token   bson.D        // of what Next has returned
	inUse   chan struct{} // a semaphore of one: Next and Close use the driver's stream in turn

	mu     sync.Mutex
	closed bool
	cancel context.CancelFunc // ends the Next that is under way, if one is
}

// Watch opens a change stream with the pipeline after $changeStream, for whatever it lets through. The context bounds
// the opening only.
func (s *Store) Watch(ctx context.Context, watch store.Watch) (store.Stream, error) {
	how := options.ChangeStream().SetComment(comment(watch.Point))
	if watch.MaxAwait > 0 {
		how.SetMaxAwaitTime(watch.MaxAwait)
	}
	if watch.ResumeAfter != nil {
		how.SetResumeAfter(watch.ResumeAfter)
	}
	pipeline := watch.Pipeline
	if pipeline == nil {
		pipeline = []bson.D{}
	}
	changes, err := s.collection(watch.Collection).Watch(ctx, pipeline, how)
	if err != nil {
		return nil, translate(err)
	}
	token, err := tokenOf(changes)
	if err != nil {
		return nil, errors.Join(err, changes.Close(ctx))
	}
	return &stream{changes: changes, token: token, inUse: make(chan struct{}, 1)}, nil
}

// tokenOf is the driver's idea of where the stream is: after the last change that it gave away, or, where the server has looked
// further without finding any, after that.
func tokenOf(changes *mongo.ChangeStream) (token bson.D, err error) {
	raw := changes.ResumeToken()
	if raw == nil {
		return nil, nil
	}
	if err = bson.Unmarshal(raw, &token); err != nil {
		return nil, fmt.Errorf("decode the resume token: %w", err)
	}
	return token, nil
}

// Token is the resume token of what Next has returned, or of the start.
func (s *stream) Token() bson.D { return s.token }

// Next waits for the next change. It returns an error that wraps store.ErrStreamClosed after Close,
// ErrStreamEnded when the server ended the stream, and context.Cause(ctx) when ctx is done.
func (s *stream) Next(ctx context.Context) (store.Change, error) {
	select {
	case s.inUse <- struct{}{}:
		defer func() { <-s.inUse }()
	case <-ctx.Done():
		return store.Change{}, context.Cause(ctx)
	}
	waiting, cancel := context.WithCancel(withoutDeadline{ctx})
	defer cancel()
	if s.begin(cancel) {
		return store.Change{}, store.ErrStreamClosed
	}
	change, err := s.next(waiting)
	switch closed := s.begin(nil); {
	case err == nil:
		return change, nil
	case closed:
		return store.Change{}, store.ErrStreamClosed
	case ctx.Err() != nil:
		return store.Change{}, context.Cause(ctx)
	default:
		return store.Change{}, err
	}
}

// begin says how to end the Next that begins, or with nil that it is over. It reports whether the stream is closed.
func (s *stream) begin(cancel context.CancelFunc) (closed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cancel = cancel
	return s.closed
}

// withoutDeadline is a context that ends with another, and does not say when that will be: the driver would give up a little before,
// with an error of its own.
type withoutDeadline struct{ context.Context }

func (withoutDeadline) Deadline() (deadline time.Time, ok bool) { return time.Time{}, false }

// next asks with one getMore after another. (The driver's blocking Next would give up for good when the client has a Timeout
// and no change comes within it.)
func (s *stream) next(ctx context.Context) (store.Change, error) {
	for !s.changes.TryNext(ctx) {
		switch err := s.changes.Err(); {
		case err != nil:
			return store.Change{}, translate(err)
		case s.changes.ID() == 0:
			return store.Change{}, ErrStreamEnded
		case ctx.Err() != nil:
			return store.Change{}, ctx.Err()
		}
	}
	change, err := changeOf(s.changes.Current)
	if err == nil {
		s.token = change.Token
	}
	return change, err
}

// changeOf decodes a change event.
func changeOf(event bson.Raw) (store.Change, error) {
	var change struct {
		Token     bson.D `bson:"_id"`
		Operation string `bson:"operationType"`
		Document  bson.D `bson:"fullDocument"`
		Key       bson.D `bson:"documentKey"`
	}
	if err := bson.Unmarshal(event, &change); err != nil {
		return store.Change{}, fmt.Errorf("decode the change event: %w", err)
	}
	return store.Change(change), nil
}

// Close ends a Next that is waiting, and then closes the stream. A Next that was waiting for the server's answer loses its
// connection, and the server's cursor then lasts until the client's sessions end or the server tires of it.
func (s *stream) Close(ctx context.Context) error {
	s.end()
	select {
	case s.inUse <- struct{}{}:
		defer func() { <-s.inUse }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	err := s.changes.Close(ctx)
	if ctx.Err() == nil && (errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)) {
		return nil // the error of the Next that was ended
	}
	return translate(err)
}

func (s *stream) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed = true; s.cancel != nil {
		s.cancel()
	}
}
