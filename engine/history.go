package engine

import (
	"context"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/fencepost-sim/fencepost/engine/store"
	"github.com/fencepost-sim/fencepost/internal/document"
)

// AttemptStatus is what became of an attempt.
type AttemptStatus string

const (
	AttemptPending AttemptStatus = statusPending // queued, waiting for its retry, or being executed: see LockState
	AttemptSuccess AttemptStatus = statusSuccess // its handler succeeded, and the worker could write so
	AttemptError   AttemptStatus = statusError   // it failed, or its worker was lost: see Attempt.Error
)

// LockState tells pending attempts apart, by the database's clock. It is empty for attempts that have ended.
type LockState string

const (
	LockQueued  LockState = "queued"  // nobody has leased it
	LockActive  LockState = "active"  // a worker is executing it
	LockExpired LockState = "expired" // its worker has stopped renewing the lease; it will be reaped
)

// HistoryQuery selects attempts. Zero values select everything.
type HistoryQuery struct {
	Topic         string
	EventID       string
	ConsumerGroup string // any group's, not only the engine's own
	Status        AttemptStatus
	LockState     LockState // selects pending attempts, whatever Status says
	From, To      time.Time // of the creation of the attempt, both inclusive, in whole milliseconds
	// After continues where a page ended: its Next.
	After string
	// Limit is how many attempts a page has. Default 100, at most 500.
	Limit int
}

// HistoryPage is a part of the answer, the newest attempts first.
//
// They are in the order of their IDs, which are UUIDv7 of the workers that created them: workers whose clocks differ
// can make attempts of the same moment stand in another order than that of CreatedAt. Paging neither repeats nor omits one that was there
// when it began.
type HistoryPage struct {
	Attempts []Attempt
	Next     string // for HistoryQuery.After; empty on the last page
}

// Attempt is a record of the history. Dates are the database's; those that the attempt does not have yet are zero.
type Attempt struct {
	ID            string
	DeliveryID    string
	EventID       string
	ConsumerGroup string
	Topic         string
	Number        int // from 1
	Status        AttemptStatus
	LockState     LockState
	CreatedAt     time.Time
	NextAttemptAt time.Time // when it is due

	// The lease. The fields stay when the attempt has ended.
	LockOwner   string
	LockToken   string
	StartedAt   time.Time
	LockedAt    time.Time
	LockedUntil time.Time
	HeartbeatAt time.Time

	EndedAt   time.Time
	Duration  time.Duration // in whole milliseconds
	Error     *AttemptFailure
	ExpiresAt time.Time
}

// AttemptFailure says why an attempt failed.
type AttemptFailure struct {
	Code    string // CodeHandlerError and its like
	Name    string // the Go type of the error, or what happened
	Message string
	Stack   string // of a panic: package, file and line
}

// History finds attempts. It reads from the primary, and what a majority of the members has. The error of a wrong query is a
// *ConfigurationError.
func (e *Engine) History(ctx context.Context, query HistoryQuery) (page HistoryPage, err error) {
	e.host.Enter(func() { page, err = e.history(ctx, query) })
	return page, err
}

const (
	usualPage   = 100
	largestPage = 500
)

func (e *Engine) history(ctx context.Context, query HistoryQuery) (HistoryPage, error) {
	limit := query.Limit
	if limit == 0 {
		limit = usualPage
	}
	if limit < 1 || limit > largestPage {
		return HistoryPage{}, &ConfigurationError{"HistoryQuery.Limit", query.Limit, fmt.Sprintf("1 to %d", largestPage)}
	}
	filter, err := query.filter()
	if err != nil {
		return HistoryPage{}, err
	}
	reply, err := e.run(ctx, store.Command{
		Point: PointHistoryFind, Kind: store.Find, Collection: e.collections.history,
		Filter: filter, Projection: attemptFields,
		Sort:  bson.D{is("_id", int32(-1))},
		Limit: int64(limit) + 1,
	})
	if err != nil {
		return HistoryPage{}, err
	}
	var page HistoryPage
	for _, found := range reply.Documents[:min(limit, len(reply.Documents))] {
		page.Attempts = append(page.Attempts, publicAttempt(found))
	}
	if len(reply.Documents) > limit {
		page.Next = page.Attempts[limit-1].ID
	}
	return page, nil
}

func (q HistoryQuery) filter() (filter bson.D, err error) {
	for _, field := range []bson.E{
		is("topic", q.Topic), is("eventId", q.EventID), is("consumerGroup", q.ConsumerGroup), is("status", string(q.Status)),
	} {
		if field.Value != "" && (field.Key != "status" || q.LockState == "") {
			filter = append(filter, field)
		}
	}
	switch q.Status {
	case "", AttemptPending, AttemptSuccess, AttemptError:
	default:
		return nil, &ConfigurationError{"HistoryQuery.Status", q.Status, `"pending", "success" or "error"`}
	}
	switch q.LockState {
	case "":
	case LockQueued:
		filter = append(filter, is("status", statusPending), is("lockedUntil", absent))
	case LockActive:
		filter = append(filter, is("status", statusPending), is("$expr", bson.D{is("$gt", bson.A{"$lockedUntil", "$$NOW"})}))
	case LockExpired:
		filter = append(filter, is("status", statusPending), is("lockedUntil", present), expired("lockedUntil"))
	default:
		return nil, &ConfigurationError{"HistoryQuery.LockState", q.LockState, `"queued", "active" or "expired"`}
	}
	var created bson.D
	if !q.From.IsZero() {
		created = append(created, is("$gte", bson.NewDateTimeFromTime(q.From)))
	}
	if !q.To.IsZero() {
		created = append(created, is("$lte", bson.NewDateTimeFromTime(q.To)))
	}
	if created != nil {
		filter = append(filter, is("createdAt", created))
	}
	if q.After != "" {
		filter = append(filter, is("_id", bson.D{is("$lt", q.After)}))
	}
	return filter, nil
}

// attemptFields are the fields of a record, and the database's time, by which its lock state is told.
var attemptFields = func() bson.D {
	fields := bson.D{is("now", "$$NOW")}
	for _, name := range []string{
		"deliveryId", "eventId", "consumerGroup", "topic", "attempt", "status", "createdAt", "nextAttemptAt", "lockOwner", "lockToken",
		"startedAt", "lockedAt", "lockedUntil", "heartbeatAt", "endedAt", "durationMs", "error", "expiresAt",
	} {
		fields = append(fields, is(name, int32(1)))
	}
	return fields
}()

func publicAttempt(found bson.D) Attempt {
	text := func(key string) string { return document.Text(found, key) }
	date := func(key string) time.Time {
		if at, ok := document.Get(found, key).(bson.DateTime); ok {
			return at.Time()
		}
		return time.Time{}
	}
	attempt := Attempt{
		ID: text("_id"), DeliveryID: text("deliveryId"), EventID: text("eventId"), ConsumerGroup: text("consumerGroup"),
		Topic: text("topic"), Number: int(integer(document.Get(found, "attempt"))), Status: AttemptStatus(text("status")),
		CreatedAt: date("createdAt"), NextAttemptAt: date("nextAttemptAt"),
		LockOwner: text("lockOwner"), LockToken: text("lockToken"),
		StartedAt: date("startedAt"), LockedAt: date("lockedAt"), LockedUntil: date("lockedUntil"), HeartbeatAt: date("heartbeatAt"),
		EndedAt: date("endedAt"), Duration: time.Duration(integer(document.Get(found, "durationMs"))) * time.Millisecond,
		ExpiresAt: date("expiresAt"),
	}
	if failure, ok := document.Get(found, "error").(bson.D); ok {
		attempt.Error = &AttemptFailure{
			document.Text(failure, "code"), document.Text(failure, "name"), document.Text(failure, "message"), document.Text(failure, "stack"),
		}
	}
	switch {
	case attempt.Status != AttemptPending:
	case attempt.LockedUntil.IsZero():
		attempt.LockState = LockQueued
	case attempt.LockedUntil.After(date("now")):
		attempt.LockState = LockActive
	default:
		attempt.LockState = LockExpired
	}
	return attempt
}
