package sim

import (
	"context"
	"errors"
	"slices"

	"github.com/fencepost-sim/fencepost/engine/store"
	"github.com/fencepost-sim/fencepost/faults"
	"github.com/fencepost-sim/fencepost/sim/journal"
	"github.com/fencepost-sim/fencepost/sim/mongosim"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// What a stream fails with under the faults fail-stream and partition.
var (
	errStreamBroken = errors.New("sim: the change stream broke")
	errCutOff       = errors.New("sim: the database cannot be reached")
)

// stream is an open change stream of one process. Changes go from the model through the faults into the
// queue, from which Next takes them.
type stream struct {
	process *Process
	call    call
	model   *mongosim.Stream
	queue   []store.Change
	token   bson.D // of what Next has returned
	failure error
	reader  *task // waits in Next
	closed  bool
}

// Watch opens a change stream: a read that is issued, applied and answered like any other.
func (s *simulatedStore) Watch(ctx context.Context, watch store.Watch) (store.Stream, error) {
	c := s.begin(watch.Point)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	var model *mongosim.Stream
	err := c.exchange("watch", watch.Collection, func() (err error) {
		model, err = c.world.model.OpenStream(Database, watch)
		applied := c.event(journal.Applied)
		applied.Error = errorText(err)
		c.world.record(applied)
		return err
	})
	if err != nil {
		return nil, err
	}
	opened := &stream{process: s.process, call: c, model: model, token: model.Token()}
	c.world.streams = append(c.world.streams, opened)
	c.world.record(c.event(journal.StreamOpened))
	return opened, nil
}

// Next waits for a notification.
func (s *stream) Next(ctx context.Context) (store.Change, error) {
	w, t := s.process.world, s.process.world.current
	t.pause()
	s.pump()
	for len(s.queue) == 0 && s.failure == nil && !s.closed && ctx.Err() == nil {
		s.reader = t
		t.sleep(ctx, -1, nil)
		s.reader = nil
	}
	switch {
	case ctx.Err() != nil:
		return store.Change{}, context.Cause(ctx)
	case s.closed:
		return store.Change{}, store.ErrStreamClosed
	case len(s.queue) == 0:
		failed := s.call.event(journal.StreamFailed)
		failed.Error = s.failure.Error()
		w.record(failed)
		return store.Change{}, s.failure
	}
	change := s.queue[0]
	s.queue, s.token = s.queue[1:], change.Token
	w.record(journal.Event{Kind: journal.Notified, Process: s.process.index, Task: t.id, Key: changeKey(change)})
	return change, nil
}

func changeKey(change store.Change) string {
	if len(change.Key) == 0 {
		return ""
	}
	return keyText(change.Key[0].Value)
}

// Token is the resume token of what Next has returned.
func (s *stream) Token() bson.D { return s.token }

// Close ends the stream; a reader wakes up.
func (s *stream) Close(context.Context) error {
	if !s.closed {
		s.closed = true
		s.process.world.dropStream(s)
		s.wake()
	}
	return nil
}

func (w *World) dropStream(s *stream) {
	w.streams = slices.DeleteFunc(w.streams, func(other *stream) bool { return other == s })
}

func (s *stream) fail(err error) {
	s.failure = err
	s.wake()
}

func (s *stream) wake() {
	if s.reader != nil {
		s.process.world.makeReady(s.reader)
	}
}

// wakeStreams passes new changes on to the streams that wait for them.
func (w *World) wakeStreams() {
	for _, s := range slices.Clone(w.streams) {
		if s.process.dead {
			w.dropStream(s)
			continue
		}
		s.pump()
	}
}

// pump takes what the model has and lets the faults have their way with it.
func (s *stream) pump() {
	for s.failure == nil && !s.closed {
		change, available, err := s.model.Next()
		if err != nil {
			s.failure = err
			break
		}
		if !available {
			break
		}
		s.process.notified++
		s.deliver(change, s.process.notified)
	}
	if len(s.queue) > 0 || s.failure != nil {
		s.wake()
	}
}

func (s *stream) deliver(change store.Change, number int) {
	fault, struck := s.process.world.notificationFault(s.process, number)
	if !struck {
		s.queue = append(s.queue, change)
		return
	}
	s.process.world.record(journal.Event{
		Kind: journal.Withheld, Process: s.process.index, Key: changeKey(change), Name: string(fault.Kind), Span: fault.Span,
	})
	switch fault.Kind {
	case faults.Drop:
	case faults.Delay:
		s.process.world.after(fault.Span, func() { s.late(change) })
	case faults.Duplicate:
		s.queue = append(s.queue, change, change)
	case faults.FailWatch:
		s.failure = errStreamBroken
	}
}

// late delivers a change that was held back, if anybody still listens.
func (s *stream) late(change store.Change) {
	if !s.closed && !s.process.dead {
		s.queue = append(s.queue, change)
		s.wake()
	}
}

// notificationFault returns the fault that concerns the process's notification with the number. A fault stays
// in the plan as long as it can strike again.
func (w *World) notificationFault(p *Process, number int) (faults.Fault, bool) {
	for i, fault := range w.pending {
		entry, _ := faults.Lookup(fault.Kind)
		if !entry.Stream || (fault.Process != p.name && fault.Process != faults.AnyProcess) || number < fault.Occurrence {
			continue
		}
		last := fault.Occurrence + fault.Count - 1
		if fault.Count != faults.All && number > last {
			continue
		}
		if number == last {
			w.pending = slices.Delete(w.pending, i, i+1)
		}
		return fault, true
	}
	return faults.Fault{}, false
}
