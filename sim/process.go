package sim

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/fencepost-sim/fencepost/engine"
	"github.com/fencepost-sim/fencepost/engine/host"
	"github.com/fencepost-sim/fencepost/engine/store"
	"github.com/fencepost-sim/fencepost/sim/journal"
	"github.com/fencepost-sim/fencepost/sim/pgsim"
)

// Main is what a process does: it opens engines, subscribes, publishes. It runs again, from the
// beginning, each time the process is restarted after a crash, so what must outlive the process is kept outside.
// An error ends the process, and it is started again a second later.
type Main func(ctx context.Context, p *Process) error

// superviseAfter is when a process that ended by itself is started again, as a supervisor would.
const superviseAfter = time.Second

// Process is one simulated operating-system process: it has its own host, its own clock and its own connection to the
// database, and dies as a whole.
type Process struct {
	world *World
	index int // plus one of its place among the processes
	name  string
	main  Main

	incarnation int
	started     time.Duration
	dead        bool
	frozen      int // times
	tasks       []*task
	parked      []*task // ready, but frozen
	engines     []*engine.Engine
	closers     []func(context.Context) error // of what engines' handlers use
	postgres    *pgsim.Client
	ids         random
	counts      map[string]int // how often each point was reached, over all incarnations
	notified    int
	cutOff      int // partitions that are under way
	clock       clock
	began       time.Duration // what the clock had gained when this life began
	// instance marks one life of the process: what belongs to an earlier one is dead.
	instance *instance
}

type instance struct {
	process *Process
	over    bool
	main    bool // its main function has not returned
}

// Add adds a process, which starts when the world runs. Names must be unique.
func (w *World) Add(name string, main Main) *Process {
	if slices.Contains(w.journal.Processes, name) {
		panic(fmt.Sprintf("sim: two processes are named %q", name))
	}
	p := &Process{world: w, index: len(w.processes) + 1, name: name, main: main, counts: map[string]int{}}
	w.processes = append(w.processes, p)
	w.journal.Processes = append(w.journal.Processes, name)
	return p
}

// Mains counts the processes whose main function has not returned. The dead do not count.
func (w *World) Mains() (count int) {
	for _, p := range w.processes {
		if p.instance == nil || p.instance.main {
			count++
		}
	}
	return count
}

// Prefixes lists the collection prefixes of the engines that are open, each once.
func (w *World) Prefixes() (prefixes []string) {
	for _, p := range w.processes {
		for _, eng := range p.engines {
			if prefix := eng.Options().CollectionPrefix; !slices.Contains(prefixes, prefix) {
				prefixes = append(prefixes, prefix)
			}
		}
	}
	return prefixes
}

// Name returns the name of the process.
func (p *Process) Name() string { return p.name }

// World returns the world that the process lives in.
func (p *Process) World() *World { return p.world }

// Incarnation counts the lives of the process from 1.
func (p *Process) Incarnation() int { return p.incarnation }

func (p *Process) start() {
	w := p.world
	p.incarnation++
	p.dead, p.frozen = false, 0
	p.began = p.clock.gained(w.now)
	p.started, p.engines, p.tasks, p.parked = w.now, nil, nil, nil
	p.closers, p.postgres = nil, nil
	p.instance = &instance{process: p}
	p.ids = newRandom(w.config.Seed, uint64(p.index)<<16|uint64(p.incarnation))
	w.record(journal.Event{Kind: journal.ProcessStarted, Process: p.index, Name: p.name, Number: int64(p.incarnation)})
	life := p.instance
	life.main = true
	w.spawn(p, "main", func() {
		defer func() { life.main = false }()
		if err := p.main(context.Background(), p); err != nil {
			w.record(journal.Event{Kind: journal.ErrorReported, Process: p.index, Task: w.current.id, Error: err.Error()})
			w.during(0, func() { p.kill("exit", superviseAfter) }) // until it has started again, the run is not over
			return
		}
		if w.closing {
			p.closeEngines()
		}
	})
}

// kill ends the process at once. Its tasks are unwound, which runs their deferred functions, but the dead do not
// write: no operation of theirs reaches the database. A restart of zero means never.
func (p *Process) kill(reason string, restart time.Duration) {
	w := p.world
	if p.dead {
		return
	}
	p.dead, p.instance.over = true, true
	w.record(journal.Event{Kind: journal.ProcessDied, Process: p.index, Name: reason})
	p.unwind()
	p.disconnect()
	if restart > 0 {
		w.during(restart, p.start)
	}
}

// unwind stops every task but the one that runs.
func (p *Process) unwind() {
	w := p.world
	p.dead = true
	if p.instance != nil {
		p.instance.over = true
	}
	running := w.current
	for _, t := range slices.Clone(p.tasks) {
		if t == running || t.ended {
			continue
		}
		w.forget(t)
		w.current = t
		t.stop()
		if !t.ended { // it never had a turn, so there was nothing to unwind
			t.end("")
		}
	}
	w.current = running
}

// forget takes a task out of everything that could make it run.
func (w *World) forget(t *task) {
	w.ready = slices.DeleteFunc(w.ready, func(other *task) bool { return other == t })
	w.cancelTimer(t.timer)
}

func (p *Process) freeze(span time.Duration) {
	w := p.world
	if p.dead {
		return
	}
	p.frozen++
	w.record(journal.Event{Kind: journal.ProcessFrozen, Process: p.index, Span: span})
	w.ready = slices.DeleteFunc(w.ready, func(t *task) bool {
		if t.process != p {
			return false
		}
		p.parked = append(p.parked, t)
		return true
	})
	life := p.instance
	w.during(span, func() {
		if !life.over {
			p.thaw()
		}
	})
}

func (p *Process) thaw() {
	if p.frozen--; p.frozen > 0 {
		return // it was frozen twice
	}
	p.world.record(journal.Event{Kind: journal.ProcessThawed, Process: p.index})
	p.world.ready = append(p.world.ready, p.parked...)
	p.parked = nil
}

// Open opens an engine in this process. The options' Store and Host are the simulation's; errors that the
// engine reports go into the journal, and then to OnError if the options have one. The engine is closed
// when the run ends.
func (p *Process) Open(ctx context.Context, options engine.Options) (*engine.Engine, error) {
	w := p.world
	options.Host = &simulatedHost{p, p.instance}
	options.Store = p.Store()
	next := options.OnError
	options.OnError = func(err error) {
		w.record(journal.Event{Kind: journal.ErrorReported, Process: p.index, Task: w.current.id, Error: err.Error()})
		if next != nil {
			next(err)
		}
	}
	eng, err := engine.Open(ctx, options)
	if err != nil {
		return nil, err
	}
	p.engines = append(p.engines, eng)
	settings := eng.Options()
	w.record(journal.Event{
		Kind: journal.EngineOpened, Process: p.index, Group: settings.ConsumerGroup, Name: settings.CollectionPrefix,
		Span: settings.LockTimeout, Number: settings.PollInterval.Milliseconds(), Key: retentionText(settings.HistoryRetention),
	})
	return eng, nil
}

func retentionText(retention time.Duration) string {
	if retention == engine.KeepForever {
		return journal.KeepForever
	}
	return retention.String()
}

// Store returns the connection of this process to the database, with the world's decoration.
func (p *Process) Store() store.Store {
	s := p.world.connect(p)
	if p.world.config.Decorate != nil {
		s = p.world.config.Decorate(p.name, s)
	}
	return s
}

// close asks the process for an orderly end.
func (p *Process) close() {
	if p.dead {
		return
	}
	p.world.record(journal.Event{Kind: journal.ProcessClosing, Process: p.index})
	p.world.spawn(p, "close", p.closeEngines)
}

// Close closes the engines of the process in order and waits for that, as a program does that is told to stop. It is called by the
// main function.
func (p *Process) Close() {
	p.world.record(journal.Event{Kind: journal.ProcessClosing, Process: p.index})
	p.closeEngines()
}

func (p *Process) closeEngines() {
	for len(p.engines) > 0 {
		eng := p.engines[0]
		p.engines = p.engines[1:]
		err := eng.Close(context.Background())
		if len(p.engines) == 0 && err == nil {
			err = p.closeRest()
		}
		p.world.record(journal.Event{Kind: journal.ProcessClosed, Process: p.index, Error: errorText(err)})
	}
}

// AtClose registers what is to be closed after the engines: the guards of their handlers.
func (p *Process) AtClose(close func(context.Context) error) { p.closers = append(p.closers, close) }

func (p *Process) closeRest() (err error) {
	for len(p.closers) > 0 && err == nil {
		last := p.closers[len(p.closers)-1]
		p.closers = p.closers[:len(p.closers)-1]
		err = last(context.Background())
	}
	return err
}

// Host returns the machine that this life of the process runs on.
func (p *Process) Host() host.Host { return &simulatedHost{p, p.instance} }

// Report puts an error into the journal that nobody is told of otherwise.
func (p *Process) Report(err error) {
	w := p.world
	w.record(journal.Event{Kind: journal.ErrorReported, Process: p.index, Task: w.current.id, Error: err.Error()})
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// Go starts another task of the process, beside its main function. A panic in it ends the process.
func (p *Process) Go(name string, run func()) {
	h := simulatedHost{p, p.instance}
	h.Go(name, run)
}

// Sleep lets virtual time pass in the main function of the process. It returns early with the cause when ctx is done.
func (p *Process) Sleep(ctx context.Context, wait time.Duration) error {
	h := simulatedHost{p, p.instance}
	return h.Sleep(ctx, wait)
}
