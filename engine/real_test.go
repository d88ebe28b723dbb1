package engine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/fencepost-sim/fencepost/engine"
	"github.com/fencepost-sim/fencepost/engine/store/mongostore"
	"github.com/fencepost-sim/fencepost/sim/mongosim"
	"github.com/fencepost-sim/fencepost/sim/wire"
)

// These tests run in real time, on goroutines, through the official driver and the wire protocol: what the simulator
// cannot show is that the real host keeps the turns. Run them with -race.

// database connects the driver to a model of its own.
func database(t *testing.T) *mongo.Database {
	t.Helper()
	server := wire.NewServer(wire.Options{Model: mongosim.New(mongosim.Options{}), Report: func(err error) { t.Error(err) }})
	t.Cleanup(server.Close)
	client, err := mongo.Connect(options.Client().SetDialer(server.Dialer()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.Disconnect(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return client.Database("app")
}

func open(t *testing.T, database *mongo.Database, settings engine.Options) *engine.Engine {
	t.Helper()
	settings.Store, settings.ConsumerGroup = mongostore.New(database), "billing"
	settings.PollInterval, settings.LockTimeout = 50*time.Millisecond, 2*time.Second
	eng, err := engine.Open(t.Context(), settings)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := eng.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return eng
}

// recorder collects what handlers saw, until so many have been seen.
type recorder struct {
	lock    sync.Mutex
	seen    []string
	running int
	peak    int
	wanted  int
	all     chan struct{}
}

func newRecorder(wanted int) *recorder { return &recorder{wanted: wanted, all: make(chan struct{})} }

func (r *recorder) enter() {
	r.lock.Lock()
	defer r.lock.Unlock()
	r.running++
	r.peak = max(r.peak, r.running)
}

func (r *recorder) leave(what string) {
	r.lock.Lock()
	defer r.lock.Unlock()
	r.running--
	if r.seen = append(r.seen, what); len(r.seen) == r.wanted {
		close(r.all)
	}
}

func (r *recorder) wait(t *testing.T) []string {
	t.Helper()
	select {
	case <-r.all:
	case <-t.Context().Done():
	case <-time.After(time.Minute): // only ever waited for when the test fails
		t.Errorf("only %d of %d were seen: %v", len(r.seen), r.wanted, r.seen)
	}
	r.lock.Lock()
	defer r.lock.Unlock()
	return slices.Clone(r.seen)
}

func TestReplicasOnTheRealHostShareTheWorkAndHandleEachEventOnce(t *testing.T) {
	const events = 60
	db, seen := database(t), newRecorder(events)
	handler := func(_ context.Context, event engine.Event[int]) error {
		seen.enter()
		defer seen.leave(fmt.Sprint(event.Data))
		return nil
	}
	var engines []*engine.Engine
	for range 3 {
		eng := open(t, db, engine.Options{})
		options := engine.SubscribeOptions{Unordered: true, OffsetReset: engine.Earliest}
		if _, err := orders.Subscribe(t.Context(), eng, options, handler); err != nil {
			t.Fatal(err)
		}
		engines = append(engines, eng)
	}
	var publishers sync.WaitGroup
	for i, eng := range engines {
		publishers.Go(func() {
			for n := i; n < events; n += len(engines) {
				if _, err := orders.Publish(t.Context(), eng, n); err != nil {
					t.Error(err)
				}
			}
		})
	}
	publishers.Wait()
	got := seen.wait(t)
	slices.Sort(got)
	if unique := slices.Compact(got); len(unique) != events {
		t.Errorf("%d different events were handled, want %d", len(unique), events)
	}
}

func TestAnOrderedTopicOnTheRealHostKeepsItsOrderAcrossReplicas(t *testing.T) {
	const events = 20
	db, seen := database(t), newRecorder(events)
	handler := func(_ context.Context, event engine.Event[int]) error {
		seen.enter()
		defer seen.leave(fmt.Sprint(event.Data))
		return nil
	}
	var last *engine.Engine
	for range 3 {
		last = open(t, db, engine.Options{})
		if _, err := orders.Subscribe(t.Context(), last, engine.SubscribeOptions{OffsetReset: engine.Earliest}, handler); err != nil {
			t.Fatal(err)
		}
	}
	var want []string
	for n := range events {
		if _, err := orders.Publish(t.Context(), last, n); err != nil {
			t.Fatal(err)
		}
		want = append(want, fmt.Sprint(n))
	}
	if got := seen.wait(t); !slices.Equal(got, want) {
		t.Errorf("handled %v", got)
	}
	if seen.peak != 1 {
		t.Errorf("%d handlers ran at once", seen.peak)
	}
}

func TestCloseFromInsideAHandlerReturnsAtOnceAndTheHandlerIsAcknowledged(t *testing.T) {
	db, seen := database(t), newRecorder(1)
	eng := open(t, db, engine.Options{})
	_, err := orders.Subscribe(t.Context(), eng, engine.SubscribeOptions{}, func(ctx context.Context, event engine.Event[int]) error {
		seen.enter()
		defer seen.leave("closed")
		return eng.Close(ctx)
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := orders.Publish(t.Context(), eng, 1); err != nil {
		t.Fatal(err)
	}
	seen.wait(t)
	if err := eng.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	var delivery struct{ Status string }
	if err := db.Collection("orionjs.pulse.deliveries").FindOne(t.Context(), map[string]any{}).Decode(&delivery); err != nil {
		t.Fatal(err)
	}
	if delivery.Status != "success" {
		t.Errorf("the delivery is %s, want success", delivery.Status)
	}
}

func TestCloseWithADeadlineCancelsTheHandlerAndReturnsItsCause(t *testing.T) {
	db, started := database(t), newRecorder(1)
	eng := open(t, db, engine.Options{})
	cause := make(chan error, 1)
	_, err := orders.Subscribe(t.Context(), eng, engine.SubscribeOptions{}, func(ctx context.Context, event engine.Event[int]) error {
		started.leave("started")
		<-ctx.Done()
		cause <- context.Cause(ctx)
		return ctx.Err()
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := orders.Publish(t.Context(), eng, 1); err != nil {
		t.Fatal(err)
	}
	started.wait(t)
	impatient := errors.New("impatient")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(impatient)
	if err := eng.Close(ctx); !errors.Is(err, impatient) {
		t.Errorf("Close returned %v", err)
	}
	if err := <-cause; !errors.Is(err, engine.ErrClosed) {
		t.Errorf("the handler's context was cancelled with %v", err)
	}
}
