// Package faults is the catalogue of what can go wrong in a simulated run, and the plan that says what does.
//
// It is plain data: a plan can be enumerated, drawn at random, shrunk, printed, saved beside a test and replayed. The simulator
// (package sim) makes faults happen.
package faults

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Kind names a fault.
type Kind string

// The catalogue. See Catalogue for what each does.
const (
	Crash     Kind = "crash"
	Freeze    Kind = "freeze"
	Stall     Kind = "stall"
	LoseCall  Kind = "lose-request"
	LoseReply Kind = "lose-reply"
	Refuse    Kind = "refuse-commands"
	Partition Kind = "partition"
	SetClock  Kind = "set-clock"
	Drift     Kind = "clock-drift"
	Gap       Kind = "visibility-gap"
	Drop      Kind = "drop-notifications"
	Delay     Kind = "delay-notifications"
	Duplicate Kind = "duplicate-notifications"
	FailWatch Kind = "fail-stream"
	Unlock    Kind = "unlock"

	Failover Kind = "failover"
	Rollback Kind = "failover-rollback"
	Lag      Kind = "replication-lag"

	RedisFailover Kind = "redis-failover"
)

// Position is where around a point a fault strikes.
type Position string

const (
	// Before the operation is applied: nothing of it happened.
	Before Position = "before"
	// Unanswered: it was applied, and the caller has not seen the reply.
	Unanswered Position = "unanswered"
	// After the caller has seen the reply, and before it does anything else.
	After Position = "after"
)

// Positions lists them in order.
var Positions = []Position{Before, Unanswered, After}

// Entry describes one kind of fault.
type Entry struct {
	Kind Kind
	What string
	// Positions where it can strike around a point; none for faults of the notification stream.
	Positions []Position
	// Span is what Fault.Span means, or empty if the fault has none.
	Span string
	// Zero is what a zero Span means.
	Zero string
	// Signed says that Span may be negative.
	Signed bool
	// Most is the largest Span, in either direction, or zero.
	Most time.Duration
	// Stream says that occurrences count the notifications of a process, not its calls at a point.
	Stream bool
	// Breaks says which promise the fault breaks by itself; such faults are only for scenarios that say so.
	Breaks string
	// Shrinks says how a plan with the fault is made simpler.
	Shrinks string
}

// Catalogue is every fault, one a line.
var Catalogue = []Entry{
	{Kind: Crash, What: "kill the process and restart it",
		Positions: Positions, Span: "restart after", Zero: "never restarts", Shrinks: "remove; first occurrence"},
	{Kind: Freeze, What: "stop all tasks of the process, as SIGSTOP or a long pause does",
		Positions: Positions, Span: "thaw after", Shrinks: "remove; first occurrence"},
	{Kind: Stall, What: "let one call hang while the rest of the process goes on",
		Positions: []Position{Before, Unanswered}, Span: "hang for", Shrinks: "remove; first occurrence"},
	{Kind: LoseCall, What: "lose the request: nothing happened, the caller gets a network error",
		Positions: []Position{Before}, Shrinks: "remove; first occurrence"},
	{Kind: LoseReply, What: "lose the reply: it happened, the caller gets a network error",
		Positions: []Position{Unanswered}, Shrinks: "remove; first occurrence"},
	{Kind: Refuse, What: "the server refuses every command of this step, whoever sends it, with an error that says so",
		Positions: []Position{Before}, Span: "for", Shrinks: "remove; first occurrence"},
	{Kind: Partition, What: "cut the process off from the database, and from the guards' stores: every call and every change stream fails at once",
		Positions: []Position{Before, Unanswered}, Span: "for", Shrinks: "remove; first occurrence"},
	{Kind: SetClock, What: "set the wall clock of the process wrong; it stays wrong over restarts",
		Positions: []Position{Before, After}, Span: "by", Signed: true, Shrinks: "remove; first occurrence"},
	{Kind: Drift, What: "let the clocks of the process, the wall's and the monotonic one, run fast or slow from now on; its timers follow them",
		Positions: []Position{Before, After}, Span: "gained in an hour", Signed: true, Most: 5 * time.Minute, Shrinks: "remove; first occurrence"},
	{Kind: Gap, What: "the server takes the timestamp of a write now, and makes the write visible later",
		Positions: []Position{Before}, Span: "visible after", Shrinks: "remove; first occurrence"},
	{Kind: Drop, What: "drop change-stream notifications", Stream: true, Shrinks: "remove; first occurrence"},
	{Kind: Delay, What: "hold change-stream notifications back", Stream: true, Span: "for", Shrinks: "remove; first occurrence"},
	{Kind: Duplicate, What: "deliver change-stream notifications twice", Stream: true, Shrinks: "remove; first occurrence"},
	{Kind: FailWatch, What: "break the change stream", Stream: true, Shrinks: "remove; first occurrence"},
	{Kind: Failover, What: "the primary hands everything over and steps down; until another is elected, the database can be reached by nobody",
		Positions: []Position{Before, Unanswered}, Span: "elected after", Shrinks: "remove; first occurrence"},
	{Kind: Rollback, What: "the primary loses the other members, so that nothing that it writes is acknowledged; another is elected; " +
		"the process does not notice for as long again; then the old one steps down, and what it wrote is rolled back",
		Positions: []Position{Before, Unanswered}, Span: "elected after", Shrinks: "remove; first occurrence"},
	{Kind: Lag, What: "the primary loses the other members for a while: what it writes is acknowledged, and seen by majority reads, only afterwards",
		Positions: []Position{Before, Unanswered}, Span: "for", Shrinks: "remove; first occurrence"},
	{Kind: Unlock, What: "an operator unlocks every locked attempt by hand, although its worker lives",
		Positions: Positions, Breaks: "at-most-once", Shrinks: "remove; first occurrence"},
	{Kind: RedisFailover, What: "Redis fails over to a replica that has not seen the last writes (count; 1 if none is given)",
		Positions: Positions, Span: "the new clock differs by", Zero: "the same clock", Signed: true,
		Breaks: "effects that are guarded by Redis", Shrinks: "remove; first occurrence"},
}

// Lookup returns the entry of a kind.
func Lookup(kind Kind) (Entry, bool) {
	i := slices.IndexFunc(Catalogue, func(e Entry) bool { return e.Kind == kind })
	if i < 0 {
		return Entry{}, false
	}
	return Catalogue[i], true
}

// Fault is one thing that goes wrong, once.
type Fault struct {
	Kind    Kind
	Process string // its name in the world
	Point   string // where, for faults that strike around a point
	// Occurrence is the how-manieth time the process comes to the point (or gets a notification), from 1.
	Occurrence int
	Position   Position
	Span       time.Duration
	// Count is how many notifications in a row are concerned, or how many writes are lost. All means every one from Occurrence on.
	Count int
}

// AnyProcess, as Fault.Process, is whichever process gets there; occurrences then count over all of them.
const AnyProcess = "any"

// All, as Fault.Count, means every notification from Fault.Occurrence on.
const All = -1

// ErrInvalid is wrapped by every error about a fault or plan that cannot be.
var ErrInvalid = errors.New("faults: invalid")

// Validate returns an error that names the field, its value and what is allowed.
func (f Fault) Validate() error {
	entry, known := Lookup(f.Kind)
	switch {
	case !known:
		return fmt.Errorf("%w: kind %q; allowed: %s", ErrInvalid, f.Kind, kinds())
	case f.Process == "":
		return fmt.Errorf("%w: %s: process is empty; allowed: a process of the world", ErrInvalid, f.Kind)
	case f.Occurrence < 1:
		return fmt.Errorf("%w: %s: occurrence %d; allowed: 1 and more", ErrInvalid, f.Kind, f.Occurrence)
	case f.Span < 0 && !entry.Signed:
		return fmt.Errorf("%w: %s: span %v; allowed: not negative", ErrInvalid, f.Kind, f.Span)
	case entry.Most > 0 && max(f.Span, -f.Span) > entry.Most:
		return fmt.Errorf("%w: %s: span %v; allowed: -%v to %v", ErrInvalid, f.Kind, f.Span, entry.Most, entry.Most)
	case f.Span != 0 && entry.Span == "":
		return fmt.Errorf("%w: %s: span %v; allowed: none for this kind", ErrInvalid, f.Kind, f.Span)
	case f.Span == 0 && entry.Span != "" && entry.Zero == "":
		return fmt.Errorf("%w: %s: span 0; allowed: a duration that is not zero", ErrInvalid, f.Kind)
	}
	if entry.Stream {
		if f.Count != All && f.Count < 1 {
			return fmt.Errorf("%w: %s: count %d; allowed: all (-1), or 1 and more", ErrInvalid, f.Kind, f.Count)
		}
		return nil
	}
	if f.Point == "" {
		return fmt.Errorf("%w: %s: point is empty; allowed: a step of the protocol", ErrInvalid, f.Kind)
	}
	if !slices.Contains(entry.Positions, f.Position) {
		return fmt.Errorf("%w: %s: position %q; allowed: %v", ErrInvalid, f.Kind, f.Position, entry.Positions)
	}
	return nil
}

func kinds() string {
	names := make([]string, len(Catalogue))
	for i, entry := range Catalogue {
		names[i] = string(entry.Kind)
	}
	return strings.Join(names, ", ")
}
