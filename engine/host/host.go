// Package host is the port between the delivery protocol and the machine it runs on: clocks, ids, tasks, sleeping and
// waking.
//
// # Turns
//
// Tasks of one host take turns. A task keeps its turn until it calls Sleep, Signal.Wait or GiveWay, or until it
// ends; between two such calls no other task of the same host runs. Code above the port is therefore written as
// if it were single-threaded between those calls and needs no locks. It holds in production, where the real host
// hands one token from goroutine to goroutine, and in a simulation, where tasks are coroutines: the
// simulator explores every interleaving that production can have.
//
// Work that may run in parallel with the bookkeeping (a database call, a user's handler) is passed to GiveWay.
package host

import (
	"context"
	"time"
)

// Host answers what the engine must not ask the runtime for. All methods but Enter, and the methods of its
// Signals, are called by a task that holds the turn. Enter is called by everybody else.
type Host interface {
	// Now is the wall clock of this process. It can be wrong, and it can step back.
	Now() time.Time
	// Monotonic is the time since an arbitrary start, on a clock that never steps back.
	// Leases are measured against it.
	Monotonic() time.Duration
	// NewID returns a new UUIDv7 in its textual form.
	NewID() string
	// Go starts a task, which waits for its first turn. The name is for people.
	Go(name string, task func())
	// Sleep gives the turn away for at least the duration. It returns early with
	// context.Cause(ctx) when ctx is done.
	Sleep(ctx context.Context, duration time.Duration) error
	// NewSignal returns a Signal that belongs to this host.
	NewSignal() Signal
	// GiveWay runs the function outside the turn and takes the turn again before it returns.
	GiveWay(outside func())
	// Enter takes the turn, runs the function on the caller's goroutine, and gives the turn back. Whoever does not
	// hold the turn (callers of the public API, user handlers inside GiveWay) comes in through it.
	Enter(inside func())
}

// Signal wakes waiting tasks. A Broadcast with nobody waiting is forgotten, so a waiter
// first looks at the state that it waits for: no turn is lost between looking and waiting.
type Signal interface {
	// Wait gives the turn away until the next Broadcast (true), or until the timeout has passed or
	// ctx is done (false). A negative timeout means no timeout.
	Wait(ctx context.Context, timeout time.Duration) bool
	// Broadcast wakes all tasks that wait now. They run when they get their turn.
	Broadcast()
}

// Killed is the panic value with which a simulated process is unwound when it is killed. Code that recovers
// panics of user functions hands every recovered value to Rethrow first, since the dead do not handle errors.
type Killed struct{}

func (Killed) Error() string { return "the simulated process was killed" }

// Rethrow panics again with value if it is the mark of a killed process, and does
// nothing otherwise.
func Rethrow(value any) {
	if _, dead := value.(Killed); dead {
		panic(value)
	}
}
