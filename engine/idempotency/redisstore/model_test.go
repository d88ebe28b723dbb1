package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencepost-sim/fencepost/engine/idempotency"
	"github.com/fencepost-sim/fencepost/engine/idempotency/redisport"
	"github.com/fencepost-sim/fencepost/engine/idempotency/redisstore"
	"github.com/fencepost-sim/fencepost/sim/redissim"
)

var op = idempotency.Op{Key: "req:1", Fingerprint: "c1:a"}

func guard(t *testing.T, config idempotency.Config) *idempotency.Guard {
	t.Helper()
	config.OnError = func(err error) { t.Logf("reported: %v", err) }
	g, err := idempotency.Init(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return g
}

func do(t *testing.T, g *idempotency.Guard, runs *int) (idempotency.Outcome, error) {
	t.Helper()
	_, outcome, err := idempotency.Do(t.Context(), g, op, idempotency.JSON[int](), func(context.Context) (int, error) {
		*runs++
		return *runs, nil
	})
	return outcome, err
}

// bubble is a store on a model that lives on the clock of a synctest bubble.
func bubble(t *testing.T) (*redisstore.Store, *redissim.Client) {
	t.Helper()
	client := &redissim.Client{Server: redissim.New(redissim.Options{}), Now: time.Now}
	store, err := redisstore.Over(&locked{inner: client}, "svc")
	if err != nil {
		t.Fatal(err)
	}
	return store, client
}

// The network client repeats a claim whose reply was lost: without a token it would find its own claim in flight.
func TestALostReplyOfAClaimThatIsRepeatedByTheNetworkClientIsNoWedge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, client := bubble(t)
		losses := 1
		client.Repeats = 3
		client.Strike = func(point string) redissim.Fault {
			if point == "claim" && losses > 0 {
				losses--
				return redissim.LoseReply
			}
			return redissim.NoFault
		}
		g, runs := guard(t, idempotency.Config{Store: store}), 0
		if outcome, err := do(t, g, &runs); err != nil || runs != 1 || !outcome.Stored || losses != 0 {
			t.Errorf("%d runs, %+v, %v", runs, outcome, err)
		}
	})
}

func TestEveryLostRequestAndReplyOfAFirstCallEndsInOneRunOrNone(t *testing.T) {
	for _, point := range []string{"claim", "complete"} {
		for _, fault := range []redissim.Fault{redissim.LoseRequest, redissim.LoseReply} {
			synctest.Test(t, func(t *testing.T) {
				store, client := bubble(t)
				lost := false
				client.Strike = func(at string) redissim.Fault {
					if at == point && !lost {
						lost = true
						return fault
					}
					return redissim.NoFault
				}
				g, runs := guard(t, idempotency.Config{Store: store}), 0
				_, first := do(t, g, &runs)
				if wantError := point == "claim"; errors.Is(first, idempotency.ErrUnavailable) != wantError {
					t.Errorf("%s, fault %d: %v", point, fault, first)
				}
				if outcome, err := do(t, g, &runs); err != nil || runs != 1 || !outcome.Stored {
					t.Errorf("%s, fault %d: retry: %d runs, %+v, %v", point, fault, runs, outcome, err)
				}
			})
		}
	}
}

func TestR07ASweepFindsTheStaleKeysAmongTwoHundredTimesAsManyOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const stale, foreign, batch, batches = 50, 9950, 100, 20
		store, client := bubble(t)
		for i := range stale {
			_, err := store.Claim(t.Context(), idempotency.Key(fmt.Sprintf("req:%d", i)), idempotency.ClaimRequest{Token: idempotency.Token{1}, Lease: time.Second, TTL: 24 * time.Hour})
			if err != nil {
				t.Fatal(err)
			}
		}
		for i := range foreign {
			client.Server.Foreign(fmt.Sprintf("other:%d", i))
		}
		time.Sleep(2 * time.Second)
		g := guard(t, idempotency.Config{Store: store, DisableSweeper: true, Sweeper: idempotency.SweeperConfig{BatchSize: batch, MaxBatchesPerPass: batches}})
		passes := 0
		for g.Stats().Sweep.Cycles == 0 && passes < 100 {
			passes++
			if err := g.Sweep(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		s := g.Stats().Sweep
		if most := (stale+foreign)/(batch*batches) + 1; passes > most || s.Released != stale || s.Matched < stale || s.Scanned < stale+foreign {
			t.Errorf("%d passes (at most %d expected), %+v", passes, most, s)
		}
	})
}

// The cursor of one server means nothing to the next: it must begin anew rather than skip.
func TestR06AFailoverBetweenPassesDoesNotMakeTheSweeperSkipKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, client := bubble(t)
		for i := range 200 {
			_, err := store.Claim(t.Context(), idempotency.Key(fmt.Sprintf("req:%d", i)), idempotency.ClaimRequest{Token: idempotency.Token{1}, Lease: time.Second, TTL: 24 * time.Hour})
			if err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(2 * time.Second)
		g := guard(t, idempotency.Config{Store: store, DisableSweeper: true, Sweeper: idempotency.SweeperConfig{BatchSize: 10, MaxBatchesPerPass: 3}})
		for pass := 0; g.Stats().Sweep.Cycles == 0 && pass < 100; pass++ {
			if pass < 5 {
				client.Server.Restart()
			}
			if err := g.Sweep(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if s := g.Stats().Sweep; s.Released != 200 {
			t.Errorf("got %+v", s)
		}
	})
}

func TestARecordOfAnUnknownVersionIsNeitherAbsentNorRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, client := bubble(t)
		client.Server.OtherVersion("idem:svc:req:1", "2")
		g, runs := guard(t, idempotency.Config{Store: store, FailOpen: true}), 0
		_, err := do(t, g, &runs)
		var version *idempotency.VersionError
		if !errors.As(err, &version) || version.Version != "2" || !errors.Is(err, idempotency.ErrUnavailable) || runs != 0 {
			t.Errorf("%d runs, %v", runs, err)
		}
		if _, err := store.Tombstone(t.Context(), "req:1", time.Hour); !errors.As(err, &version) {
			t.Errorf("tombstone: %v", err)
		}
	})
}

func TestAFailoverThatLosesTheResultExecutesAgainAndFencesStillGrow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, client := bubble(t)
		g, runs := guard(t, idempotency.Config{Store: store}), 0
		first, err := do(t, g, &runs)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if lost := client.Server.Failover(2, -500*time.Millisecond); lost != 2 {
			t.Fatalf("lost %d writes", lost)
		}
		second, err := do(t, g, &runs)
		if err != nil || runs != 2 { // data loss: no client of Redis can prevent it, and nobody pretends to
			t.Errorf("%d runs, %v", runs, err)
		}
		if second.Claim.Fence <= first.Claim.Fence {
			t.Errorf("fence %d after %d", second.Claim.Fence, first.Claim.Fence)
		}
	})
}

func TestAClockThatJumpsBackMakesLeasesLongerAndForwardShorterAndTokensHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, client := bubble(t)
		ctx, request := t.Context(), idempotency.ClaimRequest{Token: idempotency.Token{1}, Lease: 30 * time.Second, TTL: time.Hour}
		if _, err := store.Claim(ctx, op.Key, request); err != nil {
			t.Fatal(err)
		}
		client.Server.JumpClock(-time.Minute)
		time.Sleep(40 * time.Second)
		request.Token = idempotency.Token{2}
		if found, err := store.Claim(ctx, op.Key, request); err != nil || found.State != idempotency.InFlight {
			t.Errorf("after a jump back: %v, %v", found.State, err)
		}
		client.Server.JumpClock(2 * time.Minute)
		if found, err := store.Claim(ctx, op.Key, request); err != nil || found.State != idempotency.Takeover {
			t.Errorf("after a jump forward: %v, %v", found.State, err)
		}
		err := store.Complete(ctx, idempotency.Claim{Key: op.Key, Token: idempotency.Token{1}}, "", idempotency.Result{Kind: idempotency.NotStored}, time.Hour)
		if !errors.Is(err, idempotency.ErrLostClaim) {
			t.Errorf("the overtaken owner completed: %v", err)
		}
	})
}

func TestFlushEvictionAndRefusalsAreWhatTheySay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, client := bubble(t)
		g, runs := guard(t, idempotency.Config{Store: store}), 0
		for i, lose := range []func(){func() {}, client.Server.Flush, func() { client.Server.Evict("idem:svc:req:1") }} {
			lose()
			if _, err := do(t, g, &runs); err != nil || runs != i+1 {
				t.Errorf("loss %d: %d runs, %v", i, runs, err)
			}
		}
		for _, refusal := range []error{redissim.ErrLoading, redissim.ErrReadOnly, redissim.ErrMasterDown} {
			client.Server.Refuse(refusal)
			if _, err := do(t, g, &runs); !errors.Is(err, idempotency.ErrUnavailable) || !errors.Is(err, redisport.ErrRefused) {
				t.Errorf("%v: got %v", refusal, err)
			}
		}
		client.Server.Refuse(nil)
		if outcome, err := do(t, g, &runs); err != nil || !outcome.Replayed {
			t.Errorf("afterwards: %+v, %v", outcome, err)
		}
	})
}

func TestStartRefusesAServerThatEvicts(t *testing.T) {
	client := &redissim.Client{Server: redissim.New(redissim.Options{Evicts: true}), Now: time.Now}
	store, err := redisstore.Over(client, "svc")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := idempotency.Init(t.Context(), idempotency.Config{Store: store}); !errors.Is(err, redisport.ErrEvicts) {
		t.Errorf("got %v", err)
	}
}

func TestNamesOfServicesThatArePatternsOrPrefixesAreRefused(t *testing.T) {
	for _, name := range []string{"", "a*", "a?", "[a]", "a:b", "a b", "{a}", "é"} {
		if _, err := redisstore.Over(&redissim.Client{}, name); !errors.Is(err, idempotency.ErrConfiguration) {
			t.Errorf("%q: %v", name, err)
		}
	}
	if _, err := redisstore.Over(&redissim.Client{}, "billing-api.v2_eu"); err != nil {
		t.Error(err)
	}
}
