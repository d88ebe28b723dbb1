package redissim

import (
	"context"
	"time"

	"github.com/fencepost-sim/fencepost/engine/idempotency/redisport"
)

// Fault is what happens to one round trip.
type Fault uint8

// The faults. The caller cannot tell them apart.
const (
	NoFault     Fault = iota
	LoseRequest       // nothing was applied
	LoseReply         // everything was applied
	CutMidway         // of several calls, the first half was applied
)

// Client is a Port on a server in the same process. It is used by one task at a time.
type Client struct {
	Server *Server
	// Now is the true time; the server's clock may differ.
	Now func() time.Time
	// Strike, if set, decides what happens to a round trip. The point is the name of its first script, or "scan".
	Strike func(point string) Fault
	// Repeats is how often the network client sends a round trip again that failed, without telling the caller.
	Repeats int
}

var _ redisport.Port = (*Client)(nil)

// Run implements redisport.Port.
func (c *Client) Run(ctx context.Context, calls ...redisport.Call) (replies []redisport.Reply, err error) {
	for try := 0; try <= c.Repeats; try++ {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx) // go-redis sends nothing under a context that is done
		}
		if replies, err = c.once(calls); err == nil {
			break
		}
	}
	return replies, err
}

func (c *Client) once(calls []redisport.Call) ([]redisport.Reply, error) {
	fault := c.strike(calls[0].Script.Name)
	switch fault {
	case LoseRequest:
		return nil, ErrLost
	case CutMidway:
		calls = calls[:len(calls)/2]
	}
	replies, err := c.Server.Run(c.Now(), calls...)
	if fault != NoFault && err == nil {
		return nil, ErrLost
	}
	return replies, err
}

func (c *Client) strike(point string) Fault {
	if c.Strike == nil {
		return NoFault
	}
	return c.Strike(point)
}

// Scan implements redisport.Port.
func (c *Client) Scan(ctx context.Context, scan redisport.Scan) (redisport.Page, error) {
	if ctx.Err() != nil {
		return redisport.Page{}, context.Cause(ctx)
	}
	if c.strike("scan") != NoFault {
		return redisport.Page{}, ErrLost
	}
	return c.Server.Scan(c.Now(), scan)
}

// Check implements redisport.Port.
func (c *Client) Check(context.Context) error { return c.Server.Check() }
