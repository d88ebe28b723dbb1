package idempotency

import (
	"errors"
	"fmt"
	"time"

	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// Sentinel errors. Their texts are the code strings that clients see.
var (
	// ErrInFlight means that another execution of the key is under way. It comes as an *InFlightError.
	ErrInFlight = errors.New("idempotency_in_flight")
	// ErrBodyMismatch means that the key was used before with another request.
	ErrBodyMismatch = errors.New("idempotency_key_body_mismatch")
	// ErrKeyInvalid means that the key of the request is malformed.
	ErrKeyInvalid = errors.New("idempotency_key_invalid")
	// ErrTenantRequired and ErrActorRequired mean that the request does not say on whose behalf it comes.
	ErrTenantRequired = errors.New("idempotency_tenant_required")
	ErrActorRequired  = errors.New("idempotency_actor_required")
	// ErrLostClaim means that the claim is not, or no longer, the caller's. It is also the cause with which the context of a
	// guarded function is cancelled.
	ErrLostClaim = errors.New("idempotency_claim_lost")
	// ErrUnavailable means that the store did not answer, so that nothing was run.
	ErrUnavailable = errors.New("idempotency_unavailable")
	// ErrOutcomeUnknown means that an earlier execution of the key died, and that the policy Pin forbids another.
	ErrOutcomeUnknown = errors.New("idempotency_outcome_unknown")
	// ErrResultNotStored means that the key was executed to the end, and that its result is not there to be replayed.
	ErrResultNotStored = errors.New("idempotency_result_not_stored")
	// ErrCompensated means that the saga step was compensated before the action came.
	ErrCompensated = errors.New("idempotency_compensated")
	// ErrClosed means that the guard was shut down.
	ErrClosed = fmt.Errorf("%w: the guard is shut down", ErrUnavailable)
	// ErrConfiguration is wrapped by every error about an option.
	ErrConfiguration = errors.New("idempotency: configuration")
)

// ConfigurationError says which option is wrong, and what is allowed. It wraps ErrConfiguration.
type ConfigurationError struct {
	Field   string // for example "Config.Lease"
	Value   any    // what it was
	Allowed string // for example "10ms to 24h"
}

func (e *ConfigurationError) Error() string {
	return fmt.Sprintf("idempotency: %s is %#v; allowed: %s", e.Field, e.Value, e.Allowed)
}

// Unwrap returns ErrConfiguration.
func (e *ConfigurationError) Unwrap() error { return ErrConfiguration }

// InFlightError says for how long the lease of the other execution still lasts. It wraps ErrInFlight.
type InFlightError struct {
	RetryAfter time.Duration
}

func (e *InFlightError) Error() string {
	return fmt.Sprintf("%v: retry after %v", ErrInFlight, e.RetryAfter)
}

// Unwrap returns ErrInFlight.
func (e *InFlightError) Unwrap() error { return ErrInFlight }

// VersionError says that a record was written by a release that this one does not understand. It is never taken for an absent
// record. It wraps ErrUnavailable.
type VersionError struct {
	Key     Key
	Version string
}

func (e *VersionError) Error() string {
	return fmt.Sprintf("%v: the record of %s has version %q", ErrUnavailable, e.Key, e.Version)
}

// Unwrap returns ErrUnavailable.
func (e *VersionError) Unwrap() error { return ErrUnavailable }

// ReplayedRejection is an application error of an earlier execution, replayed. It carries the gRPC status that it was
// classified by.
type ReplayedRejection struct {
	Code    codes.Code
	Message string
	Details []byte // the google.rpc.Status in wire format, with its details
}

func (e *ReplayedRejection) Error() string {
	return fmt.Sprintf("replayed rejection: %s: %s", e.Code, e.Message)
}

// GRPCStatus makes status.FromError and the classifier see the original status.
func (e *ReplayedRejection) GRPCStatus() *status.Status {
	stored := &spb.Status{}
	if len(e.Details) > 0 && proto.Unmarshal(e.Details, stored) == nil && stored.GetCode() == int32(e.Code) {
		return status.FromProto(stored)
	}
	return status.New(e.Code, e.Message)
}

// rejection turns an application error into the result that is stored.
func rejection(err error) Result {
	coded, _ := status.FromError(err)
	payload, marshalErr := proto.MarshalOptions{Deterministic: true}.Marshal(coded.Proto())
	if marshalErr != nil { // a status whose details cannot be written down
		payload, _ = proto.Marshal(status.New(coded.Code(), coded.Message()).Proto())
	}
	return Result{Kind: Rejection, Payload: payload}
}

// replayed turns a stored rejection back into an error.
func replayed(r Result) error {
	stored := &spb.Status{}
	if err := proto.Unmarshal(r.Payload, stored); err != nil {
		return fmt.Errorf("%w: the stored rejection is unreadable: %w", ErrResultNotStored, err)
	}
	return &ReplayedRejection{Code: codes.Code(stored.GetCode()), Message: stored.GetMessage(), Details: r.Payload}
}
