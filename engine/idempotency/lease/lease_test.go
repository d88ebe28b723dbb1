package lease_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"os"
	"os/exec"
	"reflect"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/fencepost-sim/fencepost/engine/host"
	"github.com/fencepost-sim/fencepost/engine/idempotency"
	"github.com/fencepost-sim/fencepost/engine/idempotency/internal/testserver"
	"github.com/fencepost-sim/fencepost/engine/idempotency/lease"
	"github.com/fencepost-sim/fencepost/engine/idempotency/redisport"
	"github.com/fencepost-sim/fencepost/engine/idempotency/worker"
	"github.com/fencepost-sim/fencepost/sim/redissim"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// port makes the model, which one task uses at a time, a Port for many. A call takes as long as delay says.
type port struct {
	mu    sync.Mutex
	inner *redissim.Client
	delay time.Duration
}

// change changes the port under the eyes of those who use it.
func (p *port) change(strike func(string) redissim.Fault, delay time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.inner.Strike, p.delay = strike, delay
}

func (p *port) Run(ctx context.Context, calls ...redisport.Call) ([]redisport.Reply, error) {
	p.mu.Lock()
	delay := p.delay
	p.mu.Unlock()
	time.Sleep(delay)
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.inner.Run(ctx, calls...)
}

func (p *port) Scan(ctx context.Context, scan redisport.Scan) (redisport.Page, error) {
	return p.inner.Scan(ctx, scan)
}

func (p *port) Check(ctx context.Context) error { return p.inner.Check(ctx) }

func modelled() *port {
	return &port{inner: &redissim.Client{Server: redissim.New(redissim.Options{}), Now: time.Now}}
}

const ttl = 10 * time.Second

func single(t *testing.T, p redisport.Port) *lease.Single {
	t.Helper()
	s, err := lease.Over(p, "job", lease.Options{TTL: ttl, OnError: func(err error) { t.Logf("reported: %v", err) }})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func acquire(t *testing.T, s *lease.Single) *lease.Handle {
	t.Helper()
	h, err := s.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func release(t *testing.T, h *lease.Handle) {
	t.Helper()
	if err := h.Release(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestR50OneHolderAtATimeAndTheFenceGrows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := modelled()
		first := acquire(t, single(t, p))
		_, err := single(t, p).Acquire(t.Context())
		var held *lease.HeldError
		if !errors.As(err, &held) || held.Left <= 0 || held.Left > ttl || !errors.Is(err, lease.ErrHeld) {
			t.Errorf("a second holder: %v", err)
		}
		release(t, first)
		release(t, first) // again: nothing
		if context.Cause(first.Context()) != lease.ErrReleased {
			t.Errorf("the context of the work ended by %v", context.Cause(first.Context()))
		}
		second := acquire(t, single(t, p))
		if second.Fence() <= first.Fence() {
			t.Errorf("fence %d after %d", second.Fence(), first.Fence())
		}
		release(t, second)
	})
}

func TestR50AJobOfTwentyTimesTheTTLKeepsItsLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := modelled()
		err := single(t, p).Do(t.Context(), func(ctx context.Context, fence uint64) error {
			for range 20 * 4 {
				time.Sleep(ttl / 4)
				if _, err := single(t, p).Acquire(ctx); !errors.Is(err, lease.ErrHeld) {
					t.Fatalf("another holder: %v", err)
				}
			}
			return ctx.Err()
		})
		if err != nil {
			t.Error(err)
		}
	})
}

func TestR50TheLeaseIsRenewedAtHalfItsTimeAndOneFailureIsBorne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, renewals, began := modelled(), []time.Duration{}, time.Now()
		p.inner.Strike = func(string) redissim.Fault {
			renewals = append(renewals, time.Since(began))
			if len(renewals) == 2 { // the first renewal
				return redissim.LoseRequest
			}
			return redissim.NoFault
		}
		h := acquire(t, single(t, p))
		time.Sleep(ttl + time.Second)
		synctest.Wait()
		if h.Context().Err() != nil {
			t.Errorf("one lost renewal stopped the work: %v", context.Cause(h.Context()))
		}
		if want := ttl / 2; renewals[1] != want || renewals[2] <= want || renewals[2] > ttl*3/4 {
			t.Errorf("renewed at %v", renewals)
		}
		release(t, h)
	})
}

func TestTheWorkIsToldBeforeAnotherCanHaveTheLease(t *testing.T) {
	for name, cut := range map[string]func(p *port){
		"every renewal is lost": func(p *port) {
			p.change(func(string) redissim.Fault { return redissim.LoseRequest }, 0)
		},
		"every renewal hangs": func(p *port) { p.change(nil, time.Minute) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, began := modelled(), time.Now()
				h := acquire(t, single(t, p))
				cut(p)
				<-h.Context().Done()
				if told := time.Since(began); context.Cause(h.Context()) != lease.ErrLost || told >= ttl || told < ttl/2 {
					t.Errorf("told after %v: %v", told, context.Cause(h.Context()))
				}
				p.change(nil, 0)
				if err := h.Release(t.Context()); !errors.Is(err, lease.ErrLost) {
					t.Errorf("release: %v", err)
				}
				time.Sleep(2 * time.Minute) // what hung comes back, and changes nothing
			})
		})
	}
}

func TestAHolderThatWasOvertakenIsToldAndCannotReleaseTheOthersLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := modelled()
		first := acquire(t, single(t, p))
		time.Sleep(time.Millisecond)
		p.inner.Server.Flush() // data loss: the lease is free
		second := acquire(t, single(t, p))
		<-first.Context().Done()
		if context.Cause(first.Context()) != lease.ErrLost || second.Fence() <= first.Fence() {
			t.Errorf("%v; fence %d after %d", context.Cause(first.Context()), second.Fence(), first.Fence())
		}
		if err := first.Release(t.Context()); !errors.Is(err, lease.ErrLost) {
			t.Errorf("release: %v", err)
		}
		if _, err := single(t, p).Acquire(t.Context()); !errors.Is(err, lease.ErrHeld) {
			t.Errorf("the second holder lost its lease: %v", err)
		}
		release(t, second)
	})
}

func TestR50TheLeaseIsReleasedInTheEndWhateverTheWorkDoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, failure := modelled(), errors.New("no luck")
		s := single(t, p)
		if err := s.Do(t.Context(), func(context.Context, uint64) error { return failure }); err != failure {
			t.Errorf("got %v", err)
		}
		func() {
			defer func() {
				if value := recover(); value != "boom" {
					t.Errorf("recovered %v", value)
				}
			}()
			_ = s.Do(t.Context(), func(context.Context, uint64) error { panic("boom") })
		}()
		ctx, cancel := context.WithCancel(t.Context())
		err := s.Do(ctx, func(inner context.Context, _ uint64) error {
			cancel()
			<-inner.Done()
			return inner.Err()
		})
		if !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		release(t, acquire(t, s))
	})
}

func TestADeadHolderIsFollowedAfterItsTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := modelled()
		ctx, die := context.WithCancel(t.Context())
		if _, err := single(t, p).Acquire(ctx); err != nil {
			t.Fatal(err)
		}
		die()
		time.Sleep(ttl - time.Millisecond)
		if _, err := single(t, p).Acquire(t.Context()); !errors.Is(err, lease.ErrHeld) {
			t.Errorf("too early: %v", err)
		}
		time.Sleep(time.Millisecond)
		release(t, acquire(t, single(t, p)))
	})
}

// The fence must grow although its counter is lost and the clock of the new master is behind by less than the outage took.
func TestFencesGrowAcrossAFailoverThatLosesTheCounter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, last := modelled(), uint64(0)
		for range 50 {
			h := acquire(t, single(t, p))
			if h.Fence() <= last {
				t.Fatalf("fence %d after %d", h.Fence(), last)
			}
			last = h.Fence()
			release(t, h)
			time.Sleep(time.Second)
			p.inner.Server.Failover(2, -900*time.Millisecond)
		}
	})
}

func TestWrongOptionsOfALeaseAreRefused(t *testing.T) {
	for name, o := range map[string]lease.Options{
		"ttl too short": {TTL: time.Millisecond}, "ttl too long": {TTL: 2 * time.Hour},
		"margin negative": {Margin: -1}, "margin too large": {TTL: time.Second, Margin: 600 * time.Millisecond},
	} {
		if _, err := lease.Over(modelled(), "job", o); !errors.Is(err, idempotency.ErrConfiguration) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, name := range []string{"", "a*", "a b"} {
		if _, err := lease.Over(modelled(), name, lease.Options{}); !errors.Is(err, idempotency.ErrConfiguration) {
			t.Errorf("name %q: %v", name, err)
		}
	}
}

func TestR50ARealRedisKeepsTheLease(t *testing.T) {
	client := testserver.RedisClient(t, testserver.Redis(t))
	// Time is real here: a machine that stands still for as long as a TTL loses the lease, and should.
	s, err := lease.New(client, "job", lease.Options{TTL: 1200 * time.Millisecond, Host: host.New(host.Options{})})
	if err != nil {
		t.Fatal(err)
	}
	var last uint64
	for range 2 {
		err := s.Do(t.Context(), func(ctx context.Context, fence uint64) error {
			if fence <= last {
				t.Errorf("fence %d after %d", fence, last)
			}
			last = fence
			testserver.Pass(t, client, 2500*time.Millisecond) // more than twice the TTL
			if _, err := s.Acquire(ctx); !errors.Is(err, lease.ErrHeld) {
				t.Errorf("a second holder: %v", err)
			}
			return ctx.Err()
		})
		if err != nil {
			t.Error(err)
		}
	}
	ctx, die := context.WithCancel(t.Context())
	if _, err := s.Acquire(ctx); err != nil {
		t.Fatal(err)
	}
	die()
	testserver.Pass(t, client, 1210*time.Millisecond)
	release(t, acquire(t, s))
}

func TestR51OneImplementationUnderTwoNames(t *testing.T) {
	if reflect.TypeFor[worker.SingleActiveLease]() != reflect.TypeFor[lease.Single]() {
		t.Error("the types differ")
	}
	if reflect.ValueOf(worker.NewSingleActiveLease).Pointer() != reflect.ValueOf(lease.New).Pointer() {
		t.Error("the constructors differ")
	}
}

var update = flag.Bool("update", false, "write the golden file anew")

func TestR51TheExportedSurfaceIsPinned(t *testing.T) {
	const golden = "testdata/surface.txt"
	text, err := exec.Command("go", "doc", "-all", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	var got []byte // declarations, without what is said about them
	for line := range bytes.Lines(text[bytes.Index(text, []byte("VARIABLES")):]) {
		if trimmed := bytes.TrimSpace(line); len(trimmed) > 0 && !bytes.HasPrefix(trimmed, []byte("//")) && !bytes.HasPrefix(line, []byte("    ")) {
			got = append(got, line...)
		}
	}
	if *update {
		if err := os.WriteFile(golden, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != string(want) {
		t.Errorf("the surface changed; if it is meant to, run the test with -update:\n%s", got)
	}
}
