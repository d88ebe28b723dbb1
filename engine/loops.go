package engine

import (
	"context"
	"errors"
	"time"

	"github.com/fencepost-sim/fencepost/internal/defect"
)

// coordinate is the loop that looks: it repairs what crashes left behind, materializes new events, and wakes the
// workers. One task per process does it, so that an idle process costs the same whatever its number of workers.
//
// It wakes up when somebody publishes in this process, when a change stream says so, when a retry of this process falls due,
// and every poll interval. What it waits for is a flag that stays up until a pass begins, so a wake
// during a pass is not lost.
func (e *Engine) coordinate() {
	for !e.closing {
		e.fallDue()
		full := e.host.Monotonic() >= e.nextPass
		if !full && !e.newsReady {
			e.news.Wait(context.Background(), e.untilNextPass())
			continue
		}
		e.newsReady = false
		if full {
			e.nextPass = e.host.Monotonic() + e.options.PollInterval
		}
		_ = e.supervise(func() error {
			e.pass(full)
			return nil
		})
	}
}

// pass discovers, and in a full pass runs the recovery steps first. If there may be more to do at once it raises the flags.
func (e *Engine) pass(full bool) {
	if len(e.topicNames()) == 0 {
		return
	}
	if full && e.recoverDeliveries() {
		e.nextPass = e.host.Monotonic() // something was repaired: there may be more
	}
	topics := e.rotated(&e.searchTurn)
	looked := e.host.Monotonic()
	news, err := e.scanTopics(e.context, topics)
	if err != nil {
		e.report(err)
		return
	}
	for i, topic := range topics {
		e.measureBacklog(topic.name, news[i])
		more, err := e.discover(e.context, topic, news[i], looked)
		switch {
		case more:
			e.newsReady = true
		case err == nil:
			err = e.markDiscovered(e.context, topic, looked)
		}
		e.report(err) // one topic's trouble is not the others'
	}
}

// recoverDeliveries is what a full pass costs an idle process: one read of the deliveries that have not ended. Only if there are some does
// it look further.
func (e *Engine) recoverDeliveries() (repaired bool) {
	seen, err := e.reconcile(e.context)
	e.report(err)
	now := e.host.Monotonic()
	sweep := now >= e.nextSweep
	if seen.claimable {
		e.work.suspect()
	}
	if seen.locked {
		reaped, err := e.reap(e.context)
		e.report(err)
		seen.repaired = seen.repaired || reaped
	}
	if e.undated || sweep {
		dated, err := e.repairUndated(e.context)
		e.report(err)
		seen.repaired = seen.repaired || dated
	}
	if sweep {
		e.nextSweep = now + sweepEvery*e.options.LockTimeout
		e.report(e.sweep(e.context))
	}
	return seen.repaired
}

// sweepEvery is how many lock timeouts lie between two looks for what is out of place and in nobody's way: leftovers, and ended deliveries
// whose worker died before they had their dates.
const sweepEvery = 4

func (e *Engine) untilNextPass() time.Duration {
	next := e.nextPass
	if len(e.due) > 0 {
		next = min(next, e.due[0].at)
	}
	return max(0, next-e.host.Monotonic())
}

// workLoop is a worker: it claims one attempt, executes it, and claims the next.
func (e *Engine) workLoop() {
	owner, failures := e.host.NewID(), 0
	for !e.closing {
		ticket, ok := e.work.take()
		if !ok {
			continue
		}
		err := e.supervise(func() error {
			execution, err := e.acquire(e.context, owner, ticket)
			e.work.done(ticket, execution != nil)
			if execution != nil {
				err = errors.Join(err, e.execute(execution, owner))
			}
			return err
		})
		if failures++; err == nil || errors.Is(err, ErrLeaseLost) {
			failures = 0
			continue
		}
		e.pauseAfter(failures)
		e.work.suspect() // what could not be done is still there
	}
}

// execute runs the attempt, and then those that follow it in its ordered topic.
func (e *Engine) execute(x *execution, owner string) (failures error) {
	topic := x.topic
	defer e.freeSlot(topic, true)
	for x != nil {
		err := x.run()
		next, nextErr := e.following(x, owner, err)
		failures = errors.Join(failures, err, nextErr)
		x = next
	}
	return failures
}

// freeSlot gives a slot back. Workers that passed over the topic meanwhile must come back if there may be something for them.
func (e *Engine) freeSlot(topic *topicState, forThem bool) {
	topic.running--
	if topic.skipped && forThem && !e.defects.Has(defect.SkippedForgotten) {
		topic.skipped = false
		e.work.suspect()
	}
}
