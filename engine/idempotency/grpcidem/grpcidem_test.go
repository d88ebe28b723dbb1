package grpcidem_test

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/fencepost-sim/fencepost/engine/idempotency"
	"github.com/fencepost-sim/fencepost/engine/idempotency/grpcidem"
	"github.com/fencepost-sim/fencepost/engine/idempotency/idemtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// method is served by hand: a service of one method, which needs no generated code.
const method = "/payments.v1.Payments/Charge"

type charge func(ctx context.Context, request *structpb.Struct) (*wrapperspb.StringValue, error)

type service struct {
	*testing.T
	client *grpc.ClientConn
	store  *idemtest.Failing
	runs   atomic.Int64
}

// serve starts a real server and a real client, with an authentication that believes the metadata tenant and actor.
func serve(t *testing.T, options grpcidem.Options, handle charge) *service {
	t.Helper()
	s := &service{T: t, store: &idemtest.Failing{Store: &idemtest.Memory{}}}
	guard, err := idempotency.Init(t.Context(), idempotency.Config{Store: s.store, DisableSweeper: true})
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.ChainUnaryInterceptor(authenticate, grpcidem.UnaryServerInterceptor(guard, options)))
	server.RegisterService(&grpc.ServiceDesc{
		ServiceName: "payments.v1.Payments", HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{{MethodName: "Charge", Handler: func(_ any, ctx context.Context, decode func(any) error, chain grpc.UnaryServerInterceptor) (any, error) {
			request := &structpb.Struct{}
			if err := decode(request); err != nil {
				return nil, err
			}
			return chain(ctx, request, &grpc.UnaryServerInfo{FullMethod: method}, func(ctx context.Context, request any) (any, error) {
				s.runs.Add(1)
				return handle(ctx, request.(*structpb.Struct))
			})
		}}},
	}, nil)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	s.client, err = grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = s.client.Close()
		server.GracefulStop()
		if err := errors.Join(<-served, guard.Shutdown(context.Background())); err != nil {
			t.Error(err)
		}
	})
	return s
}

func authenticate(ctx context.Context, request any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	incoming, _ := metadata.FromIncomingContext(ctx)
	if tenant := incoming.Get("tenant"); len(tenant) > 0 {
		ctx = context.WithValue(ctx, idempotency.TenantID, tenant[0])
	}
	if actor := incoming.Get("actor"); len(actor) > 0 {
		ctx = context.WithValue(ctx, idempotency.Subject, actor[0])
	}
	return next(ctx, request)
}

type answer struct {
	text   string
	status *status.Status
	header metadata.MD
}

func (a answer) replayed() bool { return len(a.header.Get("idempotency-replayed")) == 1 }

// call charges an amount with metadata in pairs; k1, t1 and a1 are what most calls have.
func (s *service) call(amount float64, pairs ...string) answer {
	s.Helper()
	request, err := structpb.NewStruct(map[string]any{"amount": amount, "note": "x", "b": true})
	if err != nil {
		s.Fatal(err)
	}
	var a answer
	var reply wrapperspb.StringValue
	err = s.client.Invoke(metadata.AppendToOutgoingContext(s.Context(), pairs...), method, request, &reply, grpc.Header(&a.header))
	a.text, a.status = reply.GetValue(), status.Convert(err)
	return a
}

var usual = []string{"idempotency-key", "k1", "tenant", "t1", "actor", "a1"}

func (s *service) expect(code codes.Code, message string, runs int64, a answer) answer {
	s.Helper()
	if a.status.Code() != code || a.status.Message() != message || s.runs.Load() != runs {
		s.Errorf("got %v %q after %d runs, want %v %q after %d", a.status.Code(), a.status.Message(), s.runs.Load(), code, message, runs)
	}
	return a
}

var guarded = grpcidem.Options{Methods: []string{method}}

func charged(context.Context, *structpb.Struct) (*wrapperspb.StringValue, error) {
	return wrapperspb.String("receipt 1"), nil
}

func TestR16ASuccessIsReplayedWithItsHeader(t *testing.T) {
	s := serve(t, guarded, charged)
	first := s.expect(codes.OK, "", 1, s.call(1, usual...))
	second := s.expect(codes.OK, "", 1, s.call(1, usual...))
	if first.replayed() || !second.replayed() || first.text != "receipt 1" || second.text != first.text {
		t.Errorf("first %+v, second %+v", first, second)
	}
	other := s.expect(codes.OK, "", 1, s.call(1, "x-nodii-idempotency-key", `"k1"`, "tenant", "t1", "actor", "a1"))
	if !other.replayed() {
		t.Error("the other name is another key")
	}
}

func TestR16WithoutAKeyOrOffTheListCallsPassThrough(t *testing.T) {
	for name, c := range map[string]struct {
		options grpcidem.Options
		pairs   []string
	}{
		"no key":              {guarded, nil},
		"not on the list":     {grpcidem.Options{Methods: []string{"/other.Service/Method"}}, usual},
		"no key, all methods": {grpcidem.Options{AllMethods: true}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, c.options, charged)
			for runs := range int64(2) {
				s.expect(codes.OK, "", runs+1, s.call(1, c.pairs...))
			}
		})
	}
	s := serve(t, grpcidem.Options{AllMethods: true}, charged)
	s.call(1, usual...)
	s.expect(codes.OK, "", 1, s.call(1, usual...))
}

func TestR16IdentityAndKeyFailClosed(t *testing.T) {
	s := serve(t, guarded, charged)
	for message, pairs := range map[string][]string{
		"idempotency_tenant_required": {"idempotency-key", "k1", "actor", "a1"},
		"idempotency_actor_required":  {"idempotency-key", "k1", "tenant", "t1"},
		"idempotency_key_invalid":     {"idempotency-key", "a b"},
	} {
		s.expect(codes.InvalidArgument, message, 0, s.call(1, pairs...))
	}
	for _, pairs := range [][]string{
		{"idempotency-key", "k1", "idempotency-key", "k1"}, {"idempotency-key", "k1", "x-nodii-idempotency-key", "k2"}, {"x-nodii-idempotency-key", ""},
	} {
		s.expect(codes.InvalidArgument, "idempotency_key_invalid", 0, s.call(1, append(pairs, usual[2:]...)...))
	}
	tenantWide := serve(t, grpcidem.Options{Methods: []string{method}, Scope: idempotency.TenantScope}, charged)
	tenantWide.expect(codes.OK, "", 1, tenantWide.call(1, "idempotency-key", "k1", "tenant", "t1"))
	tenantWide.expect(codes.OK, "", 1, tenantWide.call(1, usual...))
}

func TestR16AnotherRequestIsAFailedPreconditionAndAConcurrentOneIsAborted(t *testing.T) {
	var s *service
	s = serve(t, guarded, func(context.Context, *structpb.Struct) (*wrapperspb.StringValue, error) {
		a := s.expect(codes.Aborted, "idempotency_in_flight", 1, s.call(1, usual...))
		var retry *errdetails.RetryInfo
		for _, detail := range a.status.Details() {
			retry, _ = detail.(*errdetails.RetryInfo)
		}
		if left := retry.GetRetryDelay().AsDuration(); left <= 0 || left > 30*time.Second {
			t.Errorf("RetryInfo says %v", left)
		}
		s.expect(codes.FailedPrecondition, "idempotency_key_body_mismatch", 1, s.call(2, usual...))
		return wrapperspb.String("done"), nil
	})
	s.expect(codes.OK, "", 1, s.call(1, usual...))
	s.expect(codes.FailedPrecondition, "idempotency_key_body_mismatch", 1, s.call(2, usual...))
}

func TestR16AnApplicationErrorIsReplayedWithItsDetailsAndATransportErrorIsNot(t *testing.T) {
	var next error
	s := serve(t, guarded, func(context.Context, *structpb.Struct) (*wrapperspb.StringValue, error) { return nil, next })
	next = status.Error(codes.Unavailable, "try again")
	s.expect(codes.Unavailable, "try again", 1, s.call(1, usual...))
	rejected, err := status.New(codes.NotFound, "no card").WithDetails(durationpb.New(7))
	if err != nil {
		t.Fatal(err)
	}
	next = rejected.Err()
	s.expect(codes.NotFound, "no card", 2, s.call(1, usual...))
	next = nil
	a := s.expect(codes.NotFound, "no card", 2, s.call(1, usual...))
	if !a.replayed() || len(a.status.Details()) != 1 {
		t.Errorf("got %+v", a)
	}
}

func TestR16WithoutTheStoreTheCallIsUnavailable(t *testing.T) {
	s := serve(t, guarded, charged)
	s.store.Always = map[idemtest.Step]idemtest.Failure{idemtest.StepClaim: idemtest.BeforeApply}
	s.expect(codes.Unavailable, "idempotency_unavailable", 0, s.call(1, usual...))
}

func TestC09AnAnswerThatCouldNotBeStoredSaysSo(t *testing.T) {
	s := serve(t, guarded, charged)
	s.store.Always = map[idemtest.Step]idemtest.Failure{idemtest.StepComplete: idemtest.BeforeApply}
	if a := s.expect(codes.OK, "", 1, s.call(1, usual...)); len(a.header.Get("idempotency-stored")) != 1 {
		t.Errorf("got %+v", a)
	}
}

func TestWrongOptionsOfAnInterceptorPanic(t *testing.T) {
	guard, err := idempotency.New(idempotency.Config{Store: &idemtest.Memory{}})
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range []grpcidem.Options{{}, {Methods: []string{"/a/b"}, AllMethods: true}, {AllMethods: true, Scope: "world"}} {
		func() {
			defer func() {
				if err, _ := recover().(error); !errors.Is(err, idempotency.ErrConfiguration) {
					t.Errorf("%+v: %v", o, err)
				}
			}()
			grpcidem.UnaryServerInterceptor(guard, o)
		}()
	}
}

type manyErrors []error

func (manyErrors) Error() string { return "several" }

func TestAnErrorThatCannotBeComparedGoesToTheClient(t *testing.T) {
	s := serve(t, guarded, func(context.Context, *structpb.Struct) (*wrapperspb.StringValue, error) { return nil, manyErrors{nil} })
	s.expect(codes.Unknown, "several", 1, s.call(1, usual...))
	s.expect(codes.Unknown, "several", 2, s.call(1, usual...))
}
