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
	applied := c.event(journal.Applied)
	applied.Number, applied.Error = concerned(reply), errorText(err)
	c.world.record(applied)
	c.world.recordWrites(c.event(0))

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

// apply lets the database run the command, with the timestamp that it took earlier if there was a visibility gap.
func (c call) apply(command store.Command) (store.Reply, error) {
	if stamp := c.task.stamp; stamp != nil {
		c.task.stamp = nil
		return c.world.model.RunReserved(c.world.serverNow(), *stamp, Database, command)
	}
	return c.world.model.Run(c.world.serverNow(), Database, command)
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
