package faults

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Schedule says who decides what runs next.
type Schedule string

const (
	// Listed runs tasks in the order in which they became ready, except where the plan lists a Choice. The default.
	Listed Schedule = "listed"
	// Seeded draws the deviations from the run's seed. What was drawn is recorded, so that the run can be said again as a Listed plan.
	Seeded Schedule = "seeded"
	// Slow is Seeded, and now and then the clock moves on although tasks are ready, as if all of them were slow.
	Slow Schedule = "slow"
	// Priorities gives every task a random priority and runs the highest that is ready; at Plan.Depth−1 random steps the task whose turn it is
	// becomes the lowest. A bug that needs d ordering constraints is found by a run of depth d with a probability of at least 1/(n·kᵈ⁻¹), for n
	// tasks and k steps (Burckhardt, Kothari, Musuvathi and Nagarakatte, "A Randomized Scheduler with Probabilistic Guarantees of Finding
	// Bugs", ASPLOS 2010). As with Seeded, what was drawn is recorded.
	Priorities Schedule = "priorities"
)

// Schedules lists them.
var Schedules = []Schedule{Listed, Seeded, Slow, Priorities}

// Choice is one scheduling decision that deviates from the default order.
type Choice struct {
	Step int // of the scheduler
	// Take is the index of the ready task that gets its turn (0 is the default), or the number of ready tasks to let the
	// clock move on although somebody is ready, as if all of them were slow.
	Take int
}

// Plan is everything that was chosen for a run. The zero value is a run without faults in the default order.
type Plan struct {
	Faults   []Fault
	Schedule Schedule
	// Depth and Steps are for Priorities: how many ordering constraints a bug may need, and how long the run is expected to be.
	Depth, Steps int
	Choices      []Choice
}

// Size is what shrinking makes small.
func (p Plan) Size() int { return len(p.Faults) + len(p.Choices) }

// Validate checks every fault and choice.
func (p Plan) Validate() error {
	if p.Schedule != "" && !slices.Contains(Schedules, p.Schedule) {
		return fmt.Errorf("%w: schedule %q; allowed: %s", ErrInvalid, p.Schedule, scheduleNames())
	}
	if p.Schedule == Priorities && (p.Depth < 1 || p.Depth > mostDepth || p.Steps < 1) {
		return fmt.Errorf("%w: schedule priorities depth=%d steps=%d; allowed: depth 1 to %d, steps 1 and more", ErrInvalid, p.Depth, p.Steps, mostDepth)
	}
	if p.Schedule != Priorities && (p.Depth != 0 || p.Steps != 0) {
		return fmt.Errorf("%w: schedule %q depth=%d steps=%d; allowed: depth and steps only for priorities", ErrInvalid, p.Schedule, p.Depth, p.Steps)
	}
	for _, fault := range p.Faults {
		if err := fault.Validate(); err != nil {
			return err
		}
	}
	for _, choice := range p.Choices {
		if choice.Step < 1 || choice.Take < 1 {
			return fmt.Errorf("%w: choice step=%d take=%d; allowed: 1 and more", ErrInvalid, choice.Step, choice.Take)
		}
	}
	return nil
}

// mostDepth bounds Plan.Depth. Bugs rarely need more than three constraints.
const mostDepth = 100

func scheduleNames() string {
	names := make([]string, len(Schedules))
	for i, schedule := range Schedules {
		names[i] = string(schedule)
	}
	return strings.Join(names, ", ")
}

// String writes the fault as a line of a plan.
func (f Fault) String() string {
	var b strings.Builder
	b.WriteString(string(f.Kind))
	field := func(key, value string) { b.WriteString(" " + key + "=" + value) }
	field("process", f.Process)
	if f.Point != "" {
		field("point", f.Point)
	}
	if f.Position != "" {
		field("position", string(f.Position))
	}
	field("occurrence", strconv.Itoa(f.Occurrence))
	if f.Count == All {
		field("count", "all")
	} else if f.Count > 0 {
		field("count", strconv.Itoa(f.Count))
	}
	if f.Span != 0 {
		field("span", f.Span.String())
	}
	return b.String()
}

// String writes the plan as text that Parse reads.
func (p Plan) String() string {
	var b strings.Builder
	switch p.Schedule {
	case "", Listed:
	case Priorities:
		fmt.Fprintf(&b, "schedule %s depth=%d steps=%d\n", p.Schedule, p.Depth, p.Steps)
	default:
		fmt.Fprintf(&b, "schedule %s\n", p.Schedule)
	}
	for _, fault := range p.Faults {
		fmt.Fprintf(&b, "fault %s\n", fault)
	}
	for _, choice := range p.Choices {
		fmt.Fprintf(&b, "choose step=%d take=%d\n", choice.Step, choice.Take)
	}
	return b.String()
}

// Parse reads a plan. Empty lines and lines that begin with # are passed over. Errors name the line.
func Parse(text string) (Plan, error) {
	var plan Plan
	for number, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if err := plan.parseLine(line); err != nil {
			return Plan{}, fmt.Errorf("line %d: %w", number+1, err)
		}
	}
	return plan, plan.Validate()
}

func (p *Plan) parseLine(line string) error {
	words := strings.Fields(line)
	switch {
	case words[0] == "schedule" && len(words) > 1:
		p.Schedule = Schedule(words[1])
		return numbers("schedule", words[2:], map[string]*int{"depth": &p.Depth, "steps": &p.Steps})
	case words[0] == "fault" && len(words) > 1:
		fault, err := ParseFault(words[1:])
		p.Faults = append(p.Faults, fault)
		return err
	case words[0] == "choose":
		choice, err := parseChoice(words[1:])
		p.Choices = append(p.Choices, choice)
		return err
	}
	return fmt.Errorf("%w: %q; allowed: schedule …, fault …, choose …", ErrInvalid, line)
}

// ParseFault reads the words of a fault: its kind and fields like process=worker-1.
func ParseFault(words []string) (Fault, error) {
	fault := Fault{Kind: Kind(words[0]), Occurrence: 1}
	entry, known := Lookup(fault.Kind)
	if known && entry.Stream {
		fault.Count = 1
	}
	for _, word := range words[1:] {
		key, value, _ := strings.Cut(word, "=")
		var err error
		switch key {
		case "process":
			fault.Process = value
		case "point":
			fault.Point = value
		case "position":
			fault.Position = Position(value)
		case "occurrence":
			fault.Occurrence, err = strconv.Atoi(value)
		case "span":
			fault.Span, err = time.ParseDuration(value)
		case "count":
			if fault.Count = All; value != "all" {
				fault.Count, err = strconv.Atoi(value)
			}
		default:
			err = fmt.Errorf("allowed: process, point, position, occurrence, span, count")
		}
		if err != nil {
			return fault, fmt.Errorf("%w: fault field %q: %v", ErrInvalid, word, err)
		}
	}
	return fault, fault.Validate()
}

func parseChoice(words []string) (choice Choice, err error) {
	err = numbers("choice", words, map[string]*int{"step": &choice.Step, "take": &choice.Take})
	return choice, err
}

// numbers reads words like step=3 into the fields with their names.
func numbers(what string, words []string, fields map[string]*int) error {
	for _, word := range words {
		key, value, _ := strings.Cut(word, "=")
		field := fields[key]
		if field == nil {
			return fmt.Errorf("%w: %s field %q; allowed: %s", ErrInvalid, what, word, strings.Join(slices.Sorted(maps.Keys(fields)), ", "))
		}
		var err error
		if *field, err = strconv.Atoi(value); err != nil {
			return fmt.Errorf("%w: %s field %q: %v", ErrInvalid, what, word, err)
		}
	}
	return nil
}
