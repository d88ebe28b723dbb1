package engine

import (
	"context"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/fencepost-sim/fencepost/engine/store"
	"github.com/fencepost-sim/fencepost/internal/document"
)

// An event that expires before the group has looked leaves nothing behind: no delivery, no attempt (W9, crash window 32). Nobody can say afterwards whether
// there was one, since it is gone with its ID. What can be said is that nobody looked for longer than events are kept. So the group remembers, by the
// database's clock, until when it has seen everything, and whoever finds that this was too long ago reports it, once, and leaves it written down.

// UndiscoveredError says that events of a topic may have expired before the group has seen them: nobody of it looked for longer than events are
// kept. It goes to OnError of the process that noticed, and stands in the subscription as field "undiscovered".
type UndiscoveredError struct {
	ConsumerGroup, Topic string
	// From and Until are when the events were published that may be missing, by the database's clock.
	From, Until time.Time
}

func (e *UndiscoveredError) Error() string {
	return fmt.Sprintf("fencepost: events of topic %s that were published from %s to %s may have expired before group %s has seen them: nobody of it looked",
		e.Topic, e.From.UTC().Format(time.RFC3339), e.Until.UTC().Format(time.RFC3339), e.ConsumerGroup)
}

// marksPerRetention is how often in the lifetime of an event a group writes down that it has looked.
const marksPerRetention = 8

// markDiscovered writes down that everything was seen that was there when the look began, and reports a gap before it. The first mark comes
// a poll interval after Subscribe.
func (e *Engine) markDiscovered(ctx context.Context, topic *topicState, looked time.Duration) error {
	now := e.host.Monotonic()
	if e.options.EventRetention == KeepForever || now < topic.nextMark {
		return nil
	}
	mark := e.host.NewID() // whoever finds its own in the gap has found it
	seen := bson.D{is("$subtract", bson.A{"$$NOW", milliseconds(now - looked)})}
	oldest := bson.D{is("$subtract", bson.A{"$$NOW", milliseconds(e.options.EventRetention)})}
	missed := bson.D{is("$and", bson.A{
		bson.D{is("$gt", bson.A{"$discoveredAt", nil})},
		bson.D{is("$lt", bson.A{"$discoveredAt", oldest})},
	})}
	reply, err := e.run(ctx, store.Command{
		Point: PointDiscoveryMark, Kind: store.FindAndModify, Collection: e.collections.subscriptions,
		Filter: bson.D{is("_id", topic.subscription.id)},
		Pipeline: []bson.D{{is("$set", bson.D{
			is("discoveredAt", bson.D{is("$max", bson.A{"$discoveredAt", seen})}),
			is("undiscovered", bson.D{is("$cond", bson.A{
				missed, bson.D{is("from", "$discoveredAt"), is("until", oldest), is("foundBy", mark)}, "$undiscovered",
			})}),
		})}},
	})
	if err != nil || reply.Document == nil {
		return err
	}
	topic.nextMark = now + max(e.options.PollInterval, e.options.EventRetention/marksPerRetention)
	gap, _ := document.Get(reply.Document, "undiscovered").(bson.D)
	from, _ := document.Get(gap, "from").(bson.DateTime)
	until, _ := document.Get(gap, "until").(bson.DateTime)
	if document.Text(gap, "foundBy") != mark {
		return nil
	}
	return &UndiscoveredError{e.options.ConsumerGroup, topic.name, from.Time(), until.Time()}
}
