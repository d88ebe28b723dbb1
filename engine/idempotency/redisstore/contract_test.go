package redisstore_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fencepost-sim/fencepost/engine/idempotency/idemtest"
	"github.com/fencepost-sim/fencepost/engine/idempotency/internal/testserver"
	"github.com/fencepost-sim/fencepost/engine/idempotency/redisport"
	"github.com/fencepost-sim/fencepost/engine/idempotency/redisport/goredis"
	"github.com/fencepost-sim/fencepost/engine/idempotency/redisstore"
	"github.com/fencepost-sim/fencepost/sim/redissim"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// locked makes the model, which one task uses at a time, a Port for many.
type locked struct {
	mu    sync.Mutex
	inner redisport.Port
}

func (l *locked) Run(ctx context.Context, calls ...redisport.Call) ([]redisport.Reply, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.inner.Run(ctx, calls...)
}

func (l *locked) Scan(ctx context.Context, scan redisport.Scan) (redisport.Page, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.inner.Scan(ctx, scan)
}

func (l *locked) Check(ctx context.Context) error { return l.inner.Check(ctx) }

// modelled is a store on a model whose clock the test moves.
type modelled struct {
	*redisstore.Store
	server *redissim.Server
	client *redissim.Client
	now    time.Time
}

func newModelled(t *testing.T, seed uint64) *modelled {
	t.Helper()
	m := &modelled{server: redissim.New(redissim.Options{Seed: seed}), now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	m.client = &redissim.Client{Server: m.server, Now: func() time.Time {
		m.now = m.now.Add(time.Microsecond)
		return m.now
	}}
	store, err := redisstore.Over(&locked{inner: m.client}, "svc")
	if err != nil {
		t.Fatal(err)
	}
	m.Store = store
	return m
}

func TestTheModelKeepsTheContract(t *testing.T) {
	for seed := range uint64(4) {
		idemtest.Contract(t, func(t *testing.T) idemtest.Subject {
			m := newModelled(t, seed)
			return idemtest.Subject{
				Store: m.Store,
				Pass:  func(d time.Duration) { m.now = m.now.Add(d) },
				Foreign: func(count int) {
					for i := range count {
						m.server.Foreign(fmt.Sprintf("other:%d", i))
					}
				},
			}
		})
	}
}

func TestARealRedisKeepsTheContract(t *testing.T) {
	client := testserver.RedisClient(t, testserver.Redis(t))
	store, err := redisstore.New(client, "svc", goredis.Options{})
	if err != nil {
		t.Fatal(err)
	}
	idemtest.Contract(t, func(t *testing.T) idemtest.Subject {
		if err := client.FlushAll(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		return idemtest.Subject{
			Store: store,
			Pass:  func(d time.Duration) { testserver.Pass(t, client, d) },
			Foreign: func(count int) {
				pairs := make([]any, 0, 2*count)
				for i := range count {
					pairs = append(pairs, fmt.Sprintf("other:%d", i), "x")
				}
				if err := client.MSet(t.Context(), pairs...).Err(); err != nil {
					t.Fatal(err)
				}
			},
		}
	})
}
