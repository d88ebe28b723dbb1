package reports

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/fencepost-sim/fencepost/sim/journal"
)

// Moment writes what there was after a step: the processes and what their tasks were doing, who held which lease, and every document.
func Moment(out io.Writer, j *journal.Journal, step int) error {
	m := momentOf(j, step)
	var b strings.Builder
	fmt.Fprintf(&b, "after step %d of %d, at %s\n\nprocesses\n", step, j.Steps(), clock(m.now))
	for i, p := range m.processes {
		fmt.Fprintf(&b, "  %-20s %s\n", j.Processes[i], p.state)
		for _, t := range p.tasks {
			fmt.Fprintf(&b, "    task %-4d %-14s %s\n", t.id, t.name, t.doing)
		}
	}
	b.WriteString("\nleases\n")
	for _, lease := range m.leases(j.At(step)) {
		fmt.Fprintf(&b, "  %s\n", lease)
	}
	database := j.At(step)
	for _, collection := range database.Collections() {
		documents := database.Documents(collection)
		fmt.Fprintf(&b, "\n%s (%d)\n", collection, len(documents))
		for _, document := range documents {
			fmt.Fprintf(&b, "  %s\n", extended(document))
		}
	}
	_, err := io.WriteString(out, b.String())
	return err
}

func extended(document bson.D) string {
	text, err := bson.MarshalExtJSON(document, false, false)
	if err != nil {
		return fmt.Sprint(document)
	}
	return string(text)
}

// moment is the fold of the journal up to a step, apart from the documents.
type moment struct {
	now       time.Duration
	start     time.Time
	processes []processMoment
}

type processMoment struct {
	state string
	tasks []taskMoment
}

type taskMoment struct {
	id          int
	name, doing string
}

func momentOf(j *journal.Journal, step int) *moment {
	m := &moment{processes: make([]processMoment, len(j.Processes))}
	for i := range j.Events {
		event := &j.Events[i]
		if event.Step > step {
			break
		}
		m.now = event.Time
		if event.Kind == journal.RunStarted {
			m.start = time.UnixMilli(event.Number)
		}
		if event.Process > 0 {
			m.processes[event.Process-1].observe(event)
		}
	}
	return m
}

func (p *processMoment) observe(event *journal.Event) {
	switch event.Kind {
	case journal.ProcessStarted:
		p.state, p.tasks = fmt.Sprintf("runs (life %d)", event.Number), nil
	case journal.ProcessDied:
		p.state, p.tasks = "is dead ("+event.Name+")", nil
	case journal.ProcessFrozen:
		p.state = "is frozen"
	case journal.ProcessThawed:
		p.state = "runs"
	case journal.ProcessClosing:
		p.state = "is closing"
	case journal.ProcessClosed:
		p.state = "has closed an engine"
	case journal.TaskStarted:
		p.tasks = append(p.tasks, taskMoment{event.Task, event.Name, "has not had its turn yet"})
	case journal.TaskEnded:
		p.tasks = slices.DeleteFunc(p.tasks, func(t taskMoment) bool { return t.id == event.Task })
	default:
		p.doing(event)
	}
}

// doing remembers what a task did last.
func (p *processMoment) doing(event *journal.Event) {
	i := slices.IndexFunc(p.tasks, func(t taskMoment) bool { return t.id == event.Task })
	if i < 0 {
		return
	}
	switch event.Kind {
	case journal.Resumed:
		if p.tasks[i].doing == "has not had its turn yet" {
			p.tasks[i].doing = "has begun"
		}
	case journal.Issued:
		p.tasks[i].doing = "has sent " + event.Point
	case journal.Applied:
		p.tasks[i].doing = "waits for the reply to " + event.Point + ", which was applied"
	case journal.Answered:
		p.tasks[i].doing = "has the reply to " + event.Point
	case journal.HandlerStarted:
		p.tasks[i].doing = fmt.Sprintf("runs the handler of event %s, attempt %d", event.Key, event.Number)
	case journal.HandlerEnded:
		p.tasks[i].doing = "its handler has returned"
	}
}

// leaseFields are the fields of documents that are a lease: what it is of, its token, and its end.
var leaseFields = []struct{ collection, what, token, until string }{
	{".subscriptions", "discovery of topic", "discoveryLockToken", "discoveryLockedUntil"},
	{".subscriptions", "order of topic", "orderedLockToken", "orderedLockedUntil"},
	{".history", "attempt", "lockToken", "lockedUntil"},
}

func (m *moment) leases(database *journal.Database) (lines []string) {
	for _, collection := range database.Collections() {
		for _, document := range database.Documents(collection) {
			fields := map[string]any{} // looked up only
			for _, field := range document {
				fields[field.Key] = field.Value
			}
			for _, lease := range leaseFields {
				token, held := fields[lease.token]
				if !strings.HasSuffix(collection, lease.collection) || !held || lease.what == "attempt" && fields["status"] != "pending" {
					continue
				}
				of := fields["topic"]
				if lease.what == "attempt" {
					of = fmt.Sprintf("%v of event %v", fields["attempt"], fields["eventId"])
				}
				lines = append(lines, fmt.Sprintf("%v: %s %v, token %v, %s", fields["consumerGroup"], lease.what, of, token, m.ends(fields[lease.until])))
			}
		}
	}
	return lines
}

func (m *moment) ends(date any) string {
	until, ok := date.(bson.DateTime)
	if !ok {
		return "without an end"
	}
	left := until.Time().Sub(m.start.Add(m.now))
	if left <= 0 {
		return fmt.Sprintf("over for %v", -left)
	}
	return fmt.Sprintf("ends in %v", left)
}

// Changes writes what happened after one step and up to another, and how each document that changed looks before and after.
func Changes(out io.Writer, j *journal.Journal, from, to int) error {
	var b strings.Builder
	part := &journal.Journal{Processes: j.Processes}
	for _, event := range j.Events {
		if event.Step > from && event.Step <= to {
			part.Events = append(part.Events, event)
		}
	}
	fmt.Fprintf(&b, "after step %d, up to step %d\n\n", from, to)
	if err := Timeline(&b, part); err != nil {
		return err
	}
	before, after := j.At(from), j.At(to)
	names := slices.Compact(slices.Sorted(slices.Values(append(before.Collections(), after.Collections()...))))
	for _, collection := range names {
		for _, key := range changedKeys(part, collection) {
			was, is := before.Get(collection, key), after.Get(collection, key)
			fmt.Fprintf(&b, "\n%s %s\n", collection, key)
			writeDifference(&b, was, is)
		}
	}
	_, err := io.WriteString(out, b.String())
	return err
}

func changedKeys(part *journal.Journal, collection string) (keys []string) {
	for i := range part.Events {
		event := &part.Events[i]
		changes := event.Kind == journal.Wrote || event.Kind == journal.Deleted || event.Kind == journal.Expired
		if changes && event.Collection == collection && !slices.Contains(keys, event.Key) {
			keys = append(keys, event.Key)
		}
	}
	return keys
}

func writeDifference(b *strings.Builder, was, is bson.D) {
	switch {
	case was == nil && is == nil:
		b.WriteString("  came and went\n")
		return
	case is == nil:
		b.WriteString("  is gone\n")
		return
	}
	text := func(document bson.D, key string) string {
		for _, field := range document {
			if field.Key == key {
				return extended(bson.D{field})
			}
		}
		return ""
	}
	for _, field := range is {
		if now, before := extended(bson.D{field}), text(was, field.Key); now != before {
			fmt.Fprintf(b, "  %s → %s\n", orNothing(before), now)
		}
	}
	for _, field := range was {
		if text(is, field.Key) == "" {
			fmt.Fprintf(b, "  %s → nothing\n", extended(bson.D{field}))
		}
	}
}

func orNothing(text string) string {
	if text == "" {
		return "nothing"
	}
	return text
}
