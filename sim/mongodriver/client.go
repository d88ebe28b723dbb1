// Package mongodriver puts MongoDB's official driver into a simulated world: the driver's own code runs inside the coroutines of the world's
// processes, its messages go through the codec of sim/wire to the world's model, one at a time, and the world's scheduler and faults decide
// about every one of them.
//
// Two things come of it. [Through] is the long way from an engine to the model: engine/store/mongostore, driver, wire protocol. And
// [Clients] gives the processes of a world a *mongo.Client, so that a handler written for production, transactions and all,
// goes through every crash window.
//
// A lost request or reply is a network error to the driver, so its own retryable reads and writes and its resumption of change streams take
// part. Its session ids and request ids are random; they reach neither the journal nor anything that is decided.
//
// What the driver does by the machine's clock has no place in a virtual time: a client Timeout is refused, and contexts with a deadline must not be used.
// Session.WithTransaction waits some milliseconds of real time before it runs its function again; the virtual time for it passes before the driver hears
// of the error.
package mongodriver

import (
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/fencepost-sim/fencepost/engine/store"
	"github.com/fencepost-sim/fencepost/sim"
	"github.com/fencepost-sim/fencepost/sim/wire"
)

// Clients makes clients for the processes of one world. They all talk to the world's model.
type Clients struct {
	world  *sim.World
	server *wire.Server
}

// In returns the clients of a world.
func In(w *sim.World) *Clients {
	return &Clients{w, wire.NewServer(wire.Options{Model: w.Model(), Now: w.ServerNow, Changed: w.Changed})}
}

// ErrTimeout is returned by Connect for options with a Timeout, which the driver would take by the machine's clock.
var ErrTimeout = errors.New("mongodriver: a client in a simulated world has no Timeout")

// Connect returns a client for the present life of the process. It is called, and the client is used, by the tasks of that life only: in the main function
// of the process and its handlers. Each command is a point, PointOf(its name), at which faults can strike.
//
// Of the options, those about connections and servers mean nothing here. The client needs no Disconnect.
func (c *Clients) Connect(p *sim.Process, opts ...*options.ClientOptions) (*mongo.Client, error) {
	merged := options.MergeClientOptions(opts...)
	if merged.Timeout != nil {
		return nil, fmt.Errorf("%w: it is %v", ErrTimeout, *merged.Timeout)
	}
	connected := &client{world: c.world, connection: p.Connect(), server: c.server}
	hello, err := c.world.Model().Run(c.world.ServerNow(), "admin", store.Command{Kind: store.Hello})
	if err != nil {
		return nil, fmt.Errorf("mongodriver: hello: %w", err)
	}
	if err := newDeployment(connected, hello.Document).install(merged); err != nil {
		return nil, fmt.Errorf("mongodriver: %w", err)
	}
	return mongo.Connect(merged)
}

// PointOf is the point at which faults strike a command of a client, for example "driver.insert" or "driver.commitTransaction".
func PointOf(command string) string { return "driver." + command }

// PointGetMore is where faults strike the requests for further events of an engine's change stream, on the way through the driver. They
// are no operations of their own: the journal shows nothing of them but the faults.
var PointGetMore = PointOf("getMore")
