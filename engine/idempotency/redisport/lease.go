package redisport

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/fencepost-sim/fencepost/engine/idempotency"
	"github.com/fencepost-sim/fencepost/engine/idempotency/record"
)

// LeaseVerb is what to do with a lease.
type LeaseVerb string

// The verbs.
const (
	Acquire LeaseVerb = "acquire"
	Renew   LeaseVerb = "renew"
	GiveUp  LeaseVerb = "release"
)

// LeaseStep is one step of a lease that one holder has at a time.
type LeaseStep struct {
	Verb   LeaseVerb
	Key    string
	Token  idempotency.Token
	TTL    time.Duration
	Cursor *string // to store beside the lease, if not nil; not with Acquire
}

// LeaseState is the answer to a LeaseStep.
type LeaseState struct {
	Held   bool
	Left   time.Duration // of somebody else's lease
	Fence  uint64
	Cursor string
}

// Call is the step as a call.
func (s LeaseStep) Call() Call {
	save, cursor := "0", ""
	if s.Cursor != nil {
		save, cursor = "1", *s.Cursor
	}
	return Call{Lease, s.Key, []string{
		string(s.Verb), s.Token.String(), Milliseconds(s.TTL), save, cursor, Milliseconds(record.KeepLease),
	}}
}

// Run makes the step.
func (s LeaseStep) Run(ctx context.Context, port Port) (state LeaseState, err error) {
	reply, err := Run(ctx, port, s.Call(), 4)
	if err != nil {
		return state, err
	}
	state.Held, state.Cursor = reply[0] == "held", reply[3]
	if state.Left, err = Span(reply[1]); err != nil {
		return state, err
	}
	if state.Fence, err = strconv.ParseUint(reply[2], 10, 64); err != nil {
		return state, fmt.Errorf("redis: the lease's fence: %w", err)
	}
	return state, nil
}

// Run makes one call whose reply has so many parts, unless the record's version is unknown.
func Run(ctx context.Context, port Port, call Call, parts int) (Reply, error) {
	replies, err := port.Run(ctx, call)
	if err != nil {
		return nil, fmt.Errorf("redis: %s: %w", call.Script.Name, err)
	}
	if len(replies) != 1 || len(replies[0]) == 0 || (replies[0][0] != "version" && len(replies[0]) != parts) {
		return nil, fmt.Errorf("redis: %s answered %q; want %d parts", call.Script.Name, replies, parts)
	}
	return replies[0], nil
}

// Milliseconds writes a duration for a script.
func Milliseconds(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

// Span reads a number of milliseconds that a script answered.
func Span(text string) (time.Duration, error) {
	ms, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("redis: a span of milliseconds: %w", err)
	}
	return time.Duration(ms) * time.Millisecond, nil
}
