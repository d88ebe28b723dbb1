package faults

import (
	"errors"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// anyFault draws a valid fault of any kind.
func anyFault(t *rapid.T) Fault {
	entry := rapid.SampledFrom(Catalogue).Draw(t, "entry")
	fault := Fault{
		Kind:       entry.Kind,
		Process:    rapid.SampledFrom([]string{"worker-1", "worker-2", "publisher"}).Draw(t, "process"),
		Occurrence: rapid.IntRange(1, 9).Draw(t, "occurrence"),
	}
	if entry.Stream {
		fault.Count = rapid.SampledFrom([]int{All, 1, 2, 7}).Draw(t, "count")
	} else {
		fault.Point = rapid.SampledFrom([]string{"attempt.claim", "effect.perform"}).Draw(t, "point")
		fault.Position = rapid.SampledFrom(entry.Positions).Draw(t, "position")
	}
	if entry.Span != "" {
		fault.Span = time.Duration(rapid.IntRange(1, 100_000).Draw(t, "milliseconds")) * time.Millisecond
	}
	return fault
}

func TestPlanTextIsReadBackAsTheSamePlan(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		plan := Plan{Schedule: rapid.SampledFrom(Schedules).Draw(t, "schedule")}
		if plan.Schedule == Priorities {
			plan.Depth, plan.Steps = rapid.IntRange(1, 5).Draw(t, "depth"), rapid.IntRange(1, 9999).Draw(t, "steps")
		}
		for range rapid.IntRange(0, 4).Draw(t, "faults") {
			plan.Faults = append(plan.Faults, anyFault(t))
		}
		for range rapid.IntRange(0, 4).Draw(t, "choices") {
			plan.Choices = append(plan.Choices, Choice{rapid.IntRange(1, 999).Draw(t, "step"), rapid.IntRange(1, 9).Draw(t, "take")})
		}
		text := plan.String()
		again, err := Parse(text)
		if err != nil {
			t.Fatalf("cannot read back\n%s: %v", text, err)
		}
		if again.String() != text {
			t.Fatalf("wrote\n%s\nread\n%s", text, again)
		}
	})
}

func TestMalformedPlansNameTheLineTheFieldAndWhatIsAllowed(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"fault explode process=w", `kind "explode"; allowed: crash, freeze`},
		{"\nfault crash point=x position=after", "line 2: faults: invalid: crash: process is empty"},
		{"fault crash process=w position=after", "point is empty"},
		{"schedule priorities", "depth=0 steps=0; allowed: depth 1 to 100, steps 1 and more"},
		{"schedule seeded depth=2", "allowed: depth and steps only for priorities"},
		{"schedule priorities width=2", `schedule field "width=2"; allowed: depth, steps`},
		{"fault crash process=w point=x position=sideways", `position "sideways"; allowed: [before unanswered after]`},
		{"fault crash process=w point=x position=after occurrence=0", "occurrence 0; allowed: 1 and more"},
		{"fault crash process=w point=x position=after occurrence=many", `fault field "occurrence=many"`},
		{"fault freeze process=w point=x position=after", "span 0; allowed: a duration that is not zero"},
		{"fault lose-reply process=w point=x position=unanswered span=1s", "span 1s; allowed: none"},
		{"fault drop-notifications process=w count=0", "count 0; allowed: all"},
		{"fault crash process=w colour=red", `fault field "colour=red"`},
		{"schedule alphabetic", `schedule "alphabetic"; allowed: listed, seeded`},
		{"choose step=0 take=1", "choice step=0 take=1"},
		{"choose step=x take=1", `choice field "step=x"`},
		{"wait 5s", `"wait 5s"; allowed: schedule`},
	} {
		_, err := Parse(c.text)
		if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("Parse(%q) = %v; want ErrInvalid with %q", c.text, err, c.want)
		}
	}
}
