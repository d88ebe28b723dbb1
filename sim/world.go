package sim

import (
	"fmt"
	"time"

	"github.com/fencepost-sim/fencepost/engine/idempotency/pgport"
	"github.com/fencepost-sim/fencepost/engine/idempotency/redisport"
	"github.com/fencepost-sim/fencepost/engine/store"
	"github.com/fencepost-sim/fencepost/faults"
	"github.com/fencepost-sim/fencepost/internal/defect"
	"github.com/fencepost-sim/fencepost/sim/journal"
	"github.com/fencepost-sim/fencepost/sim/mongosim"
	"github.com/fencepost-sim/fencepost/sim/pgsim"
	"github.com/fencepost-sim/fencepost/sim/redissim"
)

// Database is the name of the database that the processes of a world use.
const Database = "app"

// Config describes a world. The zero value is a world without faults, in the default order.
type Config struct {
	Seed uint64
	Plan faults.Plan
	// Start is the wall clock at the beginning. Default 2026-01-01 00:00 UTC.
	Start time.Time
	// Limit is the virtual time after which an orderly end is asked for although the run is not Done. Default 10 minutes.
	Limit time.Duration
	// CloseLimit is how much virtual time the orderly end may take. Default 2 minutes.
	CloseLimit time.Duration
	// MaxSteps ends a run that does not come to rest: a busy loop. Default 2,000,000 in all; a hundredth of it at
	// one instant of virtual time.
	MaxSteps int
	// Standalone makes the database a standalone, without change streams.
	Standalone bool
	// Done, if set, is asked whenever no task is ready. When it returns true and no fault is under way, the processes are
	// told to close.
	Done func(w *World) bool
	// Watch, if set, is told of every step at which more than one task is ready: their IDs, in the default order.
	Watch func(step int, ready []int)
	// Decorate, if set, wraps the Store of every process: this is how mutants are planted.
	Decorate func(process string, inner store.Store) store.Store
	// Through, if set, is asked once for how the Stores of the processes reach the database. Nil is the shortest way, straight to the model; sim/mongodriver
	// has the way through the official driver.
	Through func(w *World) func(p *Process) store.Store
	// Defects are bugs to plant into the engines and their stores.
	Defects defect.Set
	// Script and DecoratePostgres do for the guards' stores what Decorate does for the database: plant mutants. Script runs a script in the
	// place of the Redis model, and may change the call.
	Script           func(server *redissim.Server, now time.Time, call *redisport.Call) (redisport.Reply, error)
	DecoratePostgres func(process string, inner pgport.DB) pgport.DB
}

// How a run ended: the name of its RunEnded event.
const (
	EndedClosed     = "closed"     // every task ended after an orderly close
	EndedStepLimit  = "step limit" // the run did not come to rest
	EndedCloseLimit = "close limit"
)

// ttlInterval is the pause between passes of MongoDB's TTL monitor (manual, "TTL Indexes": every 60 seconds).
const ttlInterval = 60 * time.Second

// World is a simulated world. Add processes, then Run it once.
type World struct {
	config  Config
	journal *journal.Journal
	model   *mongosim.Server // the primary; without one, the last
	replication
	redis    redisServer
	fences   map[string]uint64 // by key: the largest that the receivers of FencedEffect have seen
	postgres *pgsim.Server
	random   random // scheduling decisions

	processes []*Process
	now       time.Duration
	step      int
	instant   int // step at which the clock moved last
	current   *task
	ready     []*task
	timers    timerHeap
	timerSeq  int
	lastTask  int
	live      int // tasks that have not ended

	demotions []int // steps at which a schedule of priorities lets a task fall back
	lowest    int   // priority that was given last to one that fell back

	choices  []faults.Choice // the plan's, that lie ahead
	taken    []faults.Choice // deviations of this run
	pending  []faults.Fault  // that have not struck
	counts   map[string]int  // how often each point was reached by any process
	underway int             // faults whose end lies ahead: restarts, thaws, stalls
	around   int             // the same for refusals and partitions
	lastOver time.Duration   // when the last of them was over

	refusals []string // steps
	feeds    []*feed  // of change streams that are open
	waiting  []*task  // for something of the database to change
	connect  func(p *Process) store.Store
	handlers []*running // that run now
	applied  int        // entries of the model's oplog that are in the journal: all that a majority has
	contexts []*task
	closing  bool
	ended    string
}

// New returns a world without processes. The error says what is wrong with the plan.
func New(config Config) (*World, error) {
	if err := config.Plan.Validate(); err != nil {
		return nil, err
	}
	if config.Start.IsZero() {
		config.Start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	}
	if config.Limit == 0 {
		config.Limit = 10 * time.Minute
	}
	if config.CloseLimit == 0 {
		config.CloseLimit = 2 * time.Minute
	}
	if config.MaxSteps == 0 {
		config.MaxSteps = 2_000_000
	}
	w := &World{
		config:  config,
		journal: &journal.Journal{},
		redis:   newRedisServer(config.Seed), fences: map[string]uint64{}, postgres: pgsim.New(),
		random:  newRandom(config.Seed, 0),
		choices: config.Plan.Choices,
		counts:  map[string]int{},
		pending: append([]faults.Fault(nil), config.Plan.Faults...),
	}
	if err := w.startDatabase(); err != nil {
		return nil, err
	}
	w.drawDemotions()
	w.connect = func(p *Process) store.Store { return &simulatedStore{p.Connect()} }
	if config.Through != nil {
		w.connect = config.Through(w)
	}
	return w, nil
}

// Journal returns the record of the run.
func (w *World) Journal() *journal.Journal { return w.journal }

// Model returns the database, for looking at: the primary, if it is a replica set.
func (w *World) Model() *mongosim.Server { return w.model }

// Now is the true virtual time since the start.
func (w *World) Now() time.Duration { return w.now }

// LastFault is when the last fault was over that has a duration.
func (w *World) LastFault() time.Duration { return w.lastOver }

// Deviations returns the scheduling decisions of the run that were not the default: with them, the same faults and
// the same seed, a Listed plan repeats the run.
func (w *World) Deviations() []faults.Choice { return w.taken }

// Unstruck returns the faults of the plan that never found their place.
func (w *World) Unstruck() []faults.Fault { return w.pending }

// Run runs the world to its end and returns the journal. It panics if the world was run before.
func (w *World) Run() *journal.Journal {
	if w.ended != "" {
		panic("sim: World.Run called twice")
	}
	w.record(journal.Event{Kind: journal.RunStarted, Number: w.config.Start.UnixMilli()})
	w.after(ttlInterval, w.expire)
	w.after(w.config.Limit, w.closeAll)
	for _, p := range w.processes {
		p.start()
	}
	w.schedule()
	w.record(journal.Event{Kind: journal.RunEnded, Name: w.ended})
	w.tearDown()
	return w.journal
}

// expire runs the TTL monitor, for ever.
func (w *World) expire() {
	w.ExpireNow()
	w.after(ttlInterval, w.expire)
}

// ExpireNow is one pass of the TTL monitor. It is called from inside a task.
func (w *World) ExpireNow() {
	if due, any := w.model.NextExpiry(); any && due.Before(w.ServerNow()) {
		w.model.ExpireTTL(w.ServerNow())
		w.recordWrites(journal.Event{})
	}
}

// ServerNow is the database's wall clock.
func (w *World) ServerNow() time.Time { return w.config.Start.Add(w.now) }

func (w *World) record(event journal.Event) {
	event.Step, event.Time = w.step, w.now
	w.journal.Append(event)
}

// recordWrites puts what a majority of the members has, and had not the last time, into the journal. What the model applied since
// the last time was done in the name of the event.
func (w *World) recordWrites(as journal.Event) {
	w.replicate()
	entries, committed := w.model.OplogSince(w.applied), w.model.CommittedLen()-w.applied
	for i := range entries[:committed] {
		w.recordWrite(w.authorOf(i, as), &entries[i])
	}
	if len(entries) > len(w.authors) {
		w.Changed()
	}
	w.applied += committed
	w.keepAuthors(committed, len(entries)-committed, as)
	w.wakeFeeds()
}

func (w *World) recordWrite(as journal.Event, entry *mongosim.Entry) {
	as.Collection, as.Key, as.Document = entry.Collection, keyText(entry.ID), nil
	switch {
	case entry.Expired:
		as.Kind = journal.Expired
	case entry.After == nil && entry.Before != nil:
		as.Kind = journal.Deleted
	case entry.After != nil:
		as.Kind, as.Document = journal.Wrote, entry.After
	default:
		return // a collection was created or dropped
	}
	w.record(as)
}

// Changed lets those look again that wait for something of the database to change. The world calls it after every write; whoever changes
// something else that a command may wait for does too.
func (w *World) Changed() {
	for _, t := range w.waiting {
		w.makeReady(t)
	}
	w.waiting = w.waiting[:0]
}

func keyText(id any) string {
	if text, ok := id.(string); ok {
		return text
	}
	return fmt.Sprint(id)
}

// closeAll asks every process for an orderly end.
func (w *World) closeAll() {
	if w.closing {
		return
	}
	w.closing = true
	for _, p := range w.processes {
		p.close()
	}
	w.after(w.config.CloseLimit, func() { w.ended = EndedCloseLimit })
}

// tearDown unwinds the tasks that are left, so that nothing leaks.
func (w *World) tearDown() {
	for _, p := range w.processes {
		p.unwind()
	}
}
