package store

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// Server error codes that the engine and the model refer to by name. Source: MongoDB's error code table
// (src/mongo/base/error_codes.yml), which the manual publishes as "Error Codes".
const (
	CodeIllegalOperation      = 20
	CodeNamespaceNotFound     = 26
	CodeIndexOptionsConflict  = 85
	CodeIndexKeySpecsConflict = 86
	CodeNamespaceExists       = 48
	CodeConversionFailure     = 241
	CodeDuplicateKey          = 11000
)

// Labels that servers and drivers attach to errors.
const (
	LabelRetryableWrite        = "RetryableWriteError"
	LabelResumableChangeStream = "ResumableChangeStreamError"
	LabelTransientTransaction  = "TransientTransactionError"
)

// ErrUnknownOutcome is wrapped by errors that say nothing about whether the command was applied: a lost
// connection, a time-out, a reply that never came.
var ErrUnknownOutcome = errors.New("outcome unknown")

// ErrStreamClosed is returned by Stream.Next after Close.
var ErrStreamClosed = errors.New("change stream closed")

// Error is an error that the server answered with.
type Error struct {
	Code     int32
	CodeName string
	Message  string
	// KeyPattern and KeyValue describe the index key that a duplicate-key error is about.
	KeyPattern bson.D
	KeyValue   bson.D
	Labels     []string
	// Index is the position in Command.Documents or Command.Statements of the part that failed.
	Index int
	// Others holds the further errors of an unordered command.
	Others []*Error
	// Cause is the driver's own error, if there is one.
	Cause error
}

func (e *Error) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "(%s) %s", e.CodeName, e.Message)
	if len(e.Others) > 0 {
		fmt.Fprintf(&b, " (and %d more)", len(e.Others))
	}
	return b.String()
}

// Unwrap returns the driver's error.
func (e *Error) Unwrap() error { return e.Cause }

// HasLabel reports whether the server or driver attached the label.
func (e *Error) HasLabel(label string) bool { return slices.Contains(e.Labels, label) }

// HasCode reports whether err is, or wraps, a server error with the code.
func HasCode(err error, code int32) bool {
	var server *Error
	return errors.As(err, &server) && server.Code == code
}

// IsDuplicateKey reports whether err is a duplicate-key error and nothing worse: every part of an unordered command
// that could not be written failed for that reason.
func IsDuplicateKey(err error) bool {
	var server *Error
	if !errors.As(err, &server) || server.Code != CodeDuplicateKey {
		return false
	}
	return !slices.ContainsFunc(server.Others, func(o *Error) bool { return o.Code != CodeDuplicateKey })
}
