package engine

import (
	"context"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/fencepost-sim/fencepost/engine/store"
)

// succeed acknowledges the attempt, then ends the delivery: crash windows 18 to 20.
func (x *execution) succeed() error {
	ended, err := x.complete(PointAttemptSucceed, statusSuccess, nil)
	if err == nil {
		_, err = x.engine.finishSuccess(x.engine.context, ended)
	}
	return err
}

// fail records why the attempt failed, then creates the next one or ends the delivery: crash windows 22 to 27.
func (x *execution) fail(why failure) error {
	ended, err := x.complete(PointAttemptFail, statusError, &why)
	if err == nil {
		_, err = x.engine.afterError(x.engine.context, x.topic, x.delivery, ended)
	}
	return err
}

// closeLeftover ends a claimed attempt that must not run because its delivery has ended or is gone.
func (x *execution) closeLeftover(ctx context.Context, delivery string) error {
	ended, err := x.complete(PointAttemptFail, statusError, leftoverFailure(delivery))
	if err != nil {
		return err
	}
	return x.engine.expireLeftover(ctx, ended)
}

// complete writes the attempt's outcome, fenced by status and token: only who holds the lease can write it, once.
//
// When the outcome of the write itself is unknown it is sent again for a lock timeout, and if it then matches
// nothing, our own token is read back to learn whether an earlier sending was applied (W8). A failing database never
// becomes a failed handler.
func (x *execution) complete(point store.Point, status string, why *failure) (attemptDocument, error) {
	e := x.engine
	command := store.Command{
		Point: point, Kind: store.FindAndModify, Collection: e.collections.history,
		Filter:   x.fence(),
		Pipeline: completion(status, why),
	}
	// Not until x.deadline: heartbeats that get through would push that away for ever.
	until := e.host.Monotonic() + e.options.LockTimeout
	for try := 0; ; try++ {
		reply, err := e.run(e.context, command)
		switch {
		case err == nil && reply.Document != nil:
			ended := decodeAttempt(reply.Document)
			e.attemptEnded(ended)
			return ended, nil
		case err == nil && try > 0:
			return x.verify(status, why)
		case err == nil:
			return attemptDocument{}, x.leaseLost("its outcome was fenced out: " + status)
		case e.context.Err() != nil || e.host.Monotonic() >= until:
			return attemptDocument{}, err
		}
		e.report(err)
		if err := e.host.Sleep(e.context, e.resendDelay(try)); err != nil {
			return attemptDocument{}, err
		}
	}
}

// fence is the filter that only the holder of the lease matches.
func (x *execution) fence() bson.D {
	return bson.D{is("_id", x.attempt.id), is("status", statusPending), is("lockToken", x.token)}
}

// completion is the update that ends an attempt. The lock fields stay, so that history shows who did it. expiresAt
// goes: nothing may expire before its delivery has ended.
func completion(status string, why *failure) []bson.D {
	set := bson.D{
		is("status", status),
		is("endedAt", "$$NOW"),
		is("durationMs", bson.D{is("$subtract", bson.A{"$$NOW", "$startedAt"})}),
	}
	if why != nil {
		set = append(set, is("error", bson.D{is("$literal", why.document())}))
	}
	return []bson.D{{is("$set", set)}, {is("$unset", bson.A{"expiresAt"})}}
}

func (x *execution) verify(status string, why *failure) (attemptDocument, error) {
	e := x.engine
	found, err := e.findOne(e.context, store.Command{
		Point: PointAttemptVerify, Collection: e.collections.history,
		Filter: bson.D{is("_id", x.attempt.id), is("lockToken", x.token), is("status", status)},
	})
	if err != nil {
		return attemptDocument{}, err
	}
	ended := decodeAttempt(found)
	if found == nil || (why != nil && ended.errorCode != why.code) {
		return attemptDocument{}, x.leaseLost("its outcome was fenced out: " + status)
	}
	return ended, nil
}

func (e *Engine) resendDelay(try int) time.Duration {
	return min(e.options.LockTimeout/20<<min(try, 5), e.options.LockTimeout/3)
}

// finishSuccess ends a delivery whose attempt succeeded. Any replica may do it; a delivery that has ended is left alone.
func (e *Engine) finishSuccess(ctx context.Context, attempt attemptDocument) (changed bool, err error) {
	return e.finishDelivery(ctx, PointDeliverySucceed, attempt, bson.D{
		is("$set", append(ending(statusSuccess, attempt), is("updatedAt", attempt.endedAt))),
		is("$unset", bson.D{is("error", ""), is("expiresAt", "")}),
	})
}

func (e *Engine) finishError(ctx context.Context, attempt attemptDocument) (changed bool, err error) {
	return e.finishDelivery(ctx, PointDeliveryFail, attempt, bson.D{
		is("$set", append(ending(statusError, attempt), is("updatedAt", attempt.endedAt), is("error", attempt.failure))),
		is("$unset", bson.D{is("expiresAt", "")}),
	})
}

func ending(status string, attempt attemptDocument) bson.D {
	return bson.D{is("status", status), is("finalAttempt", attempt.number), is("endedAt", attempt.endedAt)}
}

func (e *Engine) finishDelivery(ctx context.Context, point store.Point, attempt attemptDocument, update bson.D) (changed bool, err error) {
	reply, err := e.run(ctx, store.Command{
		Point: point, Kind: store.FindAndModify, Collection: e.collections.deliveries,
		Filter: bson.D{is("_id", attempt.deliveryID), is("status", statusPending)},
		Update: update,
	})
	if err != nil || reply.Document == nil {
		return false, err
	}
	delivery := decodeDelivery(reply.Document)
	e.telemetry.ended.Add(ctx, 1, e.labels(delivery.topic, outcomeLabel(delivery.status)))
	if topic := e.topicState(delivery.topic); topic != nil {
		e.ended(topic, delivery)
	}
	return true, nil
}

// ended notes what follows from the end of a delivery: it needs dates, and an ordered topic has a new head.
func (e *Engine) ended(topic *topicState, delivery deliveryDocument) {
	if e.mayForget(delivery) {
		e.undated = true // otherwise whoever moves the cursor past its event will look
	}
	if !topic.options.Unordered {
		e.claimable(topic, 1)
	}
}
