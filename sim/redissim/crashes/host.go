package crashes

import (
	"context"
	"fmt"
	"hash/fnv"
	"iter"
	"slices"
	"time"

	"github.com/fencepost-sim/fencepost/engine/host"
)

// process is one life of a simulated process, and its tasks' Host.
type process struct {
	world  *world
	client int // whose request it serves; sweeperClient for the sweeper
	life   int
	dead   bool
	thaws  time.Duration // when it goes on, if it is frozen
	ids    uint64
	tasks  []*task
}

var _ host.Host = (*process)(nil)

// task is a coroutine. What it will do next depends on nothing but what it has seen, of which history is a digest.
type task struct {
	process *process
	name    string
	next    func() (struct{}, bool)
	stop    func()
	yield   func(struct{}) bool
	ready   bool
	wakes   time.Duration // negative: never by time
	ctx     context.Context
	signal  *signal
	woken   bool
	at      string // the point that it waits at
	call    bool   // a message of it can be lost here
	lost    bool   // it was
	history uint64
}

func (t *task) see(format string, values ...any) {
	h := fnv.New64a()
	fmt.Fprintf(h, "%d %d ", t.history, t.process.world.now)
	fmt.Fprintf(h, format, values...)
	t.history = h.Sum64()
}

func (p *process) alive() {
	if p.dead {
		panic(host.Killed{})
	}
}

func (p *process) Now() time.Time           { return start.Add(p.world.now) }
func (p *process) Monotonic() time.Duration { return p.world.now }

// NewID counts: an id names the process, its life and the order of drawing.
func (p *process) NewID() string {
	p.ids++
	return fmt.Sprintf("%d-%d-%d", p.client, p.life, p.ids)
}

func (p *process) Go(name string, run func()) {
	p.alive()
	t := &task{process: p, name: name, wakes: -1, ready: true}
	t.next, t.stop = iter.Pull(func(yield func(struct{}) bool) {
		t.yield = yield
		defer func() {
			value := recover()
			if _, killed := value.(host.Killed); value != nil && !killed {
				p.world.violate("panic: %v", value)
			}
			p.tasks = slices.DeleteFunc(p.tasks, func(other *task) bool { return other == t })
		}()
		run()
	})
	p.tasks = append(p.tasks, t)
}

// suspend gives the turn away until the scheduler gives it back.
func (t *task) suspend() {
	if !t.yield(struct{}{}) || t.process.dead {
		panic(host.Killed{})
	}
}

// pause stays ready at a point: others may go first, and a fault may strike. It reports whether the task's message was lost.
func (t *task) pause(point string, call bool) (lost bool) {
	t.at, t.call, t.ready = point, call, true
	t.suspend()
	lost, t.lost, t.at, t.call = t.lost, false, "", false
	t.see("%s %v", point, lost)
	return lost
}

// block waits for a time, a signal or the end of a context.
func (t *task) block(ctx context.Context, wakes time.Duration, on *signal) {
	t.wakes, t.ctx, t.signal, t.woken = wakes, ctx, on, false
	t.ready = ctx.Err() != nil
	t.suspend()
	t.wakes, t.ctx, t.signal = -1, nil, nil
	t.see("woken %v", t.woken)
}

func (p *process) Sleep(ctx context.Context, span time.Duration) error {
	p.alive()
	if ctx.Err() == nil {
		p.world.current.block(ctx, p.world.now+max(0, span), nil)
	}
	return context.Cause(ctx)
}

func (p *process) GiveWay(outside func()) { p.alive(); outside() }
func (p *process) Enter(inside func())    { p.alive(); inside() }
func (p *process) NewSignal() host.Signal { return &signal{process: p} }

type signal struct{ process *process }

func (s *signal) Wait(ctx context.Context, timeout time.Duration) bool {
	s.process.alive()
	if ctx.Err() != nil {
		return false
	}
	wakes := time.Duration(-1)
	if timeout >= 0 {
		wakes = s.process.world.now + timeout
	}
	t := s.process.world.current
	t.block(ctx, wakes, s)
	return t.woken
}

func (s *signal) Broadcast() {
	for _, t := range s.process.tasks {
		if t.signal == s {
			t.woken, t.ready = true, true
		}
	}
}

// kill ends the process at once: its tasks are unwound, and nothing of theirs reaches the server any more.
func (p *process) kill() {
	p.dead = true
	for _, t := range slices.Clone(p.tasks) {
		p.world.current = t
		t.stop()
	}
	p.world.current, p.tasks = nil, nil
}
