package engine

import (
	"context"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/fencepost-sim/fencepost/engine/store"
)

// listen wakes the coordinator when the change stream shows a new event. A stream that fails is reported and reopened
// after the poll interval, without a resume token: whatever it missed, polling finds.
func (e *Engine) listen() {
	for !e.closing {
		_ = e.supervise(func() error { return e.listenOnce(e.open) })
		if e.host.Sleep(e.open, e.options.PollInterval) != nil {
			return
		}
	}
}

func (e *Engine) listenOnce(ctx context.Context) (err error) {
	var stream store.Stream
	e.host.GiveWay(func() {
		stream, err = e.store.Watch(ctx, store.Watch{
			Point: PointStreamOpen, Collection: e.collections.events,
			Pipeline: []bson.D{{is("$match", bson.D{is("operationType", "insert")})}},
			MaxAwait: e.options.PollInterval,
		})
	})
	if err != nil {
		return e.streamError(err)
	}
	defer e.host.GiveWay(func() { _ = stream.Close(e.context) })
	for {
		var change store.Change
		e.host.GiveWay(func() { change, err = stream.Next(ctx) })
		if err != nil {
			return e.streamError(err)
		}
		event := decodeEvent(change.Document)
		if topic := e.topicState(event.topic); topic != nil && topic.subscribed && !topic.knows(event) {
			if cmp := (cursor{event.sequence, event.id}).compare(topic.horizon.frontier(topic.cursor)); cmp < 0 {
				topic.horizon.nextLook = 0 // it became visible late
			}
			e.wakeCoordinator()
		}
	}
}

func (e *Engine) streamError(err error) error {
	if e.closing {
		return nil
	}
	return fmt.Errorf("fencepost: change stream: %w", err)
}
