package engine

import (
	"context"
	"fmt"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/fencepost-sim/fencepost/engine/host"
	"github.com/fencepost-sim/fencepost/engine/store"
	"github.com/fencepost-sim/fencepost/internal/defect"
)

// deadlineTime is a point on the host's monotonic clock.
type deadlineTime = time.Duration

// execution is one leased attempt in the hands of one worker. Three tasks share it: the worker, which waits and
// writes the outcome; the heartbeat, which renews the lease; and the handler. Whatever becomes of the other two, the worker
// notices when the lease runs out.
type execution struct {
	engine   *Engine
	topic    *topicState
	delivery deliveryDocument
	attempt  attemptDocument

	token    string
	order    *orderLease  // the topic's ordering lease; nil for unordered topics
	deadline deadlineTime // until when this process may act on both

	refused  bool // claimed, but not to be run
	lost     bool // the database said that the lease is somebody else's
	finished bool // no more heartbeats
	outcome  *outcome
	signal   host.Signal
}

// run executes the attempt and writes what came of it. Crash windows 14 to 27.
func (x *execution) run() (err error) {
	e := x.engine
	x.task("heartbeat", x.heartbeat)
	defer x.finish()

	event, err := x.readEvent()
	switch {
	case err != nil:
		x.refuse(e.context) // a database that does not answer is not the handler's failure
	case event == nil:
		err = x.fail(failure{code: CodeEventExpired, name: "EventExpired", message: "the event was removed by retention"})
	default:
		err = x.handle(*event)
	}
	return err
}

func (x *execution) task(kind string, run func()) {
	x.engine.task(kind+" "+x.attempt.id, run)
}

// finish ends the heartbeat.
func (x *execution) finish() {
	x.finished = true
	x.signal.Broadcast()
}

func (x *execution) readEvent() (*eventDocument, error) {
	e := x.engine
	found, err := e.findOne(e.context, store.Command{
		Point: PointEventRead, Collection: e.collections.events,
		Filter: bson.D{is("_id", x.attempt.eventID)},
	})
	if err != nil || found == nil {
		return nil, err
	}
	event := decodeEvent(found)
	return &event, nil
}

// handle runs the handler in a task of its own and waits for it, cancelling its context at the deadline
// of the lease: before anybody else can start (W6).
func (x *execution) handle(event eventDocument) error {
	e := x.engine
	ctx, cancel := context.WithCancelCause(context.WithValue(e.context, handlerOf{}, e))
	defer cancel(nil)
	deliver := x.topic.deliver
	x.task("handler", func() { x.call(ctx, deliver, event) })
	for x.outcome == nil {
		left := x.deadline - e.host.Monotonic()
		if x.lost || left <= 0 {
			cancel(ErrLeaseLost)
			x.signal.Wait(context.Background(), -1)
			continue
		}
		x.signal.Wait(context.Background(), left)
	}
	return x.record(*x.outcome)
}

// record turns what the handler did into an attempt's status.
//
// A handler that was told that the lease is lost and then failed did not fail by itself. If the lease turns out to be ours still (the reply
// to a heartbeat came late, say), it is the worker that gave up, and the attempt says so.
func (x *execution) record(outcome outcome) error {
	switch {
	case !outcome.started:
		x.refuse(x.engine.context)
		return x.leaseLost("the lease ran out before the handler started")
	case x.lost, x.engine.defects.Has(defect.LossByError) && strings.Contains(outcome.problem(), ErrLeaseLost.Error()):
		return x.leaseLost("the handler's outcome is dropped")
	case outcome.failure == nil:
		return x.succeed()
	case outcome.stopped && !x.engine.defects.Has(defect.BlameHandler):
		return x.fail(failure{code: CodeWorkerLost, name: "LeaseLost", message: "the lease was not renewed in time, and the handler was stopped"})
	default:
		return x.fail(*outcome.failure)
	}
}

func (x *execution) leaseLost(what string) error {
	x.engine.telemetry.lost.Add(x.engine.context, 1, x.engine.labels(x.topic.name))
	return fmt.Errorf("%w: attempt %d of delivery %s: %s", ErrLeaseLost, x.attempt.number, x.attempt.deliveryID, what)
}

// handlerOf is the context key under which a handler's context carries its engine.
type handlerOf struct{}

func (e *Engine) inHandler(ctx context.Context) bool {
	return ctx.Value(handlerOf{}) == e
}
