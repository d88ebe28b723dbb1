package faults

import (
	"fmt"
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
)

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
	Choices  []Choice
}

// Size is what shrinking makes small.
func (p Plan) Size() int { return len(p.Faults) + len(p.Choices) }

// Validate checks every fault and choice.
func (p Plan) Validate() error {
	switch p.Schedule {
	case "", Listed, Seeded, Slow:
	default:
		return fmt.Errorf("%w: schedule %q; allowed: listed, seeded, slow", ErrInvalid, p.Schedule)
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
	if p.Schedule != "" && p.Schedule != Listed {
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
	case words[0] == "schedule" && len(words) == 2:
		p.Schedule = Schedule(words[1])
		return nil
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
	for _, word := range words {
		key, value, _ := strings.Cut(word, "=")
		switch key {
		case "step":
			choice.Step, err = strconv.Atoi(value)
		case "take":
			choice.Take, err = strconv.Atoi(value)
		default:
			err = fmt.Errorf("allowed: step, take")
		}
		if err != nil {
			return choice, fmt.Errorf("%w: choice field %q: %v", ErrInvalid, word, err)
		}
	}
	return choice, nil
}
