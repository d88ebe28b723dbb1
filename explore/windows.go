package explore

import (
	"slices"
	"strings"
	"time"

	"github.com/fencepost-sim/fencepost/engine"
	"github.com/fencepost-sim/fencepost/faults"
	"github.com/fencepost-sim/fencepost/sim"
	"github.com/fencepost-sim/fencepost/sim/journal"
)

// Window is a place where a process can die: a point, the how-manieth time it comes there, and the position around it.
type Window struct {
	Process    string
	Point      string
	Occurrence int
	Position   faults.Position
	Step       int // of the run in which it was found
}

// Cell is the window's point and position.
func (w Window) Cell() Cell { return Cell{w.Point, w.Position} }

// Crash is the fault that kills the process there, and restarts it 5 s later.
func (w Window) Crash() faults.Fault {
	return faults.Fault{
		Kind: faults.Crash, Process: w.Process, Point: w.Point, Occurrence: w.Occurrence, Position: w.Position, Span: 5 * time.Second,
	}
}

// Windows lists every place of the run where one of its processes can die, from its journal.
func Windows(j *journal.Journal) (windows []Window) {
	counts := map[[2]string]int{} // looked up only
	for i := range j.Events {
		event := &j.Events[i]
		point := event.Point
		switch event.Kind {
		case journal.FaultStruck:
			if slices.Contains(sim.HandlerPoints, point) && cutsOff(event.Name) {
				counts[[2]string{j.ProcessName(event.Process), point}]++ // the process came there, and the journal does not show it
			}
			continue
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

// cutsOff tells whether the fault keeps what it strikes from beginning.
func cutsOff(fault string) bool {
	kind, _, _ := strings.Cut(fault, " ")
	return strings.Contains(fault, "position="+string(faults.Before)+" ") && (kind == string(faults.Crash) || kind == string(faults.LoseCall))
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
