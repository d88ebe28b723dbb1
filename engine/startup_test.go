package engine_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/fencepost-sim/fencepost/engine"
	"github.com/fencepost-sim/fencepost/engine/store"
	"github.com/fencepost-sim/fencepost/sim"
)

func keys(fields ...string) (keys bson.D) {
	for _, field := range fields {
		keys = append(keys, bson.E{Key: field, Value: int32(1)})
	}
	return keys
}

func TestIndexesThatDifferStopTheStartAndAreNamed(t *testing.T) {
	name, collection := "pulse_deliveries_group_event_unique", "orionjs.pulse.deliveries"
	right := store.Index{Name: name, Keys: keys("consumerGroup", "eventId"), Unique: true}
	for problem, index := range map[string]store.Index{
		"{eventId: 1, consumerGroup: 1} unique":                         {Name: name, Keys: keys("eventId", "consumerGroup"), Unique: true},
		"{consumerGroup: 1, eventId: 1}":                                {Name: name, Keys: right.Keys},
		"{consumerGroup: 1, eventId: 1} unique sparse":                  {Name: name, Keys: right.Keys, Unique: true, Sparse: true},
		"{consumerGroup: 1, eventId: 1} unique hidden":                  {Name: name, Keys: right.Keys, Unique: true, Hidden: true},
		"{consumerGroup: 1, eventId: 1} unique partialFilterExpression": {Name: name, Keys: right.Keys, Unique: true, Partial: bson.D{{Key: "topic", Value: "x"}}},
	} {
		inside(t, func(ctx context.Context, p *sim.Process) {
			_, err := p.Store().Run(ctx, store.Command{Kind: store.CreateIndexes, Collection: collection, Indexes: []store.Index{index}})
			if err != nil {
				t.Error(err)
				return
			}
			_, err = p.Open(ctx, engine.Options{ConsumerGroup: "billing"})
			var wrong *engine.IndexError
			if !errors.As(err, &wrong) || !errors.Is(err, engine.ErrIndex) {
				t.Errorf("got %v, want an IndexError", err)
				return
			}
			if wrong.Collection != collection || wrong.Index != name || wrong.Actual != problem {
				t.Errorf("got %v, want it to name %s", err, problem)
			}
		})
	}
}

func TestDataThatViolatesAUniqueIndexStopsTheStartAndIsNamed(t *testing.T) {
	inside(t, func(ctx context.Context, p *sim.Process) {
		row := func(id string) bson.D {
			return bson.D{{Key: "_id", Value: id}, {Key: "consumerGroup", Value: "billing"}, {Key: "topic", Value: "order.created"}}
		}
		_, err := p.Store().Run(ctx, store.Command{
			Kind: store.Insert, Collection: "orionjs.pulse.subscriptions", Documents: []bson.D{row("a"), row("b")},
		})
		if err != nil {
			t.Error(err)
			return
		}
		_, err = p.Open(ctx, engine.Options{ConsumerGroup: "billing"})
		if !errors.Is(err, engine.ErrIndex) || !store.HasCode(err, store.CodeDuplicateKey) {
			t.Errorf("got %v, want an IndexError caused by a duplicate key", err)
			return
		}
		for _, want := range []string{"orionjs.pulse.subscriptions", "pulse_subscriptions_group_topic_unique", "billing"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("the error does not name %s: %v", want, err)
			}
		}
	})
}

func TestReplicasThatStartTogetherCreateEveryIndexOnce(t *testing.T) {
	inside(t, func(ctx context.Context, p *sim.Process) {
		for range 3 {
			if _, err := p.Open(ctx, engine.Options{ConsumerGroup: "billing"}); err != nil {
				t.Error(err)
			}
		}
		want := map[string]int{"events": 4, "subscriptions": 4, "deliveries": 5, "history": 7} // with _id_
		for name, n := range want {
			reply, err := p.Store().Run(ctx, store.Command{Kind: store.ListIndexes, Collection: "orionjs.pulse." + name})
			if err != nil || len(reply.Documents) != n {
				t.Errorf("%s has %d indexes (%v), want %d", name, len(reply.Documents), err, n)
			}
		}
	})
}

func TestChangeStreamsRequiredFailsOnAStandalone(t *testing.T) {
	for mode, fails := range map[engine.ChangeStreams]bool{
		engine.ChangeStreamsRequired: true, engine.ChangeStreamsAuto: false, engine.ChangeStreamsDisabled: false,
	} {
		w, err := sim.New(sim.Config{Standalone: true, Limit: 1})
		if err != nil {
			t.Fatal(err)
		}
		w.Add("process", func(ctx context.Context, p *sim.Process) error {
			_, err := p.Open(ctx, engine.Options{ConsumerGroup: "billing", ChangeStreams: mode})
			if fails {
				wantConfiguration(t, err, "Options.ChangeStreams")
			} else if err != nil {
				t.Errorf("%s: %v", mode, err)
			}
			return nil
		})
		w.Run()
	}
}

func TestPointsAreUniqueAndWritesSayWhatTheyLeave(t *testing.T) {
	seen := map[store.Point]bool{}
	for _, step := range engine.Points() {
		if seen[step.Point] {
			t.Errorf("%s stands twice in the table", step.Point)
		}
		seen[step.Point] = true
		if step.Write != (step.Left != "") {
			t.Errorf("%s: a write says what a crash leaves behind, a read does not: %v %q", step.Point, step.Write, step.Left)
		}
	}
}

func ExamplePoints() {
	for _, step := range engine.Points() {
		if step.Point == engine.PointAttemptSucceed {
			fmt.Println("a crash right after", step.Point, "leaves", step.Left)
		}
	}
	// Output: a crash right after attempt.succeed leaves a successful attempt under a pending delivery; reconciliation finishes the delivery
}
