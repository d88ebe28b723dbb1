package engine

import (
	"slices"

	"github.com/fencepost-sim/fencepost/engine/store"
)

// The steps of the protocol. Each Store call carries the one that it performs.
const (
	PointListCollections store.Point = "startup.collections.list"
	PointCreateColl      store.Point = "startup.collection.create"
	PointListIndexes     store.Point = "startup.indexes.list"
	PointCreateIndexes   store.Point = "startup.indexes.create"
	PointHello           store.Point = "startup.hello"

	PointPublish store.Point = "event.publish"

	PointSubscriptionFind    store.Point = "subscription.find"
	PointSubscriptionLatest  store.Point = "subscription.latest"
	PointSubscriptionCreate  store.Point = "subscription.create"
	PointSubscriptionReplace store.Point = "subscription.replace"

	PointDiscoveryScan    store.Point = "discovery.scan"
	PointDiscoveryLate    store.Point = "discovery.late"
	PointDiscoveryFetch   store.Point = "discovery.fetch"
	PointDiscoveryLease   store.Point = "discovery.lease"
	PointDiscoveryKnown   store.Point = "discovery.known"
	PointDiscoveryRelease store.Point = "discovery.release"
	PointCursorAdvance    store.Point = "cursor.advance"
	PointDiscoveryMark    store.Point = "discovery.mark"

	PointDeliveryCreate store.Point = "delivery.create"
	PointAttemptCreate  store.Point = "attempt.create"

	PointAttemptClaim    store.Point = "attempt.claim"
	PointAttemptDelivery store.Point = "attempt.delivery"
	PointAttemptRelease  store.Point = "attempt.release"

	PointOrderPeek    store.Point = "order.peek"
	PointOrderLease   store.Point = "order.lease"
	PointOrderHead    store.Point = "order.head"
	PointOrderClaim   store.Point = "order.claim"
	PointOrderRelease store.Point = "order.release"

	PointEventRead        store.Point = "event.read"
	PointAttemptHeartbeat store.Point = "attempt.heartbeat"
	PointOrderHeartbeat   store.Point = "order.heartbeat"

	PointAttemptSucceed  store.Point = "attempt.succeed"
	PointAttemptFail     store.Point = "attempt.fail"
	PointAttemptVerify   store.Point = "attempt.verify"
	PointDeliverySucceed store.Point = "delivery.succeed"
	PointDeliveryFail    store.Point = "delivery.fail"
	PointAttemptRetry    store.Point = "attempt.retry"

	PointRetentionAttempts store.Point = "retention.attempts"
	PointRetentionDelivery store.Point = "retention.delivery"

	PointReap         store.Point = "attempt.reap"
	PointReapDelivery store.Point = "reap.delivery"

	PointReconcileScan     store.Point = "reconcile.scan"
	PointReconcileUndated  store.Point = "reconcile.undated"
	PointReconcileAttempts store.Point = "reconcile.attempts"

	PointLeftoverScan       store.Point = "leftover.scan"
	PointLeftoverDeliveries store.Point = "leftover.deliveries"
	PointLeftoverEnd        store.Point = "leftover.end"

	PointStreamOpen store.Point = "stream.open"

	PointHistoryFind store.Point = "history.find"
)

// Step describes one step of the protocol.
type Step struct {
	Point store.Point
	// Write says that the step changes the database. A crash strikes before a step, after it was applied
	// but before the reply, or after the reply; for reads the last two leave the same state behind.
	Write bool
	// Left says what a crash right after the step leaves behind, and who repairs it. Empty for reads.
	Left string
}

var steps = []Step{
	{Point: PointListCollections},
	{PointCreateColl, true, "a collection without indexes; the next start creates them"},
	{Point: PointListIndexes},
	{PointCreateIndexes, true, "some indexes; the next start creates the rest"},
	{Point: PointHello},

	{PointPublish, true, "a stored event whose publisher did not hear of it; it is delivered"},

	{Point: PointSubscriptionFind},
	{Point: PointSubscriptionLatest},
	{PointSubscriptionCreate, true, "a subscription without a consumer; the next Subscribe adopts it"},
	{PointSubscriptionReplace, true, "a newer policy without a consumer of its own; the others follow it"},

	{Point: PointDiscoveryScan},
	{Point: PointDiscoveryLate},
	{Point: PointDiscoveryFetch},
	{PointDiscoveryLease, true, "a discovery lease; it expires"},
	{Point: PointDiscoveryKnown},
	{PointDiscoveryRelease, true, "nothing"},
	{PointCursorAdvance, true, "nothing"},
	{PointDiscoveryMark, true, "nothing"},

	{PointDeliveryCreate, true, "a delivery without attempt 1; reconciliation or rediscovery creates it"},
	{PointAttemptCreate, true, "materialized events behind an old cursor; rediscovery finds them and goes on"},

	{PointAttemptClaim, true, "a leased attempt that nobody runs; it expires and is reaped"},
	{Point: PointAttemptDelivery},
	{PointAttemptRelease, true, "nothing"},

	{Point: PointOrderPeek},
	{PointOrderLease, true, "an ordering lease; the topic waits until it expires"},
	{Point: PointOrderHead},
	{PointOrderClaim, true, "an ordering lease and a leased attempt; both expire"},
	{PointOrderRelease, true, "nothing"},

	{Point: PointEventRead},
	{PointAttemptHeartbeat, true, "a renewed lease; it expires and is reaped"},
	{PointOrderHeartbeat, true, "a renewed ordering lease; it expires"},

	{PointAttemptSucceed, true, "a successful attempt under a pending delivery; reconciliation finishes the delivery"},
	{PointAttemptFail, true, "a failed attempt under a pending delivery; reconciliation creates the next one or ends the delivery"},
	{Point: PointAttemptVerify},
	{PointDeliverySucceed, true, "a terminal delivery without retention dates; reconciliation sets them"},
	{PointDeliveryFail, true, "a terminal delivery without retention dates; reconciliation sets them"},
	{PointAttemptRetry, true, "nothing"},

	{PointRetentionAttempts, true, "attempts with a date under a delivery without; reconciliation sets it"},
	{PointRetentionDelivery, true, "nothing"},

	{PointReap, true, "a lost attempt under a pending delivery; reconciliation creates the next one or ends the delivery"},
	{Point: PointReapDelivery},

	{Point: PointReconcileScan},
	{Point: PointReconcileUndated},
	{Point: PointReconcileAttempts},

	{Point: PointLeftoverScan},
	{Point: PointLeftoverDeliveries},
	{PointLeftoverEnd, true, "an ended left-over attempt without a retention date"},

	{Point: PointStreamOpen},

	{Point: PointHistoryFind},
}

// Points returns every step at which the engine calls its Store, in the order of the protocol. The slice is the caller's.
func Points() []Step { return slices.Clone(steps) }
