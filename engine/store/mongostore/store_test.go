package mongostore_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/fencepost-sim/fencepost/engine/store"
	"github.com/fencepost-sim/fencepost/engine/store/mongostore"
	"github.com/fencepost-sim/fencepost/sim/wire"
)

var increment = store.Command{
	Point: "test.lose", Kind: store.Update, Collection: "c",
	Filter: bson.D{{Key: "_id", Value: int32(1)}},
	Update: bson.D{{Key: "$inc", Value: bson.D{{Key: "n", Value: int32(1)}}}},
}

func TestAWriteWhoseReplyIsLostIsAppliedOnce(t *testing.T) {
	server := newServer(t)
	for _, c := range []struct {
		losses  int32
		unknown bool
	}{{1, false}, {2, true}} {
		lossy := &lossyDialer{Dialer: server.Dialer(), marker: []byte(increment.Point)}
		s := mongostore.New(connect(t, options.Client().SetDialer(lossy)).Database("d"))
		if _, err := s.Run(t.Context(), store.Command{Kind: store.Delete, Collection: "c"}); err != nil {
			t.Fatal(err)
		}
		first := store.Command{Kind: store.Insert, Collection: "c", Documents: []bson.D{increment.Filter}}
		if _, err := s.Run(t.Context(), first); err != nil {
			t.Fatal(err)
		}
		lossy.losses.Store(c.losses)
		reply, err := s.Run(t.Context(), increment)
		if errors.Is(err, store.ErrUnknownOutcome) != c.unknown || (err != nil) != c.unknown {
			t.Errorf("after %d losses the error is %v", c.losses, err)
		}
		if !c.unknown && reply.Modified != 1 {
			t.Errorf("after %d losses the reply is %+v", c.losses, reply)
		}
		if left := lossy.losses.Load(); left != 0 {
			t.Errorf("%d replies were not lost: the driver did not try again", left)
		}
		found, err := s.Run(t.Context(), store.Command{Kind: store.Find, Collection: "c"})
		if err != nil || len(found.Documents) != 1 || found.Documents[0][1].Value != int32(1) {
			t.Errorf("after %d losses there is %v, %v", c.losses, found.Documents, err)
		}
	}
}

// The lost reply is the one with the changes, so the driver must ask for them again, and not for those before.
func TestAStreamWhoseReplyIsLostGoesOnWithoutLossOrRepetition(t *testing.T) {
	lossy := &lossyDialer{Dialer: newServer(t).Dialer(), marker: []byte("test.stream")}
	s := mongostore.New(connect(t, options.Client().SetDialer(lossy)).Database("d"))
	stream, err := s.Watch(t.Context(), store.Watch{Point: "test.stream", Collection: "c"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := stream.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	for id := range int32(10) {
		insert := store.Command{Kind: store.Insert, Collection: "c", Documents: []bson.D{{{Key: "_id", Value: id}}}}
		if _, err := s.Run(t.Context(), insert); err != nil {
			t.Fatal(err)
		}
		change, err := stream.Next(t.Context())
		if err != nil || change.Key[0].Value != id {
			t.Fatalf("change %d is %+v, %v", id, change, err)
		}
		lossy.losses.Store(id % 2)
	}
}

func TestClosingAStreamEndsTheNextThatWaitsForTheServer(t *testing.T) {
	asked := make(chan struct{}, 1)
	monitor := &event.CommandMonitor{Started: func(_ context.Context, e *event.CommandStartedEvent) {
		if e.CommandName == "getMore" {
			asked <- struct{}{}
		}
	}}
	client := connect(t, options.Client().SetDialer(newServer(t).Dialer()).SetMonitor(monitor))
	stream, err := mongostore.New(client.Database("d")).Watch(t.Context(), store.Watch{Collection: "c", MaxAwait: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error)
	go func() {
		_, err := stream.Next(t.Context())
		ended <- err
	}()
	<-asked
	if err := stream.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if err := <-ended; !errors.Is(err, store.ErrStreamClosed) {
		t.Errorf("Next returned %v", err)
	}
}

func TestAReadThatBreaksOffIsAnErrorAndNotAShortResult(t *testing.T) {
	client := connect(t, options.Client().SetDialer(newServer(t).Dialer()))
	s := mongostore.New(client.Database("d"))
	many := store.Command{Kind: store.Insert, Collection: "c"}
	for id := range int32(300) { // more than a first batch
		many.Documents = append(many.Documents, bson.D{{Key: "_id", Value: id}})
	}
	if _, err := s.Run(t.Context(), many); err != nil {
		t.Fatal(err)
	}
	find := store.Command{Kind: store.Find, Collection: "c"}
	if reply, err := s.Run(t.Context(), find); err != nil || len(reply.Documents) != 300 {
		t.Fatalf("%d documents, %v", len(reply.Documents), err)
	}
	const cappedPositionLost = 136
	err := client.Database("admin").RunCommand(t.Context(), bson.D{
		{Key: "configureFailPoint", Value: "failCommand"},
		{Key: "mode", Value: bson.D{{Key: "times", Value: 1}}},
		{Key: "data", Value: bson.D{{Key: "failCommands", Value: bson.A{"getMore"}}, {Key: "errorCode", Value: cappedPositionLost}}},
	}).Err()
	if err != nil {
		t.Fatal(err)
	}
	var refused *store.Error
	if reply, err := s.Run(t.Context(), find); !errors.As(err, &refused) || refused.Code != cappedPositionLost || reply.Documents != nil {
		t.Errorf("%d documents, %v", len(reply.Documents), err)
	}
}

func TestAStreamThatTheServerEndsSaysSo(t *testing.T) {
	client := connect(t, options.Client().SetDialer(newServer(t).Dialer()))
	s := mongostore.New(client.Database("d"))
	if _, err := s.Run(t.Context(), store.Command{Kind: store.CreateCollection, Collection: "c"}); err != nil {
		t.Fatal(err)
	}
	stream, err := s.Watch(t.Context(), store.Watch{Collection: "c"})
	if err != nil {
		t.Fatal(err)
	}
	if err := client.Database("d").Collection("c").Drop(t.Context()); err != nil {
		t.Fatal(err)
	}
	var operations []string
	for err == nil {
		var change store.Change
		if change, err = stream.Next(t.Context()); err == nil {
			operations = append(operations, change.Operation)
		}
	}
	if !errors.Is(err, mongostore.ErrStreamEnded) || !slices.Equal(operations, []string{"drop", "invalidate"}) {
		t.Errorf("after %v: %v", operations, err)
	}
	if err := stream.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestACancelledCommandLeavesItsOutcomeOpen(t *testing.T) {
	s := mongostore.New(connect(t, options.Client().SetDialer(newServer(t).Dialer())).Database("d"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Run(ctx, increment); !errors.Is(err, store.ErrUnknownOutcome) || !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// lossyDialer makes connections that lose the reply to a command with the marker, after the server has applied it, as often
// as losses says.
type lossyDialer struct {
	*wire.Dialer
	marker []byte
	losses atomic.Int32
}

func (d *lossyDialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := d.Dialer.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return &lossyConn{Conn: conn, dialer: d}, nil
}

type lossyConn struct {
	net.Conn
	dialer *lossyDialer
	losing atomic.Bool
}

func (c *lossyConn) Write(b []byte) (int, error) {
	if bytes.Contains(b, c.dialer.marker) && c.dialer.losses.Load() > 0 {
		c.dialer.losses.Add(-1)
		c.losing.Store(true)
	}
	return c.Conn.Write(b)
}

func (c *lossyConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.losing.Load() {
		return 0, errors.Join(io.ErrUnexpectedEOF, c.Conn.Close())
	}
	return n, err
}

// The connection string asks for the weakest of everything.
const weakURI = "mongodb://model.test:27017/?readPreference=secondary&readConcernLevel=local&w=1&journal=false"

func TestConcernsArePinnedAndThePointTravelsAsComment(t *testing.T) {
	server := newServer(t)
	sent := &recorder{}
	client := connect(t, options.Client().ApplyURI(weakURI).SetDialer(server.Dialer()).
		SetMonitor(&event.CommandMonitor{Started: sent.record}))
	s := mongostore.New(client.Database("d"))
	set := bson.D{{Key: "$set", Value: bson.D{{Key: "a", Value: int32(1)}}}}
	unique := []store.Index{{Name: "a", Keys: bson.D{{Key: "a", Value: int32(1)}}}}
	for _, command := range []store.Command{
		{Kind: store.CreateCollection},
		{Kind: store.CreateIndexes, Indexes: unique},
		{Kind: store.Insert, Documents: []bson.D{{{Key: "_id", Value: int32(1)}}}},
		{Kind: store.Update, Update: set},
		{Kind: store.Update, Update: set, Multi: true},
		{Kind: store.FindAndModify, Update: set},
		{Kind: store.Find},
		{Kind: store.Delete},
		{Kind: store.Delete, Multi: true},
		{Kind: store.ListIndexes},
		{Kind: store.ListCollections},
		{Kind: store.Hello},
	} {
		command.Point, command.Collection = "test.point", "c"
		if _, err := s.Run(t.Context(), command); err != nil {
			t.Fatalf("%s: %v", command.Kind, err)
		}
	}
	stream, err := s.Watch(t.Context(), store.Watch{Point: "test.point", Collection: "c"})
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Close(t.Context()); err != nil {
		t.Error(err)
	}
	sent.check(t)
}

// recorder keeps the commands that the driver sends.
type recorder struct {
	mu       sync.Mutex
	commands []bson.Raw
}

func (r *recorder) record(_ context.Context, e *event.CommandStartedEvent) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.commands = append(r.commands, bytes.Clone(e.Command))
}

// concerns says under which field a command carries the concern that must be a majority's.
var concerns = map[string][]string{
	"find":          {"readConcern", "level"},
	"aggregate":     {"readConcern", "level"},
	"create":        {"writeConcern", "w"},
	"createIndexes": {"writeConcern", "w"},
	"insert":        {"writeConcern", "w"},
	"update":        {"writeConcern", "w"},
	"findAndModify": {"writeConcern", "w"},
	"delete":        {"writeConcern", "w"},
}

// plain are commands for which the driver has neither comment nor concern.
var plain = []string{"listIndexes", "listCollections", "killCursors", "endSessions"}

func (r *recorder) check(t *testing.T) {
	r.mu.Lock()
	defer r.mu.Unlock()
	unseen := maps.Clone(concerns)
	for _, command := range r.commands {
		elements, err := command.Elements()
		if err != nil {
			t.Fatal(err)
		}
		name := elements[0].Key()
		delete(unseen, name)
		if mode, sent := command.Lookup("$readPreference", "mode").StringValueOK(); sent && mode != "primary" && !slices.Contains(plain, name) {
			t.Errorf("%s goes to a %s", name, mode)
		}
		if comment, _ := command.Lookup("comment").StringValueOK(); comment != "test.point" && !slices.Contains(plain, name) {
			t.Errorf("%s has the comment %q", name, comment)
		}
		concern := concerns[name]
		if concern == nil {
			continue
		}
		if got, _ := command.Lookup(concern...).StringValueOK(); got != "majority" {
			t.Errorf("%s has the %v %q", name, concern, got)
		}
		if journal, _ := command.Lookup("writeConcern", "j").BooleanOK(); !journal && concern[0] == "writeConcern" {
			t.Errorf("%s does not wait for the journal", name)
		}
	}
	for name := range unseen {
		t.Errorf("no %s was sent", name)
	}
}

// One command goes through the adapter, the driver, a pipe, the wire server and the model, and back.
func BenchmarkFindThroughDriverAndWire(b *testing.B) {
	s := mongostore.New(connect(b, options.Client().SetDialer(newServer(b).Dialer())).Database("d"))
	document := bson.D{{Key: "_id", Value: int32(1)}}
	insert := store.Command{Kind: store.Insert, Collection: "c", Documents: []bson.D{document}}
	if _, err := s.Run(b.Context(), insert); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		found, err := s.Run(b.Context(), store.Command{Kind: store.Find, Collection: "c", Filter: document})
		if err != nil || len(found.Documents) != 1 {
			b.Fatal(found, err)
		}
	}
}
