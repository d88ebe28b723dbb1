// Command orders is a complete program on the engine: it publishes orders, charges for each, and closes when all are done.
//
//	FENCEPOST_MONGODB_URI=mongodb://localhost:27017/shop go run ./examples/orders
//	go run ./examples/orders --demo     without a MongoDB: on the model, through the real driver
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/connstring"

	"github.com/fencepost-sim/fencepost/engine"
	"github.com/fencepost-sim/fencepost/engine/store/mongostore"
	"github.com/fencepost-sim/fencepost/sim/mongosim"
	"github.com/fencepost-sim/fencepost/sim/wire"
)

// Order is the data of an event.
type Order struct {
	Number int
	Cents  int
}

var orders = engine.NewTopic[Order]("order.created")

func main() {
	demo := flag.Bool("demo", false, "run on the built-in model of MongoDB")
	count := flag.Int("orders", 5, "how many orders to publish")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Stdout, os.Getenv("FENCEPOST_MONGODB_URI"), *demo, *count); err != nil {
		fmt.Fprintln(os.Stderr, "orders:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer, uri string, demo bool, count int) (err error) {
	if count < 1 {
		return fmt.Errorf("--orders is %d; allowed: 1 and more", count)
	}
	database, disconnect, err := connect(uri, demo)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, disconnect()) }()

	eng, err := engine.Open(ctx, engine.Options{
		Store:         mongostore.New(database),
		ConsumerGroup: "billing",
		OnError:       func(err error) { fmt.Fprintln(out, "reported:", err) },
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, eng.Close(context.WithoutCancel(ctx))) }()

	charged := newTally(count)
	_, err = orders.Subscribe(ctx, eng, engine.SubscribeOptions{}, func(_ context.Context, order engine.Event[Order]) error {
		// order.ID is the same whenever this order is delivered again: whoever takes the money refuses it a second time.
		fmt.Fprintf(out, "charge %d cents for order %d, attempt %d\n", order.Data.Cents, order.Data.Number, order.Attempt)
		charged.add(order.ID)
		return nil
	})
	if err != nil {
		return err
	}
	for number := 1; number <= count; number++ {
		if _, err := orders.Publish(ctx, eng, Order{number, number * 250}); err != nil {
			return err
		}
	}
	return charged.wait(ctx)
}

// tally knows which orders were charged. At-least-once delivery may bring one again: it counts once.
type tally struct {
	lock     sync.Mutex
	seen     map[string]bool
	expected int
	complete chan struct{}
}

func newTally(expected int) *tally {
	return &tally{seen: map[string]bool{}, expected: expected, complete: make(chan struct{})}
}

func (t *tally) add(id string) {
	t.lock.Lock()
	defer t.lock.Unlock()
	if t.seen[id] {
		return
	}
	t.seen[id] = true
	if len(t.seen) == t.expected {
		close(t.complete)
	}
}

func (t *tally) wait(ctx context.Context) error {
	select {
	case <-t.complete:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func connect(uri string, demo bool) (*mongo.Database, func() error, error) {
	settings, name, stop := options.Client().ApplyURI(uri), "", func() {}
	switch {
	case demo:
		server := wire.NewServer(wire.Options{Model: mongosim.New(mongosim.Options{})})
		settings, name, stop = options.Client().SetDialer(server.Dialer()), "shop", server.Close
	case uri == "":
		return nil, nil, errors.New("set FENCEPOST_MONGODB_URI to mongodb://HOST/DATABASE, or run with --demo")
	default:
		parsed, err := connstring.ParseAndValidate(uri)
		if err != nil {
			return nil, nil, err
		}
		if name = parsed.Database; name == "" {
			return nil, nil, errors.New("FENCEPOST_MONGODB_URI names no database; allowed: mongodb://HOST/DATABASE") // it may hold a password: not quoted
		}
	}
	client, err := mongo.Connect(settings)
	if err != nil {
		stop()
		return nil, nil, err
	}
	return client.Database(name), func() error {
		defer stop()
		return client.Disconnect(context.Background())
	}, nil
}
