package redissim_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/fencepost-sim/fencepost/engine/idempotency/redisport"
	"github.com/fencepost-sim/fencepost/sim/redissim"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// walk makes a whole SCAN, changing the keyspace between the steps, and returns how often each key was seen.
func walk(t interface{ Fatalf(string, ...any) }, s *redissim.Server, count int, between func(step int)) map[string]int {
	seen := map[string]int{}
	cursor := ""
	for step := 0; ; step++ {
		if step > 100_000 {
			t.Fatalf("the walk does not end")
		}
		page, err := s.Scan(start, redisport.Scan{Cursor: cursor, Prefix: "k:", Count: count})
		if err != nil {
			t.Fatalf("%v", err)
		}
		for _, key := range page.Keys {
			seen[key]++
		}
		if cursor = page.Next; cursor == "" {
			return seen
		}
		between(step)
	}
}

func TestAScanSeesEveryKeyThatIsThereThroughoutWhileTheTableGrowsAndShrinks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := redissim.New(redissim.Options{Seed: rapid.Uint64().Draw(t, "seed")})
		stay := rapid.IntRange(0, 60).Draw(t, "stay")
		for i := range stay {
			s.Foreign(fmt.Sprintf("k:%d", i))
		}
		passing := 0
		churn := rapid.IntRange(-40, 40)
		seen := walk(t, s, rapid.IntRange(1, 20).Draw(t, "count"), func(step int) {
			if step > 50 {
				return
			}
			by := churn.Draw(t, "churn")
			for ; by > 0; by-- {
				s.Foreign(fmt.Sprintf("k:passing:%d", passing))
				passing++
			}
			for ; by < 0 && passing > 0; by++ {
				passing--
				s.Evict(fmt.Sprintf("k:passing:%d", passing))
			}
		})
		for i := range stay {
			if seen[fmt.Sprintf("k:%d", i)] == 0 {
				t.Fatalf("key %d of %d was there throughout and not seen", i, stay)
			}
		}
	})
}

// That duplicates occur at all, and that a step can be empty, is what code on top must bear.
func TestAScanRepeatsKeysWhenTheTableShrinksAndHasEmptySteps(t *testing.T) {
	repeated, empty := false, false
	for seed := range uint64(50) {
		s := redissim.New(redissim.Options{Seed: seed})
		for i := range 600 {
			s.Foreign(fmt.Sprintf("k:%d", i))
		}
		evicted := 20
		for _, times := range walk(t, s, 5, func(int) {
			for range 30 {
				if evicted < 600 {
					s.Evict(fmt.Sprintf("k:%d", evicted))
					evicted++
				}
			}
		}) {
			repeated = repeated || times > 1
		}
		for i := range 500 {
			s.Foreign(fmt.Sprintf("other:%d", i))
		}
		page, err := s.Scan(start, redisport.Scan{Prefix: "k:", Count: 1})
		if err != nil {
			t.Fatal(err)
		}
		empty = empty || (len(page.Keys) == 0 && page.Next != "")
	}
	if !repeated || !empty {
		t.Errorf("repeated %v, empty %v", repeated, empty)
	}
}

func TestTheCountIsAboutAllKeysAndTheSeedDecidesTheOrder(t *testing.T) {
	first := map[string]bool{}
	for seed := range uint64(20) {
		s := redissim.New(redissim.Options{Seed: seed})
		for i := range 1000 {
			s.Foreign(fmt.Sprintf("other:%d", i))
		}
		s.Foreign("k:1")
		s.Foreign("k:2")
		steps := 0
		for key := range walk(t, s, 10, func(int) { steps++ }) {
			first[key] = true
		}
		if steps < 50 {
			t.Errorf("two keys among a thousand were found in %d steps of 10", steps)
		}
	}
	if len(first) != 2 {
		t.Errorf("found %v", first)
	}
}

func TestAFailoverUndoesTheLastWritesInOrder(t *testing.T) {
	s := redissim.New(redissim.Options{})
	for i := range 10 {
		s.Foreign(fmt.Sprintf("k:%d", i))
	}
	s.Evict("k:0")
	if lost := s.Failover(3, 0); lost != 3 {
		t.Errorf("lost %d", lost)
	}
	var keys []string
	for key := range walk(t, s, 100, func(int) {}) {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	if want := []string{"k:0", "k:1", "k:2", "k:3", "k:4", "k:5", "k:6", "k:7"}; !slices.Equal(keys, want) {
		t.Errorf("left %v, want %v", keys, want)
	}
	if lost := s.Failover(100, 0); lost != 8 || s.Len() != 0 {
		t.Errorf("lost %d of 8, %d keys left", lost, s.Len())
	}
}

func TestUnknownScriptsWrongArgumentsAndForeignKeysAreRefused(t *testing.T) {
	s := redissim.New(redissim.Options{})
	s.Foreign("taken")
	for name, call := range map[string]redisport.Call{
		"unknown script":  {Script: &redisport.Script{Name: "mystery"}, Key: "k"},
		"too few":         {Script: redisport.Claim, Key: "k", Args: []string{"x"}},
		"no token":        {Script: redisport.Release, Key: "k", Args: []string{"xyz"}},
		"wrong type":      {Script: redisport.Sweep, Key: "taken"},
		"no verb":         {Script: redisport.Lease, Key: "k", Args: []string{"steal", "00", "1", "0", "", "1"}},
		"lease on a key":  {Script: redisport.Lease, Key: "taken", Args: []string{"acquire", "00", "1", "0", "", "1"}},
		"lease with none": {Script: redisport.Lease, Key: "k"},
	} {
		if replies, err := s.Run(start, call); err == nil {
			t.Errorf("%s: answered %v", name, replies)
		}
	}
	if s.Len() != 1 {
		t.Errorf("refused calls left %d keys", s.Len())
	}
}
