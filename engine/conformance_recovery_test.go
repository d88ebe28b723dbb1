package engine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/fencepost-sim/fencepost/engine"
	"github.com/fencepost-sim/fencepost/engine/store"
	"github.com/fencepost-sim/fencepost/internal/document"
)

// mortal is a connection whose process can be killed: from then on nothing of it reaches the database.
type mortal struct {
	store.Store
	lock sync.Mutex
	dead bool
}

func (m *mortal) kill() {
	m.lock.Lock()
	defer m.lock.Unlock()
	m.dead = true
}

func (m *mortal) Run(ctx context.Context, command store.Command) (store.Reply, error) {
	m.lock.Lock()
	dead := m.dead
	m.lock.Unlock()
	if dead {
		return store.Reply{}, fmt.Errorf("killed: %w", store.ErrUnknownOutcome)
	}
	return m.Store.Run(ctx, command)
}

// event makes an event document as Pulse stores it.
func event(id, data string, extra ...bson.E) bson.D {
	return append(bson.D{
		{Key: "_id", Value: id}, {Key: "topic", Value: jobs.Name()}, {Key: "data", Value: data},
		{Key: "createdAt", Value: longAgo},
	}, extra...)
}

var longAgo = bson.NewDateTimeFromTime(time.Date(2025, 12, 1, 0, 0, 0, 0, time.UTC))

// delivery makes a delivery of the event to group a, as Pulse stores it.
func delivery(id, status string, extra ...bson.E) bson.D {
	return append(bson.D{
		{Key: "_id", Value: "d-" + id}, {Key: "eventId", Value: id}, {Key: "consumerGroup", Value: "a"}, {Key: "topic", Value: jobs.Name()},
		{Key: "eventCreatedAt", Value: longAgo}, {Key: "status", Value: status}, {Key: "createdAt", Value: longAgo}, {Key: "updatedAt", Value: longAgo},
	}, extra...)
}

// attempt makes a history record for it. TypeScript stores numbers as doubles or 32-bit integers.
func attempt(id string, n int32, status string, extra ...bson.E) bson.D {
	return append(bson.D{
		{Key: "_id", Value: fmt.Sprint("h-", id, "-", n)}, {Key: "deliveryId", Value: "d-" + id}, {Key: "eventId", Value: id},
		{Key: "consumerGroup", Value: "a"}, {Key: "topic", Value: jobs.Name()}, {Key: "attempt", Value: n}, {Key: "status", Value: status},
		{Key: "createdAt", Value: longAgo}, {Key: "nextAttemptAt", Value: longAgo},
	}, extra...)
}

func failed(code string) []bson.E {
	return []bson.E{
		{Key: "error", Value: bson.D{{Key: "code", Value: code}, {Key: "name", Value: "Error"}, {Key: "message", Value: "x"}}},
		{Key: "endedAt", Value: longAgo},
	}
}

var (
	sequenced = bson.E{Key: "sequence", Value: bson.Timestamp{}} // the server stamps it
	lockedFor = []bson.E{
		{Key: "lockToken", Value: "dead"}, {Key: "lockOwner", Value: "dead"}, {Key: "startedAt", Value: longAgo},
		{Key: "lockedAt", Value: longAgo}, {Key: "lockedUntil", Value: longAgo},
	}
)

func TestConformanceRecovery(t *testing.T) {
	perform(t, "06 ids are UUIDv7, and a running attempt shows as active", func(s *stage) {
		eng, seen := s.engine(s.settings("a")), s.calls()
		release := false
		s.subscribe(eng, earliest, seen.handlerThat(func(ctx context.Context, _ engine.Event[string]) error {
			for done := false; !done; seen.note(func() { done = release }) {
				if err := s.pause(ctx, 10*time.Millisecond); err != nil {
					return err
				}
			}
			return nil
		}))
		s.publish(eng, "x")
		s.until("the call", func() bool { return seen.number() == 1 })
		page, err := eng.History(s.ctx, engine.HistoryQuery{ConsumerGroup: "a", LockState: engine.LockActive})
		if err != nil || len(page.Attempts) != 1 {
			s.Fatalf("active: %v, %v", page, err)
		}
		active := page.Attempts[0]
		for _, id := range []string{active.ID, active.DeliveryID, active.EventID, active.LockOwner, active.LockToken} {
			if parsed, err := uuid.Parse(id); err != nil || parsed.Version() != 7 {
				s.Errorf("%q is no UUIDv7: %v", id, err)
			}
		}
		s.want("lock state", active.LockState, engine.LockActive)
		seen.note(func() { release = true })
		s.until("success", func() bool { return s.count("deliveries", having("success")) == 1 })
	})
	perform(t, "07 events expire by their retention, or never", func(s *stage) {
		options := s.settings("a")
		options.EventRetention = 100 * time.Millisecond
		expiring, keeping := s.engine(options), s.engine(s.settings("b"))
		gone, kept := s.publish(expiring, "gone")[0], s.publish(keeping, "kept")[0]
		s.until("the first to expire", func() bool {
			s.expire()
			return s.count("events", bson.D{{Key: "_id", Value: gone}}) == 0
		})
		found := s.find("events", bson.D{{Key: "_id", Value: kept}})
		if len(found) != 1 || document.Has(found[0], "expiresAt") {
			s.Errorf("the other: %v", found)
		}
	})
	perform(t, "16 a success that was recorded ends the delivery without a call", func(s *stage) {
		s.insertTorn(event("e", "x", sequenced), delivery("e", "pending"), attempt("e", 1, "success", bson.E{Key: "endedAt", Value: longAgo}))
		eng, seen := s.engine(s.settings("a")), s.calls()
		s.subscribe(eng, earliest, seen.handler(0))
		s.until("success", func() bool { return s.count("deliveries", having("success")) == 1 })
		s.want("calls", seen.list(), "")
	})
	perform(t, "18 of two subscriptions at once one succeeds", func(s *stage) {
		eng := s.engine(s.settings("a"))
		results := make(chan error, 2)
		done := 0
		for range 2 {
			s.background(func(ctx context.Context) {
				_, err := jobs.Subscribe(ctx, eng, earliest, s.calls().handler(0))
				results <- err
				s.lock.Lock()
				done++
				s.lock.Unlock()
			})
		}
		s.until("both", func() bool { s.lock.Lock(); defer s.lock.Unlock(); return done == 2 })
		first, second := <-results, <-results
		if (first == nil) == (second == nil) || !errors.Is(errors.Join(first, second), engine.ErrConfiguration) {
			s.Errorf("got %v and %v", first, second)
		}
		s.want("subscriptions", s.count("subscriptions", nil), 1)
	})
	perform(t, "21 closing keeps the lease of a running handler", func(s *stage) {
		options := s.settings("a")
		options.LockTimeout = 90 * time.Millisecond * s.scale()
		seen, other := s.calls(), s.calls()
		closing, staying := s.engine(options), s.engine(options)
		s.subscribe(closing, concurrent, seen.handler(320*time.Millisecond*s.scale()))
		s.publish(closing, "x")
		s.until("the call", func() bool { return seen.number() == 1 })
		s.subscribe(staying, concurrent, other.handler(0))
		if err := closing.Close(s.ctx); err != nil {
			s.Error(err)
		}
		s.want("calls of the other", other.list(), "")
		s.want("attempts", s.outcomes(nil), "1 success")
	})
	perform(t, "22 a handler may close its own engine", func(s *stage) {
		eng, seen := s.engine(s.settings("a")), s.calls()
		s.subscribe(eng, earliest, seen.handlerThat(func(ctx context.Context, _ engine.Event[string]) error { return eng.Close(ctx) }))
		s.publish(eng, "x")
		s.until("success", func() bool { return s.count("deliveries", having("success")) == 1 })
		if err := eng.Close(s.ctx); err != nil {
			s.Error(err)
		}
		s.want("attempts", s.outcomes(nil), "1 success")
	})
	perform(t, "23 many may close at once, and what is left is another's", func(s *stage) {
		options := s.settings("a")
		options.LockTimeout = 120 * time.Millisecond * s.scale()
		first, seen := s.engine(options), s.calls()
		release := false
		s.subscribe(first, concurrent, seen.handlerThat(func(ctx context.Context, _ engine.Event[string]) error {
			for open := false; !open; seen.note(func() { open = release }) {
				if err := s.pause(ctx, 10*time.Millisecond); err != nil {
					return err
				}
			}
			return nil
		}))
		for n := range 50 {
			s.publish(first, fmt.Sprint(n, "-"))
		}
		s.until("four that run", func() bool { return seen.number() == 4 })
		closed := 0
		for range 20 {
			s.background(func(ctx context.Context) {
				if err := first.Close(ctx); err != nil {
					s.Error(err)
				}
				seen.note(func() { closed++ })
			})
		}
		_ = s.pause(s.ctx, 500*time.Millisecond)
		seen.note(func() { s.want("closed while handlers run", closed, 0); release = true })
		s.until("all to close", func() (all bool) { seen.note(func() { all = closed == 20 }); return all })
		s.want("most at once", seen.peak, 4)
		second := s.engine(options)
		s.subscribe(second, concurrent, seen.handler(0))
		s.until("the rest", func() bool { return s.count("deliveries", having("success")) == 50 })
		s.want("calls", seen.number(), 50)
	})
	perform(t, "25 attempts expire when their delivery has ended, all at one date", func(s *stage) {
		options := s.settings("a")
		options.HistoryRetention = 500 * time.Millisecond
		eng, seen := s.engine(options), s.calls()
		slow := with(earliest, func(o *engine.SubscribeOptions) { o.RetryDelay = 2 * time.Second })
		s.subscribe(eng, slow, seen.handlerThat(func(_ context.Context, event engine.Event[string]) error {
			if event.Attempt == 1 {
				return errors.New("once")
			}
			return nil
		}))
		s.publish(eng, "x")
		s.until("the failure", func() bool { return s.count("history", having("error")) == 1 })
		_ = s.pause(s.ctx, time.Second)
		s.expire()
		for _, found := range s.find("history", nil) {
			if document.Has(found, "expiresAt") {
				s.Errorf("expires while its delivery is pending: %v", found)
			}
		}
		s.want("attempts", s.count("history", nil), 2)
		var dates []any
		s.until("dates", func() bool {
			dates = nil
			for _, found := range append(s.find("history", nil), s.find("deliveries", nil)...) {
				if date := document.Get(found, "expiresAt"); date != nil {
					dates = append(dates, date)
				}
			}
			return len(dates) == 3
		})
		if dates[0] != dates[1] || dates[1] != dates[2] {
			s.Errorf("dates: %v", dates)
		}
		s.until("all rows to go", func() bool {
			s.expire()
			return s.count("history", nil)+s.count("deliveries", nil) == 0
		})
	})
	perform(t, "26 an ended delivery without dates gets them", func(s *stage) {
		s.insertTorn(nil, delivery("e", "success", bson.E{Key: "endedAt", Value: longAgo}), attempt("e", 1, "success"))
		options := s.settings("a")
		options.HistoryRetention = 365 * 24 * time.Hour
		eng := s.engine(options)
		s.subscribe(eng, earliest, s.calls().handler(0))
		date := longAgo + bson.DateTime((365 * 24 * time.Hour).Milliseconds())
		dated := bson.D{{Key: "expiresAt", Value: date}}
		s.until("dates", func() bool { return s.count("deliveries", dated) == 1 && s.count("history", dated) == 1 })
	})
	perform(t, "27 a delivery without its attempt gets one", func(s *stage) {
		s.insertTorn(event("e", "x", sequenced), delivery("e", "pending"))
		seen := s.calls()
		for range 2 {
			s.subscribe(s.engine(s.settings("a")), earliest, seen.handler(0))
		}
		s.until("success", func() bool { return s.count("deliveries", having("success")) == 1 })
		s.want("calls", seen.list(), "x1")
		s.want("attempts", s.outcomes(nil), "1 success")
	})
	perform(t, "28 a failure without its retry gets exactly the next", func(s *stage) {
		s.insertTorn(event("e", "x", sequenced), delivery("e", "pending"), attempt("e", 1, "error", failed("handler_error")...))
		seen := s.calls()
		for range 2 {
			s.subscribe(s.engine(s.settings("a")), earliest, seen.handler(0))
		}
		s.until("success", func() bool { return s.count("deliveries", having("success")) == 1 })
		s.want("calls", seen.list(), "x2")
		s.want("attempts", s.outcomes(nil), "1 handler_error, 2 success")
	})
	perform(t, "29 a retry outlives the restart of all consumers", func(s *stage) {
		options := s.settings("a")
		options.HistoryRetention = time.Second
		slow := with(earliest, func(o *engine.SubscribeOptions) { o.RetryDelay = 500 * time.Millisecond })
		first, before := s.engine(options), s.calls()
		s.subscribe(first, slow, before.handlerThat(func(context.Context, engine.Event[string]) error { return errors.New("once") }))
		s.publish(first, "x")
		s.until("the failure", func() bool { return s.count("history", having("error")) == 1 })
		if err := first.Close(s.ctx); err != nil {
			s.Error(err)
		}
		_ = s.pause(s.ctx, 1200*time.Millisecond)
		s.expire()
		second, after := s.engine(options), s.calls()
		s.subscribe(second, slow, after.handler(0))
		s.until("the second attempt", func() bool { return after.number() == 1 })
		s.want("calls", before.list()+" "+after.list(), "x1 x2")
	})
	perform(t, "34 forty-eight torn deliveries converge", func(s *stage) {
		for n := range 8 {
			name := func(kind string) string { return fmt.Sprint(kind, n) }
			id := name("bare")
			s.insertTorn(event(id, id+"-", sequenced), delivery(id, "pending"))
			id = name("done")
			s.insertTorn(event(id, id+"-", sequenced), delivery(id, "pending"), attempt(id, 1, "success", bson.E{Key: "endedAt", Value: longAgo}))
			id = name("failed")
			s.insertTorn(event(id, id+"-", sequenced), delivery(id, "pending"), attempt(id, 1, "error", failed("handler_error")...))
			id = name("lost")
			s.insertTorn(event(id, id+"-", sequenced), delivery(id, "pending"), attempt(id, 1, "pending", lockedFor...))
			id = name("exhausted")
			s.insertTorn(event(id, id+"-", sequenced), delivery(id, "pending"), attempt(id, 4, "error", failed("handler_error")...))
			id = name("gone")
			s.insertTorn(nil, delivery(id, "pending"), attempt(id, 1, "pending"))
		}
		options := s.settings("a")
		options.LockTimeout, options.Workers = 150*time.Millisecond*s.scale(), 3
		seen := s.calls()
		for range 6 {
			s.subscribe(s.engine(options), with(concurrent, func(o *engine.SubscribeOptions) { o.RetryDelay = 10 * time.Millisecond }), seen.handler(0))
		}
		s.until("all to end", func() bool { return s.count("deliveries", having("pending")) == 0 })
		s.want("successes", s.count("deliveries", having("success")), 32)
		s.want("errors", s.count("deliveries", having("error")), 16)
		code := func(code string) bson.D { return bson.D{{Key: "error.code", Value: code}} }
		s.want("worker_lost", s.count("history", code(engine.CodeWorkerLost)), 8)
		s.want("event_expired", s.count("history", code(engine.CodeEventExpired)), 8)
		var want []string
		for n := range 8 {
			want = append(want, fmt.Sprint("bare", n, "-1"), fmt.Sprint("failed", n, "-2"), fmt.Sprint("lost", n, "-2"))
		}
		got := strings.Fields(seen.list())
		slices.Sort(got)
		slices.Sort(want)
		s.want("calls", got, want)
	})
	perform(t, "35 an event that is gone ends its delivery without a call", func(s *stage) {
		s.insertTorn(nil, delivery("e", "pending"), attempt("e", 1, "pending"))
		eng, seen := s.engine(s.settings("a")), s.calls()
		s.subscribe(eng, with(earliest, func(o *engine.SubscribeOptions) { o.MaxRetries = 5 }), seen.handler(0))
		s.until("the end", func() bool { return s.count("deliveries", having("error")) == 1 })
		s.want("calls", seen.list(), "")
		s.want("attempts", s.outcomes(nil), "1 event_expired")
		failure, _ := document.Get(s.find("deliveries", nil)[0], "error").(bson.D)
		s.want("the delivery's code", document.Text(failure, "code"), engine.CodeEventExpired)
	})
}

// insertTorn stores what a crash left behind; an event of nil has expired.
func (s *stage) insertTorn(event, delivery bson.D, attempts ...bson.D) {
	s.Helper()
	if event != nil {
		s.insert("events", event)
	}
	s.insert("deliveries", delivery)
	if len(attempts) > 0 {
		s.insert("history", attempts...)
	}
}

// TestConformance14 is for real time only: scenario crash-during-handler is its virtual twin.
func TestConformance14AnotherWorkerTakesOverFromOneThatWasKilled(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	platform := newReal(t)
	defer platform.close()
	s := &stage{platform: platform, T: t, ctx: ctx}
	options := s.settings("a")
	options.LockTimeout = 200 * time.Millisecond * s.scale()
	dying, seen := &mortal{Store: s.store()}, s.calls()
	doomed, rescuer := options, s.engine(options)
	doomed.Store = dying
	recovered := with(concurrent, func(o *engine.SubscribeOptions) { o.RetryDelay = 10 * time.Millisecond })
	s.subscribe(s.engine(doomed), recovered, seen.handlerThat(func(ctx context.Context, event engine.Event[string]) error {
		dying.kill()
		<-ctx.Done() // the dead do not return
		return ctx.Err()
	}))
	s.publish(rescuer, "x")
	s.until("the call", func() bool { return seen.number() == 1 })
	s.subscribe(rescuer, recovered, seen.handler(0))
	s.until("success", func() bool { return s.count("deliveries", having("success")) == 1 })
	s.want("calls", seen.list(), "x1 x2")
	s.want("attempts", s.outcomes(nil), "1 worker_lost, 2 success")
}
