package sim

import (
	"context"
	"errors"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/fencepost-sim/fencepost/engine/store"
	"github.com/fencepost-sim/fencepost/faults"
	"github.com/fencepost-sim/fencepost/sim/journal"
	"github.com/fencepost-sim/fencepost/sim/mongosim"
)

// What a feed fails with under the faults fail-stream and partition. When the primary changes, it fails with errSteppedDown.
var (
	errStreamBroken = errors.New("sim: the change stream broke")
	errCutOff       = errors.New("sim: the database cannot be reached")
)

// feed is what a process gets of a change stream. Changes go from the model through the faults into the queue, as soon as they are
// there.
type feed struct {
	process *Process
	next    func() (item notification, available bool, err error) // from the model
	queue   []notification
	failure error
	reader  *task // waits for the queue
	closed  bool
}

// notification is a change, and its event as the database sends it where somebody wants that.
type notification struct {
	change store.Change
	event  bson.D
}

func (n notification) key() string {
	if len(n.change.Key) == 0 {
		return ""
	}
	return keyText(n.change.Key[0].Value)
}

func (w *World) openFeed(f *feed) { w.feeds = append(w.feeds, f) }

// wakeFeeds passes new changes on to the processes that wait for them.
func (w *World) wakeFeeds() {
	for _, f := range slices.Clone(w.feeds) {
		if f.process.dead {
			w.dropFeed(f)
			continue
		}
		f.pump()
	}
}

func (w *World) dropFeed(f *feed) {
	w.feeds = slices.DeleteFunc(w.feeds, func(other *feed) bool { return other == f })
}

// wait lets the running task sleep until there is something, or ctx is done.
func (f *feed) wait(ctx context.Context) {
	t := f.process.world.current
	for len(f.queue) == 0 && f.failure == nil && !f.closed && ctx.Err() == nil {
		f.reader = t
		t.sleep(ctx, -1, nil)
		f.reader = nil
	}
}

// close ends the feed; a reader wakes up.
func (f *feed) close() {
	if !f.closed {
		f.closed = true
		f.process.world.dropFeed(f)
		f.wake()
	}
}

func (f *feed) fail(err error) {
	f.failure = err
	f.wake()
}

func (f *feed) wake() {
	if f.reader != nil {
		f.process.world.makeReady(f.reader)
	}
}

// pump takes what the model has and lets the faults have their way with it.
func (f *feed) pump() {
	for f.failure == nil && !f.closed {
		item, available, err := f.next()
		if err != nil {
			f.failure = err
			break
		}
		if !available {
			break
		}
		f.process.notified++
		f.deliver(item, f.process.notified)
	}
	if len(f.queue) > 0 || f.failure != nil {
		f.wake()
	}
}

func (f *feed) deliver(item notification, number int) {
	w := f.process.world
	fault, struck := w.notificationFault(f.process, number)
	if !struck {
		f.queue = append(f.queue, item)
		return
	}
	w.record(journal.Event{Kind: journal.Withheld, Process: f.process.index, Key: item.key(), Name: string(fault.Kind), Span: fault.Span})
	switch fault.Kind {
	case faults.Drop:
	case faults.Delay:
		w.after(fault.Span, func() { f.late(item) })
	case faults.Duplicate:
		f.queue = append(f.queue, item, item)
	case faults.FailWatch:
		f.failure = errStreamBroken
	}
}

// late delivers a change that was held back, if anybody still listens.
func (f *feed) late(item notification) {
	if !f.closed && !f.process.dead {
		f.queue = append(f.queue, item)
		f.wake()
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

// Feed is a change stream of the model, event by event, as a process gets it: what faults drop, delay, duplicate or break is dropped, delayed,
// duplicated or broken. It can stand in the place of the model's stream behind a wire server.
type Feed struct {
	feed
	model  *mongosim.Stream
	broken error
	token  bson.D // of the last event that was taken
}

// NewFeed returns a feed of a stream, which begins with Open. A feed that faults break, or that a partition cuts off, fails with the
// error broken.
func (c *Connection) NewFeed(model *mongosim.Stream, broken error) *Feed {
	f := &Feed{model: model, broken: broken, token: model.Token()}
	f.feed = feed{process: c.process, next: f.take}
	return f
}

// Open begins to feed the process. What happened since the stream was opened in the model is in it.
func (f *Feed) Open() { f.process.world.openFeed(&f.feed) }

func (f *Feed) take() (notification, bool, error) {
	event, err := f.model.NextEvent()
	if event == nil || err != nil {
		return notification{}, false, err
	}
	item := notification{event: event}
	for _, field := range event {
		switch value, _ := field.Value.(bson.D); field.Key {
		case "_id":
			item.change.Token = value
		case "documentKey":
			item.change.Key = value
		}
	}
	return item, true, nil
}

// NextEvent takes the next event, or returns nil if there is none yet.
func (f *Feed) NextEvent() (bson.D, error) {
	if f.pump(); len(f.queue) > 0 {
		item := f.queue[0]
		f.queue, f.token = f.queue[1:], item.change.Token
		return item.event, nil
	}
	if errors.Is(f.failure, errStreamBroken) || errors.Is(f.failure, errCutOff) || errors.Is(f.failure, errSteppedDown) {
		return nil, f.broken
	}
	return nil, f.failure
}

// Token resumes the stream after what was taken, or after all that was looked at if nothing is left to take.
func (f *Feed) Token() bson.D {
	if len(f.queue) == 0 && f.failure == nil {
		return f.model.Token()
	}
	return f.token
}

// Invalidated reports whether the last event was taken.
func (f *Feed) Invalidated() bool { return len(f.queue) == 0 && f.model.Invalidated() }

// Wait lets the running task sleep until there is an event or an error, or until ctx is done.
func (f *Feed) Wait(ctx context.Context) error {
	f.wait(ctx)
	return context.Cause(ctx)
}

// Close ends the feed. It may be called more than once.
func (f *Feed) Close() { f.close() }
