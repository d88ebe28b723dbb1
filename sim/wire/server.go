// Package wire is a server in front of sim/mongosim that speaks MongoDB's wire protocol, so that a real driver, in whatever
// language, talks to the model.
//
// It exists to judge the model and the adapter: what the engine does through engine/store/mongostore, the official driver, this
// server and the model must be what it does on the model directly; and to let clients of any language be tested under faults.
// It is not a database: data is in memory, there is no authentication, no encryption and no compression. What MongoDB
// would do and this server does not is refused with code 238 (NotImplemented), never ignored; what MongoDB does not know gets
// MongoDB's own error.
//
// MongoDB's published specification tests run against it: see SPECIFICATIONS.md.
package wire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/fencepost-sim/fencepost/sim/mongosim"
)

// Options configures a Server.
type Options struct {
	// Model holds the data. The server serialises all access to it; others reach it through Server.Do. A model that is a member of a
	// replica set brings the other members with it: the server then stands in front of all of them.
	Model *mongosim.Server
	// Hosts are the addresses by which clients know the members of a set with several. Serve and ServeMember fill in those that are missing.
	Hosts []string
	// ManualReplication leaves it to the caller, by Do, to let secondaries replicate. Otherwise they do so with every write.
	ManualReplication bool
	// Now is the server's clock; nil means time.Now. Only the model's data sees it: waiting uses real time.
	Now func() time.Time
	// Faults are what goes wrong with the clients' commands. Their times count from NewServer, by Now.
	Faults []Fault
	// Struck, if set, is called when a fault strikes a command, or with an empty name when its time has come. It must not call the server.
	Struck func(fault Fault, command string)
	// Changed, if set, is called when a command that waits may find something new. It must not call the server.
	Changed func()
	// Report gets the errors that end a connection, but for its regular end; nil discards them. It may be called
	// from several goroutines at once.
	Report func(error)
}

// Server serves the model to any number of connections. It is safe for concurrent use.
type Server struct {
	now     func() time.Time
	changes func()
	struck  func(Fault, string)
	began   time.Time
	report  func(error)

	life context.Context // ends with Close
	end  context.CancelFunc

	process bson.ObjectID // tells this server's topology versions from those of another

	connections sync.WaitGroup
	lastID      atomic.Int32 // of connections and replies

	mu         sync.Mutex
	closed     bool
	open       map[net.Conn]struct{}
	nodes      []*node
	replicate  bool
	changed    chan struct{} // closed when a waiting command may find something new
	cursors    map[int64]*cursor
	lastCursor int64
	failPoints []*failPoint
	faults     []*plannedFault
	timers     []*time.Timer
}

// node is one member of the replica set, or the only server.
type node struct {
	model   *mongosim.Server
	address string // by which clients know it; "" until it is known
}

// ErrClosed is returned when a closed server is asked to serve.
var ErrClosed = errors.New("wire: server closed")

// NewServer returns a server without connections. Close releases it.
func NewServer(options Options) *Server {
	s := &Server{
		now: options.Now, changes: options.Changed, struck: options.Struck, report: options.Report, replicate: !options.ManualReplication, process: bson.NewObjectID(),
		open: map[net.Conn]struct{}{}, changed: make(chan struct{}), cursors: map[int64]*cursor{},
	}
	models := []*mongosim.Server{options.Model}
	if set := options.Model.Set(); set != nil {
		models = set.Members()
	}
	for i, model := range models {
		n := &node{model: model}
		if i < len(options.Hosts) {
			n.address = options.Hosts[i]
		}
		s.nodes = append(s.nodes, n)
	}
	if s.now == nil {
		s.now = time.Now
	}
	if s.struck == nil {
		s.struck = func(Fault, string) {}
	}
	if s.changes == nil {
		s.changes = func() {}
	}
	if s.report == nil {
		s.report = func(error) {}
	}
	s.life, s.end = context.WithCancel(context.Background())
	s.mu.Lock() // a step-down may be due at once
	defer s.mu.Unlock()
	s.plan(options.Faults)
	return s
}

// Serve is ServeMember for the only, or the first, member.
func (s *Server) Serve(ctx context.Context, listener net.Listener) error {
	return s.ServeMember(ctx, listener, 0)
}

// ServeMember accepts connections to a member until ctx is done or the server is closed, which both end it without an error. It closes
// the listener; connections that it accepted live on until Close.
func (s *Server) ServeMember(ctx context.Context, listener net.Listener, member int) error {
	if member < 0 || member >= len(s.nodes) {
		return fmt.Errorf("wire: member %d of a set of %d", member, len(s.nodes))
	}
	n := s.nodes[member]
	s.mu.Lock()
	if n.address == "" && len(s.nodes) > 1 {
		n.address = listener.Addr().String()
	}
	s.mu.Unlock()
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
		if err := s.start(conn, n, conn.LocalAddr().String(), true); err != nil {
			return nil // closed meanwhile
		}
	}
}

// Dialer connects a driver to the server within the process (options.Client().SetDialer). With one member it takes every
// address, and the server calls itself what the client calls it; with several the address says which one.
func (s *Server) Dialer() *Dialer { return &Dialer{server: s} }

// Dialer makes connections to a Server by net.Pipe.
type Dialer struct {
	// Streaming lets clients wait for changes of the topology, as they do over TCP. By default they poll: in a client that waits, a network error
	// in its first milliseconds, which is when it happens to one in the same process, can go unnoticed until the wait is over, as can
	// the end of the client (seen with mongo-driver v2.10.0, 10 s).
	Streaming bool

	server *Server
}

// DialContext returns the client's end of a new connection, or ErrClosed.
func (d *Dialer) DialContext(_ context.Context, _, address string) (net.Conn, error) {
	n := d.server.nodes[0]
	if len(d.server.nodes) > 1 {
		i := slices.IndexFunc(d.server.nodes, func(n *node) bool { return n.address == address })
		if i < 0 {
			return nil, fmt.Errorf("wire: no member of the set is called %q", address)
		}
		n = d.server.nodes[i]
	}
	client, server := net.Pipe()
	if err := d.server.start(server, n, address, d.Streaming); err != nil {
		return nil, errors.Join(err, client.Close())
	}
	return client, nil
}

// Do runs the function with the model that the options named while no command runs. It is for tests and faults: they look into the
// model, change it behind the client's back, or make it fail. Whoever waits for something looks again afterwards.
func (s *Server) Do(inside func(model *mongosim.Server)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	inside(s.nodes[0].model)
	s.wake()
}

// Close ends all connections and waits until nothing of the server runs. It may be called more than once.
func (s *Server) Close() {
	s.mu.Lock()
	s.closed = true
	for conn := range s.open {
		_ = conn.Close()
	}
	for _, timer := range s.timers {
		timer.Stop()
	}
	s.mu.Unlock()
	s.end()
	s.connections.Wait()
}

// start serves one connection on its own goroutine. The address is what the client knows this server by.
func (s *Server) start(conn net.Conn, n *node, address string, streaming bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		_ = conn.Close()
		return ErrClosed
	}
	s.open[conn] = struct{}{}
	if n.address != "" {
		address = n.address
	}
	c := &connection{server: s, conn: conn, node: n, address: address, streaming: streaming, id: s.lastID.Add(1)}
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
	node    *node
	address string
	id      int32
	// streaming: the client may wait for changes of the topology.
	streaming bool
	appName   string        // what the client called itself when it connected
	around    *Surroundings // of a link, or nil
}

// remote is the client's address.
func (c *connection) remote() string {
	if c.conn == nil {
		return "simulated"
	}
	return c.conn.RemoteAddr().String()
}

// serve answers requests until the client closes the connection (nil), or sends what cannot be answered.
func (c *connection) serve() error {
	for {
		request, err := readMessage(c.conn)
		if gone(err) {
			return nil
		}
		if err != nil {
			return err
		}
		for streaming := true; streaming; {
			var body bson.D
			var end bool
			if body, streaming, end = c.answer(&request); end {
				return nil
			}
			if request.oneWay {
				break
			}
			reply, err := encodeReply(request, c.server.lastID.Add(1), body, streaming)
			if err != nil {
				return err
			}
			if _, err := c.conn.Write(reply); err != nil {
				return nil // the client did not wait for it
			}
		}
	}
}

// gone reports whether the client just left. Some do so without a word: then the system says that the connection was reset.
func gone(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) || errors.Is(err, io.ErrClosedPipe) || errors.Is(err, syscall.ECONNRESET)
}

// wake lets waiting commands look again. The caller holds the lock.
func (s *Server) wake() {
	close(s.changed)
	s.changed = make(chan struct{})
	s.changes()
}

// later runs a function with the lock held, unless the server is closed before. The caller holds the lock.
func (s *Server) later(delay time.Duration, run func()) {
	s.timers = append(s.timers, time.AfterFunc(delay, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if !s.closed {
			run()
			s.wake()
		}
	}))
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
