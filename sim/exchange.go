package sim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fencepost-sim/fencepost/engine/host"
	"github.com/fencepost-sim/fencepost/engine/store"
	"github.com/fencepost-sim/fencepost/faults"
	"github.com/fencepost-sim/fencepost/sim/journal"
)

// Connection is what connects one life of a process with the database. It is for those who bring a protocol of their own, as
// sim/mongodriver does: what goes through it gives way to other tasks, is struck by faults and stands in the journal.
type Connection struct {
	process *Process
	life    *instance
}

// Connect returns the connection of the process's present life. All of its methods are called by tasks of that life; after its end they
// unwind whoever calls them: the dead do not write.
func (p *Process) Connect() *Connection { return &Connection{p, p.instance} }

// Message is one command on its way to the database.
type Message struct {
	// Point is the step that the command performs, by which faults find it.
	Point string
	// Kind and Collection describe it in the journal.
	Kind       string
	Collection string
	// Apply lets the database run the command. It is called once, unless the request is lost. It returns how many documents the reply is about, and the
	// error that the database answers with. Between the parts of a batch it calls between, since other clients' commands come there.
	Apply func(between func()) (number int64, err error)
}

// Exchange sends a message to the database and waits for the reply: it is issued, gives way, is applied, gives way, and is answered. Faults strike
// between. The error wraps store.ErrUnknownOutcome if the request or the reply was lost; it is a *store.Error that Apply
// did not return if the database refuses such commands.
func (c *Connection) Exchange(m Message) (err error) {
	w, t := c.begin()
	this := call{w, t, m.Point, database}
	return this.exchange(m.Kind, m.Collection, func() error { return this.apply(m) })
}

// exchange sends a message to a server and waits for the reply.
func (c call) exchange(kind, collection string, apply func() error) (err error) {
	w, t := c.world, c.task
	issued := c.event(journal.Issued)
	issued.Name, issued.Collection = kind, collection
	w.record(issued)

	occurrence, what := w.reach(t, c.point), lostRequest
	lost := w.strike(t, c.point, occurrence, faults.Before) || c.cutOff()
	switch {
	case lost:
	case slices.Contains(w.refusals, c.point):
		err = c.to.refused(kind)
	default:
		t.pause()
		t.under = &c
		err, what = apply(), lostReply
		t.under = nil
		lost = w.strike(t, c.point, occurrence, faults.Unanswered)
	}
	t.pause()
	if lost || c.cutOff() {
		err = fmt.Errorf("%s: %w", what, c.to.lost)
	}
	answered := c.event(journal.Answered)
	if answered.Error = errorText(err); errors.Is(err, c.to.lost) {
		answered.Error = what
	}
	w.record(answered)
	w.strike(t, c.point, occurrence, faults.After)
	return err
}

const (
	lostRequest = "the request was lost"
	lostReply   = "the reply was lost"
)

// Poll is for messages that are not operations of their own: they give no way and leave no trace, but faults strike them, if they have a point. The error wraps
// store.ErrUnknownOutcome if the request or the reply was lost; then the reply is to be thrown away.
func (c *Connection) Poll(point string, apply func()) error {
	w, t := c.begin()
	occurrence, this := w.reach(t, point), call{w, t, point, database}
	if w.strike(t, point, occurrence, faults.Before) || this.cutOff() {
		return fmt.Errorf("%s: %w", lostRequest, store.ErrUnknownOutcome)
	}
	apply()
	if w.strike(t, point, occurrence, faults.Unanswered) || this.cutOff() {
		return fmt.Errorf("%s: %w", lostReply, store.ErrUnknownOutcome)
	}
	w.strike(t, point, occurrence, faults.After)
	return nil
}

// errNobodyWaits is about a command that goes on after its process has gone, and would have to wait.
var errNobodyWaits = errors.New("sim: the command would have to wait, and belongs to no task any more")

// Wait returns when something of the database has changed, and at the latest after the time or when ctx is done.
func (c *Connection) Wait(ctx context.Context, patience time.Duration) error {
	w := c.process.world
	if w.current == nil {
		return errNobodyWaits
	}
	c.Check()
	t := w.current
	if t.under != nil {
		w.recordWrites(t.under.event(0)) // what it waits for may be done by others, but is its own
	}
	w.waiting = append(w.waiting, t)
	defer func() { w.waiting = slices.DeleteFunc(w.waiting, func(other *task) bool { return other == t }) }()
	t.sleep(ctx, patience, nil)
	return context.Cause(ctx)
}

// Sleep lets virtual time pass, until ctx is done at the latest.
func (c *Connection) Sleep(ctx context.Context, wait time.Duration) {
	_, t := c.begin()
	t.sleep(ctx, max(0, wait), nil)
}

// Pause gives way to the other tasks that are ready.
func (c *Connection) Pause() {
	_, t := c.begin()
	t.pause()
}

// Process returns the process that the connection belongs to.
func (c *Connection) Process() *Process { return c.process }

// Check unwinds the running task if the connection's life is over.
func (c *Connection) Check() {
	if c.life.over {
		panic(host.Killed{})
	}
}

func (c *Connection) begin() (*World, *task) {
	c.Check()
	return c.process.world, c.process.world.current
}

// call is one operation under way, from one task.
type call struct {
	world *World
	task  *task
	point string
	to    *peer
}

// peer is the server at the other end of a call: what its clients are told when a request is lost or refused.
type peer struct {
	lost    error
	refused func(kind string) error
}

// database is the peer of Stores.
var database = &peer{store.ErrUnknownOutcome, func(kind string) error {
	return &store.Error{Code: codeUnauthorized, CodeName: "Unauthorized", Message: "not authorized on " + Database + " to execute " + kind}
}}

// cutOff reports whether the server cannot be reached now.
func (c call) cutOff() bool {
	return c.task.process.cutOff > 0 || c.to == database && c.world.leaderless
}

func (c call) event(kind journal.Kind) journal.Event {
	return journal.Event{Kind: kind, Process: c.task.process.index, Task: c.task.id, Point: c.point}
}

// codeUnauthorized is what MongoDB answers when a privilege is missing (manual, "Error Codes"): a permission that somebody has
// taken away is the kind of trouble that concerns one step and not the next.
const codeUnauthorized = 13

// apply lets the database run the command: now or, if there is a visibility gap, stamped now and visible later. What a process has not got
// through of a batch when it dies is not applied: a server ends the work of a client that has gone.
func (c call) apply(m Message) (err error) {
	gap := c.task.gap
	if gap == 0 {
		number, err := m.Apply(func() {
			c.world.recordWrites(c.event(0))
			c.task.pause()
		})
		c.recordApplied(number, err)
		return err
	}
	// The rest is the server's doing: it goes on even if the process is frozen or dies meanwhile.
	c.task.gap = 0
	w, life, visible := c.world, c.task.process.instance, false
	server := w.serverOf(c.task.process)
	stamp := server.Reserve(w.ServerNow())
	w.during(gap, func() {
		number := int64(0)
		if err = errSteppedDown; w.serverOf(c.task.process) == server {
			server.Stamped(stamp, func() { number, err = m.Apply(func() {}) })
		}
		c.recordApplied(number, err)
		if visible = true; !life.over {
			w.makeReady(c.task)
		}
	})
	for !visible {
		c.task.suspend()
	}
	return err
}

func (c call) recordApplied(number int64, err error) {
	applied := c.event(journal.Applied)
	applied.Number, applied.Error = number, errorText(err)
	c.world.record(applied)
	c.world.recordWrites(c.event(0))
}
