// Package scenarios holds named runs: a workload, a plan of faults, and what must come out. The first five are the rows of the crash
// table in the specification; see README.md for all of them, and for the runs that once found a bug.
package scenarios

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/fencepost-sim/fencepost/engine"
	"github.com/fencepost-sim/fencepost/engine/idempotency"
	"github.com/fencepost-sim/fencepost/engine/idempotency/pgport"
	"github.com/fencepost-sim/fencepost/engine/idempotency/redisport"
	"github.com/fencepost-sim/fencepost/engine/store"
	"github.com/fencepost-sim/fencepost/faults"
	"github.com/fencepost-sim/fencepost/internal/defect"
	"github.com/fencepost-sim/fencepost/sim"
	"github.com/fencepost-sim/fencepost/sim/journal"
	"github.com/fencepost-sim/fencepost/sim/redissim"
)

// Variant is a configuration in which every scenario runs.
type Variant struct {
	Delivery  engine.Delivery
	Unordered bool
	Replicas  int
}

// Variants lists all configurations: at-least-once and at-most-once, ordered and unordered, one and three replicas.
func Variants() []Variant {
	var all []Variant
	for _, delivery := range []engine.Delivery{engine.AtLeastOnce, engine.AtMostOnce} {
		for _, unordered := range []bool{false, true} {
			for _, replicas := range []int{1, 3} {
				all = append(all, Variant{delivery, unordered, replicas})
			}
		}
	}
	return all
}

// DefaultVariant is the one that simrun shows when nothing else is asked for.
var DefaultVariant = Variant{engine.AtLeastOnce, false, 3}

// String writes the variant as ParseVariant reads it, for example "at-least-once,ordered,3".
func (v Variant) String() string {
	order := "ordered"
	if v.Unordered {
		order = "unordered"
	}
	return fmt.Sprintf("%s,%s,%d", v.Delivery, order, v.Replicas)
}

// ErrUnknown is wrapped by errors about names that do not exist.
var ErrUnknown = errors.New("scenarios: unknown")

// ParseVariant reads a variant.
func ParseVariant(text string) (Variant, error) {
	for _, variant := range Variants() {
		if variant.String() == text {
			return variant, nil
		}
	}
	names := make([]string, 0, len(Variants()))
	for _, variant := range Variants() {
		names = append(names, variant.String())
	}
	return Variant{}, fmt.Errorf("%w variant %q; allowed: %s", ErrUnknown, text, strings.Join(names, " "))
}

// AtMostOnce tells whether the variant's delivery is at most once.
func (v Variant) AtMostOnce() bool { return v.Delivery == engine.AtMostOnce }

// Scenario is a named run.
type Scenario struct {
	Name string
	// Title is one line for a list; Story says what strikes, and what must repair it.
	Title, Story string
	// Row is the scenario's row in the crash table, if it has one.
	Row      *CrashRow
	Workload Workload
	Faults   []faults.Fault
	// Expect says what must come out in a variant.
	Expect func(Variant) Expectation
}

// CrashRow is a row of the specification's crash table, by the names of the points between which the process dies.
type CrashRow struct {
	After, Before string // points: the last that happened, the first that did not
	Recovery      string
	RunsAgain     bool // may the handler run again, at least once?
}

// Expectation is what must come out for each event of a scenario.
type Expectation struct {
	Starts   int      // handler starts
	Effects  int      // side effects, all with one idempotency key
	Attempts []string // in order: "success", or the code of the error
	Status   string   // of the delivery
	// Within bounds the time from publication to the first start of the handler; zero sets no bound.
	Within time.Duration
	// Fenced says that a stale outcome must have been refused and reported.
	Fenced bool
	// Executions is how often what the guard protects is started; of scenarios with a guard.
	Executions int
	// Reported is a text that must be among the errors that were reported.
	Reported string
}

// Run is everything that a run is made of, and what came of it.
type Run struct {
	// Scenario and Variant are what was run, or nil and the zero value for a Workload that belongs to none.
	Scenario *Scenario
	Variant  Variant
	Workload Workload
	// Guard replaces the scenario's own, if it is not empty.
	Guard   Guard
	Seed    uint64
	Plan    faults.Plan
	Journal *journal.Journal
	// Deviations are the scheduling decisions that were not the default.
	Deviations []faults.Choice
	// Unstruck are faults that did not find their place.
	Unstruck []faults.Fault
}

// Options adjusts a run of a scenario.
type Options struct {
	Variant Variant
	// Seed draws ids, what MongoDB leaves open, and with a seeded schedule the order of tasks.
	Seed uint64
	// Plan replaces the scenario's own faults in the default order.
	Plan *faults.Plan
	// Guard replaces the scenario's own: the same run with another guard, or without.
	Guard Guard
	// Through is the way to the database.
	Through Through
	// Bug is a bug to plant.
	Bug Bug
}

// Bug is a planted bug: a change of the commands that engines send, or a defect inside them. The zero value is none.
type Bug struct {
	Decorate func(process string, inner store.Store) store.Store
	Defects  defect.Set
	// Script and Postgres change what the guards' stores do; see sim.Config.
	Script   func(server *redissim.Server, now time.Time, call *redisport.Call) (redisport.Reply, error)
	Postgres func(process string, inner pgport.DB) pgport.DB
	// Handler takes the place of idempotency.Handler.
	Handler func(guard *idempotency.Guard, handler engine.Handler[Order]) engine.Handler[Order]
}

// Plan is the scenario's own plan with a schedule.
func (s *Scenario) Plan(schedule faults.Schedule) faults.Plan {
	plan := faults.Plan{Faults: s.Faults, Schedule: schedule}
	if schedule == faults.Priorities {
		plan.Depth, plan.Steps = 3, 1000
	}
	return plan
}

// Run runs the scenario. The error says what is wrong with the plan.
func (s *Scenario) Run(options Options) (*Run, error) {
	if options.Variant == (Variant{}) {
		options.Variant = DefaultVariant
	}
	plan := s.Plan(faults.Listed)
	if options.Plan != nil {
		plan = *options.Plan
	}
	workload := s.Workload.In(options.Variant)
	if options.Guard != "" {
		workload.Guard = options.Guard
	}
	workload.Through = options.Through
	run, err := workload.Run(plan, options.Seed, options.Bug)
	if err != nil {
		return nil, err
	}
	run.Scenario, run.Variant, run.Guard = s, options.Variant, options.Guard
	return run, nil
}

// In puts the workload into a variant.
func (w Workload) In(v Variant) Workload {
	w = w.withDefaults()
	w.Replicas = v.Replicas + w.Standby
	for i := range w.Topics {
		w.Topics[i].Options.Delivery = v.Delivery
		w.Topics[i].Options.Unordered = v.Unordered
	}
	return w
}

// runLimit is the virtual time that a run may take. Reaching it without having delivered everything is a violation.
const runLimit = 4 * time.Hour

// Run runs a workload under a plan. The error says what is wrong with the plan.
func (w Workload) Run(plan faults.Plan, seed uint64, bug Bug) (*Run, error) {
	world, err := w.World(plan, seed, bug, nil)
	if err != nil {
		return nil, err
	}
	return w.Finished(world, plan, seed), nil
}

// World returns a world with the workload's processes, to be run once; watch may be nil (see sim.Config). The error says what is wrong with the plan.
func (w Workload) World(plan faults.Plan, seed uint64, bug Bug, watch func(step int, ready []int)) (*sim.World, error) {
	way, err := w.Through.way()
	if err != nil {
		return nil, err
	}
	var done func(*sim.World) bool
	limit := runLimit
	if w.CloseAt > 0 {
		limit = w.CloseAt
	}
	world, err := sim.New(sim.Config{
		Seed: seed, Plan: plan, Decorate: bug.Decorate, Defects: bug.Defects, Limit: limit, Watch: watch, Script: bug.Script, DecoratePostgres: bug.Postgres,
		Done: func(w *sim.World) bool { return done(w) }, Through: way,
	})
	if err != nil {
		return nil, err
	}
	w.bug = bug
	done = w.Build(world)
	return world, nil
}

// Finished runs the world that World returned and says what came of it.
func (w Workload) Finished(world *sim.World, plan faults.Plan, seed uint64) *Run {
	recorded := world.Run()
	return &Run{Workload: w, Seed: seed, Plan: plan, Journal: recorded, Deviations: world.Deviations(), Unstruck: world.Unstruck()}
}

// Lookup returns the scenario with the name. The error lists the names.
func Lookup(name string) (*Scenario, error) {
	for i := range All {
		if All[i].Name == name {
			return &All[i], nil
		}
	}
	names := make([]string, len(All))
	for i := range All {
		names[i] = All[i].Name
	}
	return nil, fmt.Errorf("%w scenario %q; allowed: %s", ErrUnknown, name, strings.Join(names, ", "))
}
