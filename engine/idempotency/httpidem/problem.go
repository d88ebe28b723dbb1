package httpidem

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/fencepost-sim/fencepost/engine/idempotency"
)

// ErrReplayForbidden means that Options.Revalidate has refused a replay.
var ErrReplayForbidden = errors.New("idempotency_replay_forbidden")

// problems are the errors that a client sees, by status. The first that fits is the answer.
var problems = []struct {
	err    error
	status int
	title  string
}{
	{idempotency.ErrKeyInvalid, http.StatusBadRequest, "The idempotency key is malformed, repeated or contradictory."},
	{idempotency.ErrTenantRequired, http.StatusBadRequest, "The request names no tenant."},
	{idempotency.ErrActorRequired, http.StatusBadRequest, "The request names no actor."},
	{idempotency.ErrInFlight, http.StatusConflict, "A request with this idempotency key is being processed."},
	{idempotency.ErrOutcomeUnknown, http.StatusConflict, "An earlier request with this idempotency key was interrupted; its outcome is unknown."},
	{idempotency.ErrResultNotStored, http.StatusConflict, "A request with this idempotency key was processed; its answer was not stored."},
	{idempotency.ErrBodyMismatch, http.StatusUnprocessableEntity, "The idempotency key was used for another request."},
	{ErrReplayForbidden, http.StatusForbidden, "The stored answer may not be seen any more."},
	{idempotency.ErrUnavailable, http.StatusServiceUnavailable, "Idempotency cannot be guaranteed at the moment; nothing was done."},
}

// retryUnavailable is after how many seconds to ask again when the store does not answer.
const retryUnavailable = "1"

// problem answers with an error as RFC 9457 wants it. The member "code" is for programs.
func problem(w http.ResponseWriter, err error) {
	known := problems[len(problems)-1]
	for _, candidate := range problems {
		if errors.Is(err, candidate.err) {
			known = candidate
			break
		}
	}
	header := w.Header()
	header.Set("Content-Type", "application/problem+json")
	header.Set("Cache-Control", "no-store")
	var inFlight *idempotency.InFlightError
	switch {
	case errors.As(err, &inFlight):
		header.Set("Retry-After", seconds(inFlight.RetryAfter))
	case known.status == http.StatusServiceUnavailable:
		header.Set("Retry-After", retryUnavailable)
	}
	text, _ := json.Marshal(struct { // cannot fail
		Title  string `json:"title"`
		Status int    `json:"status"`
		Code   string `json:"code"`
	}{known.title, known.status, known.err.Error()})
	w.WriteHeader(known.status)
	_, _ = w.Write(text) // the client may be gone
}

// seconds rounds up, to one at the least: zero would invite a retry that must fail.
func seconds(d time.Duration) string {
	return strconv.FormatInt(max(1, int64((d+time.Second-1)/time.Second)), 10)
}
