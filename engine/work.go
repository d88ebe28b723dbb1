package engine

import (
	"context"

	"github.com/fencepost-sim/fencepost/engine/host"
)

// work is what the workers of a process know about attempts that can be claimed. Every claim that finds nothing is a command
// for nothing, so workers wait until somebody says that there is something.
type work struct {
	signal host.Signal
	known  int  // attempts that this process has made claimable, and that no worker has gone for yet
	added  int  // how many it has made claimable so far
	maybe  bool // there may be others: a pass has seen some, or one was found by chance

	forgets bool // planted
}

// ticket lets a worker go and claim once.
type ticket struct {
	known bool // because of an attempt that this process made claimable itself
	added int  // as it was when the worker went
}

// suspect says that there may be something to claim.
func (w *work) suspect() {
	w.maybe = true
	w.signal.Broadcast()
}

func (w *work) waiting() bool { return w.known > 0 || w.maybe }

// take waits until there is something to go for, or until it is woken for another reason.
func (w *work) take() (t ticket, ok bool) {
	t = ticket{known: w.known > 0, added: w.added}
	switch {
	case w.known > 0:
		w.known--
	case w.maybe:
		w.maybe = false
	default:
		w.signal.Wait(context.Background(), -1)
		return t, false
	}
	return t, true
}

// done takes in what came of it. Where something was found by chance there may be more; where nothing was found,
// there is nothing but what became claimable since.
func (w *work) done(t ticket, found bool) {
	switch {
	case found && !t.known:
		w.suspect()
	case !found && w.forgets:
		w.known = 0
	case !found:
		w.known = min(w.known, w.added-t.added)
	}
}

// claimable wakes the workers for so many attempts of the topic. Of an ordered topic only the head can be claimed; who
// executes the head goes on with the next.
func (e *Engine) claimable(topic *topicState, attempts int) {
	e.work.added += attempts
	switch {
	case attempts == 0:
	case topic.options.Unordered:
		e.work.known += attempts
		e.work.signal.Broadcast()
	case topic.running > 0:
		topic.skipped = true
	default:
		e.work.suspect()
	}
}
