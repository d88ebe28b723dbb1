package wire

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/fencepost-sim/fencepost/engine/store"
	"github.com/fencepost-sim/fencepost/sim/mongosim"
)

// still is a clock that stands still, and lets nothing wait.
func still() time.Time { return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC) }

var errNoWaiting = errors.New("nobody waits here")

func noWaiting(time.Duration, Events) error { return errNoWaiting }

func newLink(t testing.TB) *Link {
	t.Helper()
	server := NewServer(Options{Model: mongosim.New(mongosim.Options{}), Now: still})
	t.Cleanup(server.Close)
	return server.Link(0)
}

// ask runs a command on a link.
func ask(t *testing.T, link *Link, wait func(time.Duration, Events) error, command bson.D) bson.D {
	t.Helper()
	_, answered, err := link.Answer(Surroundings{Wait: wait, Between: func() {}}, encode(opMsg, flags(0), body(command)))
	if err != nil {
		t.Fatal(err)
	}
	return answered
}

// said decodes a reply.
func said(t *testing.T, reply []byte) bson.D {
	t.Helper()
	m, err := readMessage(bytes.NewReader(reply))
	if err != nil {
		t.Fatal(err)
	}
	return m.body
}

func TestALinkRunsACommandOnTheCallersGoroutineAndOthersComeBetween(t *testing.T) {
	link, between := newLink(t), 0
	insert := bson.D{{Key: "insert", Value: "c"}, {Key: "$db", Value: "db"}}
	reply, answered, err := link.Answer(Surroundings{Wait: noWaiting, Between: func() { between++ }},
		encode(opMsg, flags(0), body(insert), sequence("documents", one, two)))
	if err != nil {
		t.Fatal(err)
	}
	if n, _ := find(answered, "n"); n != int32(2) || between != 1 {
		t.Errorf("%v, and others came between %d times; want 2 documents, and 1", answered, between)
	}
	if n, _ := find(said(t, reply), "n"); n != int32(2) {
		t.Errorf("the reply is %v", said(t, reply))
	}
}

func TestALinkLeavesWaitingToItsSurroundings(t *testing.T) {
	link := newLink(t)
	opened := ask(t, link, noWaiting, bson.D{
		{Key: "aggregate", Value: "c"}, {Key: "pipeline", Value: bson.A{bson.D{{Key: "$changeStream", Value: bson.D{}}}}},
		{Key: "cursor", Value: bson.D{}}, {Key: "$db", Value: "db"},
	})
	opened, _ = opened[0].Value.(bson.D)
	id, _ := find(opened, "id")
	more := bson.D{{Key: "getMore", Value: id}, {Key: "collection", Value: "c"}, {Key: "maxTimeMS", Value: int32(700)}, {Key: "$db", Value: "db"}}
	waited := 0
	reply := ask(t, link, func(patience time.Duration, stream Events) error {
		if waited++; patience != 700*time.Millisecond || stream == nil {
			t.Errorf("it wants to wait %v for %v; want 700ms, for the stream", patience, stream)
		}
		ask(t, link, noWaiting, insert(1))
		return nil
	}, more)
	cursor, _ := reply[0].Value.(bson.D)
	if batch, _ := find(cursor, "nextBatch"); waited != 1 || len(batch.(bson.A)) != 1 {
		t.Errorf("it waited %d times and answered %v; want 1, and the insert", waited, reply)
	}
	refused := ask(t, link, noWaiting, more)
	if message, _ := find(refused, "errmsg"); message != errNoWaiting.Error() {
		t.Errorf("when nobody can wait it answers %v", refused)
	}
}

func TestALinkRefusesForItsWorld(t *testing.T) {
	link := newLink(t)
	reply, err := link.Refuse(encode(opMsg, flags(0), body(ping)), &store.Error{Code: 13, CodeName: "Unauthorized", Message: "no"})
	if err != nil {
		t.Fatal(err)
	}
	if code, _ := find(said(t, reply), "code"); code != int32(13) {
		t.Errorf("the reply is %v", said(t, reply))
	}
}

// FuzzCommands runs whatever a client may send, on a server with some documents: every answer is a reply that can be written, and nothing panics
// or waits for ever.
func FuzzCommands(f *testing.F) {
	d := func(pairs ...any) (document bson.D) {
		for i := 0; i < len(pairs); i += 2 {
			document = append(document, bson.E{Key: pairs[i].(string), Value: pairs[i+1]})
		}
		return document
	}
	lsid := d("id", bson.Binary{Subtype: bson.TypeBinaryUUID, Data: make([]byte, 16)})
	for _, command := range []bson.D{
		d("find", "c", "filter", d("n", d("$gt", 1)), "sort", d("n", -1), "limit", 3, "$db", "db"),
		d("update", "c", "updates", bson.A{d("q", d("_id", 1), "u", d("$inc", d("n", 1)), "upsert", true)}, "$db", "db"),
		d("update", "c", "updates", bson.A{d("q", d(), "u", bson.A{d("$set", d("at", "$$NOW"))}, "multi", true)}, "lsid", lsid, "$db", "db"),
		d("delete", "c", "deletes", bson.A{d("q", d("n", d("$in", bson.A{1, 2})), "limit", 1)}, "lsid", lsid, "txnNumber", int64(1), "$db", "db"),
		d("findAndModify", "c", "query", d("n", 1), "update", d("$push", d("a", d("$each", bson.A{1}, "$slice", -2))), "new", true, "$db", "db"),
		d("aggregate", "c", "pipeline", bson.A{d("$match", d("n", 1)), d("$group", d("_id", "$n", "sum", d("$sum", 1))), d("$sort", d("_id", 1))},
			"cursor", d(), "$db", "db"),
		d("aggregate", "c", "pipeline", bson.A{d("$changeStream", d()), d("$match", d("operationType", "insert"))}, "cursor", d(), "$db", "db"),
		d("insert", "c", "documents", bson.A{d("_id", 9)}, "lsid", lsid, "txnNumber", int64(2), "autocommit", false, "startTransaction", true, "$db", "db"),
		d("bulkWrite", 1, "ops", bson.A{d("insert", 0, "document", d("_id", 8)), d("delete", 0, "filter", d(), "multi", true)},
			"nsInfo", bson.A{d("ns", "db.c")}, "$db", "admin"),
		d("createIndexes", "c", "indexes", bson.A{d("key", d("n", 1), "name", "n", "unique", true, "partialFilterExpression", d("n", d("$exists", true)))}, "$db", "db"),
		d("getMore", int64(1), "collection", "c", "$db", "db"), d("hello", 1, "$db", "admin"), d("explain", d("find", "c"), "$db", "db"),
		d("listIndexes", "c", "$db", "db"), d("renameCollection", "db.c", "to", "db.e", "$db", "admin"), d("distinct", "c", "key", "n", "$db", "db"),
		d("configureFailPoint", "failCommand", "mode", d("times", 1), "data", d("failCommands", bson.A{"find"}, "errorCode", 7), "$db", "admin"),
	} {
		f.Add(document(command))
	}
	f.Fuzz(func(t *testing.T, command []byte) {
		link := newLink(t)
		around := Surroundings{Wait: noWaiting, Between: func() {}}
		fill := d("insert", "c", "documents", bson.A{d("_id", 1, "n", 1, "a", bson.A{1, d("b", 2)}), d("_id", 2, "n", 2.5, "s", "text")}, "$db", "db")
		if _, _, err := link.Answer(around, encode(opMsg, flags(0), body(fill))); err != nil {
			t.Fatal(err)
		}
		request := encode(opMsg, flags(0), append([]byte{0}, command...))
		for range 2 { // the second time it meets what the first did
			reply, answered, err := link.Answer(around, request)
			if errors.Is(err, ErrHangUp) || errors.Is(err, errMalformed) {
				return
			}
			if err != nil || reply == nil || len(answered) == 0 {
				t.Fatalf("it answered %v, %v", answered, err)
			}
		}
	})
}
