package engine

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.opentelemetry.io/otel/trace"
)

// The trace of a publication travels in the event's headers as the W3C's recommendation Trace Context says: version, trace ID, span ID and flags, in
// hexadecimal. OpenTelemetry's own propagator does the same, but comes with all of net/http, which whoever wants a queue need not have.
const (
	traceParent = "traceparent"
	traceState  = "tracestate"
)

// injectTrace puts the context's span into headers, if there is one.
func injectTrace(ctx context.Context, headers map[string]string) {
	span := trace.SpanContextFromContext(ctx)
	if !span.IsValid() {
		return
	}
	headers[traceParent] = fmt.Sprintf("00-%s-%s-%s", span.TraceID(), span.SpanID(), span.TraceFlags()&trace.FlagsSampled)
	if state := span.TraceState().String(); state != "" {
		headers[traceState] = state
	}
}

// extractTrace returns a context with the span that the headers name. Headers that are malformed name none.
func extractTrace(ctx context.Context, headers bson.D) context.Context {
	values := map[string]string{} // looked up only
	for _, header := range headers {
		values[header.Key], _ = header.Value.(string)
	}
	parts := strings.Split(values[traceParent], "-")
	if len(parts) < 4 || len(parts[0]) != 2 || parts[0] == "ff" || parts[0] == "00" && len(parts) != 4 {
		return ctx
	}
	traceID, errTrace := trace.TraceIDFromHex(parts[1])
	spanID, errSpan := trace.SpanIDFromHex(parts[2])
	flags, errFlags := strconv.ParseUint(parts[3], 16, 8)
	if errTrace != nil || errSpan != nil || errFlags != nil || len(parts[3]) != 2 {
		return ctx
	}
	state, err := trace.ParseTraceState(values[traceState])
	if err != nil {
		state = trace.TraceState{} // the recommendation: a broken tracestate does not invalidate traceparent
	}
	return trace.ContextWithRemoteSpanContext(ctx, trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: traceID, SpanID: spanID, TraceFlags: trace.TraceFlags(flags) & trace.FlagsSampled, TraceState: state, Remote: true,
	}))
}
