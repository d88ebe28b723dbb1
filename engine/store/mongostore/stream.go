package mongostore

import (
	"context"
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/fencepost-sim/fencepost/engine/store"
)

// ErrStreamEnded is returned by Next when the server ended the change stream, as it does after an invalidate event.
var ErrStreamEnded = errors.New("the server ended the change stream")

// stream is an open change stream. The driver's own is not safe for concurrent use, and its Next does not end when
// somebody else wants to close it, hence the semaphore and the context.
//
// An error is final: the driver gives a stream up when the context of a call to it ends, and so does this type.
// Whoever wants to go on opens a new stream with the token of the last change.
type stream struct {
	changes *mongo.ChangeStream
	token   bson.D        // of what Next has returned
	inUse   chan struct{} // a semaphore of one: Next and Close use the driver's stream in turn
	closing context.Context
	close   context.CancelFunc
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
	closing, cancel := context.WithCancel(context.Background())
	return &stream{changes: changes, token: token, inUse: make(chan struct{}, 1), closing: closing, close: cancel}, nil
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
	case <-s.closing.Done():
	}
	if s.closing.Err() != nil {
		return store.Change{}, store.ErrStreamClosed
	}
	// The driver gives up a little before a deadline, with an error of its own. So the deadline reaches it as a
	// cancellation, and the caller gets the cause.
	waiting, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, cancel)()
	defer context.AfterFunc(s.closing, cancel)()
	change, err := s.next(waiting)
	switch {
	case err == nil:
		return change, nil
	case s.closing.Err() != nil:
		return store.Change{}, store.ErrStreamClosed
	case ctx.Err() != nil:
		return store.Change{}, context.Cause(ctx)
	default:
		return store.Change{}, err
	}
}

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
	s.close()
	select {
	case s.inUse <- struct{}{}:
		defer func() { <-s.inUse }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	err := s.changes.Close(ctx)
	if errors.Is(err, context.Canceled) && ctx.Err() == nil {
		return nil // the error of the Next that was ended
	}
	return translate(err)
}
