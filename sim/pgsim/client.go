package pgsim

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/fencepost-sim/fencepost/engine/host"
	"github.com/fencepost-sim/fencepost/engine/idempotency/pgport"
)

// Fault is what happens to one request.
type Fault uint8

// The faults. The caller cannot tell them apart; the connection is gone in both cases, and its transaction with it.
const (
	NoFault     Fault = iota
	LoseRequest       // the server never saw it
	LoseReply         // the server did it
)

// Point of COMMIT; all other points are names of statements, and "begin".
const PointCommit = "commit"

// Client is a port on a server: a pool of connections.
type Client struct {
	server  *Server
	host    host.Host
	now     func() time.Time
	changed host.Signal
	open    []*Tx

	// Connections is the size of the pool; zero means no limit.
	Connections int
	// Strike, if set, decides what happens to a request.
	Strike func(point string) Fault
}

var _ pgport.DB = (*Client)(nil)

// NewClient returns a pool of connections. Whoever waits for another transaction, or for a connection, waits on the host. All
// clients of a server share one host, whose turn is what serialises the server's steps, or have hosts of one simulated world.
func NewClient(server *Server, h host.Host, now func() time.Time) *Client {
	c := &Client{server: server, host: h, now: now, changed: h.NewSignal()}
	server.clients = append(server.clients, c)
	return c
}

// Disconnect is what the server does when the process of the pool has died: it rolls back what is open. Clients of other processes
// that waited for it go on.
func (c *Client) Disconnect() {
	for len(c.open) > 0 {
		c.open[0].Drop()
	}
	c.server.clients = slices.DeleteFunc(c.server.clients, func(other *Client) bool { return other == c })
}

func (c *Client) strike(point string) Fault {
	if c.Strike == nil {
		return NoFault
	}
	return c.Strike(point)
}

// Begin implements pgport.DB.
func (c *Client) Begin(ctx context.Context, isolation pgport.Isolation) (pgport.Tx, error) {
	tx, err := c.Open(ctx, isolation)
	if err != nil {
		return nil, err
	}
	return tx, nil
}

// Open is Begin, for who wants to look into the transaction, or lose it.
func (c *Client) Open(ctx context.Context, isolation pgport.Isolation) (tx *Tx, err error) {
	c.host.Enter(func() {
		for c.Connections > 0 && len(c.open) >= c.Connections && ctx.Err() == nil {
			c.changed.Wait(ctx, -1)
		}
		switch {
		case ctx.Err() != nil:
			err = context.Cause(ctx)
		case c.strike("begin") != NoFault:
			err = lost()
		default:
			tx = &Tx{client: c, transaction: c.server.begin(c.now(), isolation)}
			c.open = append(c.open, tx)
		}
	})
	return tx, err
}

func lost() error { return fmt.Errorf("pgsim: connection lost: %w", pgport.ErrUnknownOutcome) }

// Tx is one transaction on one connection.
type Tx struct {
	client      *Client
	transaction *transaction
	over        bool
}

// Exec implements pgport.Tx.
func (t *Tx) Exec(ctx context.Context, statement *pgport.Statement, args ...any) (int64, error) {
	a, err := t.run(ctx, statement, args)
	return a.rows, err
}

// Text implements pgport.Tx.
func (t *Tx) Text(ctx context.Context, statement *pgport.Statement, args ...any) (string, error) {
	a, err := t.run(ctx, statement, args)
	return a.text, err
}

// run makes a request, and waits as long as it has to, within lock_timeout.
func (t *Tx) run(ctx context.Context, statement *pgport.Statement, args []any) (a answer, err error) {
	c := t.client
	c.host.Enter(func() {
		if t.over || !slices.Contains(c.server.open, t.transaction) || c.strike(statement.Name) != NoFault {
			t.close(false)
			err = lost()
			return
		}
		asked := c.host.Monotonic()
		for {
			a, err = c.server.exec(t.transaction, c.now(), statement, args)
			if err != nil || a.waitFor == 0 {
				return
			}
			patience := time.Duration(-1)
			if timeout := t.transaction.lockTimeout; timeout > 0 {
				patience = max(0, timeout-(c.host.Monotonic()-asked))
			}
			if !c.changed.Wait(ctx, patience) {
				if err = c.server.timeOut(t.transaction); ctx.Err() != nil {
					err = context.Cause(ctx)
				}
				return
			}
		}
	})
	return a, err
}

// close ends the transaction on the server and frees the connection.
func (t *Tx) close(commit bool) error {
	if t.over {
		return nil
	}
	t.over = true
	c := t.client
	err := c.server.end(t.transaction, commit)
	c.open = slices.DeleteFunc(c.open, func(other *Tx) bool { return other == t })
	for _, other := range c.server.clients {
		other.changed.Broadcast()
	}
	return err
}

// Drop is the loss of the connection: the server rolls back what is not committed. It is called by who has the turn.
func (t *Tx) Drop() { _ = t.close(false) }

// Over tells whether the transaction has ended, or its connection is lost.
func (t *Tx) Over() bool { return t.over }

// Claim is a row of the table.
type Claim struct {
	Event, Topic string
	At           time.Time
}

// Claims lists what the transaction has claimed so far.
func (t *Tx) Claims() (claims []Claim) {
	for _, r := range t.transaction.changes.inserted {
		claims = append(claims, Claim{r.event, r.topic, r.at})
	}
	return claims
}

// Commit implements pgport.Tx.
func (t *Tx) Commit(context.Context) (err error) {
	t.client.host.Enter(func() {
		gone := t.over || !slices.Contains(t.client.server.open, t.transaction)
		fault := t.client.strike(PointCommit)
		err = t.close(fault != LoseRequest)
		if gone || fault != NoFault {
			err = lost()
		}
	})
	return err
}

// Rollback implements pgport.Tx.
func (t *Tx) Rollback(context.Context) (err error) {
	t.client.host.Enter(func() { err = t.close(false) })
	return err
}
