package mongostore

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/fencepost-sim/fencepost/engine/store"
)

// translate turns the driver's error into the port's.
//
// What the server answered becomes a *store.Error. Everything else (a lost connection, a time-out, a server that could not be
// selected) wraps store.ErrUnknownOutcome, and so do those answers that do not say whether a write was applied:
//
//   - A write concern error: the write was applied on the primary, but a majority did not confirm it, so that a
//     failover may still undo it.
//   - An interruption (the codes below, or the label RetryableWriteError): the driver has sent the write twice
//     by then, and what it returns may be the answer to the second sending. The label NoWritesPerformed
//     says otherwise.
func translate(err error) error {
	if err == nil {
		return nil
	}
	var argument mongo.InvalidArgumentError
	var marshal mongo.MarshalError
	if errors.As(err, &argument) || errors.As(err, &marshal) {
		return fmt.Errorf("mongostore: the command cannot be sent: %w", err)
	}
	answer, unconfirmed := answerIn(err)
	switch {
	case answer == nil:
		return fmt.Errorf("%w: %w", store.ErrUnknownOutcome, err)
	case unconfirmed || leavesOutcomeOpen(answer):
		return fmt.Errorf("%w: %w", store.ErrUnknownOutcome, answer)
	default:
		return answer
	}
}

// answerIn finds the server's answer in an error, or returns nil. It also reports whether the
// write concern failed.
func answerIn(err error) (answer *store.Error, unconfirmed bool) {
	var bulk mongo.BulkWriteException
	if errors.As(err, &bulk) {
		failures := make([]mongo.WriteError, len(bulk.WriteErrors))
		for i, e := range bulk.WriteErrors {
			failures[i] = e.WriteError
		}
		return fromWrites(failures, bulk.WriteConcernError, bulk.Labels, err), bulk.WriteConcernError != nil
	}
	var write mongo.WriteException
	if errors.As(err, &write) {
		return fromWrites(write.WriteErrors, write.WriteConcernError, write.Labels, err), write.WriteConcernError != nil
	}
	var command mongo.CommandError
	if errors.As(err, &command) && command.Code != 0 { // network errors have no code
		return &store.Error{
			Code: command.Code, CodeName: nameOf(command.Code, command.Name), Message: command.Message,
			KeyPattern: embedded(command.Raw, "keyPattern"), KeyValue: embedded(command.Raw, "keyValue"),
			Labels: command.Labels, Cause: err,
		}, false
	}
	return nil, false
}

// fromWrites makes one error of those of the single documents, the first one leading. An error of the write concern comes
// last, so that a duplicate key with it is not taken for a duplicate key alone.
func fromWrites(failures []mongo.WriteError, concern *mongo.WriteConcernError, labels []string, cause error) *store.Error {
	failures = slices.Clone(failures)
	slices.SortFunc(failures, func(a, b mongo.WriteError) int { return cmp.Compare(a.Index, b.Index) })
	var all []*store.Error
	for _, e := range failures {
		code := int32(e.Code)
		all = append(all, &store.Error{
			Code: code, CodeName: nameOf(code, ""), Message: e.Message, Index: e.Index,
			KeyPattern: embedded(e.Raw, "keyPattern"), KeyValue: embedded(e.Raw, "keyValue"),
			Labels: labels, Cause: e,
		})
	}
	if concern != nil {
		code := int32(concern.Code)
		all = append(all, &store.Error{
			Code: code, CodeName: nameOf(code, concern.Name), Message: concern.Message,
			Labels: labels, Cause: concern,
		})
	}
	if len(all) == 0 {
		return nil
	}
	joined := store.Join(all)
	joined.Cause = cause
	return joined
}

// labelNoWritesPerformed promises that no attempt to send the command has written anything.
const labelNoWritesPerformed = "NoWritesPerformed"

// interruptions are the codes with which a server says that it stopped, or lost its role, at a time that the code does not
// tell. Sources: the retryable and state-change codes of MongoDB's "Retryable Writes" and "Server Discovery And
// Monitoring" specifications, and the time limits of src/mongo/base/error_codes.yml.
var interruptions = []int32{
	6,     // HostUnreachable
	7,     // HostNotFound
	50,    // MaxTimeMSExpired
	64,    // WriteConcernTimeout
	89,    // NetworkTimeout
	91,    // ShutdownInProgress
	189,   // PrimarySteppedDown
	262,   // ExceededTimeLimit
	9001,  // SocketException
	10107, // NotWritablePrimary
	11600, // InterruptedAtShutdown
	11601, // Interrupted
	11602, // InterruptedDueToReplStateChange
	13435, // NotPrimaryNoSecondaryOk
	13436, // NotPrimaryOrSecondary
}

func leavesOutcomeOpen(answer *store.Error) bool {
	if answer.HasLabel(labelNoWritesPerformed) {
		return false
	}
	return answer.HasLabel(store.LabelRetryableWrite) || slices.Contains(interruptions, answer.Code)
}

// names are those codes that come without a name, since the server does not send one with the error of a single
// document. Source: src/mongo/base/error_codes.yml.
var names = map[int32]string{
	2:     "BadValue",
	9:     "FailedToParse",
	14:    "TypeMismatch",
	20:    "IllegalOperation",
	40:    "ConflictingUpdateOperators",
	52:    "DollarPrefixedFieldName",
	66:    "ImmutableField",
	112:   "WriteConflict",
	121:   "DocumentValidationFailure",
	171:   "CannotIndexParallelArrays",
	10334: "BSONObjectTooLarge",
	11000: "DuplicateKey",
}

func nameOf(code int32, sent string) string {
	switch name, known := names[code]; {
	case sent != "":
		return sent
	case known:
		return name
	default:
		return fmt.Sprintf("Location%d", code) // as the server names what has no name
	}
}

// embedded returns a document inside the raw answer, or nil if there is none.
func embedded(raw bson.Raw, key string) bson.D {
	value, err := raw.LookupErr(key)
	if err != nil {
		return nil
	}
	inner, ok := value.DocumentOK()
	if !ok {
		return nil
	}
	d, err := decode(inner)
	if err != nil {
		return nil // the answer keeps its code and message; only this detail is unreadable
	}
	return d
}
