package idempotency

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/fencepost-sim/fencepost/engine/host"
)

// StalePolicy says what becomes of a claim whose owner died.
type StalePolicy uint8

const (
	// Reexecute lets the next request take the claim over. The default.
	Reexecute StalePolicy = iota
	// Pin answers ErrOutcomeUnknown until the record's TTL is over: rather nothing than a second time.
	Pin
)

// Config configures a Guard. Store is required; the zero value of every other field is the default that its comment names.
type Config struct {
	Store Store
	// TTL is how long a key is remembered: from its claim, and anew from its completion. Default 24 h.
	TTL time.Duration
	// Lease is how long a claim holds without a heartbeat; it is renewed every third of it. Default 30 s.
	Lease time.Duration
	// MaxHold is how long a claim is renewed at the most, so that a handler that never returns does not block its key for
	// ever. Default 15 minutes.
	MaxHold time.Duration
	// Classifier judges the errors of guarded functions. Default: the table of NewClassifier.
	Classifier Classifier
	// Stale says what becomes of the claims of the dead. Default Reexecute.
	Stale StalePolicy
	// FailOpen runs functions without a claim while the store is unavailable: availability before safety.
	FailOpen bool
	// Sweeper tunes the sweeper; DisableSweeper does without.
	Sweeper        SweeperConfig
	DisableSweeper bool
	// OnError gets every error that no caller gets. It must not block.
	OnError func(error)
	// Host is the machine. Default host.New.
	Host host.Host
}

// Guard makes side effects happen once. Make one with New, or with the Init of a store. It is safe for concurrent use.
type Guard struct {
	config Config
	host   host.Host

	changed  host.Signal // a renewal or an execution ended, or the guard closes
	held     []*Execution
	watching bool
	started  bool
	closing  bool
	sweeping bool
	stop     context.CancelCauseFunc // of the sweeper
	secret   string                  // of this guard, for its tokens
	tokens   uint64                  // drawn so far
	stats    Stats
}

// Stats counts since New.
type Stats struct {
	Claimed, TakenOver, Replayed, InFlight, Mismatched int64
	Completed, Released, Lost                          int64
	Unstored                                           int64 // results that could not be stored
	Unavailable                                        int64 // claims that the store did not answer
	Unguarded                                          int64 // executions under FailOpen
	Sweep                                              SweepStats
}

// Bounds of the options.
const (
	shortestLease = 10 * time.Millisecond
	longest       = 366 * 24 * time.Hour
)

// New checks the configuration and starts nothing: Start does.
func New(config Config) (*Guard, error) {
	if config.Store == nil {
		return nil, &ConfigurationError{"Config.Store", nil, "a store, for example of package redisstore"}
	}
	if config.Stale > Pin {
		return nil, &ConfigurationError{"Config.Stale", config.Stale, "Reexecute or Pin"}
	}
	for _, err := range []error{
		between("Config.TTL", &config.TTL, 24*time.Hour, time.Millisecond, longest),
		between("Config.Lease", &config.Lease, 30*time.Second, shortestLease, 24*time.Hour),
		between("Config.MaxHold", &config.MaxHold, 15*time.Minute, shortestLease, longest),
		config.Sweeper.complete(),
	} {
		if err != nil {
			return nil, err
		}
	}
	if config.Classifier == nil {
		config.Classifier, _ = NewClassifier() // cannot fail without options
	}
	if config.OnError == nil {
		config.OnError = func(error) {}
	}
	if config.Host == nil {
		config.Host = newRealHost()
	}
	return &Guard{config: config, host: config.Host, changed: config.Host.NewSignal()}, nil
}

func between(field string, value *time.Duration, byDefault, least, most time.Duration) error {
	if *value == 0 {
		*value = byDefault
	}
	if *value < least || *value > most {
		return &ConfigurationError{field, *value, fmt.Sprintf("%v to %v", least, most)}
	}
	*value = value.Truncate(time.Millisecond)
	return nil
}

// Init is the whole bootstrap: New, then Start.
func Init(ctx context.Context, config Config) (*Guard, error) {
	g, err := New(config)
	if err != nil {
		return nil, err
	}
	return g, g.Start(ctx)
}

// Start asks the store whether it can be trusted, if it can tell, and arms the sweeper. ctx bounds the start only; Shutdown
// ends the guard. Starting again does nothing.
func (g *Guard) Start(ctx context.Context) error {
	if checker, ok := g.config.Store.(Checker); ok {
		if err := checker.Check(ctx); err != nil {
			return fmt.Errorf("idempotency: the store cannot be used: %w", err)
		}
	}
	g.host.Enter(func() {
		if g.started || g.closing {
			return
		}
		g.started = true
		if !g.config.DisableSweeper {
			g.armSweeper()
		}
	})
	return nil
}

// Shutdown stops the sweeper, gives its turn back, refuses new executions and waits for those that run, which go on undisturbed. When
// ctx is done first it returns its cause; calling it again goes on waiting.
func (g *Guard) Shutdown(ctx context.Context) (err error) {
	g.host.Enter(func() {
		g.closing = true
		if g.stop != nil {
			g.stop(ErrClosed)
		}
		g.changed.Broadcast()
		for g.sweeping || g.watching || len(g.held) > 0 {
			if ctx.Err() != nil {
				err = fmt.Errorf("idempotency: shutdown: %d executions still run: %w", len(g.held), context.Cause(ctx))
				return
			}
			g.changed.Wait(ctx, -1)
		}
	})
	return err
}

// Stats returns what was counted so far.
func (g *Guard) Stats() (stats Stats) {
	g.host.Enter(func() { stats = g.stats })
	return stats
}

// Config returns the configuration with all defaults filled in.
func (g *Guard) Config() Config { return g.config }

// report passes an error that no caller gets to OnError, which may do what it likes.
func (g *Guard) report(err error) {
	g.host.GiveWay(func() {
		defer func() { host.Rethrow(recover()) }()
		g.config.OnError(err)
	})
}

// ask runs one call of the store outside the turn.
func (g *Guard) ask(call func() error) (err error) {
	g.host.GiveWay(func() { err = call() })
	return err
}

// newToken draws a token from ids of the host: three for each, two of which are the guard's own and are drawn once. If they are
// random UUIDv7, that is 222 random bits, 74 of them new.
func (g *Guard) newToken() (token Token) {
	if g.secret == "" {
		g.secret = g.host.NewID() + g.host.NewID()
	}
	g.tokens++
	var space [128]byte
	seed := append(append(space[:0], g.secret...), g.host.NewID()...)
	sum := sha256.Sum256(binary.BigEndian.AppendUint64(seed, g.tokens))
	copy(token[:], sum[:])
	return token
}

// unavailable wraps what a store said when it did not answer.
func unavailable(err error) error {
	if errors.Is(err, ErrUnavailable) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, err)
}
