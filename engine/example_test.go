package engine_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/fencepost-sim/fencepost/engine"
	"github.com/fencepost-sim/fencepost/engine/store/mongostore"
	"github.com/fencepost-sim/fencepost/sim/mongosim"
	"github.com/fencepost-sim/fencepost/sim/wire"
)

type order struct {
	Number int
	Cents  int
}

// demoDatabase stands for a MongoDB: the model, through the official driver. A program connects to its own instead.
func demoDatabase() (database *mongo.Database, stop func()) {
	server := wire.NewServer(wire.Options{Model: mongosim.New(mongosim.Options{})})
	client, err := mongo.Connect(options.Client().SetDialer(server.Dialer()))
	if err != nil {
		panic(err)
	}
	return client.Database("shop"), func() {
		_ = client.Disconnect(context.Background())
		server.Close()
	}
}

// A program publishes an order, and handles it. The handler fails the first time, and gets the event again.
func Example() {
	database, stop := demoDatabase()
	defer stop()
	ctx := context.Background()
	orders := engine.NewTopic[order]("order.created")

	eng, err := engine.Open(ctx, engine.Options{Store: mongostore.New(database), ConsumerGroup: "billing"})
	if err != nil {
		panic(err)
	}
	done := make(chan struct{})
	_, err = orders.Subscribe(ctx, eng, engine.SubscribeOptions{RetryDelay: time.Millisecond},
		func(_ context.Context, event engine.Event[order]) error {
			fmt.Printf("attempt %d to charge %d cents for order %d\n", event.Attempt, event.Data.Cents, event.Data.Number)
			if event.Attempt == 1 {
				return errors.New("the bank does not answer")
			}
			close(done)
			return nil
		})
	if err != nil {
		panic(err)
	}
	if _, err := orders.Publish(ctx, eng, order{Number: 1, Cents: 250}); err != nil {
		panic(err)
	}
	<-done
	if err := eng.Close(ctx); err != nil {
		panic(err)
	}
	// Output:
	// attempt 1 to charge 250 cents for order 1
	// attempt 2 to charge 250 cents for order 1
}

// History answers what became of an event: every attempt, who made it, and how it ended.
func ExampleEngine_History() {
	database, stop := demoDatabase()
	defer stop()
	ctx := context.Background()
	orders := engine.NewTopic[order]("order.created")
	eng, err := engine.Open(ctx, engine.Options{Store: mongostore.New(database), ConsumerGroup: "billing"})
	if err != nil {
		panic(err)
	}
	_, err = orders.Subscribe(ctx, eng, engine.SubscribeOptions{MaxRetries: engine.NoRetries},
		func(context.Context, engine.Event[order]) error { return errors.New("declined") })
	if err != nil {
		panic(err)
	}
	id, err := orders.Publish(ctx, eng, order{Number: 1})
	if err != nil {
		panic(err)
	}
	for ended := false; !ended; {
		page, err := eng.History(ctx, engine.HistoryQuery{EventID: id, Status: engine.AttemptError})
		if err != nil {
			panic(err)
		}
		for _, attempt := range page.Attempts {
			fmt.Printf("attempt %d: %s, %s: %s\n", attempt.Number, attempt.Status, attempt.Error.Code, attempt.Error.Message)
			ended = true
		}
	}
	if err := eng.Close(ctx); err != nil {
		panic(err)
	}
	// Output:
	// attempt 1: error, handler_error: declined
}

// A wrong option is refused with its name, its value and what is allowed.
func ExampleConfigurationError() {
	database, stop := demoDatabase()
	defer stop()
	_, err := engine.Open(context.Background(), engine.Options{
		Store: mongostore.New(database), ConsumerGroup: "billing", LockTimeout: time.Millisecond,
	})
	var wrong *engine.ConfigurationError
	fmt.Println(errors.As(err, &wrong), wrong)
	// Output:
	// true fencepost: Options.LockTimeout is 1ms; allowed: 30ms to 24h0m0s
}
