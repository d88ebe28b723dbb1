package idempotency

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/fencepost-sim/fencepost/engine/host"
)

// Outcome tells how a guarded call came to its answer.
type Outcome struct {
	Claim    Claim // of this execution; zero for replays
	Replayed bool  // the function was not run: the answer is an earlier execution's
	Takeover bool  // an earlier execution died, and may have done its work
	Class    Class // of what the function returned, or had returned
	// Stored is false if the next call with the key will not find this outcome: after a Transport error, or because of StoreError.
	Stored     bool
	StoreError error // why a success or a rejection is not stored: ErrLostClaim, ErrUnavailable, or an encoding error
	Unguarded  bool  // run without a claim, under Config.FailOpen
}

// Codec writes results down and reads them back.
type Codec[T any] interface {
	Encode(value T) ([]byte, error)
	Decode(stored []byte) (T, error)
}

// JSON stores values as encoding/json writes them.
func JSON[T any]() Codec[T] { return jsonCodec[T]{} }

type jsonCodec[T any] struct{}

func (jsonCodec[T]) Encode(value T) ([]byte, error) { return json.Marshal(value) }

func (jsonCodec[T]) Decode(stored []byte) (value T, err error) {
	err = json.Unmarshal(stored, &value)
	return value, err
}

// none is the codec of functions without a result.
type none struct{}

func (none) Encode(struct{}) ([]byte, error) { return nil, nil }
func (none) Decode([]byte) (struct{}, error) { return struct{}{}, nil }

// Do runs the function unless the key was executed before, in which case it returns what was returned then: the value, or
// a *ReplayedRejection. Other errors tell why the function was not run: an *InFlightError, ErrBodyMismatch,
// ErrOutcomeUnknown, ErrCompensated, ErrResultNotStored, ErrUnavailable.
//
// What the function returns is judged by the Classifier: a success and an application's error are stored, and any other error releases
// the key, as do a panic and runtime.Goexit. The error itself is returned unchanged.
func Do[T any](ctx context.Context, g *Guard, op Op, codec Codec[T], function func(context.Context) (T, error)) (value T, outcome Outcome, err error) {
	execution, stored, err := g.Begin(ctx, op)
	switch {
	case err != nil && g.mayRunUnguarded(err):
		value, err = function(ctx)
		return value, Outcome{Unguarded: true, Class: g.config.Classifier.Classify(err)}, err
	case err != nil:
		return value, outcome, err
	case stored != nil:
		return replay(stored.Result, codec)
	}
	ended := false
	defer func() {
		if ended {
			return
		}
		value := recover()
		host.Rethrow(value)
		_ = execution.Release(ctx) // it was reported
		if value != nil {
			panic(value)
		}
	}()
	value, err = function(execution.Context())
	ended = true
	defer execution.Abandon() // if the classifier or the codec panics
	return value, settle(ctx, execution, codec, value, err), err
}

// mayRunUnguarded decides under FailOpen. A record that is there but unreadable, and a guard that is shut down, are no outage.
func (g *Guard) mayRunUnguarded(err error) bool {
	var version *VersionError
	if !g.config.FailOpen || !errors.Is(err, ErrUnavailable) || errors.Is(err, ErrClosed) || errors.As(err, &version) {
		return false
	}
	g.host.Enter(func() { g.stats.Unguarded++ })
	return true
}

func replay[T any](result Result, codec Codec[T]) (value T, outcome Outcome, err error) {
	outcome = Outcome{Replayed: true, Stored: true, Class: Succeeded}
	switch result.Kind {
	case Success:
		value, err = codec.Decode(result.Payload)
		if err != nil {
			err = fmt.Errorf("%w: the stored result is unreadable: %w", ErrResultNotStored, err)
		}
	case Rejection:
		outcome.Class = Application
		err = replayed(result)
	default:
		err = ErrResultNotStored
	}
	return value, outcome, err
}

// settle stores or releases, by the class of what the function returned.
func settle[T any](ctx context.Context, x *Execution, codec Codec[T], value T, err error) Outcome {
	outcome := Outcome{Claim: x.claim, Takeover: x.takeover, Class: x.guard.config.Classifier.Classify(err)}
	result := Result{Kind: Success}
	switch outcome.Class {
	case Succeeded:
		payload, encodeErr := codec.Encode(value)
		if result.Payload = payload; encodeErr != nil { // the work is done: it must not be done again
			result = Result{Kind: NotStored}
			outcome.StoreError = fmt.Errorf("idempotency: the result of %s cannot be stored: %w", x.claim.Key, encodeErr)
		}
	case Application:
		result = rejection(err)
	default:
		_ = x.Release(ctx) // it was reported
		return outcome
	}
	if storeErr := x.Complete(ctx, "", result); storeErr != nil {
		outcome.StoreError = storeErr
	}
	outcome.Stored = outcome.StoreError == nil
	return outcome
}
