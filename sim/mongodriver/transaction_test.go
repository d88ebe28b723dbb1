package mongodriver_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.uber.org/goleak"

	"github.com/fencepost-sim/fencepost/engine"
	"github.com/fencepost-sim/fencepost/engine/store"
	"github.com/fencepost-sim/fencepost/faults"
	"github.com/fencepost-sim/fencepost/properties"
	"github.com/fencepost-sim/fencepost/sim"
	"github.com/fencepost-sim/fencepost/sim/journal"
	"github.com/fencepost-sim/fencepost/sim/mongodriver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type deposit struct{ Amount int }

// account is a handler's database: what it has booked, and for which events.
type account struct{ balance, processed *mongo.Collection }

func (a account) mark(ctx context.Context, event string) error {
	_, err := a.processed.InsertOne(ctx, bson.D{{Key: "_id", Value: event}})
	return err
}

func (a account) book(ctx context.Context, amount int) error {
	change := bson.D{{Key: "$inc", Value: bson.D{{Key: "amount", Value: amount}}}}
	_, err := a.balance.UpdateOne(ctx, bson.D{{Key: "_id", Value: "till"}}, change, options.UpdateOne().SetUpsert(true))
	return err
}

// booking is the code under test: it books a deposit for an event.
type booking func(ctx context.Context, client *mongo.Client, a account, event engine.Event[deposit]) error

// inOneTransaction is what a service is told to do: the mark and the domain's write commit together.
func inOneTransaction(ctx context.Context, client *mongo.Client, a account, event engine.Event[deposit]) error {
	session, err := client.StartSession()
	if err != nil {
		return err
	}
	defer session.EndSession(ctx)
	_, err = session.WithTransaction(ctx, func(ctx context.Context) (any, error) {
		if err := a.mark(ctx, event.ID); err != nil {
			return nil, err
		}
		return nil, a.book(ctx, event.Data.Amount)
	})
	return unlessDone(err)
}

// markedFirst and bookedFirst are its broken twins: one loses deposits, the other doubles them. Lost messages do not show it, since the driver sends each
// command again under its number; crashes do.
func markedFirst(ctx context.Context, _ *mongo.Client, a account, event engine.Event[deposit]) error {
	if err := a.mark(ctx, event.ID); err != nil {
		return unlessDone(err)
	}
	return a.book(ctx, event.Data.Amount)
}

func bookedFirst(ctx context.Context, _ *mongo.Client, a account, event engine.Event[deposit]) error {
	if err := a.book(ctx, event.Data.Amount); err != nil {
		return err
	}
	return unlessDone(a.mark(ctx, event.ID))
}

func unlessDone(err error) error {
	if mongo.IsDuplicateKeyError(err) {
		return nil // an earlier attempt did it
	}
	return err
}

const deposits = 3

// run runs two replicas with the handler under a plan, on a way of the engines to the database, and returns what was booked.
//
// It runs in a bubble, in which the driver's pauses by the machine's clock take no time.
func (b booking) run(t *testing.T, plan faults.Plan, way func(*sim.World) func(*sim.Process) store.Store) (balance int, j *journal.Journal) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { balance, j = b.runInBubble(t, plan, way) })
	return balance, j
}

func (b booking) runInBubble(t *testing.T, plan faults.Plan, way func(*sim.World) func(*sim.Process) store.Store) (balance int, j *journal.Journal) {
	t.Helper()
	world, err := sim.New(sim.Config{Seed: 1, Plan: plan, Through: way, Limit: time.Hour, Done: delivered})
	if err != nil {
		t.Fatal(err)
	}
	clients := mongodriver.In(world)
	topic := engine.NewTopic[deposit]("deposit.made")
	published := 0
	world.Add("publisher", func(ctx context.Context, p *sim.Process) error {
		eng, err := p.Open(ctx, engine.Options{ConsumerGroup: "till", ChangeStreams: engine.ChangeStreamsDisabled})
		for err == nil && published < deposits {
			if _, err = topic.Publish(ctx, eng, deposit{Amount: 10}); err == nil {
				published++
			}
		}
		return err
	})
	for _, name := range []string{"worker-1", "worker-2"} {
		world.Add(name, func(ctx context.Context, p *sim.Process) error {
			client, err := clients.Connect(p)
			if err != nil {
				return err
			}
			database := client.Database("till")
			a := account{database.Collection("balance"), database.Collection("processed")}
			eng, err := p.Open(ctx, engine.Options{ConsumerGroup: "till"})
			if err != nil {
				return err
			}
			_, err = sim.Subscribe(ctx, p, eng, topic, engine.SubscribeOptions{Unordered: true, OffsetReset: engine.Earliest},
				func(ctx context.Context, event engine.Event[deposit]) error { return b(ctx, client, a, event) })
			return err
		})
	}
	recorded := world.Run()
	if last := recorded.Events[len(recorded.Events)-1]; last.Name != sim.EndedClosed {
		t.Errorf("the run ended by its %s\n%s", last.Name, plan)
	}
	for _, document := range world.Model().Documents("till", "balance") {
		for _, field := range document {
			if n, ok := field.Value.(int32); ok {
				balance = int(n)
			}
		}
	}
	return balance, recorded
}

func delivered(w *sim.World) bool {
	deliveries := w.Model().Documents(sim.Database, "orionjs.pulse.deliveries")
	pending := slices.ContainsFunc(deliveries, func(d bson.D) bool {
		return slices.ContainsFunc(d, func(e bson.E) bool { return e.Key == "status" && e.Value == "pending" })
	})
	return len(deliveries) == deposits && !pending
}

// windows lists every place around every step of the workers at which they can crash, or lose a message.
func (b booking) windows(t *testing.T) (plans []faults.Plan) {
	t.Helper()
	_, j := b.run(t, faults.Plan{}, nil)
	points := []string{sim.PointHandlerStart, sim.PointHandlerEnd}
	for i := range j.Events {
		event := &j.Events[i]
		if event.Kind == journal.Issued && event.Process > 1 && !strings.HasPrefix(event.Point, "startup.") && !slices.Contains(points, event.Point) {
			points = append(points, event.Point)
		}
	}
	for _, point := range points {
		for _, kind := range []faults.Kind{faults.Crash, faults.LoseCall, faults.LoseReply, faults.Partition} {
			if strings.HasPrefix(point, "handler.") && kind != faults.Crash {
				continue
			}
			entry, _ := faults.Lookup(kind)
			for _, position := range entry.Positions {
				fault := faults.Fault{Kind: kind, Process: faults.AnyProcess, Point: point, Position: position, Occurrence: 1}
				if kind == faults.Crash || kind == faults.Partition {
					fault.Span = 5 * time.Second
				}
				for fault.Occurrence = range 2 {
					fault.Occurrence++
					plans = append(plans, faults.Plan{Faults: []faults.Fault{fault}})
				}
			}
		}
	}
	return plans
}

func TestAHandlerWithATransactionBooksExactlyOnceThroughEveryCrashWindow(t *testing.T) {
	handler := booking(inOneTransaction)
	plans := handler.windows(t)
	for _, step := range []string{"insert", "update", "commitTransaction"} {
		if !slices.ContainsFunc(plans, func(p faults.Plan) bool { return p.Faults[0].Point == mongodriver.PointOf(step) }) {
			t.Errorf("no fault strikes at %s", mongodriver.PointOf(step))
		}
	}
	for i, plan := range plans {
		ways := []func(*sim.World) func(*sim.Process) store.Store{nil}
		if strings.HasPrefix(plan.Faults[0].Point, "driver.") || i%10 == 0 {
			ways = append(ways, mongodriver.Through)
		}
		for _, way := range ways {
			balance, j := handler.run(t, plan, way)
			if balance != 10*deposits {
				t.Errorf("%d was booked instead of %d\n%s", balance, 10*deposits, plan)
			}
			for _, violation := range properties.Violations(j) {
				t.Errorf("%s\n%s", violation, plan)
			}
			if strings.HasPrefix(plan.Faults[0].Point, "driver.") && !struck(j) {
				t.Errorf("it did not strike: %s", plan)
			}
		}
	}
	t.Logf("%d windows", len(plans))
}

func struck(j *journal.Journal) bool {
	return slices.ContainsFunc(j.Events, func(e journal.Event) bool { return e.Kind == journal.FaultStruck })
}

func TestItsTwinsWithoutATransactionLoseOrDoubleADeposit(t *testing.T) {
	for name, twin := range map[string]struct {
		handler booking
		lost    bool
	}{
		"marked first": {markedFirst, true},
		"booked first": {bookedFirst, false},
	} {
		t.Run(name, func(t *testing.T) {
			found := 0
			for _, plan := range twin.handler.windows(t) {
				balance, _ := twin.handler.run(t, plan, nil)
				if balance == 10*deposits {
					continue
				}
				if found++; balance < 10*deposits != twin.lost || plan.Faults[0].Kind == faults.LoseCall || plan.Faults[0].Kind == faults.LoseReply {
					t.Errorf("%d was booked instead of %d\n%s", balance, 10*deposits, plan)
				}
			}
			if found == 0 {
				t.Error("no plan shows what is wrong")
			}
			t.Logf("%d plans show it", found)
		})
	}
}

func TestARunWithAClientIsTheSameEveryTime(t *testing.T) {
	plan := faults.Plan{Schedule: faults.Slow, Faults: []faults.Fault{{
		Kind: faults.LoseReply, Process: faults.AnyProcess, Point: mongodriver.PointOf("commitTransaction"), Position: faults.Unanswered, Occurrence: 2,
	}}}
	_, first := booking(inOneTransaction).run(t, plan, nil)
	for range 10 {
		if _, again := booking(inOneTransaction).run(t, plan, nil); again.Hash() != first.Hash() {
			t.Fatal(again.Compare(first.Lines()))
		}
	}
}

func TestAClientWithATimeoutIsRefused(t *testing.T) {
	world, err := sim.New(sim.Config{})
	if err != nil {
		t.Fatal(err)
	}
	var refused error
	world.Add("worker", func(_ context.Context, p *sim.Process) error {
		_, refused = mongodriver.In(world).Connect(p, options.Client().SetTimeout(time.Second))
		return nil
	})
	world.Run()
	if !errors.Is(refused, mongodriver.ErrTimeout) || !strings.Contains(fmt.Sprint(refused), "1s") {
		t.Errorf("Connect returned %v; want ErrTimeout with the value", refused)
	}
}
