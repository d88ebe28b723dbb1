package crashes

import (
	"context"
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	"github.com/fencepost-sim/fencepost/engine/idempotency"
	"github.com/fencepost-sim/fencepost/engine/idempotency/redisport"
	"github.com/fencepost-sim/fencepost/engine/idempotency/redisstore"
	"github.com/fencepost-sim/fencepost/sim/redissim"
)

// Case says what happens in a world, beside the faults.
type Case struct {
	Requests int           // of clients who ask for the same thing, at once
	Work     time.Duration // that the handler takes before its effect
	Sweeper  bool          // sweeps at once and then every 40 seconds
	Faults   int           // how many may strike
	Kinds    []Kind        // which
	Mutant   Mutant        // a planted hole; none if zero
}

// Kind is a kind of fault.
type Kind string

// The faults.
const (
	Crash    Kind = "crash"    // the process dies; its client asks again a second later
	Lose     Kind = "lose"     // a request or a reply is lost
	Freeze   Kind = "freeze"   // the process stands still for two leases
	Failover Kind = "failover" // the server forgets its last write
)

const (
	lease         = 30 * time.Second
	frozen        = 2 * lease
	retryAfter    = time.Second
	patience      = 10 * time.Minute // of clients: who waits longer is wedged
	sweepEvery    = 40 * time.Second
	sweeps        = 3
	sweeperClient = -1
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// world is one run.
type world struct {
	config  Case
	server  *redissim.Server
	now     time.Duration
	current *task
	alive   []*process
	due     []restart
	left    int // faults that may still strike
	watch   watcher
	steps   []string // what was chosen
	stopped bool
}

// restart is a process that is to start.
type restart struct {
	at           time.Duration
	client, life int
}

func newWorld(config Case) *world {
	w := &world{config: config, server: redissim.New(redissim.Options{}), left: config.Faults}
	w.watch.world = w
	for client := range config.Requests {
		w.start(client, 1)
	}
	if config.Sweeper {
		w.start(sweeperClient, 1)
	}
	return w
}

func (w *world) violate(format string, values ...any) {
	w.watch.violations = append(w.watch.violations, fmt.Sprintf(format, values...))
}

func (w *world) start(client, life int) {
	p := &process{world: w, client: client, life: life}
	w.alive = append(w.alive, p)
	p.Go("main", func() { w.main(p) })
}

// main is what a process does: it asks until it has an answer, or sweeps.
func (w *world) main(p *process) {
	store, err := redisstore.Over(&port{w, p}, "svc")
	if err != nil {
		panic(err)
	}
	g, err := idempotency.New(idempotency.Config{
		Store: store, Host: p, Lease: lease, DisableSweeper: true, FailOpen: w.config.Mutant == RunOnUnknownClaim,
	})
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	if p.client == sweeperClient {
		for range sweeps {
			_ = g.Sweep(ctx) // an error is a fault's
			_ = p.Sleep(ctx, sweepEvery)
		}
		return
	}
	for {
		answer, outcome, err := idempotency.Do(ctx, g, idempotency.Op{Key: "req:1", Fingerprint: "c1:a"}, idempotency.JSON[int](), func(ctx context.Context) (int, error) {
			return w.handle(ctx, p)
		})
		if err == nil {
			w.watch.answered(p.client, answer, outcome)
			return
		}
		_ = p.Sleep(ctx, retryAfter)
	}
}

// handle is the guarded function. Its answer is the number of the execution.
func (w *world) handle(ctx context.Context, p *process) (int, error) {
	x := w.watch.begin(ctx, p)
	if w.config.Work > 0 {
		_ = p.Sleep(ctx, w.config.Work)
	}
	if ctx.Err() == nil { // a handler that listens
		w.current.pause("effect", false)
		w.watch.effect(x)
		w.current.pause("handler end", false)
	}
	w.watch.end(x)
	return x.number, nil
}

// port is the connection of a process to the server. The task pauses before each message is applied, and before it sees the reply.
type port struct {
	world   *world
	process *process
}

var _ redisport.Port = (*port)(nil)

func (c *port) Run(ctx context.Context, calls ...redisport.Call) ([]redisport.Reply, error) {
	c.process.alive()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	t, name := c.world.current, calls[0].Script.Name
	if t.pause(name+" sent", true) {
		return nil, redissim.ErrLost
	}
	replies := make([]redisport.Reply, len(calls))
	for i, call := range calls {
		var err error
		if replies[i], err = c.world.apply(call); err != nil {
			return nil, err
		}
	}
	if t.pause(name+" applied", true) {
		return nil, redissim.ErrLost
	}
	t.see("%q", replies)
	return replies, nil
}

func (c *port) Scan(_ context.Context, scan redisport.Scan) (redisport.Page, error) {
	c.process.alive()
	t := c.world.current
	if t.pause("scan sent", true) {
		return redisport.Page{}, redissim.ErrLost
	}
	page, err := c.world.server.Scan(start.Add(c.world.now), scan)
	t.see("%q", page)
	return page, err
}

func (c *port) Check(context.Context) error { return nil }

// apply lets the server run a script, planted holes included, and the watcher look at what it did.
func (w *world) apply(call redisport.Call) (redisport.Reply, error) {
	now := start.Add(w.now)
	before := w.server.Record(now, call.Key)
	reply, err := w.config.Mutant.apply(w, now, call)
	w.watch.applied(call, before, w.server.Record(now, call.Key), reply)
	return reply, err
}

// digest tells states apart: the server's content, what every task has seen, and what the watcher remembers.
func (w *world) digest() uint64 {
	h := fnv.New64a()
	fmt.Fprintln(h, w.now, w.left, w.server.Dump(), w.due, w.watch.summary())
	for _, p := range w.alive {
		fmt.Fprintln(h, p.client, p.life, p.thaws, p.ids)
		for _, t := range p.tasks {
			fmt.Fprintln(h, t.name, t.history, t.ready, t.wakes, t.at, t.lost, t.woken)
		}
	}
	return h.Sum64()
}

// done tells whether all clients have their answers.
func (w *world) done() bool { return len(w.watch.answers) == w.config.Requests }

// tearDown unwinds what is left.
func (w *world) tearDown() {
	w.stopped = true
	for _, p := range slices.Clone(w.alive) {
		p.kill()
	}
}
