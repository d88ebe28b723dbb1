// Package grpcidem guards unary gRPC methods by a key in the call's metadata.
//
// Chain it behind authentication, which leaves tenant and actor in the context (see idempotency.TenantFrom):
//
//	grpc.NewServer(grpc.ChainUnaryInterceptor(authenticate, grpcidem.UnaryServerInterceptor(guard, grpcidem.Options{
//		Methods: []string{"/payments.v1.Payments/Charge"},
//	})))
//
// A success, and an error that the guard's Classifier calls the application's, are stored and replayed with the header metadata
// idempotency-replayed: true. Any other error frees the key. Errors of the guard are gRPC statuses whose message is the text of the error of
// package idempotency: INVALID_ARGUMENT for a malformed key or a missing identity, ABORTED with RetryInfo while the first call runs,
// FAILED_PRECONDITION if the key was used for another request or its outcome is not known, UNAVAILABLE if the store does not answer.
package grpcidem

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/fencepost-sim/fencepost/engine/idempotency"
)

// The metadata of calls and answers.
const (
	KeyMetadata          = "idempotency-key"
	AlternateKeyMetadata = "x-nodii-idempotency-key"
	ReplayedMetadata     = "idempotency-replayed" // "true" on replays
	StoredMetadata       = "idempotency-stored"   // "false" on answers that should have been stored
)

// Options configures an interceptor.
type Options struct {
	// Methods are the full names of the guarded methods, "/package.Service/Method". Others pass through.
	Methods []string
	// AllMethods guards every method instead.
	AllMethods bool
	// Tenant and Actor say on whose behalf a call comes, if it is not in its context. Default: idempotency.TenantFrom and
	// idempotency.ActorFrom. An error, or an empty text, is answered with INVALID_ARGUMENT.
	Tenant func(context.Context) (string, error)
	Actor  func(context.Context) (string, error)
	// Scope says who shares replays. Default ActorScope.
	Scope idempotency.BucketScope
}

// UnaryServerInterceptor returns the interceptor. It panics if the options are wrong: they are written in code.
func UnaryServerInterceptor(g *idempotency.Guard, options Options) grpc.UnaryServerInterceptor {
	if options.Tenant == nil {
		options.Tenant = idempotency.TenantFrom
	}
	if options.Actor == nil {
		options.Actor = idempotency.ActorFrom
	}
	if options.Scope == "" {
		options.Scope = idempotency.ActorScope
	}
	switch {
	case g == nil:
		panic(&idempotency.ConfigurationError{Field: "guard", Value: nil, Allowed: "a guard of idempotency.New"})
	case options.Scope != idempotency.ActorScope && options.Scope != idempotency.TenantScope:
		panic(&idempotency.ConfigurationError{Field: "Options.Scope", Value: options.Scope, Allowed: "ActorScope or TenantScope"})
	case options.AllMethods == (len(options.Methods) > 0):
		panic(&idempotency.ConfigurationError{Field: "Options.Methods", Value: options.Methods, Allowed: "full method names, or none and AllMethods"})
	}
	return interceptor{g, options}.intercept
}

type interceptor struct {
	guard   *idempotency.Guard
	options Options
}

func (i interceptor) intercept(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	incoming, _ := metadata.FromIncomingContext(ctx)
	ours, theirs := incoming.Get(KeyMetadata), incoming.Get(AlternateKeyMetadata)
	if len(ours)+len(theirs) == 0 || !(i.options.AllMethods || slices.Contains(i.options.Methods, info.FullMethod)) {
		return handler(ctx, request)
	}
	op, err := i.op(ctx, request, info.FullMethod, ours, theirs)
	if err != nil {
		return nil, statusOf(err)
	}
	ran := false // then the error is the handler's, and goes to the client as it is
	answer, outcome, err := idempotency.Do(ctx, i.guard, op, messages{}, func(ctx context.Context) (any, error) {
		ran = true
		return handler(ctx, request)
	})
	switch {
	case outcome.Replayed:
		_ = grpc.SetHeader(ctx, metadata.Pairs(ReplayedMetadata, "true")) // fails only when headers were sent
	case outcome.StoreError != nil || outcome.Unguarded:
		_ = grpc.SetHeader(ctx, metadata.Pairs(StoredMetadata, "false"))
	}
	if err != nil && !ran {
		err = statusOf(err)
	}
	return answer, err
}

// op checks in the order key, tenant, actor.
func (i interceptor) op(ctx context.Context, request any, method string, ours, theirs []string) (op idempotency.Op, err error) {
	key, err := clientKey(ours, theirs)
	if err != nil {
		return op, err
	}
	tenant, err := i.options.Tenant(ctx)
	if err != nil || tenant == "" {
		return op, errors.Join(idempotency.ErrTenantRequired, err)
	}
	actor := ""
	if i.options.Scope == idempotency.ActorScope {
		if actor, err = i.options.Actor(ctx); err != nil || actor == "" {
			return op, errors.Join(idempotency.ErrActorRequired, err)
		}
	}
	op.Key = idempotency.RequestDigest([]byte("grpc"), []byte(i.options.Scope), []byte(tenant), []byte(actor), []byte(method), []byte(key))
	op.Fingerprint, err = fingerprint(request)
	return op, err
}

// clientKey reads the key from the two names. Both may be there if they say the same.
func clientKey(ours, theirs []string) (key string, err error) {
	for _, values := range [][]string{ours, theirs} {
		if len(values) == 0 {
			continue
		}
		parsed, err := idempotency.ParseKey(values[0])
		if err != nil || len(values) > 1 || (key != "" && key != parsed) {
			return "", idempotency.ErrKeyInvalid
		}
		key = parsed
	}
	return key, nil
}

// fingerprint is that of a message: its type and its deterministic bytes. Another release of the message's definition, or of the
// library, may write other bytes, which is why the label names neither.
func fingerprint(request any) (idempotency.Fingerprint, error) {
	message, ok := request.(proto.Message)
	if !ok {
		return "", status.Errorf(codes.Internal, "the request is a %T, not a protobuf message", request)
	}
	body, err := proto.MarshalOptions{Deterministic: true}.Marshal(message)
	if err != nil {
		return "", status.Errorf(codes.Internal, "the request cannot be fingerprinted: %v", err)
	}
	h := sha256.New()
	fmt.Fprintf(h, "type.googleapis.com/%s\x00", message.ProtoReflect().Descriptor().FullName())
	h.Write(body)
	return idempotency.Fingerprint("p1:" + hex.EncodeToString(h.Sum(nil))), nil
}

// messages stores answers with their type, so that a replay needs no knowledge of the method.
type messages struct{}

func (messages) Encode(answer any) ([]byte, error) {
	message, ok := answer.(proto.Message)
	if !ok {
		return nil, fmt.Errorf("grpcidem: the answer is a %T, not a protobuf message", answer)
	}
	packed, err := anypb.New(message)
	if err != nil {
		return nil, err
	}
	return proto.MarshalOptions{Deterministic: true}.Marshal(packed)
}

func (messages) Decode(stored []byte) (any, error) {
	packed := &anypb.Any{}
	if err := proto.Unmarshal(stored, packed); err != nil {
		return nil, err
	}
	return packed.UnmarshalNew()
}

// statuses are the errors that a client sees. The first that fits is the answer.
var statuses = []struct {
	err  error
	code codes.Code
}{
	{idempotency.ErrKeyInvalid, codes.InvalidArgument},
	{idempotency.ErrTenantRequired, codes.InvalidArgument},
	{idempotency.ErrActorRequired, codes.InvalidArgument},
	{idempotency.ErrInFlight, codes.Aborted},
	{idempotency.ErrBodyMismatch, codes.FailedPrecondition},
	{idempotency.ErrOutcomeUnknown, codes.FailedPrecondition},
	{idempotency.ErrResultNotStored, codes.FailedPrecondition},
	{idempotency.ErrUnavailable, codes.Unavailable},
}

func statusOf(err error) error {
	for _, known := range statuses {
		if !errors.Is(err, known.err) {
			continue
		}
		answer := status.New(known.code, known.err.Error())
		var inFlight *idempotency.InFlightError
		if errors.As(err, &inFlight) {
			detailed, detailErr := answer.WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(inFlight.RetryAfter)})
			if detailErr == nil {
				answer = detailed
			}
		}
		return answer.Err()
	}
	return err // a replayed rejection carries its own status
}
