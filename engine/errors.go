package engine

import (
	"errors"
	"fmt"
)

var (
	// ErrConfiguration is wrapped by every error about an option, a subscription or a topology that does not fit.
	ErrConfiguration = errors.New("fencepost: configuration")
	// ErrIndex is wrapped by every error about an index that is missing, different or cannot be built.
	ErrIndex = errors.New("fencepost: index")
	// ErrLeaseLost means that this worker no longer owns what it works on. It is the cause with which a handler's context
	// is cancelled, and what OnError gets when an outcome was fenced out.
	ErrLeaseLost = errors.New("fencepost: lease lost")
	// ErrClosed is returned by calls on an engine that is closing or closed.
	ErrClosed = errors.New("fencepost: engine closed")
)

// ConfigurationError says which option is wrong, and what is allowed. It wraps ErrConfiguration.
type ConfigurationError struct {
	Field   string // for example "Options.LockTimeout"
	Value   any    // what it was
	Allowed string // for example "at least 30ms"
}

func (e *ConfigurationError) Error() string {
	value := fmt.Sprintf("%#v", e.Value)
	if readable, ok := e.Value.(fmt.Stringer); ok { // a duration, say
		value = readable.String()
	}
	return fmt.Sprintf("fencepost: %s is %s; allowed: %s", e.Field, value, e.Allowed)
}

func (e *ConfigurationError) Unwrap() error { return ErrConfiguration }

// IndexError says which index is wrong. The engine never drops or replaces an index: whoever reads
// this decides. It wraps ErrIndex and the server's error, if there is one.
type IndexError struct {
	Collection string
	Index      string
	Expected   string
	Actual     string
	Cause      error
}

func (e *IndexError) Error() string {
	text := fmt.Sprintf("fencepost: index %s of collection %s: expected %s, found %s",
		e.Index, e.Collection, e.Expected, e.Actual)
	if e.Cause != nil {
		text += ": " + e.Cause.Error()
	}
	return text
}

func (e *IndexError) Unwrap() []error {
	if e.Cause == nil {
		return []error{ErrIndex}
	}
	return []error{ErrIndex, e.Cause}
}

// The codes that a failed attempt carries in its history record.
const (
	CodeHandlerError    = "handler_error"             // the handler returned an error, panicked, or could not decode the event
	CodeWorkerLost      = "worker_lost"               // the worker stopped renewing its lease
	CodeEventExpired    = "event_expired"             // the event was removed by retention before the handler could run
	CodeAlreadyTerminal = "delivery_already_terminal" // a left-over attempt of a delivery that had ended
	CodeDeliveryMissing = "delivery_missing"          // a left-over attempt whose delivery was removed by retention
)
