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
	"github.com/fencepost-sim/fencepost/engine/store"
	"github.com/fencepost-sim/fencepost/internal/document"
)

func TestConformanceReplicas(t *testing.T) {
	perform(t, "03 replicas that start together create every index, and what was dropped comes back", func(s *stage) {
		opened := 0
		for range 2 {
			s.background(func(ctx context.Context) {
				if _, err := s.open(ctx, s.settings("a")); err != nil {
					s.Error(err)
				}
				s.lock.Lock()
				opened++
				s.lock.Unlock()
			})
		}
		s.until("both", func() bool { s.lock.Lock(); defer s.lock.Unlock(); return opened == 2 })
		all := s.indexes()
		s.want("indexes", len(all), 16) // Pulse's 15, and ours of the sequence
		s.dropIndex("events", "pulse_events_topic_sequence_id")
		s.dropIndex("history", "pulse_history_dead_locks")
		s.want("after dropping", len(s.indexes()), 14)
		s.engine(s.settings("a"))
		s.want("after the next start", strings.Join(s.indexes(), " "), strings.Join(all, " "))
	})
	perform(t, "30 one event for twenty-four groups", func(s *stage) {
		seen := s.calls()
		var publisher *engine.Engine
		for n := range 24 {
			options := s.settings(fmt.Sprint("group-", n))
			options.Workers = 1
			publisher = s.engine(options)
			s.subscribe(publisher, concurrent, seen.handler(0))
		}
		s.publish(publisher, "x")
		s.until("all", func() bool { return s.count("deliveries", having("success")) == 24 })
		s.want("calls", seen.number(), 24)
		s.want("attempts", s.count("history", having("success")), 24)
	})
	perform(t, "31 six replicas keep an ordered topic in order", func(s *stage) {
		options := s.settings("a")
		options.LockTimeout = 120 * time.Millisecond * s.scale()
		seen := s.calls()
		var publisher *engine.Engine
		for range 6 {
			publisher = s.engine(options)
			s.subscribe(publisher, earliest, seen.handler(4*time.Millisecond))
		}
		var want []string
		for n := range 100 {
			s.publish(publisher, fmt.Sprint(n, "-"))
			want = append(want, fmt.Sprint(n, "-1"))
		}
		s.until("hundred", func() bool { return s.count("deliveries", having("success")) == 100 })
		s.want("most at once", seen.peak, 1)
		s.want("calls", seen.list(), strings.Join(want, " "))
	})
	perform(t, "32 who disagrees on the policy is refused, and the others go on", func(s *stage) {
		first, second, seen := s.engine(s.settings("a")), s.engine(s.settings("a")), s.calls()
		s.subscribe(first, earliest, seen.handler(0))
		if _, err := jobs.Subscribe(s.ctx, second, concurrent, seen.handler(0)); !errors.Is(err, engine.ErrConfiguration) {
			s.Errorf("got %v", err)
		}
		s.publish(second, "x")
		s.until("success", func() bool { return s.count("deliveries", having("success")) == 1 })
		s.want("calls", seen.list(), "x1")
	})
	perform(t, "36 the unique keys refuse duplicates", func(s *stage) {
		s.subscribe(s.engine(s.settings("a")), earliest, s.calls().handler(0))
		s.insertTorn(nil, delivery("e", "success"), attempt("e", 1, "success"))
		twin := func(d bson.D) bson.D {
			return append(bson.D{{Key: "_id", Value: "another"}}, d[1:]...)
		}
		for collection, duplicate := range map[string]bson.D{
			"subscriptions": {{Key: "_id", Value: "another"}, {Key: "consumerGroup", Value: "a"}, {Key: "topic", Value: jobs.Name()}},
			"deliveries":    twin(delivery("e", "success")),
			"history":       twin(attempt("e", 1, "success")),
		} {
			_, err := s.store().Run(s.ctx, store.Command{
				Kind: store.Insert, Collection: "orionjs.pulse." + collection, Documents: []bson.D{duplicate},
			})
			if !store.IsDuplicateKey(err) {
				s.Errorf("%s: %v", collection, err)
			}
		}
	})
	perform(t, "37 duplicates that are there before the start are named", func(s *stage) {
		for _, id := range []string{"one", "two"} {
			s.insert("subscriptions", bson.D{{Key: "_id", Value: id}, {Key: "consumerGroup", Value: "a"}, {Key: "topic", Value: "t"}})
		}
		_, err := s.open(s.ctx, s.settings("a"))
		var wrong *engine.IndexError
		if !errors.As(err, &wrong) {
			s.Fatalf("got %v, want an IndexError", err)
		}
		s.want("collection", wrong.Collection, "orionjs.pulse.subscriptions")
		if !strings.Contains(wrong.Index, "pulse_subscriptions_group_topic_unique") {
			s.Errorf("the index is said to be %s", wrong.Index)
		}
		if !strings.Contains(err.Error(), "dup key") {
			s.Errorf("%v does not tell the duplicate", err)
		}
	})
	perform(t, "38 twelve replicas that subscribe together share one subscription", func(s *stage) {
		done := 0
		for range 12 {
			eng := s.engine(s.settings("a"))
			s.background(func(ctx context.Context) {
				if _, err := jobs.Subscribe(ctx, eng, earliest, s.calls().handler(0)); err != nil {
					s.Error(err)
				}
				s.lock.Lock()
				done++
				s.lock.Unlock()
			})
		}
		s.until("all", func() bool { s.lock.Lock(); defer s.lock.Unlock(); return done == 12 })
		s.want("subscriptions", s.count("subscriptions", nil), 1)
	})
	perform(t, "40 five hundred events from eight replicas: each once", func(s *stage) {
		options := s.settings("a")
		options.Workers, options.PollInterval = 2, 10*time.Millisecond
		options.LockTimeout = 2 * time.Second * s.scale()
		seen := s.calls()
		published := 0
		for n := range 8 {
			eng := s.engine(options)
			s.subscribe(eng, concurrent, seen.handler(0))
			s.background(func(ctx context.Context) {
				for i := n; i < 500; i += 8 {
					if _, err := jobs.Publish(ctx, eng, fmt.Sprint(i, "-")); err != nil {
						s.Error(err)
					}
				}
				s.lock.Lock()
				published++
				s.lock.Unlock()
			})
		}
		s.until("all published", func() bool { s.lock.Lock(); defer s.lock.Unlock(); return published == 8 })
		s.until("all delivered", func() bool { return s.count("deliveries", having("success")) == 500 })
		s.want("calls", seen.number(), 500)
		stamps := map[any]bool{}
		for _, event := range s.find("events", nil) {
			stamps[document.Get(event, "sequence")] = true
		}
		s.want("distinct sequences", len(stamps), 500)
	})
}

// indexes lists the engine's indexes, as collection and name.
func (s *stage) indexes() (names []string) {
	s.Helper()
	for _, collection := range []string{"events", "subscriptions", "deliveries", "history"} {
		reply, err := s.store().Run(s.ctx, store.Command{Kind: store.ListIndexes, Collection: "orionjs.pulse." + collection})
		if err != nil {
			s.Fatal(err)
		}
		for _, index := range reply.Documents {
			if name := document.Text(index, "name"); name != "_id_" {
				names = append(names, collection+"/"+name)
			}
		}
	}
	slices.Sort(names)
	return names
}
