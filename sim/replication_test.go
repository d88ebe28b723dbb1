package sim_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencepost-sim/fencepost/engine"
	"github.com/fencepost-sim/fencepost/faults"
	"github.com/fencepost-sim/fencepost/sim"
	"github.com/fencepost-sim/fencepost/sim/journal"
)

// struck runs the world of one worker and one publisher under faults before the first time that the worker records a success.
func struck(t *testing.T, kinds ...faults.Kind) *journal.Journal {
	t.Helper()
	plan := faults.Plan{}
	for _, kind := range kinds {
		plan.Faults = append(plan.Faults, faults.Fault{
			Kind: kind, Process: "worker", Point: string(engine.PointAttemptSucceed), Position: faults.Before, Occurrence: 1, Span: 8 * time.Second,
		})
	}
	return world(t, sim.Config{Plan: plan}, engine.SubscribeOptions{}, quiet)
}

// times are when events of the kind came, in seconds.
func times(j *journal.Journal, kind journal.Kind) (seconds []float64) {
	for _, event := range j.Events {
		if event.Kind == kind {
			seconds = append(seconds, event.Time.Seconds())
		}
	}
	return seconds
}

// recorded are the times at which a success came into the journal.
func recorded(j *journal.Journal) (seconds []float64) {
	for _, event := range j.Events {
		if event.Kind == journal.Wrote && event.Point == string(engine.PointAttemptSucceed) {
			seconds = append(seconds, event.Time.Seconds())
		}
	}
	return seconds
}

func TestWithoutAPrimaryNothingIsReachedUntilOneIsElected(t *testing.T) {
	j := struck(t, faults.Failover)
	elected := times(j, journal.PrimaryElected)
	if len(elected) != 1 {
		t.Fatalf("elections at %v, want one", elected)
	}
	for _, event := range j.Events {
		at := event.Time.Seconds()
		if event.Kind == journal.Answered && event.Error == "" && event.Point != "" && at > elected[0]-8 && at < elected[0] {
			t.Errorf("step %d, %v: %s is answered without a primary", event.Step, event.Time, event.Point)
		}
	}
	if got := recorded(j); len(got) != 1 || got[0] < elected[0] {
		t.Errorf("the success is recorded at %v, want once, after the election at %v", got, elected)
	}
	if got := attempts(j); !slices.Equal(got, []string{"success"}) {
		t.Errorf("attempts %v, want one success", got)
	}
}

func TestWhatIsRolledBackIsNeverInTheJournal(t *testing.T) {
	j := struck(t, faults.Rollback)
	undone := times(j, journal.WritesRolledBack)
	if len(undone) != 1 || len(times(j, journal.PrimaryElected)) != 1 {
		t.Fatalf("rolled back at %v and elected at %v, want once each", undone, times(j, journal.PrimaryElected))
	}
	for _, event := range j.Events {
		if event.Kind == journal.WritesRolledBack && (event.Name == "0" || event.Number != 1) {
			t.Errorf("member %d takes %s writes back, want member 1 and the success at least", event.Number, event.Name)
		}
	}
	if got := recorded(j); len(got) != 1 || got[0] < undone[0] {
		t.Errorf("the success is recorded at %v, want once, after the rollback at %v", got, undone)
	}
}

func TestAWriteIsInTheJournalWhenAMajorityHasIt(t *testing.T) {
	j := struck(t, faults.Lag)
	strike := times(j, journal.FaultStruck)
	if got := recorded(j); len(strike) != 1 || len(got) != 1 || got[0] != strike[0]+8 {
		t.Errorf("the success is recorded at %v, want 8 s after the fault at %v", got, strike)
	}
	for _, kind := range []journal.Kind{journal.PrimaryElected, journal.ErrorReported} {
		if n := count(j, kind); n > 0 {
			t.Errorf("%d events %s, want none", n, kind)
		}
	}
}

func TestOneFaultOfTheSetIsUnderWayAtATime(t *testing.T) {
	alone, both := struck(t, faults.Failover), struck(t, faults.Failover, faults.Rollback, faults.Lag)
	if n := count(both, journal.FaultStruck); n != 3 {
		t.Errorf("%d faults struck, want 3", n)
	}
	if count(both, journal.PrimaryElected) != 1 || count(both, journal.WritesRolledBack) != 0 || len(recorded(both)) != len(recorded(alone)) {
		t.Error("a fault that struck while another was under way did something")
	}
}

func TestChangeStreamsOfTheOldPrimaryFailAndAreOpenedAgain(t *testing.T) {
	for _, kind := range []faults.Kind{faults.Failover, faults.Rollback} {
		j := struck(t, kind)
		if failed, opened := count(j, journal.StreamFailed), count(j, journal.StreamOpened); failed == 0 || opened != 2*failed {
			t.Errorf("%s: %d streams failed and %d were opened, want some, and one more for each", kind, failed, opened)
		}
	}
}

func TestAStandaloneHasNoFaultsOfASet(t *testing.T) {
	plan := faults.Plan{Faults: []faults.Fault{{
		Kind: faults.Failover, Process: "worker", Point: "event.read", Position: faults.Before, Occurrence: 1, Span: time.Second,
	}}}
	_, err := sim.New(sim.Config{Plan: plan, Standalone: true})
	if !errors.Is(err, faults.ErrInvalid) || !strings.Contains(err.Error(), "failover") {
		t.Errorf("error %v, want one about failover that is faults.ErrInvalid", err)
	}
}

// TestTheDeposedPrimaryDeliversNothing is a handler's side of a rollback: while its process talks to the primary that was, its claim is not acknowledged.
func TestTheDeposedPrimaryDeliversNothing(t *testing.T) {
	plan := faults.Plan{Faults: []faults.Fault{{
		Kind: faults.Rollback, Process: "worker", Point: string(engine.PointAttemptClaim), Position: faults.Before, Occurrence: 1, Span: 8 * time.Second,
	}}}
	j := world(t, sim.Config{Plan: plan}, engine.SubscribeOptions{Unordered: true}, quiet)
	started, undone := times(j, journal.HandlerStarted), times(j, journal.WritesRolledBack)
	if len(started) != 1 || len(undone) != 1 || started[0] < undone[0] {
		t.Errorf("handlers start at %v, want one, after the rollback at %v", started, undone)
	}
}
