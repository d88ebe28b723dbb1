package idempotency_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/fencepost-sim/fencepost/engine/idempotency"
	"github.com/fencepost-sim/fencepost/engine/idempotency/idemtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// open returns a started guard that is shut down when the bubble of the test ends.
func open(t *testing.T, config idempotency.Config) *idempotency.Guard {
	t.Helper()
	if config.Store == nil {
		config.Store = &idemtest.Memory{}
	}
	if config.OnError == nil {
		config.OnError = func(err error) { t.Logf("reported: %v", err) }
	}
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

var op = idempotency.Op{Key: "req:test", Fingerprint: "c1:a"}

// counted returns a function that counts its runs and answers with their number.
func counted(runs *int) func(context.Context) (int, error) {
	return func(context.Context) (int, error) {
		*runs++
		return *runs, nil
	}
}

func do(t *testing.T, g *idempotency.Guard, function func(context.Context) (int, error)) (int, idempotency.Outcome, error) {
	t.Helper()
	return idempotency.Do(t.Context(), g, op, idempotency.JSON[int](), function)
}

func TestR10ASuccessIsStoredAndReplayed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, runs := open(t, idempotency.Config{}), 0
		first, outcome, err := do(t, g, counted(&runs))
		if err != nil || first != 1 || outcome.Replayed || !outcome.Stored || outcome.Claim.Fence == 0 {
			t.Errorf("first call: %d, %+v, %v", first, outcome, err)
		}
		second, outcome, err := do(t, g, counted(&runs))
		if err != nil || second != 1 || !outcome.Replayed || runs != 1 {
			t.Errorf("second call: %d, %+v, %v; %d runs", second, outcome, err, runs)
		}
	})
}

func TestR09ACompletedKeyIsRememberedForAFreshDay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, runs := open(t, idempotency.Config{}), 0
		work := func(ctx context.Context) (int, error) {
			time.Sleep(10 * time.Minute) // far beyond a lease: the heartbeat holds it
			return counted(&runs)(ctx)
		}
		for _, step := range []struct {
			wait time.Duration
			runs int
		}{{0, 1}, {24*time.Hour - time.Second, 1}, {time.Second, 2}} {
			time.Sleep(step.wait)
			if _, _, err := do(t, g, work); err != nil || runs != step.runs {
				t.Errorf("after %v: %d runs, %v; want %d", step.wait, runs, err, step.runs)
			}
		}
	})
}

// A handler that dies leaves its claim behind: Begin without an end, under a store whose Extend never arrives.
func dies(t *testing.T, store idempotency.Store, policy idempotency.StalePolicy) {
	t.Helper()
	g, err := idempotency.New(idempotency.Config{
		Store: &idemtest.Failing{Store: store, Always: map[idemtest.Step]idemtest.Failure{
			idemtest.StepExtend: idemtest.BeforeApply, idemtest.StepRelease: idemtest.BeforeApply,
		}}, Stale: policy,
	})
	if err != nil {
		t.Fatal(err)
	}
	x, _, err := g.Begin(t.Context(), op)
	if err != nil {
		t.Fatal(err)
	}
	_ = x.Release(t.Context()) // ends this side; the record stays
}

func TestR04TheKeyOfADeadHandlerIsClaimableWhenItsLeaseIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &idemtest.Memory{}
		began := time.Now()
		dies(t, store, idempotency.Reexecute)
		g, runs := open(t, idempotency.Config{Store: store, DisableSweeper: true}), 0
		_, _, err := do(t, g, counted(&runs))
		var inFlight *idempotency.InFlightError
		if !errors.As(err, &inFlight) || runs != 0 {
			t.Fatalf("within the lease: %d runs, %v", runs, err)
		}
		time.Sleep(inFlight.RetryAfter)
		if lease := g.Config().Lease; time.Since(began) > lease {
			t.Errorf("the key is held for %v, longer than the lease of %v", time.Since(began), lease)
		}
		if _, outcome, err := do(t, g, counted(&runs)); err != nil || runs != 1 || !outcome.Takeover {
			t.Errorf("after the lease: %d runs, %+v, %v", runs, outcome, err)
		}
	})
}

func TestC14APinnedKeyOfADeadHandlerIsNeverExecutedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &idemtest.Memory{}
		dies(t, store, idempotency.Pin)
		g, runs := open(t, idempotency.Config{Store: store, Stale: idempotency.Pin}), 0
		time.Sleep(12 * time.Hour) // the sweeper leaves it alone, too
		if _, _, err := do(t, g, counted(&runs)); !errors.Is(err, idempotency.ErrOutcomeUnknown) || runs != 0 {
			t.Errorf("%d runs, %v", runs, err)
		}
		time.Sleep(12 * time.Hour) // its TTL is over
		if _, _, err := do(t, g, counted(&runs)); err != nil || runs != 1 {
			t.Errorf("%d runs, %v", runs, err)
		}
	})
}

func TestC03TheClaimIsRenewedEveryThirdOfItsLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &idemtest.Failing{Store: &idemtest.Memory{}}
		g := open(t, idempotency.Config{Store: store})
		if lease := g.Config().Lease; lease != 30*time.Second {
			t.Errorf("the lease is %v", lease)
		}
		_, outcome, err := do(t, g, func(ctx context.Context) (int, error) {
			time.Sleep(95 * time.Second)
			return 0, ctx.Err()
		})
		if err != nil || !outcome.Stored || store.Calls(idemtest.StepExtend) != 9 {
			t.Errorf("%+v, %v after %d heartbeats", outcome, err, store.Calls(idemtest.StepExtend))
		}
	})
}

func TestC03TokensHave128BitsAndNeverRepeat(t *testing.T) {
	store := &idemtest.Memory{}
	g := open(t, idempotency.Config{Store: store, DisableSweeper: true})
	seen := map[idempotency.Token]bool{}
	var set, unset idempotency.Token
	for i := range 200 {
		x, _, err := g.Begin(t.Context(), idempotency.Op{Key: idempotency.Key(fmt.Sprint("req:", i))})
		if err != nil {
			t.Fatal(err)
		}
		token := x.Claim().Token
		if seen[token] {
			t.Fatal("a token was drawn twice")
		}
		seen[token] = true
		for j := range token {
			set[j] |= token[j]
			unset[j] |= ^token[j]
		}
		if err := x.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for j := range set {
		if set[j] != 0xFF || unset[j] != 0xFF { // each of 128 bits takes both values
			t.Errorf("byte %d varies in %08b of its bits only", j, set[j]&unset[j])
		}
	}
}

func TestC03AHandlerThatNeverReturnsIsNotRenewedForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &idemtest.Memory{}
		g, began := open(t, idempotency.Config{Store: store}), time.Now()
		_, outcome, err := do(t, g, func(ctx context.Context) (int, error) {
			<-ctx.Done()
			return 0, context.Cause(ctx)
		})
		held := time.Since(began)
		if !errors.Is(err, idempotency.ErrLostClaim) || outcome.Stored {
			t.Errorf("%+v, %v", outcome, err)
		}
		if most := g.Config().MaxHold + g.Config().Lease; held > most || held < g.Config().MaxHold {
			t.Errorf("held for %v, want %v to %v", held, g.Config().MaxHold, most)
		}
	})
}

func TestAStaleOwnerIsToldBeforeAnotherCanStartAndCannotStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &idemtest.Memory{}
		cut := open(t, idempotency.Config{Store: &idemtest.Failing{
			Store: store, Always: map[idemtest.Step]idemtest.Failure{idemtest.StepExtend: idemtest.BeforeApply},
		}})
		other, runs := open(t, idempotency.Config{Store: store}), 0
		value, outcome, err := do(t, cut, func(ctx context.Context) (int, error) {
			<-ctx.Done() // every heartbeat is lost: this side must give up first
			if context.Cause(ctx) != idempotency.ErrLostClaim {
				t.Errorf("cancelled by %v", context.Cause(ctx))
			}
			if _, second, err := do(t, other, counted(&runs)); err != nil || !second.Takeover {
				t.Errorf("takeover: %+v, %v", second, err)
			}
			return 99, nil
		})
		if err != nil || value != 99 || outcome.Stored || !errors.Is(outcome.StoreError, idempotency.ErrLostClaim) {
			t.Errorf("stale owner: %d, %+v, %v", value, outcome, err)
		}
		if replay, _, err := do(t, other, counted(&runs)); err != nil || replay != 1 {
			t.Errorf("the stale owner overwrote the result: %d, %v", replay, err)
		}
	})
}

func TestC06AnUnknownClaimIsGivenBackAndNothingRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &idemtest.Failing{Store: &idemtest.Memory{}, Script: map[idemtest.Step][]idemtest.Failure{
			idemtest.StepClaim: {idemtest.AfterApply},
		}}
		g, runs := open(t, idempotency.Config{Store: store}), 0
		if _, _, err := do(t, g, counted(&runs)); !errors.Is(err, idempotency.ErrUnavailable) || !errors.Is(err, idemtest.ErrInjected) || runs != 0 {
			t.Errorf("%d runs, %v", runs, err)
		}
		if _, _, err := do(t, g, counted(&runs)); err != nil || runs != 1 {
			t.Errorf("the key was not given back: %v", err)
		}
	})
}

func TestC10WithoutTheStoreNothingRunsUnlessFailOpen(t *testing.T) {
	for _, failOpen := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			store := &idemtest.Failing{Store: &idemtest.Memory{}, Always: map[idemtest.Step]idemtest.Failure{
				idemtest.StepClaim: idemtest.BeforeApply,
			}}
			g, runs := open(t, idempotency.Config{Store: store, FailOpen: failOpen}), 0
			_, outcome, err := do(t, g, counted(&runs))
			if failOpen && (err != nil || runs != 1 || !outcome.Unguarded || g.Stats().Unguarded != 1) {
				t.Errorf("fail open: %d runs, %+v, %v", runs, outcome, err)
			}
			if !failOpen && (!errors.Is(err, idempotency.ErrUnavailable) || runs != 0) {
				t.Errorf("fail closed: %d runs, %v", runs, err)
			}
		})
	}
}

func TestC09AnOutcomeIsStoredAlthoughTheCallerIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, runs := open(t, idempotency.Config{}), 0
		ctx, cancel := context.WithCancel(t.Context())
		_, outcome, err := idempotency.Do(ctx, g, op, idempotency.JSON[int](), func(ctx context.Context) (int, error) {
			cancel()
			return counted(&runs)(ctx)
		})
		if err != nil || !outcome.Stored {
			t.Errorf("%+v, %v", outcome, err)
		}
		if _, outcome, _ := do(t, g, counted(&runs)); !outcome.Replayed {
			t.Error("the outcome was not stored")
		}
	})
}

func TestC09StoringIsTriedThreeTimesAndAClaimIsKeptAfterwards(t *testing.T) {
	for tries, stored := range map[int]bool{2: true, 3: false} {
		for _, failure := range []idemtest.Failure{idemtest.BeforeApply, idemtest.AfterApply} {
			synctest.Test(t, func(t *testing.T) {
				memory := &idemtest.Memory{}
				script := []idemtest.Failure{failure, failure, failure}[:tries]
				store := &idemtest.Failing{Store: memory, Script: map[idemtest.Step][]idemtest.Failure{idemtest.StepComplete: script}}
				g, runs := open(t, idempotency.Config{Store: store}), 0
				value, outcome, err := do(t, g, counted(&runs))
				if err != nil || value != 1 || outcome.Stored != stored || (outcome.StoreError == nil) != stored {
					t.Errorf("%d failures: %+v, %v", tries, outcome, err)
				}
				if want := map[bool]int64{true: 0, false: 1}[stored]; g.Stats().Unstored != want {
					t.Errorf("%d results are counted as not stored", g.Stats().Unstored)
				}
				if store.Calls(idemtest.StepRelease) != 0 || memory.Len() != 1 {
					t.Error("a claim was released after a success")
				}
			})
		}
	}
}

func TestR32APanicAndGoexitReleaseTheKeyAndGoOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, runs := open(t, idempotency.Config{}), 0
		endings := map[string]func(){"panic": func() { panic("boom") }, "goexit": runtime.Goexit}
		for name, end := range endings {
			how := make(chan any)
			go func() {
				returned := false
				defer func() {
					value := recover()
					how <- map[bool]any{true: "returned", false: value}[returned]
				}()
				_, _, _ = do(t, g, func(context.Context) (int, error) { end(); return 0, nil })
				returned = true
			}()
			if got, want := <-how, map[string]any{"panic": "boom", "goexit": nil}[name]; got != want {
				t.Errorf("%s became %v", name, got)
			}
		}
		if _, outcome, err := do(t, g, counted(&runs)); err != nil || outcome.Replayed || runs != 1 {
			t.Errorf("the key is not free: %+v, %v", outcome, err)
		}
	})
}

func TestR28AnotherRequestUnderTheSameKeyIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, runs := open(t, idempotency.Config{}), 0
		if _, _, err := do(t, g, counted(&runs)); err != nil {
			t.Fatal(err)
		}
		other := idempotency.Op{Key: op.Key, Fingerprint: "c1:b"}
		_, _, err := idempotency.Do(t.Context(), g, other, idempotency.JSON[int](), counted(&runs))
		if !errors.Is(err, idempotency.ErrBodyMismatch) || runs != 1 {
			t.Errorf("%d runs, %v", runs, err)
		}
	})
}

func TestC02AMismatchIsReportedBeforeInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, runs := open(t, idempotency.Config{}), 0
		_, _, err := do(t, g, func(ctx context.Context) (int, error) {
			if _, _, err := do(t, g, counted(&runs)); !errors.Is(err, idempotency.ErrInFlight) {
				t.Errorf("the same request: %v", err)
			}
			other := idempotency.Op{Key: op.Key, Fingerprint: "c1:b"}
			if _, _, err := idempotency.Do(ctx, g, other, idempotency.JSON[int](), counted(&runs)); !errors.Is(err, idempotency.ErrBodyMismatch) {
				t.Errorf("another request: %v", err)
			}
			return 0, nil
		})
		if err != nil || runs != 0 {
			t.Errorf("%d runs, %v", runs, err)
		}
	})
}

func TestTheClaimTravelsWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := open(t, idempotency.Config{})
		_, outcome, err := do(t, g, func(ctx context.Context) (int, error) {
			claim, ok := idempotency.ClaimFromContext(ctx)
			if !ok || claim.Key != op.Key || claim.Fence == 0 {
				t.Errorf("got %+v, %v", claim, ok)
			}
			return int(claim.Fence % 7), nil
		})
		if err != nil || outcome.Claim.Key != op.Key {
			t.Errorf("%+v, %v", outcome, err)
		}
		if _, ok := idempotency.ClaimFromContext(t.Context()); ok {
			t.Error("a context without a claim has one")
		}
	})
}

func TestAResultThatCannotBeWrittenIsNotExecutedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := open(t, idempotency.Config{})
		call := func() (chan int, idempotency.Outcome, error) {
			return idempotency.Do(t.Context(), g, op, idempotency.JSON[chan int](), func(context.Context) (chan int, error) {
				return make(chan int), nil
			})
		}
		if _, outcome, err := call(); err != nil || outcome.Stored || outcome.StoreError == nil {
			t.Errorf("%+v, %v", outcome, err)
		}
		if _, _, err := call(); !errors.Is(err, idempotency.ErrResultNotStored) {
			t.Errorf("the retry got %v", err)
		}
	})
}

func TestWrongOptionsAreNamedWithTheirValueAndWhatIsAllowed(t *testing.T) {
	store := &idemtest.Memory{}
	for field, config := range map[string]idempotency.Config{
		"Config.Store":                       {},
		"Config.TTL":                         {Store: store, TTL: -1},
		"Config.Lease":                       {Store: store, Lease: time.Millisecond},
		"Config.MaxHold":                     {Store: store, MaxHold: -time.Second},
		"Config.Stale":                       {Store: store, Stale: 9},
		"Config.Sweeper.Interval":            {Store: store, Sweeper: idempotency.SweeperConfig{Interval: 25 * time.Hour}},
		"Config.Sweeper.IntervalJitterRatio": {Store: store, Sweeper: idempotency.SweeperConfig{IntervalJitterRatio: 0.95}},
		"Config.Sweeper.BatchSize":           {Store: store, Sweeper: idempotency.SweeperConfig{BatchSize: -1}},
		"Config.Sweeper.MaxBatchesPerPass":   {Store: store, Sweeper: idempotency.SweeperConfig{MaxBatchesPerPass: 2_000_000}},
	} {
		g, err := idempotency.New(config)
		var wrong *idempotency.ConfigurationError
		if g != nil || !errors.As(err, &wrong) || wrong.Field != field || wrong.Allowed == "" || !errors.Is(err, idempotency.ErrConfiguration) {
			t.Errorf("%s: got %v, %v", field, g, err)
		}
	}
	g := open(t, idempotency.Config{Store: store, DisableSweeper: true})
	if _, _, err := g.Begin(t.Context(), idempotency.Op{}); !errors.Is(err, idempotency.ErrConfiguration) {
		t.Errorf("an empty key: %v", err)
	}
}

type panickingCodec struct{ idempotency.Codec[int] }

func (panickingCodec) Encode(int) ([]byte, error) { panic("no code") }

func TestAPanicOfTheCodecIsADeathAfterTheEffectAndHoldsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := open(t, idempotency.Config{DisableSweeper: true})
		runs := 0
		charge := func(context.Context) (int, error) { runs++; return runs, nil }
		func() {
			defer func() {
				if value := recover(); value != "no code" {
					t.Errorf("recovered %v", value)
				}
			}()
			_, _, _ = idempotency.Do(t.Context(), g, op, panickingCodec{}, charge)
		}()
		if _, _, err := idempotency.Do(t.Context(), g, op, idempotency.JSON[int](), charge); !errors.Is(err, idempotency.ErrInFlight) || runs != 1 {
			t.Errorf("at once: %v after %d runs; want that what was done is not given free", err, runs)
		}
		time.Sleep(30 * time.Second)
		if _, outcome, err := idempotency.Do(t.Context(), g, op, idempotency.JSON[int](), charge); err != nil || !outcome.Takeover {
			t.Errorf("after the lease: %+v, %v", outcome, err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := g.Shutdown(ctx); err != nil {
			t.Error(err)
		}
	})
}
