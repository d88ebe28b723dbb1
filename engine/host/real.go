package host

import (
	"context"
	"runtime/pprof"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
)

// Options adjusts a Real host. The zero value is what production uses.
type Options struct {
	// Now replaces the wall clock; nil means time.Now. Timers and Monotonic are not affected.
	Now func() time.Time
	// NewID replaces the source of ids; nil means random UUIDv7.
	NewID func() string
}

// Real is the host that production runs on: tasks are goroutines, the clocks are the machine's, and the turn is one
// token that goes from goroutine to goroutine in the order in which they asked for it.
//
// Go, Sleep, GiveWay and the methods of Signals must be called by the holder of the turn, as Host demands.
// Giving away a turn that nobody holds panics. Enter and Wait are called by everybody else;
// calling them while holding the turn would wait for oneself forever.
type Real struct {
	now   func() time.Time
	newID func() string
	start time.Time
	slept sleepMeter
	turn  turn
	tasks sync.WaitGroup
}

var _ Host = (*Real)(nil)

// New returns a host without tasks, whose turn is free.
func New(options Options) *Real {
	h := &Real{now: options.Now, newID: options.NewID, start: time.Now(), slept: sleepMeter{start: suspended()}}
	if h.now == nil {
		h.now = time.Now
	}
	if h.newID == nil {
		h.newID = newUUID
	}
	return h
}

// newUUID returns ids that grow within this process, so that they make good index keys. It panics when
// the system has no randomness to offer, since ids that repeat would be worse.
func newUUID() string { return uuid.Must(uuid.NewV7()).String() }

// Now returns the wall clock.
func (h *Real) Now() time.Time { return h.now() }

// Monotonic returns the time since New. On Linux it goes on while the machine is suspended, so that a worker that slept knows how
// old its leases are. On other systems it is Go's monotonic clock, which may stand still meanwhile.
func (h *Real) Monotonic() time.Duration { return time.Since(h.start) + h.slept.since() }

// sleepMeter tells for how long the machine has been suspended since the meter was made.
type sleepMeter struct {
	start time.Duration
	known atomic.Int64 // nanoseconds
}

// since passes over what lies between the readings of two clocks: the time that it tells stands still while the machine is up.
func (m *sleepMeter) since() time.Duration {
	known := time.Duration(m.known.Load())
	if now := suspended() - m.start; now-known > time.Millisecond {
		m.known.Store(int64(now))
		return now
	}
	return known
}

// NewID returns a new UUIDv7.
func (h *Real) NewID() string { return h.newID() }

// Go starts a task on its own goroutine. Its place in the queue for the turn is taken before Go returns, so tasks
// begin in the order in which they were started. The name becomes the goroutine's profiler label "task". A
// panic of the task is not recovered: the turn is released and the program ends, as for any goroutine.
func (h *Real) Go(name string, task func()) {
	first := h.turn.queue()
	labels := pprof.WithLabels(context.Background(), pprof.Labels("task", name))
	h.tasks.Go(func() {
		pprof.SetGoroutineLabels(labels)
		<-first.reached
		defer h.turn.release()
		task()
	})
}

// Wait blocks until all tasks have ended, including those that they start. The caller must not hold
// the turn, and nobody else may start a first task meanwhile.
func (h *Real) Wait() { h.tasks.Wait() }

// Sleep gives the turn away for at least the duration, and also when the duration is zero or negative. When
// ctx is done it returns context.Cause(ctx) as soon as it gets the turn back.
func (h *Real) Sleep(ctx context.Context, duration time.Duration) error {
	h.turn.release()
	defer h.turn.take()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if duration <= 0 {
		return nil
	}
	timer := time.NewTimer(duration)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// GiveWay runs the function without the turn. However the function ends, by returning, by a panic or by
// runtime.Goexit, the turn is taken again first.
func (h *Real) GiveWay(outside func()) {
	h.turn.release()
	defer h.turn.take()
	outside()
}

// Enter runs the function with the turn. However the function ends, the turn is given back.
func (h *Real) Enter(inside func()) {
	h.turn.take()
	defer h.turn.release()
	inside()
}

// NewSignal returns a Signal whose waiters wait for this host's turn.
func (h *Real) NewSignal() Signal { return &signal{host: h} }

// signal is a broadcast that is forgotten when nobody waits. Its field needs no lock: it
// is only touched by the holder of the turn.
type signal struct {
	host *Real
	next chan struct{} // closed by the next Broadcast; nil while nobody waits
}

// Wait joins the waiters before it gives the turn away, so a Broadcast by whoever has the turn next is seen. A
// Broadcast that comes after the timeout, but before the waiter has its turn back, still counts:
// the waiter is told what it would otherwise have to find out.
func (s *signal) Wait(ctx context.Context, timeout time.Duration) bool {
	if s.next == nil {
		s.next = make(chan struct{})
	}
	next := s.next
	s.host.GiveWay(func() { await(ctx, next, timeout) })
	select {
	case <-next:
		return true
	default:
		return false
	}
}

// await returns when the channel is closed, ctx is done, or the timeout has passed, if it is not negative.
func await(ctx context.Context, closed <-chan struct{}, timeout time.Duration) {
	var expired <-chan time.Time
	if timeout >= 0 {
		timer := time.NewTimer(timeout)
		defer timer.Stop()
		expired = timer.C
	}
	select {
	case <-closed:
	case <-expired:
	case <-ctx.Done():
	}
}

// Broadcast wakes all tasks that wait now.
func (s *signal) Broadcast() {
	if s.next != nil {
		close(s.next)
		s.next = nil
	}
}
