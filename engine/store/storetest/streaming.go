package storetest

import (
	"context"
	"errors"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/fencepost-sim/fencepost/engine/store"
)

var changeStreams = []test{
	{"a stream shows the inserts after its opening, in order", streamShowsInserts},
	{"a pipeline filters on the server", streamFilters},
	{"updates and deletes are told by their keys", streamTellsKeys},
	{"a resume token continues after its change: nothing is lost or repeated", streamResumes},
	{"a stream that ends before its first change resumes from its start", streamResumesFromItsStart},
	{"concurrent inserts are each shown once", streamShowsEachOnce},
	{"waiting ends with the cause of its context", streamHonoursContext},
	{"closing ends a waiting task, and may be repeated", streamCloses},
}

var insertsOnly = []bson.D{d("$match", d("operationType", "insert"))}

func (f *fixture) watch(pipeline []bson.D, resumeAfter bson.D) store.Stream {
	f.Helper()
	stream, err := f.store.Watch(f.ctx, store.Watch{
		Point: "storetest.watch", Collection: f.collection, Pipeline: pipeline,
		MaxAwait: 50 * time.Millisecond, ResumeAfter: resumeAfter,
	})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() {
		if err := stream.Close(context.WithoutCancel(f.ctx)); err != nil {
			f.Errorf("close the stream: %v", err)
		}
	})
	return stream
}

func (f *fixture) next(stream store.Stream) store.Change {
	f.Helper()
	change, err := stream.Next(f.ctx)
	if err != nil {
		f.Fatal(err)
	}
	return change
}

func streamShowsInserts(f *fixture) {
	f.insert(numbered(0, "before", true))
	stream := f.watch(insertsOnly, nil)
	other := store.Command{Kind: store.Insert, Collection: f.collection + "_other", Documents: []bson.D{numbered(99)}}
	f.run(other)
	for id := int32(1); id <= 150; id++ {
		f.insert(numbered(id, "topic", "t"))
	}
	for id := int32(1); id <= 150; id++ {
		change := f.next(stream)
		expect(f, "the operation", change.Operation, "insert")
		if !same(change.Document, numbered(id, "topic", "t")) || !same(change.Key, d("_id", id)) || change.Token == nil {
			f.Fatalf("change %d is %+v", id, change)
		}
	}
}

func streamFilters(f *fixture) {
	stream := f.watch([]bson.D{d("$match", d("operationType", "insert", "fullDocument.topic", "b"))}, nil)
	f.insert(numbered(1, "topic", "a"), numbered(2, "topic", "b"))
	f.run(store.Command{Kind: store.Update, Filter: d("_id", int32(2)), Update: d("$set", d("n", int32(1)))})
	f.insert(numbered(3, "topic", "a"), numbered(4, "topic", "b"))
	f.has(f.next(stream).Document, d("_id", int32(2)))
	f.has(f.next(stream).Document, d("_id", int32(4)))
}

func streamTellsKeys(f *fixture) {
	f.insert(numbered(1, "n", int32(1)))
	stream := f.watch(nil, nil)
	f.run(store.Command{Kind: store.Update, Filter: d("_id", int32(1)), Update: d("$set", d("n", int32(2)))})
	f.run(store.Command{Kind: store.Update, Filter: d("_id", int32(1)), Update: d("$set", d("n", int32(2)))}) // changes nothing
	f.run(store.Command{Kind: store.Delete, Filter: d("_id", int32(1))})
	for _, operation := range []string{"update", "delete"} {
		change := f.next(stream)
		expect(f, "the operation", change.Operation, operation)
		if !same(change.Key, d("_id", int32(1))) || change.Document != nil {
			f.Errorf("the change is %+v", change)
		}
	}
}

func streamResumes(f *fixture) {
	stream := f.watch(insertsOnly, nil)
	for id := range int32(10) {
		f.insert(numbered(id))
	}
	var token bson.D
	for id := range int32(4) {
		change := f.next(stream)
		f.has(change.Document, d("_id", id))
		token = change.Token
	}
	if err := stream.Close(f.ctx); err != nil {
		f.Fatal(err)
	}
	f.insert(numbered(10))
	resumed := f.watch(insertsOnly, token)
	f.insert(numbered(11))
	for id := int32(4); id < 12; id++ {
		f.has(f.next(resumed).Document, d("_id", id))
	}
}

func streamResumesFromItsStart(f *fixture) {
	f.insert(numbered(1))
	stream := f.watch(insertsOnly, nil)
	token := stream.Token()
	if token == nil {
		f.Fatal("a stream without a change has no token")
	}
	if err := stream.Close(f.ctx); err != nil {
		f.Fatal(err)
	}
	f.insert(numbered(2), numbered(3))
	resumed := f.watch(insertsOnly, token)
	f.has(f.next(resumed).Document, d("_id", int32(2)))
	again := f.watch(insertsOnly, resumed.Token())
	f.has(f.next(again).Document, d("_id", int32(3)))
}

func streamShowsEachOnce(f *fixture) {
	const writers, each = 8, 20
	stream := f.watch(insertsOnly, nil)
	err := together(writers, func(i int) error {
		var failures []error
		for n := range each {
			_, err := f.try(store.Command{Kind: store.Insert, Documents: []bson.D{numbered(int32(i*each + n))}})
			failures = append(failures, err)
		}
		return errors.Join(failures...)
	})
	if err != nil {
		f.Fatal(err)
	}
	seen := map[any]bool{}
	for range writers * each {
		id, _ := lookup(f.next(stream).Document, "_id")
		if seen[id] {
			f.Fatalf("document %v was shown twice", id)
		}
		seen[id] = true
	}
	f.insert(numbered(-1))
	f.has(f.next(stream).Document, d("_id", int32(-1)))
}

func streamHonoursContext(f *fixture) {
	reason := errors.New("enough")
	done, cancel := context.WithCancelCause(f.ctx)
	cancel(reason)
	if _, err := f.watch(insertsOnly, nil).Next(done); !errors.Is(err, reason) {
		f.Errorf("Next with a context that is done returned %v", err)
	}
	late := errors.New("too late")
	for _, patience := range []time.Duration{time.Millisecond, 80 * time.Millisecond} { // less and more than one getMore
		short, cancelShort := context.WithTimeoutCause(f.ctx, patience, late)
		if _, err := f.watch(insertsOnly, nil).Next(short); !errors.Is(err, late) {
			f.Errorf("Next until its deadline returned %v", err)
		}
		cancelShort()
	}
}

func streamCloses(f *fixture) {
	stream := f.watch(insertsOnly, nil)
	f.insert(numbered(1))
	f.next(stream)
	ended := make(chan error)
	go func() {
		_, err := stream.Next(f.ctx)
		ended <- err
	}()
	for range 2 {
		if err := stream.Close(f.ctx); err != nil {
			f.Error(err)
		}
	}
	if err := <-ended; !errors.Is(err, store.ErrStreamClosed) {
		f.Errorf("the waiting Next returned %v", err)
	}
	if _, err := stream.Next(f.ctx); !errors.Is(err, store.ErrStreamClosed) {
		f.Errorf("Next after Close returned %v", err)
	}
}
