package simtest

import (
	"fmt"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/fencepost-sim/fencepost/engine/store"
	"github.com/fencepost-sim/fencepost/explore"
	"github.com/fencepost-sim/fencepost/faults"
	"github.com/fencepost-sim/fencepost/internal/document"
	"github.com/fencepost-sim/fencepost/properties"
	"github.com/fencepost-sim/fencepost/scenarios"
	"github.com/fencepost-sim/fencepost/sim"
	"github.com/fencepost-sim/fencepost/sim/journal"
)

// Store is the port between engine and database.
type Store = store.Store

// World is one simulated world. Add processes to it, and say what must hold in the end.
type World struct {
	*sim.World
	until    func() bool
	finally  []finally
	finished bool            // done was true once
	ended    map[string]bool // deliveries that have ended, by group and event; retention may have removed them
}

type finally struct {
	name  string
	check func() error
}

// Finally adds something that must hold when the run is over: check returns an error that says what does not.
func (w *World) Finally(name string, check func() error) {
	w.finally = append(w.finally, finally{name, check})
}

// Until says when the processes are told to close: when done returns true and no fault is under way. It is asked whenever nobody has anything
// to do. By default that is when every main function has returned and every event has been delivered to every group that has subscribed to its topic.
func (w *World) Until(done func() bool) { w.until = done }

func (w *World) done(*sim.World) bool {
	if w.until != nil {
		w.finished = w.until()
		return w.finished
	}
	w.finished = w.Mains() == 0 && w.delivered()
	return w.finished
}

// delivered tells whether every event that a subscription deserves has ended.
func (w *World) delivered() bool {
	prefixes := w.Prefixes()
	for _, prefix := range prefixes {
		for _, delivery := range w.Documents(prefix + ".deliveries") {
			if document.Text(delivery, "status") != "pending" {
				w.ended[document.Text(delivery, "consumerGroup")+" "+document.Text(delivery, "eventId")] = true
			}
		}
		for _, subscription := range w.Documents(prefix + ".subscriptions") {
			if !w.settled(prefix, subscription) {
				return false
			}
		}
	}
	return len(prefixes) > 0
}

func (w *World) settled(prefix string, subscription bson.D) bool {
	group, topic := document.Text(subscription, "consumerGroup"), document.Text(subscription, "topic")
	latest := document.Text(subscription, "offsetReset") == "latest"
	return !slices.ContainsFunc(w.Documents(prefix+".events"), func(event bson.D) bool {
		missing := document.Text(event, "topic") == topic && !w.ended[group+" "+document.Text(event, "_id")]
		return missing && !(latest && before(event, subscription))
	})
}

// before tells whether the event was published before the subscription was made: the cursor has passed it, and there is no delivery.
func before(event, subscription bson.D) bool {
	sequence, _ := document.Get(event, "sequence").(bson.Timestamp)
	cursor, _ := document.Get(subscription, "cursorSequence").(bson.Timestamp)
	return !sequence.After(cursor)
}

// subject runs the worlds that a function builds.
type subject struct {
	options Options
	build   func(w *World)
}

// Run implements explore.Subject.
func (s subject) Run(plan faults.Plan, seed uint64, watch explore.Watch) (*explore.Outcome, error) {
	w := &World{ended: map[string]bool{}}
	world, err := sim.New(sim.Config{
		Seed: seed, Plan: plan, Watch: watch, Limit: s.options.Limit, Done: w.done, Through: s.options.Through,
	})
	if err != nil {
		return nil, err
	}
	w.World = world
	s.build(w)
	recorded := world.Run()
	run := &scenarios.Run{Seed: seed, Plan: plan, Journal: recorded, Deviations: world.Deviations(), Unstruck: world.Unstruck()}
	outcome := &explore.Outcome{Run: run, Violations: properties.Violations(recorded)}
	outcome.Violations = append(outcome.Violations, w.judge(recorded)...)
	return outcome, nil
}

// judge asks what the world's own checks say.
func (w *World) judge(j *journal.Journal) (violations []properties.Violation) {
	violate := func(property, what string) {
		violations = append(violations, properties.Violation{Property: property, Step: j.Steps(), Time: w.Now(), What: what})
	}
	if !w.finished {
		violate("done", "the run never came to its end"+lastReport(j))
	}
	for _, f := range w.finally {
		if err := f.check(); err != nil {
			violate(f.name, err.Error())
		}
	}
	return violations
}

func lastReport(j *journal.Journal) string {
	for _, event := range slices.Backward(j.Events) {
		if event.Kind == journal.ErrorReported {
			return fmt.Sprintf("; the last error, of %s: %s", j.ProcessName(event.Process), strings.TrimSpace(event.Error))
		}
	}
	return ""
}
