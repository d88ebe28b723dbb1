package sim

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/fencepost-sim/fencepost/engine/host"
	"github.com/fencepost-sim/fencepost/engine/store"
	"github.com/fencepost-sim/fencepost/faults"
	"github.com/fencepost-sim/fencepost/sim/journal"
)

// simulatedStore is the connection of one life of a process to the database.
type simulatedStore struct {
	process *Process
	life    *instance
}

var _ store.Store = (*simulatedStore)(nil)

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

func (s *simulatedStore) begin(point store.Point) call {
	if s.life.over {
		panic(host.Killed{})
	}
	return call{s.process.world, s.process.world.current, string(point), database}
}

func (c call) event(kind journal.Kind) journal.Event {
	return journal.Event{Kind: kind, Process: c.task.process.index, Task: c.task.id, Point: c.point}
}

// Run sends the command to the model.
func (s *simulatedStore) Run(ctx context.Context, command store.Command) (reply store.Reply, err error) {
	c := s.begin(command.Point)
	if ctx.Err() != nil {
		return store.Reply{}, context.Cause(ctx)
	}
	err = c.exchange(string(command.Kind), command.Collection, func() (err error) {
		reply, err = c.apply(command)
		return err
	})
	if errors.Is(err, store.ErrUnknownOutcome) {
		reply = store.Reply{}
	}
	return reply, err
}

// exchange sends a message to a server and waits for the reply: it is issued, gives way, is applied, gives way, and is
// answered. Faults strike between.
func (c call) exchange(kind, collection string, apply func() error) (err error) {
	issued := c.event(journal.Issued)
	issued.Name, issued.Collection = kind, collection
	c.world.record(issued)

	occurrence, what := c.world.reach(c.task, c.point), "the request was lost"
	lost := c.world.strike(c.task, c.point, occurrence, faults.Before) || c.task.process.cutOff > 0
	switch {
	case lost:
	case slices.Contains(c.world.refusals, c.point):
		err = c.to.refused(kind)
	default:
		c.task.pause()
		err, what = apply(), "the reply was lost"
		lost = c.world.strike(c.task, c.point, occurrence, faults.Unanswered)
	}
	c.task.pause()
	if lost || c.task.process.cutOff > 0 {
		err = fmt.Errorf("%s: %w", what, c.to.lost)
	}
	answered := c.event(journal.Answered)
	if answered.Error = errorText(err); errors.Is(err, c.to.lost) {
		answered.Error = what
	}
	c.world.record(answered)
	c.world.strike(c.task, c.point, occurrence, faults.After)
	return err
}

// codeUnauthorized is what MongoDB answers when a privilege is missing (manual, "Error Codes"): a permission that somebody has
// taken away is the kind of trouble that concerns one step and not the next.
const codeUnauthorized = 13

// apply lets the database run the command: now or, if there is a visibility gap, stamped now and visible later.
func (c call) apply(command store.Command) (reply store.Reply, err error) {
	gap := c.task.gap
	if gap == 0 {
		reply, err = c.applyParts(command)
		c.recordApplied(reply, err)
		return reply, err
	}
	// The rest is the server's doing: it goes on even if the process is frozen or dies meanwhile.
	c.task.gap = 0
	w, life, visible := c.world, c.task.process.instance, false
	stamp := w.model.Reserve(w.serverNow())
	w.during(gap, func() {
		reply, err = w.model.RunReserved(w.serverNow(), stamp, Database, command)
		c.recordApplied(reply, err)
		if visible = true; !life.over {
			w.makeReady(c.task)
		}
	})
	for !visible {
		c.task.suspend()
	}
	return reply, err
}

// applyParts lets other tasks come between the parts of a batch, as other clients' commands do on a server. What a process has not got
// through when it dies is not applied: a server ends the work of a client that has gone.
func (c call) applyParts(command store.Command) (store.Reply, error) {
	one := func(part store.Command) (store.Reply, error) {
		return c.world.model.Run(c.world.serverNow(), Database, part)
	}
	if len(command.Documents)+len(command.Statements) < 2 {
		return one(command)
	}
	first := true
	return command.Gather(func(part store.Command) (store.Reply, error) {
		if !first {
			c.world.recordWrites(c.event(0))
			c.task.pause()
		}
		first = false
		return one(part)
	})
}

func (c call) recordApplied(reply store.Reply, err error) {
	applied := c.event(journal.Applied)
	applied.Number, applied.Error = concerned(reply), errorText(err)
	c.world.record(applied)
	c.world.recordWrites(c.event(0))
}

// concerned is how many documents a reply is about.
func concerned(reply store.Reply) int64 {
	n := reply.Inserted + reply.Matched + int64(len(reply.Documents))
	if reply.Document != nil || reply.Upserted != nil {
		n++
	}
	return n
}
