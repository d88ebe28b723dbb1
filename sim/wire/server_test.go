package wire

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.uber.org/goleak"

	"github.com/fencepost-sim/fencepost/sim/mongosim"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// client is the other end of a connection.
type client struct {
	*testing.T
	conn net.Conn
}

func newServer(t *testing.T, options mongosim.Options, report func(error)) *Server {
	server := NewServer(Options{Model: mongosim.New(options), Report: report})
	t.Cleanup(server.Close)
	return server
}

func dial(t *testing.T, server *Server) *client {
	t.Helper()
	dialer := server.Dialer()
	dialer.Streaming = true
	conn, err := dialer.DialContext(t.Context(), "tcp", "model.test:27017")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return &client{t, conn}
}

// d makes a document of alternating keys and values.
func d(pairs ...any) bson.D {
	made := bson.D{}
	for i := 0; i < len(pairs); i += 2 {
		made = append(made, bson.E{Key: pairs[i].(string), Value: pairs[i+1]})
	}
	return made
}

// call sends a command to the database "d" and returns the reply, or an empty one if the connection
// failed, which fails the test. It may be called from any goroutine.
func (c *client) call(command bson.D) bson.Raw {
	c.Helper()
	c.send(encode(opMsg, flags(0), body(append(command, bson.E{Key: "$db", Value: "d"}))))
	return c.receive(headerSize + 5)
}

func (c *client) send(message []byte) {
	c.Helper()
	if _, err := c.conn.Write(message); err != nil {
		c.Error(err)
	}
}

// receive reads a reply whose document starts at the offset.
func (c *client) receive(offset int) bson.Raw {
	c.Helper()
	length := make([]byte, 4)
	if _, err := io.ReadFull(c.conn, length); err != nil {
		c.Error(err)
		return document(bson.D{})
	}
	reply := make([]byte, binary.LittleEndian.Uint32(length))
	if _, err := io.ReadFull(c.conn, reply[4:]); err != nil {
		c.Error(err)
		return document(bson.D{})
	}
	return reply[offset:]
}

// ok calls and demands success.
func (c *client) ok(command bson.D) bson.Raw {
	c.Helper()
	reply := c.call(command)
	if !succeeded(reply) {
		c.Fatalf("%v: %v", command, reply)
	}
	return reply
}

func succeeded(reply bson.Raw) bool {
	ok, _ := reply.Lookup("ok").AsFloat64OK()
	return ok == 1
}

// code calls and demands an error.
func (c *client) code(command bson.D, want int32) {
	c.Helper()
	reply := c.call(command)
	if got, _ := reply.Lookup("code").AsInt64OK(); succeeded(reply) || got != int64(want) {
		c.Errorf("%v: got %v, want code %d", command, reply, want)
	}
}

func lsid(b byte) bson.D { return d("id", bson.Binary{Subtype: 4, Data: bytes.Repeat([]byte{b}, 16)}) }

func increment(session byte, number int64) bson.D {
	return d("update", "c", "lsid", lsid(session), "txnNumber", number, "updates", bson.A{
		d("q", d("_id", int32(1)), "u", d("$inc", d("n", int32(1))), "upsert", true),
	})
}

func (c *client) counter() int32 {
	c.Helper()
	return c.ok(d("find", "c", "filter", one)).Lookup("cursor", "firstBatch", "0", "n").Int32()
}

func TestHelloTellsAReplicaSetMember(t *testing.T) {
	c := dial(t, newServer(t, mongosim.Options{}, nil))
	modern := c.ok(d("hello", int32(1)))
	c.send(encode(opQuery, flags(0), []byte("admin.$cmd\x00"), make([]byte, 8), document(d("isMaster", int32(1)))))
	legacy := c.receive(headerSize + 20)
	for _, hello := range []bson.Raw{modern, legacy} {
		if hello.Lookup("me").StringValue() != "model.test:27017" || hello.Lookup("setName").StringValue() == "" ||
			hello.Lookup("maxWireVersion").Int32() != 25 || !hello.Lookup("isWritablePrimary").Boolean() {
			t.Errorf("got %v", hello)
		}
		if _, err := hello.LookupErr("topologyVersion", "counter"); err != nil {
			t.Error("without a topologyVersion nobody can wait for a change")
		}
	}
	if !legacy.Lookup("ismaster").Boolean() {
		t.Errorf("got %v", legacy)
	}
	c.send(encode(opQuery, flags(0), []byte("admin.$cmd\x00"), make([]byte, 8), document(ping)))
	if reply := c.receive(headerSize + 20); reply.Lookup("code").Int32() != codeUnsupportedOpQuery {
		t.Errorf("got %v", reply)
	}
}

func TestWhatIsNotServedIsRefused(t *testing.T) {
	c := dial(t, newServer(t, mongosim.Options{}, nil))
	c.code(d("dance", int32(1)), codeCommandNotFound)
	c.code(d("find", "c", "collation", d("locale", "de")), codeNotImplemented)
	c.ok(d("find", "c", "collation", d("locale", "simple")))
	c.code(d("ping", int32(1), "startTransaction", true), codeInvalidOptions)
	c.code(d("find", "c", "fliter", d()), codeUnknownField)
	c.code(d("aggregate", "c", "pipeline", bson.A{d("$count", "n")}), codeFailedToParse)
	c.code(d("aggregate", "c", "cursor", d(), "pipeline", bson.A{d("$geoNear", d())}), codeNotImplemented)
	c.code(d("aggregate", "c", "cursor", d(), "pipeline", bson.A{d("$geo", d())}), 40324)
	c.code(d("find", "c", "filter", "text"), codeTypeMismatch)
	c.code(d("find", "c", "batchSize", int32(-1)), 51024)
	c.code(d("find", "c", "lsid", lsid(1), "txnNumber", int64(1)), codeNotARetryableWrite)
	c.ok(d("ping", int32(1)))
}

func TestAWriteWithItsNumberIsAppliedOnce(t *testing.T) {
	server := newServer(t, mongosim.Options{}, nil)
	c, other := dial(t, server), dial(t, server)
	first := c.ok(increment(1, 1))
	again := other.ok(increment(1, 1))
	for _, field := range []string{"n", "nModified", "upserted"} {
		if !first.Lookup(field).Equal(again.Lookup(field)) {
			t.Errorf("the first reply is %v, the second %v", first, again)
		}
	}
	if again.Lookup("retriedStmtIds", "0").AsInt64() != 0 {
		t.Errorf("a repeated reply does not say so: %v", again)
	}
	c.ok(increment(2, 1)) // another session
	c.ok(increment(1, 2))
	c.code(increment(1, 1), codeTransactionTooOld)
	if n := c.counter(); n != 3 {
		t.Errorf("applied %d times, want 3", n)
	}
	c.ok(d("endSessions", bson.A{lsid(1)}))
	c.ok(increment(1, 1))
	c.code(d("insert", "c", "documents", bson.A{two}, "txnNumber", int64(1)), codeInvalidOptions)
	c.code(d("update", "c", "lsid", lsid(1), "txnNumber", int64(9), "updates", bson.A{
		d("q", d(), "u", d("$inc", d("n", int32(1))), "multi", true),
	}), codeInvalidOptions)
}

func TestConcurrentRepetitionsOfAWriteAreAppliedOnce(t *testing.T) {
	server := newServer(t, mongosim.Options{}, nil)
	var all sync.WaitGroup
	for range 8 {
		c := dial(t, server)
		all.Go(func() {
			for number := range int64(50) {
				reply := c.call(increment(1, number))
				code, _ := reply.Lookup("code").AsInt64OK()
				if !succeeded(reply) && code != codeTransactionTooOld {
					t.Errorf("got %v", reply)
				}
			}
		})
	}
	all.Wait()
	if n := dial(t, server).counter(); n != 50 {
		t.Errorf("applied %d times, want 50", n)
	}
}

func TestAStandaloneHasNoTransactionNumbers(t *testing.T) {
	c := dial(t, newServer(t, mongosim.Options{Standalone: true}, nil))
	c.code(increment(1, 1), codeIllegalOperation)
	if _, err := c.ok(d("hello", int32(1))).LookupErr("setName"); err == nil {
		t.Error("a standalone has a set name")
	}
}

func TestErrorsOfDocumentsAreListedInTheReply(t *testing.T) {
	c := dial(t, newServer(t, mongosim.Options{}, nil))
	three := d("_id", int32(3))
	c.ok(d("insert", "c", "documents", bson.A{two}))
	unordered := c.ok(d("insert", "c", "ordered", false, "documents", bson.A{one, two, three}))
	if unordered.Lookup("n").AsInt64() != 2 || unordered.Lookup("writeErrors", "0", "index").AsInt64() != 1 ||
		unordered.Lookup("writeErrors", "0", "keyValue", "_id").AsInt64() != 2 {
		t.Errorf("got %v", unordered)
	}
	ordered := c.ok(d("insert", "c", "documents", bson.A{d("_id", int32(4)), two, d("_id", int32(5))}))
	if ordered.Lookup("n").AsInt64() != 1 {
		t.Errorf("got %v", ordered)
	}
	updated := c.ok(d("update", "c", "ordered", false, "updates", bson.A{
		d("q", one, "u", d("$set", d("_id", int32(9)))),
		d("q", one, "u", d("$set", d("a", int32(1)))),
		d("q", d("_id", int32(7)), "u", d("$set", d("a", int32(1))), "upsert", true),
	}))
	if updated.Lookup("n").AsInt64() != 2 || updated.Lookup("nModified").AsInt64() != 1 ||
		updated.Lookup("writeErrors", "0", "index").AsInt64() != 0 || updated.Lookup("upserted", "0", "index").AsInt64() != 2 {
		t.Errorf("got %v", updated)
	}
}

func TestFindAndModifyTellsWhatItDid(t *testing.T) {
	c := dial(t, newServer(t, mongosim.Options{}, nil))
	change := func(more ...any) bson.Raw {
		command := d("findAndModify", "c", "query", one, "update", d("$inc", d("n", int32(1))))
		return c.ok(append(command, d(more...)...))
	}
	for _, step := range []struct {
		reply    bson.Raw
		n        int64
		existing bool
		value    any
	}{
		{change(), 0, false, nil},
		{change("upsert", true), 1, false, nil},
		{change(), 1, true, int32(1)},
		{change("new", true), 1, true, int32(3)},
	} {
		last := step.reply.Lookup("lastErrorObject")
		value, _ := step.reply.Lookup("value").DocumentOK()
		number, _ := value.Lookup("n").AsInt64OK()
		want, _ := step.value.(int32)
		if last.Document().Lookup("n").AsInt64() != step.n || last.Document().Lookup("updatedExisting").Boolean() != step.existing ||
			(value == nil) != (step.value == nil) || number != int64(want) {
			t.Errorf("got %v, want %+v", step.reply, step)
		}
	}
}

func TestCursorsAnswerInBatchesAndAreForgottenAtTheirEnd(t *testing.T) {
	c := dial(t, newServer(t, mongosim.Options{}, nil))
	documents := bson.A{}
	for id := range int32(250) {
		documents = append(documents, d("_id", id))
	}
	c.ok(d("insert", "c", "documents", documents))
	reply := c.ok(d("find", "c"))
	if n := batchLength(t, reply, "firstBatch"); n != firstBatch {
		t.Errorf("the first batch has %d documents", n)
	}
	id := reply.Lookup("cursor", "id").Int64()
	c.code(d("getMore", id, "collection", "other"), codeUnauthorized)
	reply = c.ok(d("getMore", id, "collection", "c", "batchSize", int32(100)))
	if n := batchLength(t, reply, "nextBatch"); n != 100 || reply.Lookup("cursor", "id").Int64() != id {
		t.Errorf("the second batch has %d documents", n)
	}
	reply = c.ok(d("getMore", id, "collection", "c"))
	if n := batchLength(t, reply, "nextBatch"); n != 49 || reply.Lookup("cursor", "id").Int64() != 0 {
		t.Errorf("the last batch has %d documents", n)
	}
	c.code(d("getMore", id, "collection", "c"), codeCursorNotFound)
	id = c.ok(d("find", "c", "batchSize", int32(0))).Lookup("cursor", "id").Int64()
	c.ok(d("killCursors", "c", "cursors", bson.A{id}))
	c.code(d("getMore", id, "collection", "c"), codeCursorNotFound)
}

func batchLength(t *testing.T, reply bson.Raw, name string) int {
	t.Helper()
	values, err := reply.Lookup("cursor", name).Array().Values()
	if err != nil {
		t.Fatal(err)
	}
	return len(values)
}

func TestABatchFitsIntoAReply(t *testing.T) {
	c := dial(t, newServer(t, mongosim.Options{}, nil))
	large := make([]byte, 7<<20)
	for id := range int32(5) {
		c.ok(d("insert", "c", "documents", bson.A{d("_id", id, "data", bson.Binary{Data: large})}))
	}
	reply := c.ok(d("find", "c"))
	seen := batchLength(t, reply, "firstBatch")
	for id := reply.Lookup("cursor", "id").Int64(); id != 0; id = reply.Lookup("cursor", "id").Int64() {
		reply = c.ok(d("getMore", id, "collection", "c"))
		if len(reply) > maxBatchBytes+1024 {
			t.Errorf("a batch of %d bytes", len(reply))
		}
		seen += batchLength(t, reply, "nextBatch")
	}
	if seen != 5 {
		t.Errorf("%d documents arrived", seen)
	}
}

func (c *client) openStream() int64 {
	c.Helper()
	reply := c.ok(d("aggregate", "c", "cursor", d(), "pipeline", bson.A{d("$changeStream", d())}))
	return reply.Lookup("cursor", "id").Int64()
}

func TestAGetMoreOnAChangeStreamWaitsForAChangeOrItsTimeLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer(t, mongosim.Options{}, nil)
		c, writer := dial(t, server), dial(t, server)
		id := c.openStream()
		start := time.Now()
		reply := c.ok(d("getMore", id, "collection", "c", "maxTimeMS", int64(300)))
		if waited := time.Since(start); waited != 300*time.Millisecond || batchLength(t, reply, "nextBatch") != 0 {
			t.Errorf("answered %v after %v", reply, waited)
		}
		c.ok(d("getMore", id, "collection", "c"))
		if waited := time.Since(start); waited != 1300*time.Millisecond {
			t.Errorf("without a limit the answer came after %v", waited)
		}
		var written sync.WaitGroup
		written.Go(func() {
			time.Sleep(time.Minute)
			writer.call(d("insert", "c", "documents", bson.A{one}))
		})
		reply = c.ok(d("getMore", id, "collection", "c", "maxTimeMS", int64(3_600_000)))
		if waited := time.Since(start); waited != time.Minute+1300*time.Millisecond ||
			reply.Lookup("cursor", "nextBatch", "0", "operationType").StringValue() != "insert" {
			t.Errorf("answered %v after %v", reply, waited)
		}
		written.Wait()
	})
}

func TestKillingACursorEndsTheGetMoreThatWaitsOnIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer(t, mongosim.Options{}, nil)
		c, killer := dial(t, server), dial(t, server)
		id := c.openStream()
		var killed sync.WaitGroup
		killed.Go(func() { killer.call(d("killCursors", "c", "cursors", bson.A{id})) })
		defer killed.Wait()
		c.code(d("getMore", id, "collection", "c", "maxTimeMS", int64(3_600_000)), codeCursorNotFound)
	})
}

func TestMalformedInputClosesThatConnectionOnly(t *testing.T) {
	reported := make(chan error, 1)
	server := newServer(t, mongosim.Options{}, func(err error) { reported <- err })
	good, bad := dial(t, server), dial(t, server)
	good.ok(d("ping", int32(1)))
	bad.send(encode(2012, flags(0)))
	if _, err := bad.conn.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the connection lives on: %v", err)
	}
	if err := <-reported; !errors.Is(err, errMalformed) {
		t.Errorf("reported %v", err)
	}
	good.ok(d("ping", int32(1)))
}

func TestAOneWayMessageGetsNoReply(t *testing.T) {
	c := dial(t, newServer(t, mongosim.Options{}, nil))
	c.send(encode(opMsg, flags(flagMoreToCome), body(d("insert", "c", "$db", "d")), sequence("documents", one)))
	reply := c.ok(d("find", "c"))
	if n := batchLength(t, reply, "firstBatch"); n != 1 {
		t.Errorf("%d documents were written", n)
	}
}

func TestServeEndsWithItsContextOrTheServer(t *testing.T) {
	for _, name := range []string{"context", "server"} {
		t.Run(name, func(t *testing.T) {
			server := newServer(t, mongosim.Options{}, nil)
			listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			ended := make(chan error)
			go func() { ended <- server.Serve(ctx, listener) }()
			conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = conn.Close() }()
			hello := (&client{t, conn}).ok(d("hello", int32(1)))
			if me := hello.Lookup("me").StringValue(); me != listener.Addr().String() {
				t.Errorf("the server calls itself %q", me)
			}
			if name == "context" {
				cancel()
			} else {
				server.Close()
			}
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
	}
}

func TestAClosedServerAcceptsNoConnection(t *testing.T) {
	server := newServer(t, mongosim.Options{}, nil)
	c := dial(t, server)
	server.Close()
	if _, err := c.conn.Read(make([]byte, 1)); err == nil {
		t.Error("the connection lives on")
	}
	if _, err := server.Dialer().DialContext(t.Context(), "tcp", "a:1"); !errors.Is(err, ErrClosed) {
		t.Errorf("got %v", err)
	}
}
