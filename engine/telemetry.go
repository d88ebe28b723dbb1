package engine

import (
	"context"
	"errors"
	"fmt"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/trace"
	tracenoop "go.opentelemetry.io/otel/trace/noop"
)

// telemetry is what an engine tells OpenTelemetry, by its API alone: whoever wants it brings a Meter and a Tracer.
type telemetry struct {
	published metric.Int64Counter
	ended     metric.Int64Counter
	attempts  metric.Float64Histogram
	lost      metric.Int64Counter
	reaped    metric.Int64Counter
	repaired  metric.Int64Counter
	backlog   metric.Float64Gauge
	tracer    trace.Tracer
}

func newTelemetry(meter metric.Meter, tracer trace.Tracer) (t telemetry, err error) {
	if meter == nil {
		meter = metricnoop.Meter{}
	}
	if t.tracer = tracer; tracer == nil {
		t.tracer = tracenoop.Tracer{}
	}
	counter := func(name, what, unit string) metric.Int64Counter {
		c, failure := meter.Int64Counter(name, metric.WithDescription(what), metric.WithUnit(unit))
		err = errors.Join(err, failure)
		return c
	}
	t.published = counter("fencepost.events.published", "Events that this process has published.", "{event}")
	t.ended = counter("fencepost.deliveries.ended", "Deliveries that this process has ended, by outcome.", "{delivery}")
	t.lost = counter("fencepost.leases.lost", "Leases of attempts that this process has lost.", "{lease}")
	t.reaped = counter("fencepost.attempts.reaped", "Attempts of lost workers that this process has ended.", "{attempt}")
	t.repaired = counter("fencepost.deliveries.repaired", "Torn deliveries that this process has completed, by what was missing.", "{delivery}")
	var failure error
	t.attempts, failure = meter.Float64Histogram("fencepost.attempts.duration",
		metric.WithDescription("From the claim of an attempt to its end, by the database's clock, by outcome."), metric.WithUnit("s"))
	err = errors.Join(err, failure)
	t.backlog, failure = meter.Float64Gauge("fencepost.backlog.age",
		metric.WithDescription("How long the oldest event that is not discovered yet has been there; zero if there is none."), metric.WithUnit("s"))
	if err = errors.Join(err, failure); err != nil {
		err = fmt.Errorf("fencepost: Options.Meter: %w", err)
	}
	return t, err
}

func (e *Engine) labels(topic string, more ...attribute.KeyValue) metric.MeasurementOption {
	return metric.WithAttributes(append(more, attribute.String("fencepost.topic", topic), attribute.String("fencepost.group", e.options.ConsumerGroup))...)
}

func outcomeLabel(outcome string) attribute.KeyValue {
	return attribute.String("fencepost.outcome", outcome)
}

// attemptEnded counts an attempt that this process has ended. The outcome is "success" or the code of the error.
func (e *Engine) attemptEnded(attempt attemptDocument) {
	outcome := attempt.errorCode
	if outcome == "" {
		outcome = attempt.status
	}
	took := attempt.endedAt.Time().Sub(attempt.startedAt.Time())
	e.telemetry.attempts.Record(e.context, took.Seconds(), e.labels(attempt.topic, outcomeLabel(outcome)))
}

// measureBacklog says how old what a scan has found is.
func (e *Engine) measureBacklog(topic string, news []eventDocument) {
	age := 0.0
	if len(news) > 0 {
		age = max(0, float64(e.guessNow().Unix()-int64(news[0].sequence.T)))
	}
	e.telemetry.backlog.Record(e.context, age, e.labels(topic))
}

// publishSpan begins the span of a publication, and puts its context into the headers.
func (e *Engine) publishSpan(ctx context.Context, topic string, headers map[string]string) (context.Context, trace.Span) {
	ctx, span := e.telemetry.tracer.Start(ctx, "publish "+topic, trace.WithSpanKind(trace.SpanKindProducer),
		trace.WithAttributes(attribute.String("messaging.system", "fencepost"), attribute.String("messaging.destination.name", topic)))
	injectTrace(ctx, headers)
	return ctx, span
}

// handlerSpan begins the span of an attempt, as a consequence of the publication.
func (e *Engine) handlerSpan(ctx context.Context, event eventDocument, attempt attemptDocument) (context.Context, trace.Span) {
	return e.telemetry.tracer.Start(extractTrace(ctx, event.headers), "process "+event.topic, trace.WithSpanKind(trace.SpanKindConsumer),
		trace.WithAttributes(
			attribute.String("messaging.system", "fencepost"),
			attribute.String("messaging.destination.name", event.topic),
			attribute.String("messaging.consumer.group.name", e.options.ConsumerGroup),
			attribute.String("messaging.message.id", event.id),
			attribute.Int64("fencepost.attempt", attempt.number)))
}

// endSpan ends a span; what is empty is no error.
func endSpan(span trace.Span, problem string) {
	if problem != "" {
		span.SetStatus(codes.Error, problem)
	}
	span.End()
}
