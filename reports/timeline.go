package reports

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/fencepost-sim/fencepost/engine"
	"github.com/fencepost-sim/fencepost/internal/document"
	"github.com/fencepost-sim/fencepost/sim/journal"
)

// Timeline writes what happened in the run, one line for each thing that matters: virtual time, scheduler step, process, and a
// sentence. Polls that found nothing, renewals and the startup of engines are left out.
func Timeline(out io.Writer, j *journal.Journal) error {
	t := timeline{journal: j, names: map[string]string{}, asked: map[int]string{}}
	for i := range j.Events {
		event := &j.Events[i]
		sentence := t.sentence(event)
		if sentence == "" {
			continue
		}
		_, err := fmt.Fprintf(out, "%12s  %5d  %-10s  %s\n", clock(event.Time), event.Step, j.ProcessName(event.Process), sentence)
		if err != nil {
			return err
		}
	}
	return nil
}

// clock writes a virtual time in seconds, with milliseconds.
func clock(d time.Duration) string { return fmt.Sprintf("%.3f s", d.Seconds()) }

// timeline remembers the short names of events: E1, E2, …
type timeline struct {
	journal *journal.Journal
	names   map[string]string
	events  int
	known   []string       // deliveries and attempts that were written before
	asked   map[int]string // by process: what a guard's store answered last
}

func (t *timeline) name(event string) string {
	if t.names[event] == "" {
		t.events++
		t.names[event] = fmt.Sprintf("E%d", t.events)
	}
	return t.names[event]
}

func (t *timeline) sentence(event *journal.Event) string {
	switch event.Kind {
	case journal.ProcessStarted:
		if event.Number > 1 {
			return fmt.Sprintf("starts again (life %d)", event.Number)
		}
		return "starts"
	case journal.ProcessDied:
		return "✗ DIES (" + event.Name + ")"
	case journal.ProcessFrozen:
		return "✗ FREEZES for " + event.Span.String()
	case journal.ProcessThawed:
		return "thaws"
	case journal.ProcessClosed:
		return "closed"
	case journal.FaultStruck:
		return "✗ FAULT: " + describeFault(event)
	case journal.Withheld:
		return "✗ FAULT: notification about " + t.name(event.Key) + ": " + event.Name
	case journal.StreamFailed:
		return "change stream fails: " + event.Error
	case journal.ErrorReported:
		return "reports: " + strings.TrimPrefix(event.Error, "fencepost: ")
	case journal.HandlerStarted:
		return fmt.Sprintf("▶ handler starts: %s, attempt %d", t.name(event.Key), event.Number)
	case journal.EffectPerformed:
		return fmt.Sprintf("● SIDE EFFECT %q with idempotency key %s, attempt %d", event.Name, t.keyName(event.Key), event.Number)
	case journal.HandlerCancelled:
		return fmt.Sprintf("✂ context of the handler is cancelled: %s, attempt %d, %s", t.name(event.Key), event.Number, strings.TrimPrefix(event.Error, "fencepost: "))
	case journal.HandlerEnded:
		return fmt.Sprintf("■ handler returns: %s, attempt %d, %s", t.name(event.Key), event.Number, result(event.Error))
	case journal.ExecutionStarted:
		return "▷ " + t.executed(event)
	case journal.ExecutionCancelled:
		return "✂ context of the guarded execution is cancelled: " + t.name(event.Key) + ", " + event.Error
	case journal.Applied:
		return t.news(event)
	case journal.Wrote:
		return t.written(event)
	case journal.Expired:
		return "retention removes " + event.Collection + " " + event.Key
	case journal.PrimaryElected:
		return fmt.Sprintf("member %d is elected primary", event.Number)
	case journal.WritesRolledBack:
		return fmt.Sprintf("member %d follows, and takes back what only it had: %s writes", event.Number, event.Name)
	case journal.RunEnded:
		return "the run ends: " + event.Name
	}
	return ""
}

// executed says under which claim a guarded function runs.
func (t *timeline) executed(event *journal.Event) string {
	text := "guarded execution starts: " + t.name(event.Key)
	if fence, held := document.Get(event.Document, "fence").(int64); held {
		text += fmt.Sprintf(", fence %d", fence)
	}
	return text
}

// news is what a guard's store answered, unless it is what it answered this process before: waiting is asking again and again.
func (t *timeline) news(event *journal.Event) string {
	sentence := answer(event)
	if sentence == "" || t.asked[event.Process] == sentence {
		return ""
	}
	t.asked[event.Process] = sentence
	return sentence
}

// answer says what a guard's store answered. Heartbeats, and sweeps that found nothing, are left out.
func answer(event *journal.Event) string {
	switch reply, _ := document.Get(event.Document, "reply").(bson.A); {
	case event.Error != "" && (strings.HasPrefix(event.Point, "redis.") || strings.HasPrefix(event.Point, "postgres.")):
		return event.Point + ": " + event.Error
	case len(reply) > 0 && event.Point == "redis.sweep" && reply[0] != "kept", len(reply) > 0 && event.Point == "redis.extend" && reply[0] != "held":
		return fmt.Sprintf("%s: %v", event.Point, reply[0])
	case len(reply) > 0 && (event.Point == "redis.claim" || event.Point == "redis.complete" || event.Point == "redis.release"):
		return fmt.Sprintf("%s: %v", event.Point, reply[0])
	case event.Point == "postgres.claim" && event.Number == 0:
		return "postgres.claim: a duplicate"
	case event.Point == "postgres.claim":
		return "postgres.claim: inserted, not committed"
	case event.Point == "postgres.commit" && event.Number > 0:
		return "postgres.commit: applied"
	}
	return ""
}

func (t *timeline) keyName(key string) string {
	if name := t.names[key]; name != "" {
		return name
	}
	return key
}

func describeFault(event *journal.Event) string {
	kind, _, _ := strings.Cut(event.Name, " ")
	position := ""
	for _, word := range strings.Fields(event.Name) {
		if rest, found := strings.CutPrefix(word, "position="); found {
			position = rest
		}
	}
	text := fmt.Sprintf("%s, %s %s", kind, position, event.Point)
	switch {
	case event.Span > 0 && kind == "crash":
		text += ", restarts in " + event.Span.String()
	case event.Span > 0:
		text += ", for " + event.Span.String()
	}
	return text
}

func result(problem string) string {
	if problem == "" {
		return "success"
	}
	return "error: " + problem
}

// written says what a write means, by the step of the protocol that wrote.
func (t *timeline) written(event *journal.Event) string {
	d := event.Document
	what := ""
	if id := document.Text(d, "eventId"); id != "" {
		what = fmt.Sprintf("%s, attempt %d", t.name(id), number(d, "attempt"))
	}
	isNew := !slices.Contains(t.known, event.Key)
	t.known = append(t.known, event.Key)
	switch point := event.Point; point {
	case string(engine.PointPublish):
		return "publishes " + t.name(event.Key) + " (" + document.Text(d, "topic") + ", " + event.Key + ")"
	case string(engine.PointDeliveryCreate):
		return "materializes the delivery of " + t.name(document.Text(d, "eventId"))
	case string(engine.PointAttemptCreate), string(engine.PointAttemptRetry):
		return "creates " + what
	case string(engine.PointAttemptClaim), string(engine.PointOrderClaim):
		return "leases " + what
	case string(engine.PointAttemptRelease):
		return "gives back " + what
	case string(engine.PointAttemptSucceed), string(engine.PointAttemptFail), string(engine.PointReap):
		return fmt.Sprintf("records %s: %s", what, outcome(d))
	case string(engine.PointDeliverySucceed), string(engine.PointDeliveryFail):
		return fmt.Sprintf("ends the delivery of %s: %s", t.name(document.Text(d, "eventId")), document.Text(d, "status"))
	case string(engine.PointRetentionDelivery):
		return "dates the delivery of " + t.name(document.Text(d, "eventId"))
	case string(engine.PointSubscriptionCreate):
		if isNew {
			return "subscribes group " + document.Text(d, "consumerGroup") + " to " + document.Text(d, "topic")
		}
	}
	return ""
}

func outcome(attempt bson.D) string {
	for _, f := range attempt {
		if f.Key == "error" {
			failure, _ := f.Value.(bson.D)
			return document.Text(failure, "code")
		}
	}
	return document.Text(attempt, "status")
}

func number(document bson.D, key string) int64 {
	for _, f := range document {
		if f.Key == key {
			value, _ := f.Value.(int64)
			return value
		}
	}
	return 0
}
