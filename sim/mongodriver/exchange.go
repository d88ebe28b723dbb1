package mongodriver

import (
	"context"
	"errors"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/fencepost-sim/fencepost/engine/store"
	"github.com/fencepost-sim/fencepost/sim"
	"github.com/fencepost-sim/fencepost/sim/mongosim"
	"github.com/fencepost-sim/fencepost/sim/wire"
)

// client is what stands behind the deployment of one driver client.
type client struct {
	world      *sim.World
	connection *sim.Connection
	server     *wire.Server
	links      map[int]*wire.Link // by member
	troubles   int                // exchanges in a row after which the driver tries again
}

// link returns the connection to the member that the process takes for the primary.
func (c *client) link() *wire.Link {
	member := c.connection.Member()
	if c.links[member] == nil {
		if c.links == nil {
			c.links = map[int]*wire.Link{}
		}
		c.links[member] = c.server.Link(member)
	}
	return c.links[member]
}

// command is what the way of a message depends on.
type command struct {
	name, collection string
	changeStream     bool // it opens one
}

var errMalformed = errors.New("mongodriver: the driver sent something other than a command")

func parse(request []byte) (c command, err error) {
	if len(request) <= bodyAt {
		return c, errMalformed
	}
	body := bson.Raw(request[bodyAt:])
	first, err := body.IndexErr(0)
	if err != nil {
		return c, errMalformed
	}
	c.name = first.Key()
	c.collection, _ = first.Value().StringValueOK()
	if c.name == "getMore" {
		c.collection, _ = body.Lookup("collection").StringValueOK()
	}
	if c.name == "aggregate" {
		_, err := body.LookupErr("pipeline", "0", "$changeStream")
		c.changeStream = err == nil
	}
	return c, nil
}

// exchange sends a request and returns the reply. An error is a network error to the driver.
func (c *client) exchange(ctx context.Context, request []byte) (reply []byte, err error) {
	what, err := parse(request)
	if err != nil {
		return nil, err
	}
	e := &exchange{client: c, context: ctx, request: request, command: what}
	e.step, _ = ctx.Value(stepKey{}).(*step)
	switch {
	case what.name == "killCursors" || what.name == "endSessions":
		// Housekeeping, which nobody waits for: it is done at once, or lost.
		err = c.connection.Poll("", func() { _, _ = e.answer(func() {}) })
	case what.name == "getMore" && e.step != nil && e.step.stream:
		err = c.connection.Poll(PointGetMore, func() { _, _ = e.answer(func() {}) })
		if err == nil && ctx.Err() != nil {
			err = context.Cause(ctx)
		}
	default:
		err = c.connection.Exchange(sim.Message{Point: e.point(), Kind: e.kind(), Collection: what.collection, Apply: e.answer})
	}
	reply, err = e.result(err)
	if e.step == nil {
		c.slowDown(ctx, err != nil || e.transient)
	}
	return reply, err
}

// A driver that lost its connection, or is to run its transaction again, tries again at once, or waits by the machine's clock; no virtual time passes, and
// what it waits for would never come to be. So it hears of such trouble late: after leastDelay the first time, and later each time in a
// row, up to mostDelay.
const (
	leastDelay = 500 * time.Millisecond
	mostDelay  = 8 * time.Second
)

func (c *client) slowDown(ctx context.Context, trouble bool) {
	if !trouble {
		c.troubles = 0
		return
	}
	delay := min(leastDelay<<min(c.troubles, 10), mostDelay)
	c.troubles++
	c.connection.Sleep(ctx, delay)
}

// exchange is one message under way.
type exchange struct {
	*client
	command
	context context.Context
	step    *step // of the engine's protocol, or nil
	request []byte
	reply   []byte
	failure error // of the connection
	// transient: the reply tells the driver to run its transaction again.
	transient bool
}

func (e *exchange) point() string {
	if e.step != nil {
		return e.step.point
	}
	return PointOf(e.name)
}

func (e *exchange) kind() string {
	switch {
	case e.changeStream:
		return sim.KindWatch
	case e.step != nil:
		return e.step.kind
	}
	return e.name
}

// answer lets the server run the command.
func (e *exchange) answer(between func()) (number int64, err error) {
	var body bson.D
	e.reply, body, e.failure = e.link().Answer(wire.Surroundings{Wait: e.wait, Between: between, Watch: e.watch}, e.request)
	if e.failure != nil {
		return 0, e.failure
	}
	labels, _ := field(body, "errorLabels").(bson.A)
	e.transient = slices.Contains(labels, any(store.LabelTransientTransaction))
	if err := errorIn(body); err != nil {
		return e.concerned(body), err
	}
	return e.concerned(body), nil
}

// wait lets virtual time pass. An engine's change stream waits for events without an end: that a server answers with an empty batch now and then, and the driver asks
// again, changes nothing but the number of steps, and those are to be the ones of the shortest way.
func (e *exchange) wait(patience time.Duration, stream wire.Events) error {
	feed, _ := stream.(*sim.Feed)
	if feed != nil && e.step != nil {
		return feed.Wait(e.context)
	}
	return e.connection.Wait(e.context, patience)
}

// watch puts the faults between a change stream and the driver. A feed of an engine begins when the engine has its stream, as on the shortest way; one that
// the driver opens to resume it, at once.
func (e *exchange) watch(stream *mongosim.Stream) wire.Events {
	feed := e.connection.NewFeed(stream, wire.ErrHangUp)
	if e.step == nil || e.step.stream {
		feed.Open()
	}
	if e.step != nil {
		e.step.feed = feed
	}
	return feed
}

// result is what the driver sees of the exchange.
func (e *exchange) result(err error) ([]byte, error) {
	var refused *store.Error
	switch {
	case errors.Is(err, store.ErrUnknownOutcome), err != nil && e.context.Err() != nil && e.reply == nil:
		return nil, err
	case e.failure != nil:
		return nil, e.failure
	case e.reply == nil && errors.As(err, &refused):
		return e.link().Refuse(e.request, refused)
	}
	return e.reply, nil
}
