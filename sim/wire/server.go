// Package wire is a server in front of sim/mongosim that speaks MongoDB's wire protocol, so that a real driver, in whatever
// language, talks to the model.
//
// It exists to judge the model and the adapter: what the engine does through engine/store/mongostore, the official driver, this
// server and the model must be what it does on the model directly. It is not a database: data is in memory, there is no
// authentication, no encryption and no compression, and of the commands there are those that the engine and a
// driver's housekeeping need. What MongoDB would do and this server does not is refused with code
// 238 (NotImplemented), never ignored.
package wire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/fencepost-sim/fencepost/engine/store"
	"github.com/fencepost-sim/fencepost/sim/mongosim"
)

// Options configures a Server.
type Options struct {
	// Model holds the data. The server serialises all access to it; others reach it through Server.Do.
	Model *mongosim.Server
	// Now is the server's clock; nil means time.Now. Only the model's data sees it: waiting uses real time.
	Now func() time.Time
	// Report gets the errors that end a connection, but for its regular end; nil discards them. It may be called
	// from several goroutines at once.
	Report func(error)
}

// Server serves the model to any number of connections. It is safe for concurrent use.
type Server struct {
	now    func() time.Time
	report func(error)

	life context.Context // ends with Close
	end  context.CancelFunc

	standalone bool // not a member of a replica set

	connections sync.WaitGroup
	lastID      atomic.Int32 // of connections and replies

	mu         sync.Mutex
	closed     bool
	open       map[net.Conn]struct{}
	model      *mongosim.Server
	changed    chan struct{} // closed when the model may have new changes to stream
	cursors    map[int64]*cursor
	lastCursor int64
	sessions   map[string]*session
}

// ErrClosed is returned when a closed server is asked to serve.
var ErrClosed = errors.New("wire: server closed")

// NewServer returns a server without connections. Close releases it.
func NewServer(options Options) *Server {
	s := &Server{
		now: options.Now, report: options.Report, model: options.Model,
		open: map[net.Conn]struct{}{}, changed: make(chan struct{}),
		cursors: map[int64]*cursor{}, sessions: map[string]*session{},
	}
	if s.now == nil {
		s.now = time.Now
	}
	if s.report == nil {
		s.report = func(error) {}
	}
	hello, err := s.model.Run(s.now(), "admin", store.Command{Kind: store.Hello})
	s.standalone = err == nil && !has(hello.Document, "setName")
	s.life, s.end = context.WithCancel(context.Background())
	return s
}

// Serve accepts connections until ctx is done or the server is closed, which both end it without an error. It closes
// the listener; connections that it accepted live on until Close.
func (s *Server) Serve(ctx context.Context, listener net.Listener) error {
	stop := func() { _ = listener.Close() }
	defer stop()
	defer context.AfterFunc(ctx, stop)()
	defer context.AfterFunc(s.life, stop)()
	for {
		conn, err := listener.Accept()
		switch {
		case ctx.Err() != nil || s.life.Err() != nil:
			if err == nil {
				_ = conn.Close()
			}
			return nil
		case err != nil:
			return fmt.Errorf("wire: accept: %w", err)
		}
		if err := s.start(conn, conn.LocalAddr().String()); err != nil {
			return nil // closed meanwhile
		}
	}
}

// Dialer connects a driver to the server within the process (options.Client().SetDialer). It takes every
// address: the server then calls itself what the client calls it.
func (s *Server) Dialer() *Dialer { return &Dialer{s} }

// Dialer makes connections to a Server by net.Pipe.
type Dialer struct{ server *Server }

// DialContext returns the client's end of a new connection, or ErrClosed.
func (d *Dialer) DialContext(_ context.Context, _, address string) (net.Conn, error) {
	client, server := net.Pipe()
	if err := d.server.start(server, address); err != nil {
		return nil, errors.Join(err, client.Close())
	}
	return client, nil
}

// Do runs the function with the model while no command runs. It is for tests that look into the
// model, change it behind the client's back, or make it fail.
func (s *Server) Do(inside func(model *mongosim.Server)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	inside(s.model)
	s.wakeStreams()
}

// Close ends all connections and waits until nothing of the server runs. It may be called more than once.
func (s *Server) Close() {
	s.mu.Lock()
	s.closed = true
	for conn := range s.open {
		_ = conn.Close()
	}
	s.mu.Unlock()
	s.end()
	s.connections.Wait()
}

// start serves one connection on its own goroutine. The address is what the client knows this server by.
func (s *Server) start(conn net.Conn, address string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		_ = conn.Close()
		return ErrClosed
	}
	s.open[conn] = struct{}{}
	c := &connection{server: s, conn: conn, address: address, id: s.lastID.Add(1)}
	s.connections.Go(func() {
		err := c.serve()
		_ = conn.Close()
		s.mu.Lock()
		delete(s.open, conn)
		s.mu.Unlock()
		if err != nil && s.life.Err() == nil {
			s.report(fmt.Errorf("wire: connection %d: %w", c.id, err))
		}
	})
	return nil
}

// connection is one client's connection. Its requests are answered one after the other.
type connection struct {
	server  *Server
	conn    net.Conn
	address string
	id      int32
}

// serve answers requests until the client closes the connection (nil), or sends what cannot be answered.
func (c *connection) serve() error {
	for {
		request, err := readMessage(c.conn)
		if errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) || errors.Is(err, io.ErrClosedPipe) {
			return nil
		}
		if err != nil {
			return err
		}
		body := c.answer(request)
		if request.oneWay {
			continue
		}
		reply, err := encodeReply(request, c.server.lastID.Add(1), body)
		if err != nil {
			return err
		}
		if _, err := c.conn.Write(reply); err != nil {
			return nil // the client did not wait for it
		}
	}
}

// wakeStreams lets waiting getMores look again. The caller holds the lock.
func (s *Server) wakeStreams() {
	close(s.changed)
	s.changed = make(chan struct{})
}

func has(document bson.D, key string) bool {
	_, found := find(document, key)
	return found
}

func find(document bson.D, key string) (any, bool) {
	for _, field := range document {
		if field.Key == key {
			return field.Value, true
		}
	}
	return nil, false
}
