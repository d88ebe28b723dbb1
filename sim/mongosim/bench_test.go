package mongosim

import (
	"fmt"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/fencepost-sim/fencepost/engine/store"
)

// history fills a collection like the engine's history of attempts, with its six indexes.
func history(b *testing.B, documents int) *Server {
	s := New(Options{Seed: 1})
	ttl := int32(0)
	run(b, s, store.Command{Kind: store.CreateIndexes, Collection: "c", Indexes: []store.Index{
		{Name: "attempt", Keys: doc("deliveryId", int32(1), "attempt", int32(1)), Unique: true},
		{Name: "created", Keys: doc("consumerGroup", int32(1), "topic", int32(1), "createdAt", int32(-1), "_id", int32(-1))},
		{Name: "event", Keys: doc("eventId", int32(1), "createdAt", int32(-1))},
		{Name: "locks", Keys: doc("status", int32(1), "lockedUntil", int32(1))},
		{Name: "pending", Keys: doc("consumerGroup", int32(1), "topic", int32(1), "status", int32(1), "nextAttemptAt", int32(1), "createdAt", int32(1))},
		{Name: "ttl", Keys: doc("expiresAt", int32(1)), ExpireAfterSeconds: &ttl},
	}})
	for i := range documents {
		insert(b, s, attempt(i))
	}
	return s
}

func attempt(i int) bson.D {
	at := bson.DateTime(1700000000000 + i)
	return bson.D{
		{Key: "_id", Value: fmt.Sprintf("attempt-%08d", i)},
		{Key: "deliveryId", Value: fmt.Sprintf("delivery-%08d", i)},
		{Key: "eventId", Value: fmt.Sprintf("event-%08d", i)},
		{Key: "consumerGroup", Value: "group"},
		{Key: "topic", Value: "orders"},
		{Key: "attempt", Value: int64(1)},
		{Key: "status", Value: "pending"},
		{Key: "createdAt", Value: at},
		{Key: "nextAttemptAt", Value: at},
	}
}

func repeat(b *testing.B, s *Server, command func(i int) store.Command) {
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		if _, err := s.Run(noon, "db", command(i)); err != nil {
			b.Fatal(err)
		}
		i++
	}
}

var sizes = []int{8, 10000}

func eachSize(b *testing.B, f func(b *testing.B, s *Server, ids []string)) {
	for _, n := range sizes {
		ids := make([]string, n)
		for i := range ids {
			ids[i] = fmt.Sprintf("attempt-%08d", i)
		}
		b.Run(fmt.Sprint(n), func(b *testing.B) { f(b, history(b, n), ids) })
	}
}

func BenchmarkNew(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		New(Options{Seed: 1})
	}
}

func BenchmarkFindByID(b *testing.B) {
	eachSize(b, func(b *testing.B, s *Server, ids []string) {
		repeat(b, s, func(i int) store.Command {
			return store.Command{Kind: store.Find, Collection: "c", Filter: bson.D{{Key: "_id", Value: ids[i%len(ids)]}}, Limit: 1}
		})
	})
}

func BenchmarkFindByUniqueKey(b *testing.B) {
	eachSize(b, func(b *testing.B, s *Server, ids []string) {
		keys := make([]string, len(ids))
		for i := range keys {
			keys[i] = fmt.Sprintf("delivery-%08d", i)
		}
		repeat(b, s, func(i int) store.Command {
			return store.Command{Kind: store.Find, Collection: "c", Limit: 1, Filter: bson.D{
				{Key: "deliveryId", Value: keys[i%len(keys)]}, {Key: "attempt", Value: int64(1)}}}
		})
	})
}

func BenchmarkUpdateByID(b *testing.B) {
	eachSize(b, func(b *testing.B, s *Server, ids []string) {
		repeat(b, s, func(i int) store.Command {
			return store.Command{Kind: store.Update, Collection: "c",
				Filter: bson.D{{Key: "_id", Value: ids[i%len(ids)]}, {Key: "status", Value: "pending"}},
				Update: bson.D{{Key: "$inc", Value: bson.D{{Key: "attempt", Value: int64(1)}}}, {Key: "$set", Value: bson.D{{Key: "lockToken", Value: "t"}}}}}
		})
	})
}

// BenchmarkSetByID is an update of one document by its _id that no other index has to follow.
func BenchmarkSetByID(b *testing.B) {
	eachSize(b, func(b *testing.B, s *Server, ids []string) {
		repeat(b, s, func(i int) store.Command {
			return store.Command{Kind: store.Update, Collection: "c",
				Filter: bson.D{{Key: "_id", Value: ids[i%len(ids)]}}, Update: bson.D{{Key: "$set", Value: bson.D{{Key: "lockToken", Value: i}}}}}
		})
	})
}

func BenchmarkHeartbeat(b *testing.B) {
	eachSize(b, func(b *testing.B, s *Server, ids []string) {
		repeat(b, s, func(i int) store.Command {
			return store.Command{Kind: store.FindAndModify, Collection: "c",
				Filter: bson.D{{Key: "_id", Value: ids[i%len(ids)]}, {Key: "status", Value: "pending"}},
				Pipeline: []bson.D{{{Key: "$set", Value: bson.D{{Key: "lockedUntil", Value: bson.D{{Key: "$max", Value: bson.A{
					"$lockedUntil", bson.D{{Key: "$add", Value: bson.A{"$$NOW", int64(i)}}}}}}}}}}}}
		})
	})
}

// The claim of the oldest due attempt, which moves it to the end of the queue.
func BenchmarkClaimOldestDue(b *testing.B) {
	eachSize(b, func(b *testing.B, s *Server, _ []string) {
		repeat(b, s, func(i int) store.Command {
			return store.Command{Kind: store.FindAndModify, Collection: "c",
				Filter: bson.D{{Key: "consumerGroup", Value: "group"}, {Key: "topic", Value: "orders"}, {Key: "status", Value: "pending"},
					{Key: "$expr", Value: bson.D{{Key: "$lte", Value: bson.A{"$nextAttemptAt", "$$NOW"}}}}},
				Sort:   bson.D{{Key: "nextAttemptAt", Value: int32(1)}, {Key: "createdAt", Value: int32(1)}},
				Update: bson.D{{Key: "$set", Value: bson.D{{Key: "nextAttemptAt", Value: bson.DateTime(1701000000000 + i)}}}}}
		})
	})
}

func BenchmarkInsertAndDelete(b *testing.B) {
	eachSize(b, func(b *testing.B, s *Server, ids []string) {
		document := attempt(1 << 20)
		repeat(b, s, func(i int) store.Command {
			if i%2 == 0 {
				return store.Command{Kind: store.Insert, Collection: "c", Documents: []bson.D{document}}
			}
			return store.Command{Kind: store.Delete, Collection: "c", Filter: document[:1]}
		})
	})
}

func BenchmarkScanOfAnOrderedPage(b *testing.B) {
	eachSize(b, func(b *testing.B, s *Server, _ []string) {
		repeat(b, s, func(i int) store.Command {
			from := bson.DateTime(1700000000000 + i%5000)
			return store.Command{Kind: store.Find, Collection: "c", Limit: 10,
				Filter: bson.D{{Key: "consumerGroup", Value: "group"}, {Key: "topic", Value: "orders"}, {Key: "$or", Value: bson.A{
					bson.D{{Key: "createdAt", Value: bson.D{{Key: "$lt", Value: from}}}},
					bson.D{{Key: "createdAt", Value: from}, {Key: "_id", Value: bson.D{{Key: "$lt", Value: "attempt-00000005"}}}}}}},
				Sort: bson.D{{Key: "createdAt", Value: int32(-1)}, {Key: "_id", Value: int32(-1)}}}
		})
	})
}
