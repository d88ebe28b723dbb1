package reports

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/fencepost-sim/fencepost/properties"
	"github.com/fencepost-sim/fencepost/scenarios"
)

// Summary is the result of one run, for machines.
type Summary struct {
	Scenario   string              `json:"scenario"`
	Variant    string              `json:"variant"`
	Guard      string              `json:"guard,omitempty"` // that replaced the scenario's own
	Seed       uint64              `json:"seed"`
	Plan       []string            `json:"plan"`
	Hash       string              `json:"hash"`
	Steps      int                 `json:"steps"`
	Holds      bool                `json:"holds"`
	Events     []scenarios.Outcome `json:"events"`
	Compared   bool                `json:"compared"` // with what the scenario says must come out
	Unexpected []string            `json:"unexpected"`
	Properties []PropertyResult    `json:"properties"`
	Reproduce  string              `json:"reproduce"`
}

// PropertyResult is the verdict of one property.
type PropertyResult struct {
	ID         string   `json:"id"`
	Name       string   `json:"name"`
	Holds      bool     `json:"holds"`
	Violations []string `json:"violations"`
	Notes      []string `json:"notes,omitempty"` // excuses that a conditional property has taken
}

// Summarize checks all properties and the scenario's expectation.
func Summarize(run *scenarios.Run) *Summary {
	s := &Summary{
		Scenario: "a load of its own", Guard: string(run.Guard), Seed: run.Seed,
		Plan: planLines(run), Hash: run.Journal.Hash(), Steps: run.Journal.Steps(),
		Events: scenarios.Outcomes(run.Journal), Compared: run.Compared(), Unexpected: run.Unexpected(), Reproduce: Reproduce(run),
	}
	if s.Unexpected == nil {
		s.Unexpected = []string{} // null would be another type to those who read the JSON
	}
	if run.Scenario != nil {
		s.Scenario, s.Variant = run.Scenario.Name, run.Variant.String()
	}
	s.Holds = len(s.Unexpected) == 0
	for _, verdict := range properties.Check(run.Journal) {
		result := PropertyResult{
			ID: verdict.Property.ID, Name: verdict.Property.Name, Holds: len(verdict.Violations) == 0, Violations: []string{}, Notes: verdict.Notes,
		}
		for _, violation := range verdict.Violations {
			result.Violations = append(result.Violations, violation.String())
		}
		s.Holds = s.Holds && result.Holds
		s.Properties = append(s.Properties, result)
	}
	return s
}

func planLines(run *scenarios.Run) []string {
	return strings.FieldsFunc(run.Plan.String(), func(r rune) bool { return r == '\n' })
}

// Reproduce is the command line that repeats a run of a scenario's own plan. For a run of a load of its own it is empty: that
// is repeated from a file.
func Reproduce(run *scenarios.Run) string {
	if run.Scenario == nil {
		return ""
	}
	line := fmt.Sprintf("go run ./cmd/simrun --scenario %s --variant %s --seed %d", run.Scenario.Name, run.Variant, run.Seed)
	if run.Guard != "" {
		line += " --guard " + string(run.Guard)
	}
	if run.Plan.Schedule != "" {
		line += " --schedule " + string(run.Plan.Schedule)
	}
	if run.Workload.Through != scenarios.ThroughModel {
		line += " --through " + string(run.Workload.Through)
	}
	return line
}

// WriteJSON writes the summary as one JSON object.
func (s *Summary) WriteJSON(out io.Writer) error {
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	return encoder.Encode(s)
}

// WriteText writes the verdicts in words.
func (s *Summary) WriteText(out io.Writer) error {
	var b strings.Builder
	for _, event := range s.Events {
		fmt.Fprintf(&b, "%s  group %s: handler starts: %d, side effects: %d, idempotency keys: %d, attempts: %s, delivery: %s\n",
			event.EventID, event.Group, event.Starts, event.Effects, len(event.Keys), numbered(event.Attempts), event.Status)
		if event.Executions > 0 {
			fmt.Fprintf(&b, "%s  executions under the guard: %d\n", event.EventID, event.Executions)
		}
	}
	b.WriteString("\n")
	switch {
	case !s.Compared:
		b.WriteString("  --    not compared with what the scenario expects: that is about another guard\n")
	case len(s.Unexpected) == 0:
		b.WriteString("  ok    as the scenario expects\n")
	}
	for _, difference := range s.Unexpected {
		fmt.Fprintf(&b, "  FAIL  %s\n", difference)
	}
	for _, p := range s.Properties {
		if p.Holds {
			fmt.Fprintf(&b, "  ok    %-4s %s\n", p.ID, p.Name)
		}
		for _, note := range p.Notes {
			fmt.Fprintf(&b, "  note  %-5s %s\n", p.ID, note)
		}
		for _, violation := range p.Violations {
			fmt.Fprintf(&b, "  FAIL  %s\n", violation)
		}
	}
	fmt.Fprintf(&b, "\njournal   %s (%d steps)\n", s.Hash, s.Steps)
	if s.Reproduce != "" {
		fmt.Fprintf(&b, "reproduce %s\n", s.Reproduce)
	}
	_, err := io.WriteString(out, b.String())
	return err
}

func numbered(attempts []string) string {
	parts := make([]string, len(attempts))
	for i, attempt := range attempts {
		parts[i] = fmt.Sprintf("%d %s", i+1, attempt)
	}
	return strings.Join(parts, ", ")
}
