package engine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/fencepost-sim/fencepost/engine"
	"github.com/fencepost-sim/fencepost/internal/document"
)

var (
	earliest   = engine.SubscribeOptions{OffsetReset: engine.Earliest}
	concurrent = engine.SubscribeOptions{OffsetReset: engine.Earliest, Unordered: true}
)

func with(options engine.SubscribeOptions, change func(*engine.SubscribeOptions)) engine.SubscribeOptions {
	change(&options)
	return options
}

// outcomes lists the attempts of a delivery or, with no filter, of all, as their status or error code, by number.
func (s *stage) outcomes(filter bson.D) string {
	s.Helper()
	attempts := s.find("history", filter)
	slices.SortStableFunc(attempts, func(a, b bson.D) int { return int(number(a) - number(b)) })
	var list []string
	for _, attempt := range attempts {
		outcome := document.Text(attempt, "status")
		if failure, ok := document.Get(attempt, "error").(bson.D); ok {
			outcome = document.Text(failure, "code")
		}
		list = append(list, fmt.Sprint(number(attempt), " ", outcome))
	}
	return strings.Join(list, ", ")
}

func number(attempt bson.D) int64 {
	switch n := document.Get(attempt, "attempt").(type) {
	case int32:
		return int64(n)
	case int64:
		return n
	}
	return 0
}

func of(event string) bson.D { return bson.D{{Key: "eventId", Value: event}} }

func having(status string) bson.D { return bson.D{{Key: "status", Value: status}} }

func (s *stage) want(what string, got, want any) {
	s.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		s.Errorf("%s: %v, want %v", what, got, want)
	}
}

func TestConformanceDelivery(t *testing.T) {
	perform(t, "08 every group gets an event once, whatever its replicas", func(s *stage) {
		options := s.settings("a")
		options.ChangeStreams = engine.ChangeStreamsAuto
		seen := s.calls()
		var publisher *engine.Engine
		for _, group := range []string{"a", "a", "b"} {
			options.ConsumerGroup = group
			publisher = s.engine(options)
			s.subscribe(publisher, earliest, seen.handler(0))
		}
		s.publish(publisher, "x")
		s.until("two calls", func() bool { return seen.number() == 2 })
		_ = s.pause(s.ctx, 300*time.Millisecond)
		s.want("calls", seen.list(), "x1 x1")
	})
	perform(t, "09 an ordered topic waits while its head is retried", func(s *stage) {
		eng, seen := s.engine(s.settings("a")), s.calls()
		ordered := with(earliest, func(o *engine.SubscribeOptions) { o.MaxRetries, o.RetryDelay = 3, 10*time.Millisecond })
		s.subscribe(eng, ordered, seen.handlerThat(func(_ context.Context, event engine.Event[string]) error {
			if event.Data == "A" && event.Attempt < 4 {
				return errors.New("not yet")
			}
			return nil
		}))
		ids := s.publish(eng, "A", "B")
		s.until("five calls", func() bool { return s.count("deliveries", having("success")) == 2 })
		s.want("calls", seen.list(), "A1 A2 A3 A4 B1")
		s.want("attempts", s.outcomes(of(ids[0])), "1 handler_error, 2 handler_error, 3 handler_error, 4 success")
	})
	perform(t, "10 an unordered topic runs events beside each other", func(s *stage) {
		eng, seen := s.engine(s.settings("a")), s.calls()
		s.subscribe(eng, concurrent, seen.handler(100*time.Millisecond))
		s.publish(eng, "a", "b", "c", "d")
		s.until("four calls", func() bool { return s.count("deliveries", having("success")) == 4 })
		if seen.peak < 2 {
			s.Errorf("at most %d at once", seen.peak)
		}
	})
	perform(t, "11 an event whose retries are used up does not hold up the topic", func(s *stage) {
		eng, seen := s.engine(s.settings("a")), s.calls()
		ordered := with(earliest, func(o *engine.SubscribeOptions) { o.MaxRetries, o.RetryDelay = 1, 10*time.Millisecond })
		s.subscribe(eng, ordered, seen.handlerThat(func(_ context.Context, event engine.Event[string]) error {
			if event.Data == "bad" {
				return errors.New("never")
			}
			return nil
		}))
		ids := s.publish(eng, "bad", "good")
		s.until("good", func() bool { return s.count("deliveries", having("success")) == 1 })
		s.want("calls", seen.list(), "bad1 bad2 good1")
		s.want("attempts", s.outcomes(of(ids[0])), "1 handler_error, 2 handler_error")
	})
	perform(t, "12 at most once does not repeat a failure", func(s *stage) {
		eng, seen := s.engine(s.settings("a")), s.calls()
		once := with(earliest, func(o *engine.SubscribeOptions) { o.Delivery = engine.AtMostOnce })
		s.subscribe(eng, once, seen.handlerThat(func(context.Context, engine.Event[string]) error { return errors.New("no") }))
		s.publish(eng, "x")
		s.until("the end", func() bool { return s.count("deliveries", having("error")) == 1 })
		_ = s.pause(s.ctx, 200*time.Millisecond)
		s.want("calls", seen.list(), "x1")
		s.want("attempts", s.outcomes(nil), "1 handler_error")
	})
	perform(t, "13 latest begins with what comes, and goes on after unsubscribing", func(s *stage) {
		eng, seen := s.engine(s.settings("a")), s.calls()
		s.publish(eng, "old")
		latest := engine.SubscribeOptions{}
		subscription := s.subscribe(eng, latest, seen.handler(0))
		s.publish(eng, "new-")
		s.until("the first", func() bool { return seen.number() == 1 })
		s.until("it is recorded", func() bool { return s.count("deliveries", having("success")) == 1 })
		subscription.Unsubscribe()
		subscription.Unsubscribe()
		s.publish(eng, "meanwhile-")
		_ = s.pause(s.ctx, 100*time.Millisecond)
		s.want("calls", seen.list(), "new-1")
		s.subscribe(eng, latest, seen.handler(0))
		s.until("the second", func() bool { return seen.number() == 2 })
		s.want("calls", seen.list(), "new-1 meanwhile-1")
	})
	perform(t, "15 a worker whose token was taken away cannot record", func(s *stage) {
		options := s.settings("a")
		options.LockTimeout = 120 * time.Millisecond * s.scale()
		eng, seen := s.engine(options), s.calls()
		retried := with(concurrent, func(o *engine.SubscribeOptions) { o.RetryDelay = 10 * time.Millisecond })
		s.subscribe(eng, retried, seen.handlerThat(func(ctx context.Context, event engine.Event[string]) error {
			if event.Attempt == 1 {
				s.update("history", having("pending"), bson.D{{Key: "$set", Value: bson.D{
					{Key: "lockToken", Value: "another's"}, {Key: "lockedUntil", Value: bson.NewDateTimeFromTime(time.Unix(0, 0))},
				}}})
			}
			return nil
		}))
		s.publish(eng, "x")
		s.until("success", func() bool { return s.count("deliveries", having("success")) == 1 })
		s.want("calls", seen.list(), "x1 x2")
		s.want("attempts", s.outcomes(nil), "1 worker_lost, 2 success")
	})
	perform(t, "19 a limit of one holds for any number of workers", func(s *stage) {
		options := s.settings("a")
		options.Workers = 8
		eng, seen := s.engine(options), s.calls()
		s.subscribe(eng, with(concurrent, func(o *engine.SubscribeOptions) { o.MaxConcurrency = 1 }), seen.handler(20*time.Millisecond))
		s.publish(eng, "a", "b", "c", "d", "e", "f", "g", "h")
		s.until("eight", func() bool { return s.count("deliveries", having("success")) == 8 })
		s.want("most at once", seen.peak, 1)
	})
	perform(t, "20 a long handler keeps its lease", func(s *stage) {
		options := s.settings("a")
		options.LockTimeout = 90 * time.Millisecond * s.scale()
		seen := s.calls()
		first, second := s.engine(options), s.engine(options)
		for _, eng := range []*engine.Engine{first, second} {
			s.subscribe(eng, concurrent, seen.handler(320*time.Millisecond*s.scale()))
		}
		s.publish(first, "x")
		s.until("success", func() bool { return s.count("deliveries", having("success")) == 1 })
		s.want("calls", seen.list(), "x1")
		s.want("attempts", s.outcomes(nil), "1 success")
	})
	perform(t, "24 a hostile panic is recorded under at most once", func(s *stage) {
		eng, seen := s.engine(s.settings("a")), s.calls()
		once := with(earliest, func(o *engine.SubscribeOptions) { o.Delivery = engine.AtMostOnce })
		s.subscribe(eng, once, seen.handlerThat(func(context.Context, engine.Event[string]) error { panic(hostile{}) }))
		s.publish(eng, "x")
		s.until("the end", func() bool { return s.count("deliveries", having("error")) == 1 })
		attempt := s.find("history", nil)[0]
		failure, _ := document.Get(attempt, "error").(bson.D)
		s.want("code", document.Text(failure, "code"), engine.CodeHandlerError)
		s.want("message", document.Text(failure, "message"), "(unreadable value)")
		if document.Text(attempt, "lockToken") == "" {
			s.Error("the token is not on the record")
		}
	})
	perform(t, "33 events that always fail do not keep a healthy one waiting", func(s *stage) {
		eng, seen := s.engine(s.settings("a")), s.calls()
		stubborn := with(concurrent, func(o *engine.SubscribeOptions) {
			o.MaxRetries, o.RetryDelay, o.RetryMultiplier = 10_000, 5*time.Millisecond, 1
		})
		healthy := false
		s.subscribe(eng, stubborn, seen.handlerThat(func(_ context.Context, event engine.Event[string]) error {
			if event.Data == "healthy" {
				seen.note(func() { healthy = true })
				return nil
			}
			return errors.New("never")
		}))
		for n := range 60 {
			s.publish(eng, fmt.Sprint("hopeless-", n, "-"))
		}
		s.publish(eng, "healthy")
		s.until("the healthy one", func() (was bool) { seen.note(func() { was = healthy }); return was })
	})
	perform(t, "39 hundred events, five replicas: each once, each stamped", func(s *stage) {
		options := s.settings("a")
		options.LockTimeout = 500 * time.Millisecond * s.scale()
		seen := s.calls()
		var publisher *engine.Engine
		for range 5 {
			publisher = s.engine(options)
			s.subscribe(publisher, with(concurrent, func(o *engine.SubscribeOptions) { o.MaxConcurrency = 3 }), seen.handler(0))
		}
		for n := range 100 {
			s.publish(publisher, fmt.Sprint(n, "-"))
		}
		s.until("hundred", func() bool { return s.count("deliveries", having("success")) == 100 })
		s.want("calls", seen.number(), 100)
		s.want("successes", s.count("history", having("success")), 100)
		stamps := map[any]bool{}
		for _, event := range s.find("events", nil) {
			stamps[document.Get(event, "sequence")] = true
		}
		s.want("distinct server timestamps", len(stamps), 100)
	})
	perform(t, "41 the database's order counts, not the publisher's clock", func(s *stage) {
		eng, seen := s.engine(s.settings("a")), s.calls()
		s.publish(eng, "baseline-")
		s.insert("events", bson.D{
			{Key: "_id", Value: "0190-old"}, {Key: "topic", Value: jobs.Name()}, {Key: "data", Value: "old-"},
			{Key: "createdAt", Value: bson.NewDateTimeFromTime(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC))},
			{Key: "sequence", Value: bson.Timestamp{}}, // the server stamps it
		})
		s.subscribe(eng, earliest, seen.handler(0))
		s.until("both", func() bool { return s.count("deliveries", having("success")) == 2 })
		s.want("calls", seen.list(), "baseline-1 old-1")
	})
}

type hostile struct{}

func (hostile) Error() string  { panic(hostile{}) }
func (hostile) String() string { panic(hostile{}) }
