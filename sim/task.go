package sim

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/fencepost-sim/fencepost/engine/host"
	"github.com/fencepost-sim/fencepost/faults"
	"github.com/fencepost-sim/fencepost/sim/journal"
)

// task is a coroutine of a process.
type task struct {
	id      int
	name    string
	process *Process
	next    func() (struct{}, bool)
	stop    func()
	yield   func(struct{}) bool

	isReady  bool
	timedOut bool
	woken    bool
	waiting  *signal
	context  context.Context
	timer    *timer
	ended    bool
	priority int           // in a schedule of priorities; those that fell back are below zero
	gap      time.Duration // between the stamp of the write under way and its visibility
	under    *call         // that a server works at
}

// spawn starts a task; it waits for its first turn.
func (w *World) spawn(p *Process, name string, run func()) *task {
	w.lastTask++
	t := &task{id: w.lastTask, name: name, process: p}
	if w.config.Plan.Schedule == faults.Priorities {
		t.priority = w.random.below(1 << 62)
	}
	t.next, t.stop = iter.Pull(func(yield func(struct{}) bool) {
		t.yield = yield
		t.body(run)
	})
	p.tasks = append(p.tasks, t)
	w.live++
	w.record(journal.Event{Kind: journal.TaskStarted, Process: p.index, Task: t.id, Name: name})
	w.makeReady(t)
	return t
}

// body runs the task and ends it, whatever it does. A killed task ends here, without a word; a panic that
// nobody recovered ends the process, as it would in production; runtime.Goexit ends the task and nothing else.
func (t *task) body(run func()) {
	var crashed string
	defer func() {
		if value := recover(); value != nil {
			if _, killed := value.(host.Killed); !killed {
				crashed = fmt.Sprintf("panic: %v", value)
			}
		}
		t.end(crashed)
	}()
	run()
}

func (t *task) end(crashed string) {
	w, p := t.process.world, t.process
	t.ended = true
	w.live--
	p.tasks = slices.DeleteFunc(p.tasks, func(other *task) bool { return other == t })
	if p.dead {
		return
	}
	w.record(journal.Event{Kind: journal.TaskEnded, Process: p.index, Task: t.id, Error: firstLine(crashed)})
	if crashed != "" {
		w.after(0, func() { p.kill("panic", superviseAfter) })
	}
}

func firstLine(text string) string {
	for i, r := range text {
		if r == '\n' {
			return text[:i]
		}
	}
	return text
}

func (w *World) makeReady(t *task) {
	if t.isReady || t.ended {
		return
	}
	t.isReady = true
	if t.process.frozen > 0 {
		t.process.parked = append(t.process.parked, t)
		return
	}
	w.ready = append(w.ready, t)
}

// pause yields and stays ready: others may run first.
func (t *task) pause() {
	t.process.world.makeReady(t)
	t.suspend()
}

// suspend yields until somebody makes the task ready. If the process was killed meanwhile it unwinds.
func (t *task) suspend() {
	if !t.yield(struct{}{}) || t.process.dead {
		panic(host.Killed{})
	}
}

// sleep suspends the task until the timer fires, the signal is broadcast, or the context is done. A negative
// wait sets no timer.
func (t *task) sleep(ctx context.Context, wait time.Duration, on *signal) {
	w := t.process.world
	t.timedOut, t.woken, t.waiting = false, false, on
	if wait >= 0 {
		t.timer = w.setTimer(wait, &timer{task: t})
	}
	if ctx.Done() != nil {
		t.context = ctx
		w.contexts = append(w.contexts, t)
	}
	if ctx.Err() != nil {
		w.makeReady(t)
	}
	defer t.awake()
	t.suspend()
}

func (t *task) awake() {
	w := t.process.world
	w.cancelTimer(t.timer)
	t.timer = nil
	if t.context != nil {
		t.context = nil
		w.contexts = slices.DeleteFunc(w.contexts, func(other *task) bool { return other == t })
	}
	if t.waiting != nil {
		t.waiting.waiters = slices.DeleteFunc(t.waiting.waiters, func(other *task) bool { return other == t })
		t.waiting = nil
	}
}
