package mongosim

import (
	"errors"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/fencepost-sim/fencepost/engine/store"
)

// noon is the server's wall clock in most tests.
var noon = time.Date(2024, 5, 1, 12, 0, 0, 0, time.UTC)

type a = bson.A

// doc makes a document of alternating names and values.
func doc(parts ...any) bson.D {
	out := bson.D{}
	for i := 0; i < len(parts); i += 2 {
		out = append(out, bson.E{Key: parts[i].(string), Value: parts[i+1]})
	}
	return out
}

func run(t testing.TB, s *Server, command store.Command) store.Reply {
	t.Helper()
	reply, err := s.Run(noon, "db", command)
	if err != nil {
		t.Fatalf("%s: %v", command.Kind, err)
	}
	return reply
}

func fail(t testing.TB, s *Server, code int32, command store.Command) *store.Error {
	t.Helper()
	_, err := s.Run(noon, "db", command)
	var server *store.Error
	if !errors.As(err, &server) || server.Code != code {
		t.Fatalf("%s: got %v, want an error with code %d", command.Kind, err, code)
	}
	return server
}

func insert(t testing.TB, s *Server, documents ...bson.D) {
	t.Helper()
	run(t, s, store.Command{Kind: store.Insert, Collection: "c", Documents: documents})
}

func find(t testing.TB, s *Server, filter bson.D) []bson.D {
	t.Helper()
	return run(t, s, store.Command{Kind: store.Find, Collection: "c", Filter: filter}).Documents
}

func same(t testing.TB, got, want any) {
	t.Helper()
	if compare(canonical(t, got), canonical(t, want)) != 0 {
		t.Errorf("got %s, want %s", format(canonical(t, got)), format(canonical(t, want)))
	}
}

func canonical(t testing.TB, v any) any {
	t.Helper()
	if documents, ok := v.([]bson.D); ok {
		out := bson.A{}
		for _, document := range documents {
			out = append(out, document)
		}
		v = out
	}
	out, _, err := normalize(v)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestWhatIsInsertedIsFound(t *testing.T) {
	s := New(Options{})
	insert(t, s, doc("x", 1, "_id", "a"), doc("_id", "b", "x", int64(2)))
	same(t, find(t, s, doc("x", doc("$gte", 1.5))), []bson.D{doc("_id", "b", "x", int64(2))})
	same(t, find(t, s, doc("_id", "a")), []bson.D{doc("_id", "a", "x", 1)})
}

func TestLeaseIsTakenByOneOnly(t *testing.T) {
	s := New(Options{})
	insert(t, s, doc("_id", "s"))
	lease := store.Command{
		Kind: store.FindAndModify, Collection: "c",
		Filter:   doc("_id", "s", "$expr", doc("$lte", a{"$until", "$$NOW"})),
		Pipeline: []bson.D{doc("$set", doc("until", doc("$add", a{"$$NOW", int64(1000)}), "token", "t1"))},
	}
	same(t, run(t, s, lease).Document, doc("_id", "s", "until", noon.Add(time.Second), "token", "t1"))
	if got := run(t, s, lease).Document; got != nil {
		t.Fatalf("the lease was taken twice: %s", format(got))
	}
	reply, err := s.Run(noon.Add(time.Second), "db", lease)
	if err != nil || reply.Document == nil {
		t.Fatalf("an expired lease was not taken: %v", err)
	}
}

func TestPublishingUpsertIsStampedByTheServer(t *testing.T) {
	s := New(Options{})
	publish := store.Command{
		Kind: store.Update, Collection: "c", Upsert: true,
		Filter: doc("_id", "e", "sequence", doc("$exists", false)),
		Update: doc("$setOnInsert", doc("topic", "t"), "$currentDate", doc("sequence", doc("$type", "timestamp"))),
	}
	if got := run(t, s, publish).Upserted; got != "e" {
		t.Fatalf("upserted %v", got)
	}
	same(t, s.Documents("db", "c"), []bson.D{doc("_id", "e", "sequence", bson.Timestamp{T: uint32(noon.Unix()), I: 1}, "topic", "t")})
	fail(t, s, codeDuplicateKey, publish)
}

func TestDuplicateKeyErrorNamesIndexAndValue(t *testing.T) {
	s := New(Options{})
	run(t, s, store.Command{Kind: store.CreateIndexes, Collection: "c", Indexes: []store.Index{
		{Name: "pair", Keys: doc("a", 1, "b", -1), Unique: true},
	}})
	insert(t, s, doc("_id", 1, "a", "x"))
	err := fail(t, s, codeDuplicateKey, store.Command{Kind: store.Insert, Collection: "c", Documents: []bson.D{doc("_id", 2, "a", "x", "b", nil)}})
	if want := `E11000 duplicate key error collection: db.c index: pair dup key: { a: "x", b: null }`; err.Message != want {
		t.Errorf("got %s", err.Message)
	}
	same(t, err.KeyPattern, doc("a", 1, "b", -1))
	same(t, err.KeyValue, doc("a", "x", "b", nil))
}
