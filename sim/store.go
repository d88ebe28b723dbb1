package sim

import (
	"context"
	"fmt"

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
}

func (s *simulatedStore) begin(point store.Point) call {
	if s.life.over {
		panic(host.Killed{})
	}
	return call{s.process.world, s.process.world.current, string(point)}
}

func (c call) event(kind journal.Kind) journal.Event {
	return journal.Event{Kind: kind, Process: c.task.process.index, Task: c.task.id, Point: c.point}
}

// Run issues the command, yields, applies it, yields, and answers. Faults strike between.
func (s *simulatedStore) Run(ctx context.Context, command store.Command) (store.Reply, error) {
	c := s.begin(command.Point)
	if err := ctx.Err(); err != nil {
		return store.Reply{}, context.Cause(ctx)
	}
	issued := c.event(journal.Issued)
	issued.Name, issued.Collection = string(command.Kind), command.Collection
	c.world.record(issued)

	occurrence := c.world.reach(c.task, c.point)
	if c.world.strike(c.task, c.point, occurrence, faults.Before) {
		return store.Reply{}, c.unknown("the request was lost", occurrence)
	}
	c.task.pause()

	reply, err := c.apply(command)
	if c.world.strike(c.task, c.point, occurrence, faults.Unanswered) {
		return store.Reply{}, c.unknown("the reply was lost", occurrence)
	}
	c.task.pause()

	answered := c.event(journal.Answered)
	answered.Error = errorText(err)
	c.world.record(answered)
	c.world.strike(c.task, c.point, occurrence, faults.After)
	return reply, err
}

// apply lets the database run the command: now or, if there is a visibility gap, stamped now and visible later.
func (c call) apply(command store.Command) (reply store.Reply, err error) {
	gap := c.task.gap
	if gap == 0 {
		reply, err = c.world.model.Run(c.world.serverNow(), Database, command)
		c.recordApplied(reply, err)
		return reply, err
	}
	// The rest is the server's doing: it goes on even if the process is frozen or dies meanwhile.
	c.task.gap = 0
	w, life, visible := c.world, c.task.process.instance, false
	stamp := w.model.Reserve(w.serverNow())
	w.underway++
	w.after(gap, func() {
		w.faultOver()
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

func (c call) recordApplied(reply store.Reply, err error) {
	applied := c.event(journal.Applied)
	applied.Number, applied.Error = concerned(reply), errorText(err)
	c.world.record(applied)
	c.world.recordWrites(c.event(0))
}

// unknown answers with a network error, and strikes the faults that come after the caller has seen it.
func (c call) unknown(what string, occurrence reached) error {
	c.task.pause()
	answered := c.event(journal.Answered)
	answered.Error = what
	c.world.record(answered)
	c.world.strike(c.task, c.point, occurrence, faults.After)
	return fmt.Errorf("%s: %w", what, store.ErrUnknownOutcome)
}

// concerned is how many documents a reply is about.
func concerned(reply store.Reply) int64 {
	n := reply.Inserted + reply.Matched + int64(len(reply.Documents))
	if reply.Document != nil || reply.Upserted != nil {
		n++
	}
	return n
}
