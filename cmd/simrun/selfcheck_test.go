package main

import (
	"context"
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/fencepost-sim/fencepost/engine"
	"github.com/fencepost-sim/fencepost/engine/store"
	"github.com/fencepost-sim/fencepost/scenarios"
)

// leaks are ways in which a run can depend on something that is not its plan and seed. Each returns a value that should be the same in
// every process, and is not.
var leaks = map[string]func() any{
	"the wall clock":             func() any { return time.Now().UnixNano() },
	"the global random source":   func() any { return rand.Int64() },
	"a seed of hash/maphash":     func() any { return int64(maphash.String(maphash.MakeSeed(), "fencepost") >> 1) },
	"the order of a map":         func() any { return firstOf(map[string]int{"a": 1, "b": 2, "c": 3, "d": 4, "e": 5}) },
	"an address":                 func() any { return fmt.Sprintf("%p", new(int)) },
	"the ID of the process":      func() any { return int64(os.Getpid()) },
	"GOMAXPROCS":                 func() any { return int64(runtime.GOMAXPROCS(0)) },
	"the environment":            func() any { return os.Getenv("GOGC") },
	"the memory that is in use":  func() any { return int64(allocated()) },
	"which goroutine runs first": func() any { return race() },
}

func firstOf(m map[string]int) string {
	var names strings.Builder
	for name := range m {
		names.WriteString(name)
	}
	return names.String()
}

func allocated() uint64 {
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.TotalAlloc + uint64(debug.SetGCPercent(debug.SetGCPercent(-1))+1)
}

// race lets goroutines finish in any order.
func race() string {
	var order strings.Builder
	var mutex sync.Mutex
	var group sync.WaitGroup
	for i := range 16 {
		group.Go(func() {
			for range i * 50 {
				runtime.Gosched()
			}
			mutex.Lock()
			defer mutex.Unlock()
			fmt.Fprint(&order, i, " ")
		})
	}
	group.Wait()
	return order.String()
}

// leaking adds what leaks to each event that is published.
type leaking struct {
	store.Store
	leak func() any
}

func (l leaking) Run(ctx context.Context, c store.Command) (store.Reply, error) {
	if c.Point == engine.PointPublish {
		c.Update = append(bson.D{}, c.Update...)
		c.Update = append(c.Update, bson.E{Key: "$set", Value: bson.D{{Key: "leaked", Value: l.leak()}}})
	}
	return l.Store.Run(ctx, c)
}

// plant is called in a child process of the test.
func plant(name string) {
	if leak := leaks[name]; leak != nil {
		planted = scenarios.Bug{Decorate: func(_ string, inner store.Store) store.Store { return leaking{inner, leak} }}
	}
}

func TestSelfcheckFindsEveryPlantedLeakAndNamesTheStep(t *testing.T) {
	t.Setenv("SIMRUN_AS_COMMAND", "1")
	for name := range leaks {
		t.Run(name, func(t *testing.T) {
			t.Setenv("SIMRUN_LEAK", name)
			exit, out, problems := simrun("selfcheck", "--runs", "6")
			if exit != exitViolated || !strings.Contains(out, "first difference") && !strings.Contains(out, "what leaks is rare") {
				t.Errorf("exit %d, %s%s", exit, out, problems)
			}
			if name == "the wall clock" && !strings.Contains(out, `"point":"event.publish"`) {
				t.Errorf("the step is not named: %s", out)
			}
		})
	}
	t.Setenv("SIMRUN_LEAK", "")
	if exit, out, problems := simrun("selfcheck", "--runs", "6"); exit != exitHolds || !strings.Contains(out, "no difference") {
		t.Errorf("without a leak: exit %d, %s%s", exit, out, problems)
	}
}
