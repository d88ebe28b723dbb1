package engine_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/fencepost-sim/fencepost/engine"
	"github.com/fencepost-sim/fencepost/engine/store"
	"github.com/fencepost-sim/fencepost/faults"
	"github.com/fencepost-sim/fencepost/internal/document"
	"github.com/fencepost-sim/fencepost/properties"
	"github.com/fencepost-sim/fencepost/scenarios"
	"github.com/fencepost-sim/fencepost/sim"
	"github.com/fencepost-sim/fencepost/sim/journal"
)

// keep fails the test if the run violates a property.
func keep(t *testing.T, j *journal.Journal) {
	t.Helper()
	for _, violation := range properties.Violations(j) {
		t.Error(violation)
	}
}

// stored is what the database holds in the end, by _id.
func stored(w *sim.World, collection, id string) bson.D {
	for _, d := range w.Model().Documents(sim.Database, "orionjs.pulse."+collection) {
		if document.Get(d, "_id") == id {
			return d
		}
	}
	return nil
}

func insert(ctx context.Context, p *sim.Process, collection string, documents ...bson.D) error {
	_, err := p.Store().Run(ctx, store.Command{
		Kind: store.Insert, Collection: "orionjs.pulse." + collection, Documents: documents,
	})
	return err
}

// torn makes a delivery of an event long past, and its attempt number 1, with the fields given.
func torn(name string, delivery, attempt bson.D) (bson.D, bson.D) {
	long := bson.NewDateTimeFromTime(time.Date(2025, 12, 1, 0, 0, 0, 0, time.UTC))
	d := append(bson.D{
		{Key: "_id", Value: "d-" + name}, {Key: "eventId", Value: name}, {Key: "consumerGroup", Value: "billing"},
		{Key: "topic", Value: orders.Name()}, {Key: "createdAt", Value: long}, {Key: "updatedAt", Value: long},
	}, delivery...)
	a := append(bson.D{
		{Key: "_id", Value: "a-" + name}, {Key: "deliveryId", Value: "d-" + name}, {Key: "eventId", Value: name},
		{Key: "consumerGroup", Value: "billing"}, {Key: "topic", Value: orders.Name()}, {Key: "attempt", Value: int32(1)},
		{Key: "status", Value: "pending"}, {Key: "createdAt", Value: long}, {Key: "nextAttemptAt", Value: long},
	}, attempt...)
	return d, a
}

func TestAttemptsUnderAFinishedDeliveryAreClosedAndNothingFollows(t *testing.T) {
	for _, unordered := range []bool{false, true} {
		t.Run(fmt.Sprintf("unordered=%v", unordered), func(t *testing.T) { closeLeftovers(t, engine.SubscribeOptions{Unordered: unordered}) })
	}
}

func closeLeftovers(t *testing.T, options engine.SubscribeOptions) {
	long := bson.NewDateTimeFromTime(time.Date(2025, 12, 1, 0, 0, 0, 0, time.UTC))
	recently := bson.NewDateTimeFromTime(time.Date(2025, 12, 31, 23, 0, 0, 0, time.UTC))
	ended := bson.D{{Key: "status", Value: "success"}, {Key: "endedAt", Value: recently}}
	pending := bson.D{{Key: "status", Value: "pending"}}
	locked := bson.D{{Key: "lockToken", Value: "of the dead"}, {Key: "startedAt", Value: long}, {Key: "lockedUntil", Value: long}}
	w, err := sim.New(sim.Config{Limit: 20 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	w.Add("process", func(ctx context.Context, p *sim.Process) error {
		eng, err := p.Open(ctx, engine.Options{ConsumerGroup: "billing"})
		if err != nil {
			return err
		}
		if _, err := sim.Subscribe(ctx, p, eng, orders, options, handle); err != nil {
			return err
		}
		if err := p.Sleep(ctx, 5*time.Second); err != nil { // when the first sweep is over
			return err
		}
		for _, one := range []struct {
			name           string
			delivery, lock bson.D
		}{
			{"queued", ended, nil},
			{"locked", ended, locked},
			{"open", pending, locked}, // makes the process look for expired leases
		} {
			d, a := torn(one.name, one.delivery, one.lock)
			if err := insert(ctx, p, "deliveries", d); err != nil {
				return err
			}
			if err := insert(ctx, p, "history", a); err != nil {
				return err
			}
			e := bson.D{{Key: "_id", Value: one.name}, {Key: "topic", Value: orders.Name()}, {Key: "data", Value: int32(1)}, {Key: "createdAt", Value: long}}
			if err := insert(ctx, p, "events", e); err != nil {
				return err
			}
		}
		_, err = orders.Publish(ctx, eng, 1) // makes the workers claim
		return err
	})
	j := w.Run()
	for _, name := range []string{"queued", "locked"} {
		attempt := stored(w, "history", "a-"+name)
		failure, _ := document.Get(attempt, "error").(bson.D)
		switch code := document.Text(failure, "code"); code {
		case engine.CodeAlreadyTerminal, engine.CodeWorkerLost:
		default:
			t.Errorf("the attempt of %s has code %q: %v", name, code, attempt)
		}
	}
	for _, attempt := range w.Model().Documents(sim.Database, "orionjs.pulse.history") {
		if id := document.Text(attempt, "deliveryId"); id != "d-open" && document.Get(attempt, "attempt") == int64(2) {
			t.Errorf("delivery %s has ended, and an attempt follows: %v", id, attempt)
		}
	}
	for _, event := range j.Events {
		if event.Kind == journal.Wrote && document.Text(event.Document, "status") == "pending" && document.Has(event.Document, "expiresAt") {
			t.Errorf("it is pending and carries an expiry date: %v", event.Document)
		}
		if event.Kind == journal.HandlerStarted && (event.Key == "queued" || event.Key == "locked") {
			t.Errorf("a handler ran for %s, whose delivery had ended", event.Key)
		}
	}
}

func TestATornHeadBehindALongBacklogIsRepairedSoon(t *testing.T) {
	w := scenarios.Workload{Replicas: 2, ReconcileBatch: 1, CloseAt: 3 * time.Minute, Topics: []scenarios.TopicLoad{{Events: 300, Do: scenarios.Work{Time: time.Second}}}}
	plan := faults.Plan{Faults: []faults.Fault{{
		Kind: faults.Crash, Process: faults.AnyProcess, Point: string(engine.PointAttemptSucceed), Position: faults.After, Occurrence: 20,
	}}}
	run, err := w.Run(plan, 1, scenarios.Bug{})
	if err != nil {
		t.Fatal(err)
	}
	events := run.Journal.Events
	died := slices.IndexFunc(events, func(e journal.Event) bool { return e.Kind == journal.ProcessDied })
	next := slices.IndexFunc(events[died:], func(e journal.Event) bool { return e.Kind == journal.HandlerStarted })
	// The ordering lease of the dead worker has at most 30 s left, and the other process looks every 3 s.
	if wait := events[died+next].Time - events[died].Time; wait > 37*time.Second {
		t.Errorf("the next handler started %v after the crash", wait)
	}
}

func TestALongUnorderedBacklogDoesNotHideATornDelivery(t *testing.T) {
	w := scenarios.Workload{Replicas: 2, CloseAt: 10 * time.Minute, Topics: []scenarios.TopicLoad{{
		Events: 400, Options: engine.SubscribeOptions{Unordered: true}, Do: scenarios.Work{Time: 100 * time.Second},
	}}}
	plan := faults.Plan{Faults: []faults.Fault{{
		Kind: faults.Crash, Process: faults.AnyProcess, Point: string(engine.PointAttemptSucceed), Position: faults.After, Occurrence: 3,
	}}}
	run, err := w.Run(plan, 1, scenarios.Bug{})
	if err != nil {
		t.Fatal(err)
	}
	var died, repaired time.Duration
	for _, e := range run.Journal.Events {
		switch {
		case e.Kind == journal.ProcessDied:
			died = e.Time
		case died > 0 && repaired == 0 && e.Kind == journal.Issued && e.Point == string(engine.PointDeliverySucceed):
			repaired = e.Time
		}
	}
	if wait := repaired - died; wait > 3*4*time.Second { // 400 deliveries, 200 a pass, and a pass to begin with
		t.Errorf("the torn delivery was finished %v after the crash", wait)
	}
}

func TestWhatIsUnsubscribedDuringItsClaimIsNotRun(t *testing.T) {
	claim := faults.Fault{
		Kind: faults.Stall, Process: "process", Point: string(engine.PointAttemptClaim), Position: faults.Unanswered, Occurrence: 1, Span: 5 * time.Second,
	}
	w, err := sim.New(sim.Config{Limit: time.Minute, Plan: faults.Plan{Faults: []faults.Fault{claim}}})
	if err != nil {
		t.Fatal(err)
	}
	w.Add("process", func(ctx context.Context, p *sim.Process) error {
		eng, err := p.Open(ctx, engine.Options{ConsumerGroup: "billing"})
		if err != nil {
			return err
		}
		subscription, err := sim.Subscribe(ctx, p, eng, orders, engine.SubscribeOptions{Unordered: true}, handle)
		if err == nil {
			_, err = orders.Publish(ctx, eng, 1)
		}
		if err == nil {
			err = p.Sleep(ctx, 2*time.Second)
			subscription.Unsubscribe()
		}
		return err
	})
	j := w.Run()
	for _, event := range j.Events {
		if event.Kind == journal.HandlerStarted {
			t.Errorf("the handler starts at %v", event.Time)
		}
	}
	attempts := w.Model().Documents(sim.Database, "orionjs.pulse.history")
	if len(attempts) != 1 || document.Get(attempts[0], "status") != "pending" || document.Get(attempts[0], "lockToken") != nil {
		t.Errorf("attempts: %v; want one that waits for another worker", attempts)
	}
}

func TestLatestBeginsAfterWhatIsThere(t *testing.T) {
	w, err := sim.New(sim.Config{Limit: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	var got []int
	w.Add("process", func(ctx context.Context, p *sim.Process) error {
		eng, err := p.Open(ctx, engine.Options{ConsumerGroup: "billing"})
		for n := range 4 {
			if n == 2 && err == nil {
				_, err = sim.Subscribe(ctx, p, eng, orders, engine.SubscribeOptions{OffsetReset: engine.Latest},
					func(_ context.Context, event engine.Event[int]) error {
						got = append(got, event.Data)
						return nil
					})
			}
			if err == nil {
				_, err = orders.Publish(ctx, eng, n)
			}
		}
		return err
	})
	keep(t, w.Run())
	if fmt.Sprint(got) != "[2 3]" {
		t.Errorf("handled %v, want what was published after the subscription", got)
	}
}
