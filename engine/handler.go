package engine

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/fencepost-sim/fencepost/engine/host"
	"github.com/fencepost-sim/fencepost/internal/defect"
)

// outcome is what became of a handler.
type outcome struct {
	started bool
	failure *failure // nil for success
	stopped bool     // when it returned it had been told that the lease is lost
}

func (o outcome) problem() string {
	if o.failure == nil {
		return ""
	}
	return o.failure.message
}

// failure is the error record of an attempt.
type failure struct {
	code, name, message, stack string
}

// Longest texts that an error record holds, in bytes: an oversized error must not make the write that
// records it fail (W18).
const (
	longestName    = 256
	longestMessage = 2048
	longestStack   = 4096
)

func (f failure) document() bson.D {
	document := bson.D{
		is("code", f.code),
		is("name", bounded(f.name, longestName)),
		is("message", bounded(f.message, longestMessage)),
	}
	if f.stack != "" {
		document = append(document, is("stack", bounded(f.stack, longestStack)))
	}
	return document
}

func bounded(text string, most int) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most-len("…")], "") + "…"
}

// call runs the handler unless the lease is over, and notes the outcome whatever the handler does: return, panic with any
// value, or end its goroutine (as t.FailNow does). Nothing gives the turn away between the check and the start (W7).
func (x *execution) call(ctx context.Context, deliver deliverFunc, event eventDocument) {
	e := x.engine
	result := outcome{}
	defer func() {
		x.outcome = &result
		x.signal.Broadcast()
	}()
	if over := x.lost || e.host.Monotonic() >= x.deadline; over && !e.defects.Has(defect.StartUnchecked) {
		return
	}
	result = outcome{started: true, failure: &failure{code: CodeHandlerError, name: "Goexit", message: "the handler ended its goroutine"}}
	e.host.GiveWay(func() {
		// Until this task has its turn again the worker may cancel what has returned already.
		defer func() { result.stopped = errors.Is(context.Cause(ctx), ErrLeaseLost) }()
		ctx, span := e.handlerSpan(ctx, event, x.attempt)
		defer func() { endSpan(span, result.problem()) }()
		result.failure = guard(func() error { return deliver(ctx, event, x.attempt) }, result.failure)
	})
}

// guard calls the handler and describes how it failed. If the goroutine ends it does not return.
func guard(handler func() error, unfinished *failure) (result *failure) {
	result = unfinished
	defer func() {
		if value := recover(); value != nil {
			host.Rethrow(value)
			result = &failure{CodeHandlerError, "panic", describe(value), panicStack()}
		}
	}()
	err := handler()
	if err == nil {
		return nil
	}
	return &failure{code: CodeHandlerError, name: fmt.Sprintf("%T", err), message: describe(err)}
}

// unreadable stands for a value whose own methods panic.
const unreadable = "(unreadable value)"

// describe writes a value that a stranger made, whose methods may panic (W27).
func describe(value any) (text string) {
	defer func() {
		if recovered := recover(); recovered != nil {
			host.Rethrow(recovered)
			text = unreadable
		}
	}()
	switch v := value.(type) {
	case error:
		if nilReceiver(v) {
			return fmt.Sprintf("nil %T", v)
		}
		return v.Error()
	default:
		return fmt.Sprint(v)
	}
}

func nilReceiver(err error) bool {
	v := reflect.ValueOf(err)
	return v.Kind() == reflect.Pointer && v.IsNil()
}
