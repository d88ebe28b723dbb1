package scenarios

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/fencepost-sim/fencepost/internal/document"
	"github.com/fencepost-sim/fencepost/sim/journal"
)

// Outcome is what came of one event in one consumer group, read from the journal. Times are virtual, in nanoseconds since the start of the run.
type Outcome struct {
	EventID string        `json:"event"`
	Group   string        `json:"group"` // empty as long as no group has a delivery
	Topic   string        `json:"topic"`
	Stored  time.Duration `json:"stored"`
	Starts  int           `json:"starts"`
	// Executions is how often what a guard protects was started.
	Executions int           `json:"executions"`
	First      time.Duration `json:"first"` // start of the first handler
	Effects    int           `json:"effects"`
	Keys       []string      `json:"keys"`     // idempotency keys of the effects, each once
	Attempts   []string      `json:"attempts"` // "success", "pending", or the code of the error, by number
	Status     string        `json:"status"`   // of the delivery; empty if there is none
}

// outcomes are put together from the journal.
type outcomes struct {
	all      []Outcome
	delivery map[string][2]string // by ID: event and group; looked up only
	attempts map[string]bson.D
	order    []string // of the attempts
}

// Outcomes lists what came of every event of the run in every group, in the order of publication.
func Outcomes(j *journal.Journal) []Outcome {
	o := outcomes{delivery: map[string][2]string{}, attempts: map[string]bson.D{}}
	for i := range j.Events {
		o.observe(&j.Events[i])
	}
	slices.SortStableFunc(o.order, func(a, b string) int {
		return cmp.Compare(attemptNumber(o.attempts[a]), attemptNumber(o.attempts[b]))
	})
	for _, id := range o.order {
		attempt := o.attempts[id]
		outcome := o.of(document.Text(attempt, "eventId"), document.Text(attempt, "consumerGroup"))
		outcome.Attempts = append(outcome.Attempts, attemptResult(attempt))
	}
	return o.all
}

func (o *outcomes) observe(event *journal.Event) {
	switch {
	case event.Kind == journal.HandlerStarted:
		outcome := o.of(event.Key, event.Group)
		if outcome.Starts++; outcome.Starts == 1 {
			outcome.First = event.Time
		}
	case event.Kind == journal.ExecutionStarted:
		o.of(event.Key, event.Group).Executions++
	case event.Kind == journal.EffectPerformed:
		outcome := o.of(o.delivery[event.Delivery][0], o.delivery[event.Delivery][1])
		outcome.Effects++
		if !slices.Contains(outcome.Keys, event.Key) {
			outcome.Keys = append(outcome.Keys, event.Key)
		}
	case event.Kind != journal.Wrote:
	case strings.HasSuffix(event.Collection, ".events"):
		if !slices.ContainsFunc(o.all, func(known Outcome) bool { return known.EventID == event.Key }) {
			o.all = append(o.all, Outcome{EventID: event.Key, Topic: document.Text(event.Document, "topic"), Stored: event.Time})
		}
	case strings.HasSuffix(event.Collection, ".deliveries"):
		o.delivery[event.Key] = [2]string{document.Text(event.Document, "eventId"), document.Text(event.Document, "consumerGroup")}
		o.of(o.delivery[event.Key][0], o.delivery[event.Key][1]).Status = document.Text(event.Document, "status")
	case strings.HasSuffix(event.Collection, ".history"):
		if o.attempts[event.Key] == nil {
			o.order = append(o.order, event.Key)
		}
		o.attempts[event.Key] = event.Document
	}
}

// of returns the outcome of the event in the group. The first group takes the one that was made when the event was stored; each
// further one gets its own beside it.
func (o *outcomes) of(event, group string) *Outcome {
	last := -1
	for i := range o.all {
		if o.all[i].EventID != event {
			continue
		}
		if o.all[i].Group == group || o.all[i].Group == "" {
			o.all[i].Group = group
			return &o.all[i]
		}
		last = i
	}
	if last < 0 {
		return &Outcome{} // not one that was stored in this run
	}
	another := Outcome{EventID: event, Group: group, Topic: o.all[last].Topic, Stored: o.all[last].Stored}
	o.all = slices.Insert(o.all, last+1, another)
	return &o.all[last+1]
}

func attemptNumber(attempt bson.D) int64 {
	for _, field := range attempt {
		if field.Key == "attempt" {
			n, _ := field.Value.(int64)
			return n
		}
	}
	return 0
}

func attemptResult(attempt bson.D) string {
	status := document.Text(attempt, "status")
	if status != "error" {
		return status
	}
	for _, field := range attempt {
		if field.Key == "error" {
			failure, _ := field.Value.(bson.D)
			return document.Text(failure, "code")
		}
	}
	return status
}

// Compared tells whether the scenario says what must come out: not of workloads without one, nor under another guard than its own.
func (r *Run) Compared() bool {
	return r.Scenario != nil && (r.Guard == "" || r.Guard == r.Scenario.Workload.withDefaults().Guard)
}

// Unexpected compares the run with what its scenario expects in its variant. It returns one sentence for each
// difference, and nothing for a workload without a scenario.
func (r *Run) Unexpected() (differences []string) {
	if !r.Compared() {
		return nil
	}
	expected := r.Scenario.Expect(r.Variant)
	differ := func(what string, got, want any) {
		differences = append(differences, fmt.Sprintf("%s: %v, expected %v", what, got, want))
	}
	outcomes := Outcomes(r.Journal)
	if len(outcomes) == 0 {
		differ("events", 0, "at least 1")
	}
	for _, fault := range r.Unstruck {
		if fault.Count == 0 {
			differ("fault "+fault.String(), "did not strike", "to strike")
		}
	}
	for _, o := range outcomes {
		if o.Starts != expected.Starts {
			differ("handler starts", o.Starts, expected.Starts)
		}
		if o.Effects != expected.Effects {
			differ("side effects", o.Effects, expected.Effects)
		}
		if r.Scenario.Workload.Guard != "" && o.Executions != expected.Executions {
			differ("guarded executions", o.Executions, expected.Executions)
		}
		if len(o.Keys) > 1 {
			differ("idempotency keys", o.Keys, "one")
		}
		if !slices.Equal(o.Attempts, expected.Attempts) {
			differ("attempts", o.Attempts, expected.Attempts)
		}
		if o.Status != expected.Status {
			differ("delivery", o.Status, expected.Status)
		}
		if expected.Within > 0 && o.First-o.Stored > expected.Within {
			differ("time to the first handler start", o.First-o.Stored, "at most "+expected.Within.String())
		}
	}
	if expected.Fenced && !r.reported("fenced out") {
		differ("stale outcome", "not refused", "refused and reported")
	}
	if expected.Reported != "" && !r.reported(expected.Reported) {
		differ("reported errors", "without "+expected.Reported, "one with it")
	}
	return differences
}

// reported tells whether an engine or a guard reported such an error.
func (r *Run) reported(text string) bool {
	return slices.ContainsFunc(r.Journal.Events, func(e journal.Event) bool {
		return e.Kind == journal.ErrorReported && strings.Contains(e.Error, text)
	})
}
