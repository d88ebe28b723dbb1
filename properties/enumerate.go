package properties

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/fencepost-sim/fencepost/engine"
	"github.com/fencepost-sim/fencepost/engine/store"
	"github.com/fencepost-sim/fencepost/faults"
	"github.com/fencepost-sim/fencepost/scenarios"
	"github.com/fencepost-sim/fencepost/sim"
	"github.com/fencepost-sim/fencepost/sim/journal"
)

// Window is a place where a process can die: a point, the how-manieth time it comes there, and the position around it.
type Window struct {
	Process    string
	Point      string
	Occurrence int
	Position   faults.Position
	Step       int // at which the process comes there, if it is not disturbed
}

// Base is a run into which crashes are put one at a time. Together the bases reach every point of the protocol.
type Base struct {
	Name     string
	Workload scenarios.Workload
	Plan     faults.Plan
}

// Bases are for two workers and one event, or two where one would not lead to a point.
func Bases() []Base {
	load := func(topic scenarios.TopicLoad) scenarios.Workload {
		return scenarios.Workload{Replicas: 2, Topics: []scenarios.TopicLoad{topic}}
	}
	unordered := engine.SubscribeOptions{Unordered: true}
	lost := func(kind faults.Kind, position faults.Position, point store.Point, span time.Duration) faults.Plan {
		return faults.Plan{Faults: []faults.Fault{{
			Kind: kind, Process: faults.AnyProcess, Point: string(point), Occurrence: 1, Position: position, Span: span,
		}}}
	}
	return []Base{
		{"ordered", load(scenarios.TopicLoad{}), faults.Plan{}},
		{"unordered", load(scenarios.TopicLoad{Options: unordered}), faults.Plan{}},
		{"at most once", load(scenarios.TopicLoad{Options: engine.SubscribeOptions{Delivery: engine.AtMostOnce}}), faults.Plan{}},
		{"latest", latest(load(scenarios.TopicLoad{})), faults.Plan{}},
		{"fails once", load(scenarios.TopicLoad{Do: scenarios.Work{FailFirst: 1}}), faults.Plan{}},
		{"fails always", load(scenarios.TopicLoad{Options: engine.SubscribeOptions{MaxRetries: 1}, Do: scenarios.Work{FailFirst: 9}}), faults.Plan{}},
		{"long handler", load(scenarios.TopicLoad{Do: scenarios.Work{Time: 25 * time.Second}}), faults.Plan{}},
		{"lost worker", load(scenarios.TopicLoad{}), lost(faults.Crash, faults.After, sim.PointHandlerStart, 5*time.Second)},
		{"lost worker, unordered", load(scenarios.TopicLoad{Options: unordered}), lost(faults.Crash, faults.After, sim.PointHandlerStart, 5*time.Second)},
		{"torn materialization", load(scenarios.TopicLoad{}), lost(faults.Crash, faults.After, engine.PointDeliveryCreate, 5*time.Second)},
		{"torn success", load(scenarios.TopicLoad{}), lost(faults.Crash, faults.After, engine.PointAttemptSucceed, 5*time.Second)},
		{"torn error", load(scenarios.TopicLoad{Do: scenarios.Work{FailFirst: 1}}), lost(faults.Crash, faults.After, engine.PointAttemptFail, 5*time.Second)},
		{"torn retention", load(scenarios.TopicLoad{}), lost(faults.Crash, faults.After, engine.PointDeliverySucceed, 5*time.Second)},
		{"torn discovery", load(scenarios.TopicLoad{}), lost(faults.Crash, faults.After, engine.PointAttemptCreate, 5*time.Second)},
		{"rediscovery", scenarios.Workload{Replicas: 2, PublishAt: time.Second, Topics: []scenarios.TopicLoad{{Events: 2}}}, rediscovery},
		{"visible late", scenarios.Workload{Replicas: 2, Publishers: 2}, faults.Plan{Faults: []faults.Fault{{
			Kind: faults.Gap, Process: "publisher", Point: string(engine.PointPublish), Occurrence: 1, Position: faults.Before, Span: 2 * time.Second,
		}}}},
		{"audit", scenarios.Workload{Replicas: 2, Audit: true}, faults.Plan{}},
		{"leftover", forgotten, lost(faults.Stall, faults.Before, engine.PointReconcileAttempts, 2*time.Minute)},
		{"late discoverer", load(scenarios.TopicLoad{}), lost(faults.Stall, faults.Before, engine.PointDeliveryCreate, 40*time.Second)},
		{"lost acknowledgement", load(scenarios.TopicLoad{}), lost(faults.LoseReply, faults.Unanswered, engine.PointAttemptSucceed, 0)},
		{"lost claim", load(scenarios.TopicLoad{}), lost(faults.LoseReply, faults.Unanswered, engine.PointOrderClaim, 0)},
		{"lost discovery", load(scenarios.TopicLoad{}), lost(faults.LoseReply, faults.Unanswered, engine.PointDiscoveryLease, 0)},
	}
}

// rediscovery lets polling find two events at once, and kills the discoverer between them.
var rediscovery = faults.Plan{Faults: []faults.Fault{
	{Kind: faults.Drop, Process: faults.AnyProcess, Occurrence: 1, Count: faults.All},
	{Kind: faults.Crash, Process: faults.AnyProcess, Point: string(engine.PointAttemptCreate), Position: faults.After, Occurrence: 1, Span: 5 * time.Second},
}}

// forgotten is a load whose deliveries retention removes while a process that looked at them is paused.
var forgotten = scenarios.Workload{
	Replicas: 2, HistoryRetention: 2 * time.Second, StayFor: 5 * time.Minute,
	Topics: []scenarios.TopicLoad{{Do: scenarios.Work{Time: 6 * time.Second}}},
}

func latest(w scenarios.Workload) scenarios.Workload {
	w.Latest, w.PublishAt = true, time.Second
	return w
}

// Windows lists every place of the run where one of its processes can die, from its journal.
func Windows(j *journal.Journal) (windows []Window) {
	counts := map[[2]string]int{} // looked up only
	for i := range j.Events {
		event := &j.Events[i]
		point := event.Point
		switch event.Kind {
		case journal.Issued:
		case journal.HandlerStarted:
			point = sim.PointHandlerStart
		case journal.HandlerEnded:
			point = sim.PointHandlerEnd
		case journal.EffectPerformed:
			if point = sim.PointEffect; event.Point != "" {
				continue // it is a row, and was issued before
			}
		default:
			continue
		}
		process := j.ProcessName(event.Process)
		counts[[2]string{process, point}]++
		for _, position := range positionsAt(point) {
			windows = append(windows, Window{process, point, counts[[2]string{process, point}], position, event.Step})
		}
	}
	return windows
}

// positionsAt lists the positions around a point: the start and the end of a handler have no reply.
func positionsAt(point string) []faults.Position {
	if point == sim.PointHandlerStart || point == sim.PointHandlerEnd {
		return []faults.Position{faults.Before, faults.After}
	}
	return faults.Positions
}

// Cell is a point with a position: what the enumeration must visit.
type Cell struct {
	Point    string
	Position faults.Position
}

// Cells lists every cell that the protocol declares, from the engine's table of points and the harness's own.
func Cells() (cells []Cell) {
	var points []string
	for _, step := range engine.Points() {
		points = append(points, string(step.Point))
	}
	for _, point := range append(points, sim.HandlerPoints...) {
		for _, position := range positionsAt(point) {
			cells = append(cells, Cell{point, position})
		}
	}
	return cells
}

// Enumeration is what came of crashing at every window of every base.
type Enumeration struct {
	Windows  int // that were found
	Runs     int // crashes that struck
	Visited  map[Cell]int
	Unstruck []string // crashes that did not find their place again
	Failures []Failure
}

// Failure is a crash after which a property did not hold.
type Failure struct {
	Base      Base
	Plan      faults.Plan
	Run       *scenarios.Run
	Violation Violation
}

// Shrink returns the smallest plan with which the same property is violated. The bug is that of the enumeration.
func (f *Failure) Shrink(bug scenarios.Bug) faults.Plan {
	return scenarios.Shrink(f.Run.Listed(), func(plan faults.Plan) bool {
		again, err := f.Base.Workload.Run(plan, f.Run.Seed, bug)
		return err == nil && slices.ContainsFunc(Violations(again.Journal), func(v Violation) bool { return v.Property == f.Violation.Property })
	})
}

// PerProperty is the first failure of each property.
func (e *Enumeration) PerProperty() (first []Failure) {
	for _, failure := range e.Failures {
		if !slices.ContainsFunc(first, func(f Failure) bool { return f.Violation.Property == failure.Violation.Property }) {
			first = append(first, failure)
		}
	}
	return first
}

// Enumerate crashes the process at every window of every base, one crash a run, and checks all properties. The process
// is restarted after 5 s.
func Enumerate(bases []Base, seed uint64, bug scenarios.Bug) (*Enumeration, error) {
	e := &Enumeration{Visited: map[Cell]int{}}
	for _, base := range bases {
		run, err := base.Workload.Run(base.Plan, seed, bug)
		if err != nil {
			return nil, err
		}
		windows := Windows(run.Journal)
		e.Windows += len(windows)
		for _, window := range windows {
			if err := e.crash(base, window, seed, bug); err != nil {
				return nil, err
			}
		}
	}
	return e, nil
}

func (e *Enumeration) crash(base Base, window Window, seed uint64, bug scenarios.Bug) error {
	plan := base.Plan
	crash := faults.Fault{
		Kind: faults.Crash, Process: window.Process, Point: window.Point,
		Occurrence: window.Occurrence, Position: window.Position, Span: 5 * time.Second,
	}
	plan.Faults = append([]faults.Fault{crash}, plan.Faults...) // first, where the base has a fault at the same place
	run, err := base.Workload.Run(plan, seed, bug)
	if err != nil {
		return err
	}
	if slices.Contains(run.Unstruck, crash) {
		e.Unstruck = append(e.Unstruck, fmt.Sprintf("%s: %s", base.Name, crash))
		return nil
	}
	e.Runs++
	e.Visited[Cell{window.Point, window.Position}]++
	for _, violation := range Violations(run.Journal) {
		e.Failures = append(e.Failures, Failure{base, plan, run, violation})
	}
	return nil
}

// Unvisited lists the declared cells at which no crash struck.
func (e *Enumeration) Unvisited() (cells []Cell) {
	for _, cell := range Cells() {
		if e.Visited[cell] == 0 {
			cells = append(cells, cell)
		}
	}
	slices.SortFunc(cells, func(a, b Cell) int { return cmp.Or(cmp.Compare(a.Point, b.Point), cmp.Compare(a.Position, b.Position)) })
	return cells
}
