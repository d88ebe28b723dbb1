package wire

import (
	"bytes"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/fencepost-sim/fencepost/engine/store"
	"github.com/fencepost-sim/fencepost/sim/mongosim"
)

// Link is a connection without a network: whoever has a request runs it to its end, on the goroutine that asks. This is how a real driver
// lives in a simulated world, in which nothing may run beside anything else, and waiting is the world's business. Other
// commands may come between while one waits.
type Link struct{ connection connection }

// Surroundings are what a command of a Link asks of the world that it runs in.
type Surroundings struct {
	// Wait returns when something of the server has changed, and at the latest after the time. A command that waits for an event of a change
	// stream names it; otherwise stream is nil.
	Wait func(patience time.Duration, stream Events) error
	// Between is called between two statements of a batch, as other clients' commands may come there.
	Between func()
	// Watch, if set, puts something between a change stream that is opened and the client.
	Watch func(stream *mongosim.Stream) Events
}

// Events is where a cursor takes the events of a change stream from: a *mongosim.Stream, or something that has its way with one.
// An ErrHangUp of NextEvent ends the connection without a reply.
type Events interface {
	NextEvent() (bson.D, error)
	Token() bson.D
	Invalidated() bool
}

var _ Events = (*mongosim.Stream)(nil)

// Link makes a link to a member; the only, or the first, is 0.
func (s *Server) Link(member int) *Link {
	return &Link{connection{server: s, node: s.nodes[member], address: "model:27017", id: s.lastID.Add(1)}}
}

// Answer runs the command of a message and returns the reply, as a message and as the document in it. Both are nil if the client wants none.
// The error is ErrHangUp when the server ends the connection, or says what is wrong with the message.
func (l *Link) Answer(around Surroundings, request []byte) (reply []byte, body bson.D, err error) {
	m, err := readMessage(bytes.NewReader(request))
	if err != nil {
		return nil, nil, err
	}
	m.exhaust = false
	c := l.connection
	c.around = &around
	body, _, end := c.answer(&m)
	l.connection.appName = c.appName
	switch {
	case end:
		return nil, nil, ErrHangUp
	case m.oneWay:
		return nil, nil, nil
	}
	reply, err = encodeReply(m, c.server.lastID.Add(1), body, false)
	return reply, body, err
}

// Refuse makes the reply to a request that the server does not even look at.
func (l *Link) Refuse(request []byte, refusal *store.Error) (reply []byte, err error) {
	m, err := readMessage(bytes.NewReader(request))
	if err != nil {
		return nil, err
	}
	return encodeReply(m, l.connection.server.lastID.Add(1), errorReply(refusal), false)
}

// await waits until the channel is closed, or for the time (without a limit if it is negative), or until the server is closed, which
// alone is an error. A link leaves it to its surroundings.
func (r *request) await(changed <-chan struct{}, patience time.Duration, stream Events) (timedOut bool, err error) {
	if around := r.connection.around; around != nil {
		until := r.now().Add(patience)
		err := around.Wait(patience, stream)
		return patience >= 0 && !r.now().Before(until), err
	}
	var over <-chan time.Time
	if patience >= 0 {
		timer := time.NewTimer(patience)
		defer timer.Stop()
		over = timer.C
	}
	select {
	case <-changed:
		return false, nil
	case <-over:
		return true, nil
	case <-r.life.Done():
		return false, refuse(codeInterruptedAtShutdown, "interrupted at shutdown")
	}
}

// clock is what limits of time are measured by: the machine's, or that of the world around a link.
func (r *request) clock() time.Time {
	if r.connection.around != nil {
		return r.now()
	}
	return time.Now()
}

// between lets others come between two statements of a batch.
func (r *request) between(place int) {
	if around := r.connection.around; around != nil && place > 0 {
		around.Between()
	}
}
