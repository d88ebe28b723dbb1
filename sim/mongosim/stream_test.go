package mongosim

import (
	"errors"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/fencepost-sim/fencepost/engine/store"
)

func watch(t testing.TB, s *Server, w store.Watch) *Stream {
	t.Helper()
	w.Collection = "c"
	st, err := s.OpenStream("db", w)
	if err != nil {
		t.Fatal(err)
	}
	return st
}

func next(t testing.TB, st *Stream) store.Change {
	t.Helper()
	change, available, err := st.Next()
	if err != nil || !available {
		t.Fatalf("no change: %v", err)
	}
	return change
}

func nothing(t testing.TB, st *Stream) {
	t.Helper()
	if change, available, err := st.Next(); available || err != nil {
		t.Fatalf("a change too many: %+v %v", change, err)
	}
}

func code(err error) int32 {
	var server *store.Error
	errors.As(err, &server)
	if server == nil {
		return 0
	}
	return server.Code
}

// Source: manual, "Change Streams" and "Change Events".
func TestStreamsShowWhatHappensAfterTheyOpen(t *testing.T) {
	s := New(Options{})
	insert(t, s, doc("_id", 0))
	st := watch(t, s, store.Watch{})
	nothing(t, st)
	insert(t, s, doc("_id", 1, "x", 1))
	run(t, s, updateOne(doc("_id", 1), doc("$set", doc("x", 2))))
	run(t, s, updateOne(doc("_id", 1), doc("$set", doc("x", 2)))) // changes nothing
	run(t, s, updateOne(doc("_id", 1), doc("y", 2)))
	run(t, s, store.Command{Kind: store.Insert, Collection: "other", Documents: []bson.D{doc("_id", 1)}})
	run(t, s, store.Command{Kind: store.Delete, Collection: "c", Filter: doc("_id", 1)})
	for _, want := range []struct {
		operation string
		document  bson.D
	}{{"insert", doc("_id", 1, "x", 1)}, {"update", nil}, {"replace", doc("_id", 1, "y", 2)}, {"delete", nil}} {
		change := next(t, st)
		same(t, change.Key, doc("_id", 1))
		if change.Operation != want.operation || (change.Document == nil) != (want.document == nil) {
			t.Fatalf("got %+v, want %+v", change, want)
		}
		same(t, change.Document, want.document)
	}
	nothing(t, st)
}

func TestStreamsFilterOnTheServer(t *testing.T) {
	s := New(Options{})
	pipeline := []bson.D{doc("$match", doc("operationType", doc("$in", a{"insert", "update"}), "$or", a{
		doc("fullDocument.topic", "a"), doc("updateDescription.updatedFields.topic", "a")}))}
	st := watch(t, s, store.Watch{Pipeline: pipeline})
	insert(t, s, doc("_id", 1, "topic", "b"), doc("_id", 2, "topic", "a"))
	run(t, s, updateOne(doc("_id", 1), doc("$set", doc("topic", "a"))))
	same(t, next(t, st).Key, doc("_id", 2))
	same(t, next(t, st).Key, doc("_id", 1))
	nothing(t, st)
}

func TestStreamsResumeAfterATokenWithoutGapOrRepetition(t *testing.T) {
	s := New(Options{})
	first := watch(t, s, store.Watch{})
	for i := range 5 {
		insert(t, s, doc("_id", i))
	}
	for i := range 5 {
		token := next(t, first).Token
		second := watch(t, s, store.Watch{ResumeAfter: token})
		for j := i + 1; j < 5; j++ {
			same(t, next(t, second).Key, doc("_id", j))
		}
		nothing(t, second)
	}
}

// Codes: manual, "Change Streams", and the change-streams specification of the drivers.
func TestStreamsFailWithMongoDBsCodes(t *testing.T) {
	s := New(Options{})
	st := watch(t, s, store.Watch{})
	insert(t, s, doc("_id", 1), doc("_id", 2), doc("_id", 3))
	token := next(t, st).Token
	for _, row := range []struct {
		server *Server
		watch  store.Watch
		code   int32
	}{
		{New(Options{Standalone: true}), store.Watch{}, 40573},
		{s, store.Watch{ResumeAfter: doc("_data", "82zz")}, codeInvalidResumeToken},
		{s, store.Watch{ResumeAfter: doc("x", 1)}, codeInvalidResumeToken},
		{s, store.Watch{Pipeline: []bson.D{doc("$foo", 1)}}, 40324},
		{s, store.Watch{Pipeline: []bson.D{doc("$sort", doc("x", 1))}}, codeIllegalOperation},
		{s, store.Watch{Pipeline: []bson.D{doc("$match", doc("$foo", 1))}}, codeBadValue},
	} {
		row.watch.Collection = "c"
		if _, err := row.server.OpenStream("db", row.watch); code(err) != row.code {
			t.Errorf("%+v: %v, want code %d", row.watch, err, row.code)
		}
	}
	s.ForgetHistory(s.OplogLen() - 1)
	if _, err := s.OpenStream("db", store.Watch{Collection: "c", ResumeAfter: token}); code(err) != codeHistoryLost {
		t.Errorf("an old token: %v", err)
	}
	if _, _, err := st.Next(); code(err) != codeHistoryLost {
		t.Errorf("a stream that fell behind: %v", err)
	}
	if len(s.OplogSince(0)) != 4 {
		t.Error("the history of the simulation is gone")
	}
}

func TestADropInvalidatesTheStream(t *testing.T) {
	s := New(Options{})
	insert(t, s, doc("_id", 1))
	st, filtered := watch(t, s, store.Watch{}), watch(t, s, store.Watch{Pipeline: []bson.D{doc("$match", doc("operationType", "insert"))}})
	for _, want := range []bool{true, false} {
		if _, existed, err := s.Drop(Caller{Now: noon}, "db", "c"); existed != want || err != nil {
			t.Fatalf("a drop says wrongly whether there was a collection: %v", err)
		}
	}
	if change := next(t, st); change.Operation != "drop" {
		t.Fatalf("got %+v", change)
	}
	last := next(t, st)
	if last.Operation != "invalidate" {
		t.Fatalf("got %+v", last)
	}
	for _, ended := range []*Stream{st, filtered} {
		if _, _, err := ended.Next(); !errors.Is(err, store.ErrStreamClosed) {
			t.Errorf("after the end: %v", err)
		}
	}
	if _, err := s.OpenStream("db", store.Watch{Collection: "c", ResumeAfter: last.Token}); code(err) != codeInvalidResumeToken {
		t.Errorf("resumed after an invalidate event: %v", err)
	}
	if len(s.Documents("db", "c")) != 0 {
		t.Error("the documents are still there")
	}
}

// Source: manual, "TTL Indexes".
func TestDocumentsExpireByTheServersClock(t *testing.T) {
	at := func(ms int64) any { return bson.NewDateTimeFromTime(noon) + bson.DateTime(ms) }
	for _, direction := range []int{1, -1} {
		s := New(Options{})
		if _, ok := s.NextExpiry(); ok {
			t.Error("an empty server has something to expire")
		}
		run(t, s, createIndexes(store.Index{Name: "ttl", Keys: doc("at", direction), ExpireAfterSeconds: seconds(10)}))
		insert(t, s, doc("_id", 1, "at", at(0)), doc("_id", 2, "at", at(1)), doc("_id", 3), doc("_id", 4, "at", nil), doc("_id", 5, "at", 5),
			doc("_id", 6, "at", a{at(60000), at(-5000)}), doc("_id", 7, "at", "2000-01-01"), doc("_id", 8, "at", a{1, 2}))
		if due, ok := s.NextExpiry(); !ok || !due.Equal(noon.Add(5*time.Second)) {
			t.Errorf("next expiry at %v", due)
		}
		for _, pass := range []struct{ after, deleted int }{{4999, 0}, {5000, 1}, {9999, 0}, {10000, 1}, {10001, 1}, {1 << 40, 0}} {
			if n := s.ExpireTTL(noon.Add(time.Duration(pass.after) * time.Millisecond)); n != pass.deleted {
				t.Errorf("after %d ms: %d expired", pass.after, n)
			}
		}
		if _, ok := s.NextExpiry(); ok || len(s.Documents("db", "c")) != 5 {
			t.Error("something is left to expire")
		}
		for _, entry := range s.OplogSince(s.OplogLen() - 3) {
			if entry.Operation != Delete || !entry.Expired || entry.Before == nil {
				t.Errorf("logged as %+v", entry)
			}
		}
	}
}

func TestTheLogicalClockNeverGoesBack(t *testing.T) {
	s := New(Options{})
	for i, now := range []time.Time{noon, noon, noon.Add(-time.Hour), noon.Add(time.Second), noon} {
		if _, err := s.Run(now, "db", store.Command{Kind: store.Insert, Collection: "c", Documents: []bson.D{
			doc("_id", i, "stamp", bson.Timestamp{}, "in", doc("stamp", bson.Timestamp{}))}}); err != nil {
			t.Fatal(err)
		}
	}
	entries := s.OplogSince(0)
	for i := 1; i < len(entries); i++ {
		if !entries[i].Time.After(entries[i-1].Time) {
			t.Errorf("entry %d is not later than the one before", i)
		}
	}
	var before bson.Timestamp
	for _, document := range s.Documents("db", "c") {
		stamp := get(document, "stamp").(bson.Timestamp)
		if !stamp.After(before) {
			t.Error("a stamp is not later than the one before")
		}
		before = stamp
		same(t, get(document, "in"), doc("stamp", bson.Timestamp{})) // only the top level is stamped
	}
}

// See gap.go.
func TestAReservedTimestampBecomesVisibleLate(t *testing.T) {
	s := New(Options{})
	publish := func(id string) store.Command {
		return store.Command{Kind: store.Update, Collection: "c", Upsert: true, Filter: doc("_id", id),
			Update: doc("$currentDate", doc("sequence", doc("$type", "timestamp")))}
	}
	early := s.Reserve(noon)
	run(t, s, publish("late start"))
	s.Stamped(early, func() { run(t, s, publish("early start")) })
	run(t, s, publish("last"))
	documents := s.Documents("db", "c")
	stamp := func(i int) bson.Timestamp { return get(documents[i], "sequence").(bson.Timestamp) }
	if !stamp(0).After(stamp(1)) || !stamp(2).After(stamp(0)) || stamp(1) != early {
		t.Errorf("stamps are %v, %v, %v", stamp(0), stamp(1), stamp(2))
	}
}

func TestHelloDescribesTheServer(t *testing.T) {
	for _, standalone := range []bool{false, true} {
		s := New(Options{Standalone: standalone})
		hello := run(t, s, store.Command{Kind: store.Hello}).Document
		same(t, get(hello, "localTime"), noon)
		same(t, get(hello, "isWritablePrimary"), true)
		if isMissing(get(hello, "setName")) != standalone {
			t.Errorf("setName is %v", get(hello, "setName"))
		}
	}
}

func TestUnorderedInsertsGoOn(t *testing.T) {
	s := New(Options{})
	documents := []bson.D{doc("_id", 1), doc("_id", 1), doc("_id", a{}), doc("_id", 2)}
	reply, err := s.Run(noon, "db", store.Command{Kind: store.Insert, Collection: "c", Documents: documents})
	var server *store.Error
	if !errors.As(err, &server) || server.Index != 1 || len(server.Others) != 0 || reply.Inserted != 1 {
		t.Errorf("ordered: %v, %d inserted", err, reply.Inserted)
	}
	reply, err = s.Run(noon, "db", store.Command{Kind: store.Insert, Collection: "d", Documents: documents, Unordered: true})
	if !errors.As(err, &server) || server.Index != 1 || len(server.Others) != 1 || server.Others[0].Index != 2 ||
		server.Others[0].Code != codeInvalidIDField || reply.Inserted != 2 {
		t.Errorf("unordered: %v, %d inserted", err, reply.Inserted)
	}
}

func TestServersMakeAnIDWhereThereIsNone(t *testing.T) {
	s, again := New(Options{Seed: 5}), New(Options{Seed: 5})
	for _, server := range []*Server{s, again} {
		insert(t, server, doc("x", 1), doc("x", 2))
	}
	documents := s.Documents("db", "c")
	if documents[0][0].Key != "_id" || documents[0][0].Value == documents[1][0].Value {
		t.Errorf("made %v", documents)
	}
	same(t, again.Documents("db", "c"), documents)
}

func TestUnknownCommandsAndNamesAreRefused(t *testing.T) {
	s := New(Options{})
	fail(t, s, codeCommandNotFound, store.Command{Kind: "foo", Collection: "c"})
	fail(t, s, codeInvalidNamespace, store.Command{Kind: store.Find})
	fail(t, s, codeInvalidLength, store.Command{Kind: store.Insert, Collection: "c"})
	fail(t, s, codeFailedToParse, store.Command{Kind: store.Update, Collection: "c"})
	fail(t, s, codeBadValue, store.Command{Kind: store.Find, Collection: "c", Filter: bson.D{{Key: "x", Value: bson.M{"a": 1}}}})
	fail(t, s, 15975, store.Command{Kind: store.Find, Collection: "c", Sort: doc("x", 2)})
	if _, err := s.Run(noon, "", store.Command{Kind: store.Find, Collection: "c"}); code(err) != codeInvalidNamespace {
		t.Error(err)
	}
}

type named string

func TestValuesAreEncodedAsTheDriverDoes(t *testing.T) {
	s := New(Options{})
	raw, _ := bson.Marshal(doc("r", int64(1)))
	kind, value, _ := bson.MarshalValue("v")
	text := "p"
	insert(t, s, bson.D{
		{Key: "_id", Value: 1}, {Key: "time", Value: noon.Add(999 * time.Microsecond)}, {Key: "int", Value: 1 << 40}, {Key: "bytes", Value: []byte{1}},
		{Key: "raw", Value: bson.Raw(raw)}, {Key: "value", Value: bson.RawValue{Type: kind, Value: value}}, {Key: "named", Value: named("n")},
		{Key: "documents", Value: []bson.D{doc("x", 1)}}, {Key: "strings", Value: []string{"s"}}, {Key: "pointer", Value: &text}, {Key: "nil", Value: (*string)(nil)},
		{Key: "null", Value: bson.Null{}}, {Key: "struct", Value: struct{ X uint8 }{7}}, {Key: "kind", Value: store.Find},
	})
	want := bson.D{
		{Key: "_id", Value: int32(1)}, {Key: "time", Value: bson.NewDateTimeFromTime(noon)}, {Key: "int", Value: int64(1 << 40)},
		{Key: "bytes", Value: bson.Binary{Data: []byte{1}}}, {Key: "raw", Value: bson.D{{Key: "r", Value: int64(1)}}}, {Key: "value", Value: "v"}, {Key: "named", Value: "n"},
		{Key: "documents", Value: bson.A{bson.D{{Key: "x", Value: int32(1)}}}}, {Key: "strings", Value: bson.A{"s"}}, {Key: "pointer", Value: "p"}, {Key: "nil", Value: nil},
		{Key: "null", Value: nil}, {Key: "struct", Value: bson.D{{Key: "x", Value: int32(7)}}}, {Key: "kind", Value: "find"},
	}
	if got := s.Documents("db", "c")[0]; !identical(got, want) {
		t.Errorf("got %s\nwant %s", format(got), format(want))
	}
}
