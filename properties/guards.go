package properties

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/fencepost-sim/fencepost/engine/idempotency"
	"github.com/fencepost-sim/fencepost/faults"
	"github.com/fencepost-sim/fencepost/internal/document"
	"github.com/fencepost-sim/fencepost/sim"
	"github.com/fencepost-sim/fencepost/sim/journal"
)

// Guarded lists what holds where handlers are guarded: U and D always, C as long as nothing strikes that the condition excludes.
var Guarded = []Property{owned, replayed, scoped, unwedged, releasedLate, confirmed, patient, exactlyOnce, atMostOne, alone, stored, oneEffect}

// The stores of guards, as scenarios name them.
const (
	inRedis         = "redis"
	inPostgres      = "postgres"
	inPostgresAlone = "postgres-claim-alone"
)

// applicable lists the properties of the run: of the engine, and of its guard if there is one.
func applicable(j *journal.Journal) []Property {
	store := storeOf(j)
	if store == "" {
		return All
	}
	return append(slices.Clone(All), slices.DeleteFunc(slices.Clone(Guarded), func(p Property) bool { return !slices.Contains(p.Stores, store) })...)
}

// storeOf is the store of the run's guards, or empty.
func storeOf(j *journal.Journal) string {
	i := slices.IndexFunc(j.Events, func(e journal.Event) bool { return e.Kind == journal.GuardOpened })
	if i < 0 {
		return ""
	}
	return j.Events[i].Name
}

// Everything lists the properties of deliveries, then those of guards.
func Everything() []Property { return slices.Concat(All, Guarded) }

// Guards is the fold of what guards and their stores did.
type Guards struct {
	Store      string // "redis", "postgres" or "postgres-claim-alone"
	Lease      time.Duration
	Executions []*Execution // every start, in order
	DataLost   bool         // Redis has forgotten writes
	// What the event that is being observed did in Redis, if it is one of these.
	Script *Script        // a script was applied
	Claim  *Change[Claim] // a record changed

	records   map[string]Claim
	owners    map[string]*owner // by token
	last      Script            // applied
	asked     map[int]*asked    // by task
	clockSet  bool              // Redis's clock was changed
	hindered  map[int]bool      // processes whose COMPLETE, or whose transaction, a fault has struck
	pausedAt  map[int]time.Duration
	ofHandler map[int]*Execution // the last execution of each task
}

// Script is a script that Redis has run.
type Script struct {
	Name, Key, Token, Reply string
	Fence                   int64 // that a claim was given
}

// Claim is a record in Redis.
type Claim struct {
	State      string // "P" pending, "C" completed, empty if there is none
	Token      string
	LeaseUntil time.Duration
}

// owner is who has claimed with a token.
type owner struct {
	Claimer
	left    time.Duration // when nobody worked under the claim any more
	working bool
}

// asked is the last claim that a task has asked for.
type asked struct {
	token    string
	reply    string
	answered bool
}

// Execution is one run of what a guard protects.
type Execution struct {
	Process, Life, Task int
	EventID             string
	Group, Topic        string
	Key, Token          string
	Started             time.Duration
	Returned, Died      bool
	Error               string
	Cancelled           bool // it was told that its claim is lost
	Effects             int
	Completed           bool // its outcome is stored
}

// Over tells whether the execution has ended, in whatever way.
func (x *Execution) Over() bool { return x.Returned || x.Died }

// Of tells whether the execution is of the event, for the group.
func (x *Execution) of(group, topic, event string) bool {
	return x.Group == group && x.Topic == topic && x.EventID == event
}

// newGuards returns nil if there is no store.
func newGuards(store string) *Guards {
	if store == "" {
		return nil
	}
	return &Guards{
		Store:   store,
		records: map[string]Claim{}, owners: map[string]*owner{}, asked: map[int]*asked{}, hindered: map[int]bool{},
		pausedAt: map[int]time.Duration{}, ofHandler: map[int]*Execution{},
	}
}

// guard folds an event in.
func (s *State) guard(event *journal.Event) {
	g := s.Guards
	if g == nil {
		return
	}
	g.Script, g.Claim = nil, nil
	switch event.Kind {
	case journal.GuardOpened:
		g.Lease = event.Span
	case journal.ExecutionStarted:
		g.start(s, event)
	case journal.ExecutionEnded:
		g.end(s, event)
	case journal.ExecutionCancelled:
		if x := g.running(event); x != nil { // that the engine's lease is lost does not concern the claim
			x.Cancelled = strings.Contains(event.Error, idempotency.ErrLostClaim.Error()) || g.wasHindered(x.Process)
		}
	case journal.EffectPerformed:
		if x := g.running(event); x != nil {
			x.Effects++
		}
	case journal.ProcessDied:
		g.died(s, event)
	case journal.FaultStruck:
		g.struck(event)
	case journal.Applied:
		g.applied(s, event)
	case journal.Answered:
		if a := g.asked[event.Task]; a != nil && (event.Point == "redis.claim" || event.Point == "postgres.claim") {
			a.answered = event.Error == ""
		}
	case journal.Wrote, journal.Deleted:
		if event.Collection == sim.RedisCollection {
			g.changed(s, event)
		}
	}
}

func (g *Guards) start(s *State, event *journal.Event) {
	x := &Execution{
		Process: event.Process, Life: s.Life(event.Process), Task: event.Task, EventID: event.Key, Group: event.Group, Topic: event.Name,
		Key: document.Text(event.Document, "key"), Token: document.Text(event.Document, "token"), Started: event.Time,
	}
	g.Executions = append(g.Executions, x)
	g.ofHandler[event.Task] = x
	if o := g.owners[x.Token]; o != nil {
		o.working = true
	}
}

func (g *Guards) end(s *State, event *journal.Event) {
	if x := g.running(event); x != nil {
		x.Returned, x.Error = true, event.Error
		g.left(s, x)
	}
}

func (g *Guards) left(s *State, x *Execution) {
	if o := g.owners[x.Token]; o != nil {
		o.working, o.left = false, s.Now
	}
}

func (g *Guards) died(s *State, event *journal.Event) {
	for _, x := range g.Executions {
		if x.Process == event.Process && !x.Returned && !x.Died {
			x.Died = true
			g.left(s, x)
		}
		if x.Process == event.Process && x.Life == s.Life(event.Process) && !x.Completed {
			x.Died = true // it had returned, and could not store its outcome
		}
	}
}

// running returns the execution in the event's task, or nil.
func (g *Guards) running(event *journal.Event) *Execution {
	x := g.ofHandler[event.Task]
	if x == nil || x.Over() {
		return nil
	}
	return x
}

// OfHandler returns the last execution in the task, since a time; nil if there was none.
func (g *Guards) OfHandler(task int, since time.Duration) *Execution {
	if x := g.ofHandler[task]; x != nil && x.Started >= since {
		return x
	}
	return nil
}

// byToken returns the execution under the claim, or nil.
func (g *Guards) byToken(token string) *Execution {
	i := slices.IndexFunc(g.Executions, func(x *Execution) bool { return x.Token == token })
	if i < 0 || token == "" {
		return nil
	}
	return g.Executions[i]
}

// struck takes in what a fault excuses.
func (g *Guards) struck(event *journal.Event) {
	switch kind, _, _ := strings.Cut(event.Name, " "); faults.Kind(kind) {
	case faults.Freeze, faults.Stall:
		g.pausedAt[event.Process] = max(g.pausedAt[event.Process], event.Time+event.Span)
	case faults.RedisFailover:
		g.DataLost, g.clockSet = true, g.clockSet || event.Span != 0
	case faults.Partition:
		g.hindered[event.Process] = true
	case faults.Refuse, faults.LoseCall, faults.LoseReply:
		switch ofStore := strings.HasPrefix(event.Point, "redis.") || strings.HasPrefix(event.Point, "postgres.") || event.Point == sim.PointEffect; {
		case ofStore && faults.Kind(kind) == faults.Refuse:
			g.hindered[anyProcess] = true // the server refuses them all
		case ofStore:
			g.hindered[event.Process] = true
		}
	}
}

// anyProcess stands for all processes in Guards.hindered.
const anyProcess = -1

func (g *Guards) wasHindered(process int) bool { return g.hindered[process] || g.hindered[anyProcess] }

// Paused tells whether the execution was paused, or one of its calls was, or everybody was slow: then it may have outlived its lease
// without being told in time.
func (g *Guards) Paused(s *State, x *Execution) bool {
	until, paused := g.pausedAt[x.Process]
	return s.Forced > 0 || paused && until >= x.Started
}

func (g *Guards) applied(s *State, event *journal.Event) {
	switch {
	case event.Point == "postgres.claim":
		g.asked[event.Task] = &asked{reply: "duplicate"}
		if event.Number == 1 && event.Error == "" {
			g.asked[event.Task].reply = "claimed"
		}
	case event.Document != nil && strings.HasPrefix(event.Point, "redis."):
		arguments, _ := document.Get(event.Document, "arguments").(bson.A)
		reply, _ := document.Get(event.Document, "reply").(bson.A)
		g.last = Script{Name: event.Name, Key: event.Key, Token: first(arguments), Reply: first(reply)}
		g.Script = &g.last
		if event.Name == "claim" {
			if len(reply) > 1 {
				fence, _ := reply[1].(string)
				g.last.Fence, _ = strconv.ParseInt(fence, 10, 64) // zero if it was not granted
			}
			g.claimAsked(s, event)
		}
	}
}

func (g *Guards) claimAsked(s *State, event *journal.Event) {
	g.asked[event.Task] = &asked{token: g.last.Token, reply: g.last.Reply}
	if g.owners[g.last.Token] == nil && g.Granted(g.last.Reply) {
		g.owners[g.last.Token] = &owner{Claimer: s.Author(event), left: event.Time}
	}
}

// Granted tells whether the answer gives the claim to who asked.
func (g *Guards) Granted(reply string) bool { return reply == "claimed" || reply == "takeover" }

func first(list bson.A) string {
	if len(list) == 0 {
		return ""
	}
	text, _ := list[0].(string)
	return text
}

func (g *Guards) changed(s *State, event *journal.Event) {
	before := g.records[event.Key]
	after := Claim{
		State: document.Text(event.Document, "state"), Token: document.Text(event.Document, "token"),
		LeaseUntil: s.virtual(document.Get(event.Document, "leaseUntil")),
	}
	if event.Kind == journal.Deleted {
		after = Claim{}
	}
	g.records[event.Key] = after
	g.Claim = &Change[Claim]{&before, &after}
	for _, x := range g.Executions {
		if x.Token == after.Token && x.Token != "" && after.State == "C" {
			x.Completed = true
		}
	}
}
