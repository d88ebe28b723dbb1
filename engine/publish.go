package engine

import (
	"context"
	"errors"
	"maps"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/fencepost-sim/fencepost/engine/store"
)

// publishTries bounds how often one publication is sent while its outcome is unknown.
const publishTries = 3

// publish stores an event by an upsert, since only an update can have the server stamp it ($currentDate): the sequence
// orders the events of a topic by the database's clock, whatever the publishers' clocks say. Crash window 1.
func (e *Engine) publish(ctx context.Context, topic string, data any, headers map[string]string) (string, error) {
	// A handler that Close waits for may finish its work, and what it publishes belongs to it.
	if e.closing && !e.inHandler(ctx) || e.context.Err() != nil {
		return "", ErrClosed
	}
	id := e.host.NewID()
	command := store.Command{
		Point: PointPublish, Kind: store.Update, Collection: e.collections.events,
		Filter: bson.D{is("_id", id), is("sequence", absent)},
		Update: bson.D{
			is("$setOnInsert", e.eventFields(topic, data, headers)),
			is("$currentDate", bson.D{is("sequence", bson.D{is("$type", "timestamp")})}),
		},
		Upsert: true,
	}
	_, err := e.run(ctx, command)
	for try := 1; try < publishTries && errors.Is(err, store.ErrUnknownOutcome) && ctx.Err() == nil; try++ {
		_, err = e.run(ctx, command)
	}
	// The ID is ours alone: if it is a duplicate, an earlier sending of this command stored it (W12).
	if err != nil && !store.IsDuplicateKey(err) {
		return "", err
	}
	e.telemetry.published.Add(ctx, 1, e.labels(topic))
	if e.topicState(topic) != nil {
		e.wakeCoordinator()
	}
	return id, nil
}

func (e *Engine) eventFields(topic string, data any, headers map[string]string) bson.D {
	now := e.host.Now()
	fields := bson.D{is("topic", topic), is("data", data), is("createdAt", bson.NewDateTimeFromTime(now))}
	if len(headers) > 0 {
		var ordered bson.D
		for _, key := range slices.Sorted(maps.Keys(headers)) {
			ordered = append(ordered, is(key, headers[key]))
		}
		fields = append(fields, is("headers", ordered))
	}
	if e.options.EventRetention != KeepForever {
		fields = append(fields, is("expiresAt", after(bson.NewDateTimeFromTime(now), e.options.EventRetention)))
	}
	return fields
}
