package engine

import (
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/fencepost-sim/fencepost/internal/defect"
)

// A lease is granted, renewed and found expired by the database's clock alone ($$NOW), so that no worker's clock decides
// who owns what (W3). The holder measures the rest of its lease on its monotonic clock.

// expired matches a lease field that is absent or not in the future. In aggregation comparisons a missing field is below
// every value (MongoDB manual, "Comparison/Sort Order"), so one comparison covers both.
func expired(field string) bson.E {
	return is("$expr", bson.D{is("$lte", bson.A{"$" + field, "$$NOW"})})
}

// leaseEnd is the expression for the end of a lease that begins now.
func (e *Engine) leaseEnd() bson.D {
	return bson.D{is("$add", bson.A{"$$NOW", milliseconds(e.options.LockTimeout)})}
}

// renewedEnd never shortens a lease, even if the database's clock stepped back.
func (e *Engine) renewedEnd(field string) bson.D {
	return bson.D{is("$max", bson.A{"$" + field, e.leaseEnd()})}
}

// deadline is the monotonic time at which the holder of a lease stops. The database granted the lease after we asked, so
// it ends later than asked + LockTimeout; a tenth is kept as a margin for clocks that run at different rates (as long as the worker's is
// less than a tenth slow) and for the time that a handler needs to notice.
func (e *Engine) deadline(asked time.Duration) time.Duration {
	if e.defects.Has(defect.NoMargin) {
		return asked + e.options.LockTimeout
	}
	return asked + e.options.LockTimeout - e.options.LockTimeout/10
}
