package engine

import (
	"context"
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
		e.newsReady = false
		if e.hasNextDue && e.host.Monotonic() >= e.nextDue {
			e.hasNextDue = false
		}
		again := false
		e.supervise(func() error {
			again = e.pass()
			return nil
		})
		e.wakeWorkers()
		if again || e.newsReady || e.closing {
			continue
		}
		e.news.Wait(context.Background(), e.untilNextPass())
	}
}

// pass runs the recovery steps if they are due, then discovery. It reports whether there may be more at once.
func (e *Engine) pass() (again bool) {
	if e.topicNames() == nil {
		return false
	}
	if now := e.host.Monotonic(); now >= e.nextRecover {
		e.nextRecover = now + e.options.PollInterval
		if e.recoverDeliveries() {
			e.nextRecover = now // something was repaired: there may be more
			again = true
		}
	}
	for _, topic := range e.rotated() {
		more, err := e.discover(e.context, topic)
		again = again || more
		e.report(err) // one topic's trouble is not the others'
	}
	return again
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
	now := e.host.Monotonic()
	wait := e.options.PollInterval
	if e.topicNames() != nil {
		wait = min(wait, max(0, e.nextRecover-now))
	}
	if e.hasNextDue {
		wait = min(wait, max(0, e.nextDue-now))
	}
	return wait
}

// workLoop is a worker: it claims one attempt, executes it, and claims the next.
func (e *Engine) workLoop() {
	owner := e.host.NewID()
	for !e.closing {
		if !e.workReady {
			e.work.Wait(context.Background(), -1)
			continue
		}
		e.workReady = false
		e.supervise(func() error {
			execution, err := e.acquire(e.context, owner)
			if execution != nil {
				e.wakeWorkers() // where there was one there may be more
				execution.run()
				e.wakeWorkers() // a slot is free
			}
			return err
		})
	}
}
