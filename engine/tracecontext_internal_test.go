package engine

import (
	"context"
	"maps"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// TestTracesTravelAsOpenTelemetrysOwnPropagatorWritesThem compares with the propagator that production code does without.
func TestTracesTravelAsOpenTelemetrysOwnPropagatorWritesThem(t *testing.T) {
	state, err := trace.ParseTraceState("vendor=1,other=2")
	if err != nil {
		t.Fatal(err)
	}
	for _, span := range []trace.SpanContext{
		{},
		trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1, 2}, SpanID: trace.SpanID{3}}),
		trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{255}, SpanID: trace.SpanID{7: 9}, TraceFlags: trace.FlagsSampled, TraceState: state}),
	} {
		ctx := trace.ContextWithSpanContext(context.Background(), span)
		ours, theirs := map[string]string{}, propagation.MapCarrier{}
		injectTrace(ctx, ours)
		propagation.TraceContext{}.Inject(ctx, theirs)
		if !maps.Equal(ours, theirs) {
			t.Errorf("%v: wrote %v, want %v", span, ours, theirs)
		}
	}
	for _, parent := range []string{
		"00-00000000000000000000000000000009-0000000000000001-01", "00-00000000000000000000000000000009-0000000000000001-00", "",
		"00-00000000000000000000000000000000-0000000000000001-01", "ff-00000000000000000000000000000009-0000000000000001-01",
		"00-00000000000000000000000000000009-0000000000000001-01-more", "01-00000000000000000000000000000009-0000000000000001-01-more",
		"00-00000000000000000000000000000009-0000000000000001-1", "nonsense", "00-0009-01-01",
	} {
		headers := bson.D{{Key: traceParent, Value: parent}, {Key: traceState, Value: "vendor=1"}}
		ours := trace.SpanContextFromContext(extractTrace(context.Background(), headers))
		carrier := propagation.MapCarrier{traceParent: parent, traceState: "vendor=1"}
		theirs := trace.SpanContextFromContext(propagation.TraceContext{}.Extract(context.Background(), carrier))
		if !ours.Equal(theirs) {
			t.Errorf("%q: read %v, want %v", parent, ours, theirs)
		}
	}
}
