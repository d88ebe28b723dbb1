package idempotency

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Class says what becomes of an execution.
type Class uint8

// The classes.
const (
	Succeeded   Class = iota + 1 // stored and replayed
	Application                  // the rejection is stored and replayed
	Transport                    // the key is released; a retry executes again
)

// Classifier judges what a guarded function returned. It must not block.
type Classifier interface {
	Classify(err error) Class
}

// outcomes is the D242 table: a code is an application's only if the gRPC library never makes it itself (gRPC's guide to status
// codes lists those that only users generate) and it is no concurrency signal, as ABORTED is.
var outcomes = []struct {
	code  codes.Code
	class Class
	why   string
}{
	{codes.OK, Succeeded, ""},
	{codes.Canceled, Transport, "the caller went away"},
	{codes.Unknown, Transport, "nothing is known"},
	{codes.InvalidArgument, Application, "the request is wrong whatever the state"},
	{codes.DeadlineExceeded, Transport, "the work may not be done"},
	{codes.NotFound, Application, "who asks again after the state changed uses a new key"},
	{codes.AlreadyExists, Application, "a fact about the request"},
	{codes.PermissionDenied, Transport, "a grant may come"},
	{codes.ResourceExhausted, Transport, "a quota refills"},
	{codes.FailedPrecondition, Application, "who asks again after the state changed uses a new key"},
	{codes.Aborted, Transport, "a retry at a higher level may succeed"},
	{codes.OutOfRange, Application, "a fact about the request"},
	{codes.Unimplemented, Transport, "a rolling deploy may bring it"},
	{codes.Internal, Transport, "a defect"},
	{codes.Unavailable, Transport, "the service was not reached"},
	{codes.DataLoss, Application, "no retry brings it back"},
	{codes.Unauthenticated, Transport, "credentials can be renewed"},
}

type classifier struct {
	uncoded Class
	table   [17]Class
	unknown map[codes.Code]Class // overrides of codes that the table lacks
}

// ClassifierOption changes the table.
type ClassifierOption func(*classifier) error

// NewClassifier returns the table of D242 with the changes. Errors without a gRPC code, and codes that the table does not
// know, are Transport.
func NewClassifier(options ...ClassifierOption) (Classifier, error) {
	c := &classifier{uncoded: Transport}
	for _, outcome := range outcomes {
		c.table[outcome.code] = outcome.class
	}
	for _, option := range options {
		if err := option(c); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// WithDefaultClass sets the class of errors that carry no gRPC code.
func WithDefaultClass(class Class) ClassifierOption {
	return func(c *classifier) error {
		if err := checkClass("WithDefaultClass", class); err != nil {
			return err
		}
		c.uncoded = class
		return nil
	}
}

// WithCode sets the class of one gRPC code.
func WithCode(code codes.Code, class Class) ClassifierOption {
	return func(c *classifier) error {
		if code == codes.OK {
			return &ConfigurationError{"WithCode", code.String(), "any code but OK, which is no error"}
		}
		if err := checkClass(fmt.Sprintf("WithCode(%v)", code), class); err != nil {
			return err
		}
		if int(code) < len(c.table) {
			c.table[code] = class
			return nil
		}
		if c.unknown == nil {
			c.unknown = map[codes.Code]Class{}
		}
		c.unknown[code] = class
		return nil
	}
}

func checkClass(field string, class Class) error {
	if slices.Contains([]Class{Application, Transport}, class) {
		return nil
	}
	return &ConfigurationError{field, class, "Application or Transport"}
}

// Classify judges an error. Of errors that wrap a context's end, none is the application's.
func (c *classifier) Classify(err error) Class {
	if err == nil {
		return Succeeded
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return Transport
	}
	var coded interface{ GRPCStatus() *status.Status }
	if !errors.As(err, &coded) {
		return c.uncoded
	}
	code := coded.GRPCStatus().Code()
	switch {
	case code == codes.OK: // an error that claims to be none
		return c.uncoded
	case int(code) < len(c.table):
		return c.table[code]
	case c.unknown[code] != 0:
		return c.unknown[code]
	}
	return Transport
}
