package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fencepost-sim/fencepost/engine/idempotency"
	"github.com/fencepost-sim/fencepost/engine/idempotency/internal/testserver"
	"github.com/fencepost-sim/fencepost/engine/idempotency/redisport"
	"github.com/fencepost-sim/fencepost/engine/idempotency/redisport/goredis"
	"github.com/fencepost-sim/fencepost/engine/idempotency/redisstore"
)

// counter is a hook that counts round trips.
type counter struct{ trips atomic.Int64 }

func (c *counter) DialHook(next redis.DialHook) redis.DialHook { return next }

func (c *counter) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, command redis.Cmder) error {
		c.trips.Add(1)
		return next(ctx, command)
	}
}

func (c *counter) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, commands []redis.Cmder) error {
		c.trips.Add(1)
		return next(ctx, commands)
	}
}

func TestAFirstCallCostsTwoRoundTripsAndEveryOtherAnswerOne(t *testing.T) {
	client := testserver.RedisClient(t, testserver.Redis(t))
	trips := &counter{}
	client.AddHook(trips)
	g, err := redisstore.Init(t.Context(), client, "svc", idempotency.Config{DisableSweeper: true})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Shutdown(context.Background())
	cost := func(name string, want int64, call func() error, wanted error) {
		t.Helper()
		before := trips.trips.Load()
		if err := call(); !errors.Is(err, wanted) {
			t.Errorf("%s: got %v", name, err)
		}
		if got := trips.trips.Load() - before; got != want {
			t.Errorf("%s: %d round trips, want %d", name, got, want)
		}
	}
	runs := 0
	call := func(fingerprint idempotency.Fingerprint, inside func()) func() error {
		return func() error {
			op := idempotency.Op{Key: op.Key, Fingerprint: fingerprint}
			_, _, err := idempotency.Do(t.Context(), g, op, idempotency.JSON[int](), func(context.Context) (int, error) {
				inside()
				runs++
				return runs, nil
			})
			return err
		}
	}
	nothing := func() {}
	cost("first call, with one that finds it in flight", 2+1, call("c1:a", func() {
		cost("in flight (409)", 1, call("c1:a", nothing), idempotency.ErrInFlight)
	}), nil)
	cost("replay", 1, call("c1:a", nothing), nil)
	cost("mismatch (422)", 1, call("c1:b", nothing), idempotency.ErrBodyMismatch)
	if runs != 1 {
		t.Errorf("%d runs", runs)
	}
}

func TestScriptsThatTheServerForgotAreSentAgain(t *testing.T) {
	client := testserver.RedisClient(t, testserver.Redis(t))
	g, err := redisstore.Init(t.Context(), client, "svc", idempotency.Config{DisableSweeper: true})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Shutdown(context.Background())
	if err := client.ScriptFlush(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	runs := 0
	if outcome, err := do(t, g, &runs); err != nil || !outcome.Stored {
		t.Errorf("%+v, %v", outcome, err)
	}
	if err := g.Sweep(t.Context()); err != nil {
		t.Error(err)
	}
}

// dropping is a proxy that forwards to a server, and once swallows the reply and cuts the connection.
func dropping(t *testing.T, server string) (address string, armed *atomic.Bool) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	armed = &atomic.Bool{}
	go func() {
		for {
			down, err := listener.Accept()
			if err != nil {
				return
			}
			up, err := net.Dial("tcp", server)
			if err != nil {
				_ = down.Close()
				continue
			}
			go func() {
				_, _ = io.Copy(up, down)
				_ = up.Close()
			}()
			go func() {
				defer down.Close()
				defer up.Close()
				buffer := make([]byte, 64<<10)
				for {
					n, err := up.Read(buffer)
					if err != nil || armed.CompareAndSwap(true, false) {
						return
					}
					if _, err := down.Write(buffer[:n]); err != nil {
						return
					}
				}
			}()
		}
	}()
	return listener.Addr().String(), armed
}

func TestTheDriverRepeatsALostReplyAndTheClaimIsStillOurs(t *testing.T) {
	address, armed := dropping(t, testserver.Redis(t))
	g, err := redisstore.Init(t.Context(), testserver.RedisClient(t, address), "svc", idempotency.Config{DisableSweeper: true})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Shutdown(context.Background())
	for i := range 20 {
		key := idempotency.Key(fmt.Sprint("req:lost:", i))
		armed.Store(true)
		_, outcome, err := idempotency.Do(t.Context(), g, idempotency.Op{Key: key}, idempotency.JSON[int](), func(context.Context) (int, error) {
			if armed.Load() {
				t.Error("no reply was lost")
			}
			armed.Store(i%2 == 1) // the reply to COMPLETE, too
			return i, nil
		})
		if err != nil || !outcome.Stored {
			t.Errorf("call %d: %+v, %v", i, outcome, err)
		}
	}
}

func TestStartRefusesARealServerThatEvicts(t *testing.T) {
	for policy, refused := range map[string]bool{"allkeys-lru": true, "volatile-ttl": true, "noeviction": false} {
		client := testserver.RedisClient(t, testserver.Redis(t, "--maxmemory", "100mb", "--maxmemory-policy", policy))
		store, err := redisstore.New(client, "svc", goredis.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if err := store.Check(t.Context()); errors.Is(err, redisport.ErrEvicts) != refused {
			t.Errorf("%s: %v", policy, err)
		}
	}
}

func TestARealRecordOfAnUnknownVersionIsNeitherAbsentNorRun(t *testing.T) {
	client := testserver.RedisClient(t, testserver.Redis(t))
	store, err := redisstore.New(client, "svc", goredis.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := client.HSet(t.Context(), "idem:svc:req:1", "v", "2", "s", "?").Err(); err != nil {
		t.Fatal(err)
	}
	var version *idempotency.VersionError
	if _, err := store.Claim(t.Context(), "req:1", idempotency.ClaimRequest{Lease: time.Minute, TTL: time.Minute}); !errors.As(err, &version) {
		t.Errorf("claim: %v", err)
	}
	if _, err := store.Tombstone(t.Context(), "req:1", time.Hour); !errors.As(err, &version) {
		t.Errorf("tombstone: %v", err)
	}
	if page, err := store.Sweep(t.Context(), "", 100); err != nil || page.Released != 0 || client.Exists(t.Context(), "idem:svc:req:1").Val() != 1 {
		t.Errorf("sweep: %+v, %v", page, err)
	}
}

func TestAWriteThatTooFewReplicasConfirmIsNoClaim(t *testing.T) {
	master := testserver.Redis(t, "--repl-diskless-sync-delay", "0")
	client := testserver.RedisClient(t, master)
	alone, err := redisstore.New(client, "svc", goredis.Options{Replicas: 1, CallTimeout: 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	request := idempotency.ClaimRequest{Token: idempotency.Token{1}, Lease: time.Minute, TTL: time.Minute}
	if _, err := alone.Claim(t.Context(), "req:1", request); !errors.Is(err, redisport.ErrNotReplicated) {
		t.Errorf("without a replica: %v", err)
	}
	host, port, _ := net.SplitHostPort(master)
	replica := testserver.RedisClient(t, testserver.Redis(t, "--replicaof", host+" "+port))
	deadline := time.Now().Add(20 * time.Second)
	for !strings.Contains(replica.Info(t.Context(), "replication").Val(), "master_link_status:up") {
		if time.Now().After(deadline) {
			t.Fatal("the replica does not come up")
		}
	}
	confirmed, err := redisstore.New(client, "svc", goredis.Options{Replicas: 1, CallTimeout: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	if found, err := confirmed.Claim(t.Context(), "req:2", request); err != nil || found.State != idempotency.Claimed {
		t.Errorf("with a replica: %+v, %v", found, err)
	}
	if replica.Exists(t.Context(), "idem:svc:req:2").Val() != 1 {
		t.Error("the replica does not have the claim that it has confirmed")
	}
}

func TestTheSweeperOfAClusterSeesEveryMaster(t *testing.T) {
	addresses := cluster(t, 3)
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addresses, ContextTimeoutEnabled: true, DisableIdentity: true})
	defer client.Close()
	store, err := redisstore.New(client, "svc", goredis.Options{})
	if err != nil {
		t.Fatal(err)
	}
	g := guard(t, idempotency.Config{Store: store, DisableSweeper: true, Sweeper: idempotency.SweeperConfig{BatchSize: 10, MaxBatchesPerPass: 5}})
	const stale = 200
	for i := range stale {
		_, err := store.Claim(t.Context(), idempotency.Key(fmt.Sprint("req:", i)), idempotency.ClaimRequest{Token: idempotency.Token{1}, Lease: time.Millisecond, TTL: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, address := range addresses {
		testserver.Pass(t, testserver.RedisClient(t, address), 5*time.Millisecond)
	}
	for pass := 0; g.Stats().Sweep.Cycles == 0 && pass < 100; pass++ {
		if err := g.Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if s := g.Stats().Sweep; s.Released != stale || s.Truncated == 0 {
		t.Errorf("got %+v", s)
	}
}

// cluster starts so many masters and gives each its share of the slots.
func cluster(t *testing.T, masters int) (addresses []string) {
	t.Helper()
	const slots = 16384
	for i := range masters {
		addresses = append(addresses, testserver.Redis(t, "--cluster-enabled", "yes"))
		client := testserver.RedisClient(t, addresses[i])
		if err := client.ClusterAddSlotsRange(t.Context(), i*slots/masters, (i+1)*slots/masters-1).Err(); err != nil {
			t.Fatal(err)
		}
		if i > 0 {
			host, port, _ := net.SplitHostPort(addresses[0])
			if err := client.ClusterMeet(t.Context(), host, port).Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
	deadline := time.Now().Add(30 * time.Second)
	for _, address := range addresses {
		client := testserver.RedisClient(t, address)
		for !strings.Contains(client.ClusterInfo(t.Context()).Val(), "cluster_state:ok") ||
			!strings.Contains(client.ClusterInfo(t.Context()).Val(), fmt.Sprint("cluster_known_nodes:", masters)) {
			if time.Now().After(deadline) {
				t.Fatal("the cluster does not form")
			}
		}
	}
	return addresses
}

func TestClientsThatCannotBeBoundedAndWrongOptionsAreRefused(t *testing.T) {
	obeys := &redis.Options{Addr: "127.0.0.1:1", ContextTimeoutEnabled: true}
	for name, c := range map[string]struct {
		client  redis.UniversalClient
		options goredis.Options
	}{
		"no deadlines":       {redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"}), goredis.Options{}},
		"negative replicas":  {redis.NewClient(obeys), goredis.Options{Replicas: -1}},
		"too long a timeout": {redis.NewClient(obeys), goredis.Options{CallTimeout: time.Hour}},
	} {
		if _, err := redisstore.New(c.client, "svc", c.options); !errors.Is(err, idempotency.ErrConfiguration) {
			t.Errorf("%s: %v", name, err)
		}
		_ = c.client.Close()
	}
	if _, err := redisstore.New(nil, "svc", goredis.Options{}); !errors.Is(err, idempotency.ErrConfiguration) {
		t.Errorf("no client: %v", err)
	}
	if _, err := redisstore.Init(t.Context(), nil, "svc", idempotency.Config{Store: &redisstore.Store{}}); !errors.Is(err, idempotency.ErrConfiguration) {
		t.Errorf("a second store: %v", err)
	}
}

// A server that does not answer must not hold a caller for longer than CallTimeout, although its connection is open.
func TestAServerThatHangsIsGivenUpAfterCallTimeout(t *testing.T) {
	address := testserver.Redis(t)
	client := testserver.RedisClient(t, address)
	store, err := redisstore.New(client, "svc", goredis.Options{CallTimeout: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := client.Do(t.Context(), "CLIENT", "PAUSE", "20000", "ALL").Err(); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	_, err = store.Claim(t.Context(), "req:1", idempotency.ClaimRequest{Token: idempotency.Token{1}, Lease: time.Minute, TTL: time.Minute})
	if took := time.Since(began); !errors.Is(err, context.DeadlineExceeded) || took > 10*time.Second {
		t.Errorf("got %v after %v", err, took)
	}
}

func TestR15TheStoreNeedsNeitherPostgresNorAWebServer(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, imported := range strings.Fields(string(out)) {
		if strings.HasPrefix(imported, "github.com/jackc") || imported == "google.golang.org/grpc" || strings.HasPrefix(imported, "github.com/go-chi") {
			t.Errorf("redisstore imports %s", imported)
		}
	}
}
