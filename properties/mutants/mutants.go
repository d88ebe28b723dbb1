// Package mutants holds planted bugs. Each proves that a property is able to fail: with the bug, some run violates it;
// without the bug, the same run holds.
//
// Most mutants change the commands that the engine sends, or the replies that it gets, at one step of the protocol. The few that
// cannot be said that way are switches inside the engine (package internal/defect).
package mutants

import (
	"context"
	"fmt"
	"time"

	"github.com/fencepost-sim/fencepost/engine"
	"github.com/fencepost-sim/fencepost/engine/idempotency"
	"github.com/fencepost-sim/fencepost/engine/idempotency/pgport"
	"github.com/fencepost-sim/fencepost/engine/store"
	"github.com/fencepost-sim/fencepost/faults"
	"github.com/fencepost-sim/fencepost/internal/defect"
	"github.com/fencepost-sim/fencepost/properties"
	"github.com/fencepost-sim/fencepost/scenarios"
	"github.com/fencepost-sim/fencepost/sim/redissim/holes"
)

// Mutant is a planted bug, and the runs in which it shows.
type Mutant struct {
	Name string
	What string
	// Caught is the ID of the property that must catch it.
	Caught string
	// Workload and Faults are the load and the faults under which it shows; the schedule is searched.
	Workload scenarios.Workload
	Faults   []faults.Fault
	// Seeds is how many seeded schedules are tried after the default order.
	Seeds int

	// Command changes a command before it is sent.
	Command func(store.Command) store.Command
	// Reply changes what the engine gets to see.
	Reply func(store.Command, store.Reply) store.Reply
	// Swallow keeps a command from being sent at all, and makes the reply up.
	Swallow func(store.Command) (store.Reply, bool)
	Defect  defect.Defect

	// Hole is one in what Redis is asked to do; Handler takes the place of the guard around handlers; Postgres changes what is asked of PostgreSQL.
	Hole     holes.Hole
	Handler  func(guard *idempotency.Guard, handler engine.Handler[scenarios.Order]) engine.Handler[scenarios.Order]
	Postgres func(inner pgport.DB) pgport.DB
}

// Names lists all mutants.
func Names() []string {
	names := make([]string, len(All))
	for i := range All {
		names[i] = All[i].Name
	}
	return names
}

// Bug returns the mutant as a bug to plant.
func (m *Mutant) Bug() scenarios.Bug {
	if m.Defect != "" {
		return scenarios.Bug{Defects: defect.Set{m.Defect}}
	}
	if m.Workload.Guard != "" {
		return m.guardBug()
	}
	return scenarios.Bug{Decorate: func(_ string, inner store.Store) store.Store { return &mutated{inner, m} }}
}

// mutated is a Store with the bug.
type mutated struct {
	store.Store
	mutant *Mutant
}

func (s *mutated) Run(ctx context.Context, command store.Command) (store.Reply, error) {
	if s.mutant.Swallow != nil {
		if reply, swallowed := s.mutant.Swallow(command); swallowed {
			return reply, nil
		}
	}
	if s.mutant.Command != nil {
		command = s.mutant.Command(command)
	}
	reply, err := s.Store.Run(ctx, command)
	if s.mutant.Reply != nil && err == nil {
		reply = s.mutant.Reply(command, reply)
	}
	return reply, err
}

// Kill is how a mutant was caught.
type Kill struct {
	Mutant     *Mutant
	Seed       uint64
	Runs       int
	Plan       faults.Plan // shrunk
	Violation  properties.Violation
	Properties []string // IDs of all properties that were violated by the run
}

// Hunt searches for a run in which the property catches the mutant: the default order first, then seeded schedules.
// The run is shrunk to a plan from which nothing can be taken away.
func (m *Mutant) Hunt() (*Kill, error) {
	for n := range m.Seeds + 1 {
		plan := faults.Plan{Faults: m.Faults, Schedule: faults.Seeded}
		if n == 0 {
			plan.Schedule = faults.Listed
		}
		kill, err := m.try(plan, uint64(n+1))
		if err != nil {
			return nil, err
		}
		if kill != nil {
			kill.Runs = n + 1
			return kill, nil
		}
	}
	return nil, fmt.Errorf("mutant %s: %s was not violated in %d runs", m.Name, m.Caught, m.Seeds+1)
}

// patience is how long a run is waited for that has lost something: longer than any recovery, and far shorter than what a healthy run may take.
const patience = 20 * time.Minute

func (m *Mutant) load() scenarios.Workload {
	w := m.Workload
	if w.CloseAt == 0 {
		w.CloseAt = patience
	}
	return w
}

func (m *Mutant) try(plan faults.Plan, seed uint64) (*Kill, error) {
	run, err := m.load().Run(plan, seed, m.Bug())
	if err != nil {
		return nil, err
	}
	found, ids := m.violations(run)
	if found == nil {
		return nil, nil
	}
	small := scenarios.Shrink(run.Listed(), func(candidate faults.Plan) bool {
		again, err := m.load().Run(candidate, seed, m.Bug())
		if err != nil {
			return false
		}
		still, _ := m.violations(again)
		return still != nil
	})
	return &Kill{Mutant: m, Seed: seed, Plan: small, Violation: *found, Properties: ids}, nil
}

// violations returns the first violation of the property that must catch the mutant, and the IDs of all that were violated.
func (m *Mutant) violations(run *scenarios.Run) (found *properties.Violation, ids []string) {
	for _, verdict := range properties.Check(run.Journal) {
		if len(verdict.Violations) == 0 {
			continue
		}
		ids = append(ids, verdict.Property.ID)
		if verdict.Property.ID == m.Caught {
			found = &verdict.Violations[0]
		}
	}
	return found, ids
}
