package sim

import (
	"slices"
	"time"

	"github.com/fencepost-sim/fencepost/faults"
	"github.com/fencepost-sim/fencepost/sim/journal"
)

// schedule is the scheduler. It runs on a goroutine of its own only so that it survives a task that ends its goroutine
// (runtime.Goexit, as testing's FailNow does): iter.Pull passes that on to whoever resumed the
// coroutine, and the next goroutine takes over. At any time exactly one of them runs.
func (w *World) schedule() {
	for w.ended == "" {
		done := make(chan any)
		go func() {
			defer func() { done <- recover() }()
			w.loop()
		}()
		if value := <-done; value != nil {
			panic(value)
		}
	}
}

func (w *World) loop() {
	for w.ended == "" {
		w.step++
		if w.step > w.config.MaxSteps || w.step-w.instant > w.config.MaxSteps/100 {
			w.step--
			w.ended = EndedStepLimit
			return
		}
		w.oneStep()
	}
}

// oneStep resumes one task or moves the clock.
func (w *World) oneStep() {
	if len(w.ready) == 0 && w.atRest() {
		return
	}
	take := w.choose()
	if take == len(w.ready) {
		w.advance()
		return
	}
	t := w.ready[take]
	w.ready = slices.Delete(w.ready, take, take+1)
	w.resume(t)
}

// atRest looks whether the run is over or should be closed; it is called when no task is ready.
func (w *World) atRest() (over bool) {
	if w.live == 0 && w.underway == 0 {
		w.ended = EndedClosed
		return true
	}
	if !w.closing && w.config.Done != nil && w.config.Done(w) && w.underway+w.around == 0 {
		w.closeAll()
		return true // tasks are ready now
	}
	return false
}

func (w *World) resume(t *task) {
	t.isReady = false
	w.current = t
	w.record(journal.Event{Kind: journal.Resumed, Process: t.process.index, Task: t.id})
	defer func() { // also when the task ends its goroutine
		w.current = nil
		w.wakeCancelled()
		w.watchContexts()
	}()
	t.next()
}

// wakeCancelled makes tasks ready whose context was cancelled by the task that just ran.
func (w *World) wakeCancelled() {
	for _, t := range w.contexts {
		if t.context.Err() != nil {
			w.makeReady(t)
		}
	}
}

// choose returns the index of the ready task to resume, or the number of ready tasks to move the clock.
func (w *World) choose() int {
	options := len(w.ready)
	if len(w.timers) > 0 && (options == 0 || !w.closing) { // nobody is slow while closing: it is bounded in time
		options++
	}
	take := 0
	if w.config.Watch != nil && len(w.ready) > 1 {
		w.config.Watch(w.step, w.readyTasks())
	}
	switch {
	case options < 2:
		return 0
	case w.config.Plan.Schedule == faults.Seeded, w.config.Plan.Schedule == faults.Slow:
		take = w.draw(options)
	case w.config.Plan.Schedule == faults.Priorities:
		take = w.highest()
	default:
		for len(w.choices) > 0 && w.choices[0].Step < w.step {
			w.choices = w.choices[1:]
		}
		if len(w.choices) > 0 && w.choices[0].Step == w.step {
			take = min(w.choices[0].Take, options-1)
		}
	}
	if take != 0 {
		w.taken = append(w.taken, faults.Choice{Step: w.step, Take: take})
	}
	return take
}

// Odds of the seeded schedules, as one in so many: how often they deviate at all, and how often the slow one lets the
// clock move on although somebody is ready.
const (
	deviateOneIn = 3
	advanceOneIn = 200
)

func (w *World) draw(options int) int {
	if len(w.ready) == 0 {
		return 0 // nothing to choose: the clock moves
	}
	if w.config.Plan.Schedule == faults.Slow && options > len(w.ready) && w.random.below(advanceOneIn) == 0 {
		return len(w.ready)
	}
	if len(w.ready) == 1 || w.random.below(deviateOneIn) != 0 {
		return 0
	}
	return w.random.below(len(w.ready))
}

func (w *World) recordAdvance(span time.Duration) {
	w.record(journal.Event{Kind: journal.Advanced, Span: span, Number: int64(len(w.ready))})
}

// highest returns the ready task with the highest priority. At a step where priorities change, the one that would run becomes the lowest of
// all first.
func (w *World) highest() int {
	top := w.top()
	if len(w.ready) == 0 || !slices.Contains(w.demotions, w.step) {
		return top
	}
	w.lowest--
	w.ready[top].priority = w.lowest
	return w.top()
}

func (w *World) top() (top int) {
	for i, t := range w.ready {
		if t.priority > w.ready[top].priority {
			top = i
		}
	}
	return top
}

// drawDemotions draws the steps at which priorities change.
func (w *World) drawDemotions() {
	for range w.config.Plan.Depth - 1 {
		w.demotions = append(w.demotions, 1+w.random.below(w.config.Plan.Steps))
	}
}

func (w *World) readyTasks() []int {
	ids := make([]int, len(w.ready))
	for i, t := range w.ready {
		ids[i] = t.id
	}
	return ids
}
