// Package lease lets one process of many do a job: a lease in Redis that one holder has at a time, renewed while the work runs,
// with a fence number that grows from holder to holder.
//
// The time to live is how long a crash goes unnoticed, not how long the job takes: a job of any length keeps its lease by renewing
// it every half of that time. Work is told to stop before another process can have the lease; work that does not listen, and a
// process that is paused in the wrong moment, can overlap with its successor. What the work writes should carry the fence, and the receiver
// refuse a smaller one than it has seen.
package lease

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fencepost-sim/fencepost/engine/host"
	"github.com/fencepost-sim/fencepost/engine/idempotency"
	"github.com/fencepost-sim/fencepost/engine/idempotency/redisport"
	"github.com/fencepost-sim/fencepost/engine/idempotency/redisport/goredis"
)

var (
	// ErrHeld means that another process has the lease. It comes as a *HeldError.
	ErrHeld = errors.New("lease is held")
	// ErrLost is the cause with which the context of the work is cancelled when the lease is, or is about to be, somebody else's.
	ErrLost = errors.New("lease lost")
	// ErrReleased is the cause with which the context of the work is cancelled by Release.
	ErrReleased = errors.New("lease released")
)

// HeldError says for how long the other's lease lasts if it is not renewed. It wraps ErrHeld.
type HeldError struct {
	Name string
	Left time.Duration
}

func (e *HeldError) Error() string { return fmt.Sprintf("%v: %s, for %v", ErrHeld, e.Name, e.Left) }

// Unwrap returns ErrHeld.
func (e *HeldError) Unwrap() error { return ErrHeld }

// Options configures a lease. The zero value is the default.
type Options struct {
	// TTL is how long the lease holds without being renewed: how soon a crash is noticed. Default 15 s, 100 ms to 1 h.
	TTL time.Duration
	// Margin is how long before the end of an unrenewed lease the work is told to stop. Default TTL/5; less than TTL/2.
	Margin time.Duration
	// OnError gets every error of renewing and releasing. It must not block.
	OnError func(error)
	// Host is the machine. Default host.New.
	Host host.Host
}

// Single is a lease that one process holds at a time. It is safe for concurrent use; each Acquire is another holder.
type Single struct {
	name    string
	port    redisport.Port
	options Options
	host    host.Host
}

var names = regexp.MustCompile(`^[A-Za-z0-9._:-]{1,200}$`)

// New returns the lease with the name on a client, which stays the caller's to close.
func New(client redis.UniversalClient, name string, options Options) (*Single, error) {
	port, err := goredis.New(client, goredis.Options{})
	if err != nil {
		return nil, err
	}
	return Over(port, name, options)
}

// Over returns the lease with the name on a port.
func Over(port redisport.Port, name string, options Options) (*Single, error) {
	if !names.MatchString(name) {
		return nil, &idempotency.ConfigurationError{Field: "name", Value: name, Allowed: "1 to 200 letters, digits, '.', '_', ':' and '-'"}
	}
	if options.TTL == 0 {
		options.TTL = 15 * time.Second
	}
	if options.TTL < 100*time.Millisecond || options.TTL > time.Hour {
		return nil, &idempotency.ConfigurationError{Field: "Options.TTL", Value: options.TTL, Allowed: "100ms to 1h"}
	}
	if options.Margin == 0 {
		options.Margin = options.TTL / 5
	}
	if options.Margin < 0 || options.Margin >= options.TTL/2 {
		return nil, &idempotency.ConfigurationError{Field: "Options.Margin", Value: options.Margin, Allowed: "above 0 and below TTL/2"}
	}
	if options.OnError == nil {
		options.OnError = func(error) {}
	}
	if options.Host == nil {
		options.Host = host.New(host.Options{})
	}
	return &Single{name: name, port: port, options: options, host: options.Host}, nil
}

// Acquire takes the lease, or returns a *HeldError. The lease is renewed until Handle.Release, or until ctx is done, which also stops
// the work.
//
// If Redis does not answer, the lease may be held in nobody's hands; it is over after TTL.
func (s *Single) Acquire(ctx context.Context) (handle *Handle, err error) {
	s.host.Enter(func() { handle, err = s.acquire(ctx) })
	return handle, err
}

func (s *Single) acquire(ctx context.Context) (*Handle, error) {
	h := &Handle{lease: s, changed: s.host.NewSignal(), asked: s.host.Monotonic()}
	h.token = mix(s.host.NewID(), s.host.NewID())
	state, err := h.step(ctx, redisport.Acquire)
	if err != nil {
		return nil, fmt.Errorf("acquiring lease %s: %w", s.name, err)
	}
	if !state.Held {
		return nil, &HeldError{Name: s.name, Left: state.Left}
	}
	h.fence = state.Fence
	h.context, h.cancel = context.WithCancelCause(ctx)
	h.renewing = true
	s.host.Go("lease "+s.name, h.keep)
	return h, nil
}

// Do acquires the lease, runs the function and releases the lease when it has returned, also if it panics. It returns a *HeldError if
// the function was not run.
func (s *Single) Do(ctx context.Context, function func(ctx context.Context, fence uint64) error) (err error) {
	handle, err := s.Acquire(ctx)
	if err != nil {
		return err
	}
	defer func() {
		value := recover()
		host.Rethrow(value)
		if released := handle.Release(context.WithoutCancel(ctx)); err == nil {
			err = released
		}
		if value != nil {
			panic(value)
		}
	}()
	return function(handle.Context(), handle.Fence())
}
