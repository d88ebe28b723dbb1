package crashes_test

import (
	"flag"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fencepost-sim/fencepost/sim/redissim/crashes"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const all = 2_000_000

var kinds = []crashes.Kind{crashes.Crash, crashes.Lose, crashes.Freeze, crashes.Failover}

// slow is a handler that lives on heartbeats: it works for longer than a lease.
const slow = 40 * time.Second

func explore(t *testing.T, c crashes.Case) crashes.Report {
	t.Helper()
	began := time.Now()
	report := crashes.Explore(c, all)
	t.Logf("%+v: %d states, %d runs in %v", c, report.States, report.Runs, time.Since(began).Round(time.Millisecond))
	for _, v := range report.Violations {
		t.Errorf("%v", v)
	}
	if !report.Whole {
		t.Errorf("not everything was seen: more than %d states", all)
	}
	return report
}

func TestWithoutFaultsEverythingHolds(t *testing.T) {
	explore(t, crashes.Case{Requests: 2, Sweeper: true})
	explore(t, crashes.Case{Requests: 3})
	explore(t, crashes.Case{Requests: 1, Sweeper: true, Work: slow})
}

// deep is opt-in: go test ./sim/redissim/crashes -deep -timeout 3h
var deep = flag.Bool("deep", false, "explore long handlers, the sweeper, three requests and two faults, too")

func TestWithFaultsAnywhereEverythingHoldsThatTheyDoNotExcuse(t *testing.T) {
	for _, kind := range kinds {
		explore(t, crashes.Case{Requests: 2, Faults: 1, Kinds: []crashes.Kind{kind}})
		if *deep {
			explore(t, crashes.Case{Requests: 2, Sweeper: true, Faults: 1, Kinds: []crashes.Kind{kind}})
			explore(t, crashes.Case{Requests: 2, Work: slow, Faults: 1, Kinds: []crashes.Kind{kind}})
		}
	}
	if *deep {
		explore(t, crashes.Case{Requests: 2, Faults: 2, Kinds: kinds})
		explore(t, crashes.Case{Requests: 3, Faults: 2, Kinds: kinds})
	}
}

// Every mutant breaks an invariant in a world in which the real code breaks none.
func TestEveryPlantedHoleIsFound(t *testing.T) {
	for mutant, c := range map[crashes.Mutant]crashes.Case{
		crashes.CompleteByAnyone:    {Requests: 2, Work: slow, Faults: 1, Kinds: []crashes.Kind{crashes.Freeze}},
		crashes.ReleaseByAnyone:     {Requests: 2, Faults: 2, Kinds: []crashes.Kind{crashes.Lose}},
		crashes.ExtendByAnyone:      {Requests: 2, Work: slow, Faults: 1, Kinds: []crashes.Kind{crashes.Freeze}},
		crashes.SweepIgnoresLease:   {Requests: 1, Sweeper: true},
		crashes.SweepIgnoresState:   {Requests: 2, Sweeper: true},
		crashes.NoHeartbeat:         {Requests: 2, Work: slow},
		crashes.RunOnUnknownClaim:   {Requests: 1, Faults: 1, Kinds: []crashes.Kind{crashes.Lose}},
		crashes.LeaseOfADay:         {Requests: 1, Faults: 1, Kinds: []crashes.Kind{crashes.Crash}},
		crashes.TakeoverAtOnce:      {Requests: 2, Work: slow},
		crashes.ReplyBeforeComplete: {Requests: 1, Faults: 1, Kinds: []crashes.Kind{crashes.Crash}},
		crashes.ReleaseOnSuccess:    {Requests: 2},
	} {
		c.Mutant = mutant
		report := crashes.Explore(c, 20_000)
		if len(report.Violations) == 0 {
			t.Errorf("%s was not found in %d states", mutant, report.States)
			continue
		}
		v := report.Violations[0]
		t.Logf("%s after %d states: %s, in %d steps", mutant, report.States, v.What, len(v.Steps))
		if again, _ := crashes.Replay(c, v.Choices); !slices.Contains(again, v.What) {
			t.Errorf("%s: the replay of %v found %v", mutant, v.Choices, again)
		}
		c.Mutant = ""
		if real := crashes.Explore(c, 2_000); len(real.Violations) > 0 {
			t.Errorf("without %s: %v", mutant, real.Violations[0])
		}
	}
}
