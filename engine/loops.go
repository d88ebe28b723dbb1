package engine

import (
	"context"
	"errors"
	"time"
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
		e.wakeWorkers()
	}
}

// pass discovers, and in a full pass runs the recovery steps first. If there may be more to do at once it raises the flags.
func (e *Engine) pass(full bool) {
	if e.topicNames() == nil {
		return
	}
	if full && e.recoverDeliveries() {
		e.nextPass = e.host.Monotonic() // something was repaired: there may be more
	}
	for _, topic := range e.rotated(&e.searchTurn) {
		more, err := e.discover(e.context, topic)
		if more {
			e.newsReady = true
		}
		e.report(err) // one topic's trouble is not the others'
	}
}

func (e *Engine) recoverDeliveries() (repaired bool) {
	reaped, err := e.reap(e.context)
	e.report(err)
	reconciled, err := e.reconcile(e.context)
	e.report(err)
	if now := e.host.Monotonic(); now >= e.nextSweep {
		e.nextSweep = now + e.options.LockTimeout
		e.report(e.sweep(e.context))
	}
	return reaped || reconciled
}

func (e *Engine) untilNextPass() time.Duration {
	next := e.nextPass
	if len(e.due) > 0 {
		next = min(next, e.due[0])
	}
	return max(0, next-e.host.Monotonic())
}

// workLoop is a worker: it claims one attempt, executes it, and claims the next.
func (e *Engine) workLoop() {
	owner, failures := e.host.NewID(), 0
	for !e.closing {
		if !e.workReady {
			e.work.Wait(context.Background(), -1)
			continue
		}
		e.workReady = false
		err := e.supervise(func() error {
			execution, err := e.acquire(e.context, owner)
			if execution != nil {
				e.wakeWorkers() // where there was one there may be more
				err = errors.Join(err, execution.run())
				e.wakeWorkers() // a slot is free
			}
			return err
		})
		if failures++; err == nil || errors.Is(err, ErrLeaseLost) {
			failures = 0
			continue
		}
		e.pauseAfter(failures)
		e.wakeWorkers() // what could not be done is still there
	}
}
