package engine

import (
	"context"
	"math"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/fencepost-sim/fencepost/internal/defect"
)

// afterError decides what follows a failed attempt: the next one, or the end of the delivery. Whoever finds a failed attempt under a
// pending delivery calls it (the worker itself, the reaper, reconciliation), and all come to the same result: the due date
// counts from the date at which the attempt ended, not from the repair (W25). It reports whether it changed anything.
func (e *Engine) afterError(ctx context.Context, topic *topicState, delivery deliveryDocument, attempt attemptDocument) (changed bool, err error) {
	policy := topic.subscription.policy
	if e.defects.Has(defect.RetryAtMostOnce) && attempt.errorCode == CodeWorkerLost {
		policy.delivery, policy.maxRetries = string(AtLeastOnce), attempt.number
	}
	if e.defects.Has(defect.GiveUpEarly) {
		policy.maxRetries--
	}
	terminal := attempt.errorCode == CodeEventExpired ||
		policy.delivery == string(AtMostOnce) ||
		attempt.number > policy.maxRetries
	if terminal {
		return e.finishError(ctx, attempt)
	}
	delay := policy.delayAfter(attempt.number)
	created, err := e.createAttempt(ctx, PointAttemptRetry, delivery, attempt.number+1, attempt.endedAt, after(attempt.endedAt, delay))
	if created {
		e.dueIn(delay, topic)
	} else {
		e.work.suspect()
	}
	return created, err
}

// delayAfter is the wait between attempt n and n+1.
func (p policy) delayAfter(n int64) time.Duration {
	wait := float64(p.retryDelay) * math.Pow(p.multiplier, float64(n-1))
	return time.Duration(min(wait, float64(century.Milliseconds()))) * time.Millisecond
}

// reapedFailure is what a worker that stopped renewing its lease leaves in the history.
var reapedFailure = bson.D{
	is("code", CodeWorkerLost),
	is("name", "WorkerLost"),
	is("message", "the worker stopped renewing its lease"),
}
