package host_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"go.uber.org/goleak"

	"github.com/fencepost-sim/fencepost/engine/host"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start runs the tasks on a new host, in order, and returns when all have ended.
func start(h *host.Real, tasks ...func()) {
	h.Enter(func() {
		for i, task := range tasks {
			h.Go(fmt.Sprintf("task %d", i), task)
		}
	})
	h.Wait()
}

func TestTasksBeginInTheOrderInWhichTheyWereStarted(t *testing.T) {
	h := host.New(host.Options{})
	var order []int
	var tasks []func()
	for i := range 50 {
		tasks = append(tasks, func() { order = append(order, i) })
	}
	start(h, tasks...)
	if len(order) != 50 || !slices.IsSorted(order) {
		t.Errorf("tasks began in order %v", order)
	}
}

// The counter is not atomic and has no lock: the race detector proves that the turn orders the accesses, and the total
// that nothing ran between reading and writing.
func TestTasksNeverRunAtOnceBetweenGivingWay(t *testing.T) {
	h := host.New(host.Options{})
	const tasks, rounds = 8, 200
	count := 0
	work := func() {
		for range rounds {
			before := count
			runtime.Gosched()
			count = before + 1
			h.GiveWay(runtime.Gosched)
		}
	}
	start(h, slices.Repeat([]func(){work}, tasks)...)
	if count != tasks*rounds {
		t.Errorf("counted %d of %d rounds", count, tasks*rounds)
	}
}

func TestEnterTakesTurnsWithTheTasks(t *testing.T) {
	h := host.New(host.Options{})
	count := 0
	add := func() { count++ }
	for range 4 {
		go func() {
			for range 100 {
				h.Enter(add)
			}
			h.Enter(func() { count += 1000 })
		}()
	}
	h.Enter(func() {
		h.Go("watch", func() {
			for count < 4400 {
				h.GiveWay(runtime.Gosched)
			}
		})
	})
	h.Wait()
	if count != 4400 {
		t.Errorf("counted %d, want 4400", count)
	}
}

// The greedy tasks ask for the turn again at once, until the modest one has had all its turns.
func TestNoTaskStarvesBesideThoseThatGiveWayInALoop(t *testing.T) {
	h := host.New(host.Options{})
	turns := 0
	giveWay := func() {
		if err := h.Sleep(t.Context(), 0); err != nil {
			t.Error(err)
		}
	}
	greedy := func() {
		for turns < 1000 {
			giveWay()
		}
	}
	modest := func() {
		for ; turns < 1000; turns++ {
			giveWay()
		}
	}
	start(h, greedy, greedy, modest, greedy)
}

func TestTheTurnIsServedInTheOrderOfAsking(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := host.New(host.Options{})
		var order []int
		h.Enter(func() {
			for i := range 20 {
				go h.Enter(func() { order = append(order, i) })
				synctest.Wait() // the goroutine now stands in the queue
			}
		})
		synctest.Wait()
		if len(order) != 20 || !slices.IsSorted(order) {
			t.Errorf("served in order %v", order)
		}
	})
}

func TestSleepLetsOthersRunAndLastsItsDuration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := host.New(host.Options{})
		var order []string
		sleeper := func(name string, duration time.Duration) func() {
			return func() {
				before := h.Monotonic()
				if err := h.Sleep(t.Context(), duration); err != nil {
					t.Error(err)
				}
				if slept := h.Monotonic() - before; slept != duration {
					t.Errorf("%s slept %v", name, slept)
				}
				order = append(order, name)
			}
		}
		start(h, sleeper("long", time.Hour), sleeper("short", time.Second), sleeper("not at all", 0))
		if want := []string{"not at all", "short", "long"}; !slices.Equal(order, want) {
			t.Errorf("woke in order %v, want %v", order, want)
		}
	})
}

func TestSleepReturnsTheCauseOfItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := host.New(host.Options{})
		reason := errors.New("the worker closes")
		ctx, cancel := context.WithCancelCause(t.Context())
		start(h,
			func() {
				if err := h.Sleep(ctx, time.Hour); !errors.Is(err, reason) {
					t.Errorf("Sleep returned %v", err)
				}
				if h.Monotonic() != time.Minute {
					t.Errorf("Sleep returned after %v", h.Monotonic())
				}
				if err := h.Sleep(ctx, -1); !errors.Is(err, reason) {
					t.Errorf("Sleep with a context that is done returned %v", err)
				}
			},
			func() {
				if err := h.Sleep(t.Context(), time.Minute); err != nil {
					t.Error(err)
				}
				cancel(reason)
			})
	})
}

func TestNoBroadcastIsLostBetweenLookingAndWaiting(t *testing.T) {
	h := host.New(host.Options{})
	const items = 1000
	arrived := h.NewSignal()
	pending, taken, done := 0, 0, false
	consume := func() {
		for {
			switch {
			case pending > 0:
				pending--
				taken++
			case done:
				return
			case !arrived.Wait(t.Context(), -1): // a lost broadcast would hang here
				t.Error("Wait without timeout ended without a broadcast")
				return
			}
		}
	}
	produce := func() {
		for range items {
			pending++
			arrived.Broadcast()
			h.GiveWay(runtime.Gosched)
		}
		done = true
		arrived.Broadcast()
	}
	start(h, consume, consume, produce)
	if taken != items {
		t.Errorf("took %d of %d", taken, items)
	}
}

func TestBroadcastWakesAllWhoWaitAndIsForgottenOtherwise(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := host.New(host.Options{})
		signal := h.NewSignal()
		woken := 0
		wait := func() {
			if signal.Wait(t.Context(), -1) {
				woken++
			}
		}
		start(h, func() { signal.Broadcast() }, wait, wait, wait, func() { signal.Broadcast() })
		if woken != 3 {
			t.Errorf("%d of 3 waiters woke", woken)
		}
		start(h, func() {
			signal.Broadcast()
			if signal.Wait(t.Context(), time.Second) {
				t.Error("a broadcast that nobody waited for was remembered")
			}
		})
	})
}

func TestWaitEndsAtItsTimeoutOrWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := host.New(host.Options{})
		signal := h.NewSignal()
		start(h, func() {
			if signal.Wait(t.Context(), time.Minute) || h.Monotonic() != time.Minute {
				t.Errorf("Wait ended after %v, or by a broadcast", h.Monotonic())
			}
			if signal.Wait(t.Context(), 0) {
				t.Error("Wait with a timeout of zero saw a broadcast")
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if signal.Wait(ctx, -1) || h.Monotonic() != 2*time.Minute {
				t.Errorf("Wait ended after %v, or by a broadcast", h.Monotonic())
			}
		})
	})
}

// recovered runs the function on its own goroutine and returns what it panicked with, or "goexit".
func recovered(f func()) (how any) {
	done := make(chan any)
	go func() {
		how := any("goexit")
		defer func() {
			if value := recover(); value != nil {
				how = value
			}
			done <- how
		}()
		f()
		how = "returned"
	}()
	return <-done
}

func TestPanicAndGoexitLeaveTheTurnConsistent(t *testing.T) {
	endings := map[any]func(){
		"boom":        func() { panic("boom") },
		"goexit":      runtime.Goexit,
		host.Killed{}: func() { panic(host.Killed{}) },
	}
	for want, end := range endings {
		t.Run(fmt.Sprint(want), func(t *testing.T) {
			h := host.New(host.Options{})
			if how := recovered(func() { h.Enter(end) }); how != want {
				t.Errorf("Enter ended by %v", how)
			}
			// The panic passes through GiveWay, which takes the turn again, and Enter, which gives it back: if
			// GiveWay had not, Enter would panic about a turn that it does not hold.
			held := false
			how := recovered(func() {
				h.Enter(func() {
					defer func() { held = true }()
					h.GiveWay(end)
				})
			})
			if how != want || !held {
				t.Errorf("GiveWay inside Enter ended by %v", how)
			}
			ran := false
			start(h, func() { ran = true })
			if !ran {
				t.Error("the turn was not given back")
			}
		})
	}
}

func TestATaskThatEndsByGoexitGivesItsTurnBack(t *testing.T) {
	h := host.New(host.Options{})
	ran := false
	start(h, runtime.Goexit, func() { h.GiveWay(runtime.Goexit) }, func() { ran = true })
	if !ran {
		t.Error("the last task never had its turn")
	}
}

func TestGivingAwayATurnThatNobodyHoldsPanics(t *testing.T) {
	h := host.New(host.Options{})
	if how := recovered(func() { h.GiveWay(func() {}) }); how == "returned" {
		t.Error("GiveWay without the turn went unnoticed")
	}
}

func TestWaitCoversTasksStartedByTasks(t *testing.T) {
	h := host.New(host.Options{})
	ended := 0
	var spawn func(depth int)
	spawn = func(depth int) {
		h.Go("child", func() {
			if depth > 0 {
				spawn(depth - 1)
			}
			ended++
		})
	}
	start(h, func() { spawn(9) })
	if ended != 10 {
		t.Errorf("%d of 10 tasks ended before Wait returned", ended)
	}
}

func TestIDsAreUUIDv7AndGrow(t *testing.T) {
	h := host.New(host.Options{})
	last := ""
	for range 1000 {
		id := h.NewID()
		if parsed, err := uuid.Parse(id); err != nil || parsed.Version() != 7 || id != parsed.String() {
			t.Fatalf("%q is not a UUIDv7 in textual form: %v", id, err)
		}
		if id <= last {
			t.Fatalf("%q does not follow %q", id, last)
		}
		last = id
	}
}

func TestOptionsReplaceClockAndIDs(t *testing.T) {
	past := time.Unix(1, 0)
	h := host.New(host.Options{Now: func() time.Time { return past }, NewID: func() string { return "id" }})
	if h.Now() != past || h.NewID() != "id" {
		t.Errorf("Now is %v and NewID %q", h.Now(), h.NewID())
	}
	before := time.Now()
	if now := host.New(host.Options{}).Now(); now.Before(before) || now.After(time.Now()) {
		t.Errorf("the wall clock says %v", now)
	}
}

// Two tasks wake one another and wait: each iteration is one switch from goroutine to goroutine.
func BenchmarkTurnSwitch(b *testing.B) {
	h := host.New(host.Options{})
	left := b.N
	turn := h.NewSignal()
	pass := func() {
		for ; left > 0; left-- {
			turn.Broadcast()
			turn.Wait(b.Context(), -1)
		}
		turn.Broadcast()
	}
	b.ReportAllocs()
	start(h, pass, pass)
}

// A task that gives way while nobody waits keeps its processor.
func BenchmarkGiveWayAlone(b *testing.B) {
	h := host.New(host.Options{})
	b.ReportAllocs()
	start(h, func() {
		for b.Loop() {
			h.GiveWay(func() {})
		}
	})
}
