package idempotency_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/fencepost-sim/fencepost/engine/idempotency"
)

func classifier(t *testing.T, options ...idempotency.ClassifierOption) idempotency.Classifier {
	t.Helper()
	c, err := idempotency.NewClassifier(options...)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestR12C01CodedErrorsFollowTheTable(t *testing.T) {
	application := map[codes.Code]bool{3: true, 5: true, 6: true, 9: true, 11: true, 15: true}
	c := classifier(t)
	for code := codes.Code(1); code <= 40; code++ {
		want := idempotency.Transport
		if application[code] {
			want = idempotency.Application
		}
		for _, err := range []error{status.Error(code, "x"), fmt.Errorf("wrapped: %w", status.Error(code, "x"))} {
			if got := c.Classify(err); got != want {
				t.Errorf("%v is %v, want %v", code, got, want)
			}
		}
	}
	if got := c.Classify(nil); got != idempotency.Succeeded {
		t.Errorf("nil is %v", got)
	}
}

// fakeOK is an error that claims to carry no error.
type fakeOK struct{}

func (fakeOK) Error() string              { return "fake" }
func (fakeOK) GRPCStatus() *status.Status { return nil }

func TestR11ErrorsWithoutACodeAreTransportUnlessTheDefaultSaysOtherwise(t *testing.T) {
	for _, err := range []error{errors.New("plain"), fakeOK{}} {
		if got := classifier(t).Classify(err); got != idempotency.Transport {
			t.Errorf("%v is %v", err, got)
		}
		if got := classifier(t, idempotency.WithDefaultClass(idempotency.Application)).Classify(err); got != idempotency.Application {
			t.Errorf("with the old default %v is %v", err, got)
		}
	}
}

func TestC01TheEndOfAContextIsTransportWhateverItIsWrappedIn(t *testing.T) {
	c := classifier(t, idempotency.WithDefaultClass(idempotency.Application))
	for _, err := range []error{context.Canceled, fmt.Errorf("query: %w", context.DeadlineExceeded)} {
		if got := c.Classify(err); got != idempotency.Transport {
			t.Errorf("%v is %v", err, got)
		}
	}
}

func TestR13C01TheClassOfACodeCanBeOverridden(t *testing.T) {
	c := classifier(t, idempotency.WithCode(codes.PermissionDenied, idempotency.Application),
		idempotency.WithCode(codes.NotFound, idempotency.Transport), idempotency.WithCode(77, idempotency.Application))
	for code, want := range map[codes.Code]idempotency.Class{
		codes.PermissionDenied: idempotency.Application, codes.NotFound: idempotency.Transport,
		77: idempotency.Application, 78: idempotency.Transport, codes.DataLoss: idempotency.Application,
	} {
		if got := c.Classify(status.Error(code, "x")); got != want {
			t.Errorf("%v is %v, want %v", code, got, want)
		}
	}
	for _, wrong := range []idempotency.ClassifierOption{
		idempotency.WithCode(codes.OK, idempotency.Transport), idempotency.WithCode(codes.Aborted, idempotency.Succeeded),
		idempotency.WithDefaultClass(0), idempotency.WithDefaultClass(idempotency.Succeeded),
	} {
		if _, err := idempotency.NewClassifier(wrong); !errors.Is(err, idempotency.ErrConfiguration) {
			t.Errorf("got %v", err)
		}
	}
}

func TestR10AnApplicationErrorIsReplayedAndATransportErrorIsNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, runs := open(t, idempotency.Config{}), 0
		detailed, err := status.New(codes.NotFound, "no such order").WithDetails(durationpb.New(42))
		if err != nil {
			t.Fatal(err)
		}
		fail := func(err error) func(context.Context) (int, error) {
			return func(context.Context) (int, error) { runs++; return 0, err }
		}
		if _, outcome, err := do(t, g, fail(errors.New("connection reset"))); err == nil || outcome.Stored || outcome.Class != idempotency.Transport {
			t.Errorf("transport: %+v, %v", outcome, err)
		}
		if _, outcome, err := do(t, g, fail(detailed.Err())); !errors.Is(err, detailed.Err()) || !outcome.Stored || runs != 2 {
			t.Errorf("application: %+v, %v, %d runs", outcome, err, runs)
		}
		_, outcome, err := do(t, g, fail(nil))
		var rejected *idempotency.ReplayedRejection
		if !errors.As(err, &rejected) || rejected.Code != codes.NotFound || rejected.Message != "no such order" || !outcome.Replayed || runs != 2 {
			t.Fatalf("replay: %+v, %v, %d runs", outcome, err, runs)
		}
		if again := status.Convert(err); len(again.Details()) != 1 || again.Code() != codes.NotFound {
			t.Errorf("the replayed status lost its details: %v", again.Proto())
		}
	})
}
