package sim

import (
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/fencepost-sim/fencepost/engine/host"
	"github.com/fencepost-sim/fencepost/engine/store"
	"github.com/fencepost-sim/fencepost/faults"
	"github.com/fencepost-sim/fencepost/sim/journal"
)

// reached says the how-manieth time a point was come to, by this process and by any.
type reached struct{ here, anywhere int }

// reach counts that the task's process came to the point.
func (w *World) reach(t *task, point string) reached {
	if len(w.pending) == 0 {
		return reached{} // nobody asks
	}
	t.process.counts[point]++
	w.counts[point]++
	return reached{t.process.counts[point], w.counts[point]}
}

func (r reached) meets(f faults.Fault, process string) bool {
	if f.Process == faults.AnyProcess {
		return f.Occurrence == r.anywhere
	}
	return f.Process == process && f.Occurrence == r.here
}

// strike lets the faults happen that are planned for here. It reports whether the message that is under way is lost. If
// the process is killed it does not return.
func (w *World) strike(t *task, point string, occurrence reached, position faults.Position) (lost bool) {
	for len(w.pending) > 0 {
		i := slices.IndexFunc(w.pending, func(f faults.Fault) bool {
			return f.Point == point && f.Position == position && occurrence.meets(f, t.process.name)
		})
		if i < 0 {
			return lost
		}
		fault := w.pending[i]
		w.pending = slices.Delete(w.pending, i, i+1)
		w.recordFault(t, point, fault)
		lost = w.inflict(t, fault) || lost
	}
	return lost
}

func (w *World) recordFault(t *task, point string, fault faults.Fault) {
	w.record(journal.Event{Kind: journal.FaultStruck, Process: t.process.index, Task: t.id, Point: point, Name: fault.String(), Span: fault.Span})
}

// inflict makes one fault happen to the running task's process.
func (w *World) inflict(t *task, fault faults.Fault) (lost bool) {
	switch fault.Kind {
	case faults.Crash:
		t.process.kill("crash", fault.Span)
		panic(host.Killed{})
	case faults.Freeze:
		t.process.freeze(fault.Span)
		t.pause()
	case faults.Stall:
		w.stall(t, fault.Span)
	case faults.Refuse:
		w.refuse(fault.Point, fault.Span)
	case faults.Partition:
		w.partition(t.process, fault.Span)
		return true
	case faults.SetClock:
		t.process.clock.wrong = fault.Span
	case faults.Drift:
		t.process.clock.drift(w.now, fault.Span)
	case faults.Gap:
		t.gap = fault.Span // the exchange sees to it
	case faults.Failover:
		w.failOver(fault.Span)
	case faults.Rollback:
		w.rollBack(t.process, fault.Span)
	case faults.Lag:
		w.lag(fault.Span)
	case faults.Unlock:
		w.unlock(t.process)
	case faults.RedisFailover:
		w.failOverRedis(fault.Count, fault.Span)
	case faults.LoseCall, faults.LoseReply:
		return true
	}
	return false
}

// unlock is what an operator does by hand who believes that a worker is dead.
func (w *World) unlock(p *Process) {
	if !w.model.IsPrimary() {
		return // there is none
	}
	for _, eng := range p.engines {
		lock := bson.D{}
		for _, field := range []string{"startedAt", "lockOwner", "lockToken", "lockedAt", "lockedUntil", "heartbeatAt"} {
			lock = append(lock, bson.E{Key: field, Value: ""})
		}
		_, err := w.model.Run(w.ServerNow(), Database, store.Command{
			Kind: store.Update, Collection: eng.Options().CollectionPrefix + ".history", Multi: true,
			Filter: bson.D{{Key: "status", Value: "pending"}, {Key: "lockToken", Value: bson.D{{Key: "$exists", Value: true}}}},
			Update: bson.D{{Key: "$unset", Value: lock}},
		})
		if err != nil {
			panic(err) // the command is ours and fixed
		}
		w.recordWrites(journal.Event{})
	}
}

// stall lets one call hang. The run is not over before it comes back.
func (w *World) stall(t *task, span time.Duration) {
	life := t.process.instance
	w.during(span, func() {
		if !life.over {
			w.makeReady(t)
		}
	})
	t.suspend()
}

func (w *World) refuse(point string, span time.Duration) {
	w.refusals = append(w.refusals, point)
	w.meanwhile(span, func() {
		i := slices.Index(w.refusals, point)
		w.refusals = slices.Delete(w.refusals, i, i+1)
	})
}

// partition cuts the process off from the database. It concerns the machine, so a restart does not end it.
func (w *World) partition(p *Process, span time.Duration) {
	p.cutOff++
	for _, f := range w.feeds {
		if f.process == p {
			f.fail(errCutOff)
		}
	}
	w.meanwhile(span, func() { p.cutOff-- })
}

// during lets a fault last. The run is not over before it is.
func (w *World) during(span time.Duration, over func()) { w.last(&w.underway, span, over) }

// meanwhile lets a fault last that concerns what goes on around the processes: it matters only as long as one of them is there.
func (w *World) meanwhile(span time.Duration, over func()) { w.last(&w.around, span, over) }

func (w *World) last(counter *int, span time.Duration, over func()) {
	*counter++
	w.after(span, func() {
		*counter--
		w.lastOver = w.now
		over()
	})
}
