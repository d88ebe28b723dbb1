package engine_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/metric"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/trace"
	tracenoop "go.opentelemetry.io/otel/trace/noop"

	"github.com/fencepost-sim/fencepost/engine"
	"github.com/fencepost-sim/fencepost/faults"
	"github.com/fencepost-sim/fencepost/sim"
)

// readings is a Meter that adds up what it is told, by instrument and outcome.
type readings struct {
	metricnoop.Meter
	sums map[string]float64
}

func (r *readings) add(name string, value float64, labels metric.MeasurementOption) {
	attributes := metric.NewAddConfig([]metric.AddOption{labels}).Attributes()
	for _, label := range attributes.ToSlice() {
		if label.Key == "fencepost.outcome" || label.Key == "fencepost.missing" {
			name += " " + label.Value.AsString()
		}
	}
	r.sums[name] += value
}

type counter struct {
	metricnoop.Int64Counter
	r    *readings
	name string
}

func (c counter) Add(_ context.Context, n int64, options ...metric.AddOption) {
	c.r.add(c.name, float64(n), options[0].(metric.MeasurementOption))
}

type histogram struct {
	metricnoop.Float64Histogram
	r    *readings
	name string
}

func (h histogram) Record(_ context.Context, value float64, options ...metric.RecordOption) {
	h.r.add(h.name, value, options[0].(metric.MeasurementOption))
}

type gauge struct {
	metricnoop.Float64Gauge
	r *readings
}

func (g gauge) Record(_ context.Context, value float64, _ ...metric.RecordOption) {
	g.r.sums["oldest backlog"] = max(g.r.sums["oldest backlog"], value)
}

func (r *readings) Int64Counter(name string, _ ...metric.Int64CounterOption) (metric.Int64Counter, error) {
	return counter{r: r, name: strings.TrimPrefix(name, "fencepost.")}, nil
}

func (r *readings) Float64Histogram(name string, _ ...metric.Float64HistogramOption) (metric.Float64Histogram, error) {
	return histogram{r: r, name: strings.TrimPrefix(name, "fencepost.")}, nil
}

func (r *readings) Float64Gauge(string, ...metric.Float64GaugeOption) (metric.Float64Gauge, error) {
	return gauge{r: r}, nil
}

// spans is a Tracer that gives out span contexts with numbers, and remembers the names and parents.
type spans struct {
	tracenoop.Tracer
	seen []string
}

func (s *spans) Start(ctx context.Context, name string, _ ...trace.SpanStartOption) (context.Context, trace.Span) {
	parent := trace.SpanContextFromContext(ctx)
	id := byte(len(s.seen) + 1)
	s.seen = append(s.seen, fmt.Sprintf("%d %s < %d", id, name, parent.SpanID()[7]))
	traceID := trace.TraceID{15: 9}
	own := trace.NewSpanContext(trace.SpanContextConfig{TraceID: traceID, SpanID: trace.SpanID{7: id}, TraceFlags: trace.FlagsSampled})
	ctx = trace.ContextWithSpanContext(ctx, own)
	return ctx, trace.SpanFromContext(ctx)
}

func TestOpenTelemetryIsToldWhatHappens(t *testing.T) {
	plan := faults.Plan{Faults: []faults.Fault{{
		Kind: faults.Crash, Process: "worker", Point: sim.PointHandlerStart, Position: faults.After, Occurrence: 1, Span: 10 * time.Second,
	}}}
	w, err := sim.New(sim.Config{Limit: 2 * time.Minute, Plan: plan})
	if err != nil {
		t.Fatal(err)
	}
	meter, tracer := &readings{sums: map[string]float64{}}, &spans{}
	traced := ""
	w.Add("worker", func(ctx context.Context, p *sim.Process) error {
		eng, err := p.Open(ctx, engine.Options{ConsumerGroup: "billing", Meter: meter, Tracer: tracer})
		if err != nil {
			return err
		}
		_, err = sim.Subscribe(ctx, p, eng, orders, engine.SubscribeOptions{OffsetReset: engine.Earliest}, func(ctx context.Context, event engine.Event[int]) error {
			traced = event.Headers["traceparent"]
			if event.Attempt == 2 {
				return errors.New("declined")
			}
			return sim.Sleep(ctx, 2*time.Second)
		})
		return err
	})
	w.Add("publisher", func(ctx context.Context, p *sim.Process) error {
		eng, err := p.Open(ctx, engine.Options{ConsumerGroup: "billing", Meter: meter, Tracer: tracer})
		if err == nil {
			_, err = orders.Publish(ctx, eng, 1)
		}
		return err
	})
	w.Run()

	var got []string
	for _, name := range slices.Sorted(maps.Keys(meter.sums)) {
		got = append(got, fmt.Sprintf("%s: %v", name, meter.sums[name]))
	}
	want := []string{
		"attempts.duration handler_error: 0", "attempts.duration success: 2", "attempts.duration worker_lost: 31", "attempts.reaped: 1",
		"deliveries.ended success: 1", "events.published: 1", "oldest backlog: 0",
	}
	if !slices.Equal(got, want) {
		t.Errorf("told\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	wantSpans := []string{"1 publish order.created < 0", "2 process order.created < 1", "3 process order.created < 1", "4 process order.created < 1"}
	if !slices.Equal(tracer.seen, wantSpans) || traced != "00-00000000000000000000000000000009-0000000000000001-01" {
		t.Errorf("spans %q, traceparent %q", tracer.seen, traced)
	}
}
