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

// Outcome is what came of one event, read from the journal.
type Outcome struct {
	EventID string
	Topic   string
	Stored  time.Duration
	Starts  int
	// Executions is how often what a guard protects was started.
	Executions int
	First      time.Duration // start of the first handler
	Effects    int
	Keys       []string // idempotency keys of the effects, each once
	Attempts   []string // "success", "pending", or the code of the error, by number
	Status     string   // of the delivery; empty if there is none
}

// Outcomes lists what came of every event of the run, in the order of publication.
func Outcomes(j *journal.Journal) []Outcome {
	var outcomes []Outcome
	find := func(event string) *Outcome {
		i := slices.IndexFunc(outcomes, func(o Outcome) bool { return o.EventID == event })
		if i < 0 {
			return &Outcome{} // not one that was stored in this run
		}
		return &outcomes[i]
	}
	eventOf := map[string]string{} // by delivery; looked up only
	attempts := map[string]bson.D{}
	var order []string
	for i := range j.Events {
		event := &j.Events[i]
		switch {
		case event.Kind == journal.HandlerStarted:
			o := find(event.Key)
			if o.Starts++; o.Starts == 1 {
				o.First = event.Time
			}
		case event.Kind == journal.ExecutionStarted:
			find(event.Key).Executions++
		case event.Kind == journal.EffectPerformed:
			o := find(eventOf[event.Delivery])
			o.Effects++
			if !slices.Contains(o.Keys, event.Key) {
				o.Keys = append(o.Keys, event.Key)
			}
		case event.Kind != journal.Wrote:
		case strings.HasSuffix(event.Collection, ".events"):
			if find(event.Key).EventID == "" {
				outcomes = append(outcomes, Outcome{EventID: event.Key, Topic: document.Text(event.Document, "topic"), Stored: event.Time})
			}
		case strings.HasSuffix(event.Collection, ".deliveries"):
			eventOf[event.Key] = document.Text(event.Document, "eventId")
			find(eventOf[event.Key]).Status = document.Text(event.Document, "status")
		case strings.HasSuffix(event.Collection, ".history"):
			if attempts[event.Key] == nil {
				order = append(order, event.Key)
			}
			attempts[event.Key] = event.Document
		}
	}
	slices.SortStableFunc(order, func(a, b string) int { return cmp.Compare(attemptNumber(attempts[a]), attemptNumber(attempts[b])) })
	for _, id := range order {
		o := find(document.Text(attempts[id], "eventId"))
		o.Attempts = append(o.Attempts, attemptResult(attempts[id]))
	}
	return outcomes
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
