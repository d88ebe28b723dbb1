package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

// TestMain lets the test binary stand for the command itself when a test starts it as a process of its own.
func TestMain(m *testing.M) {
	if os.Getenv("SIMRUN_AS_COMMAND") != "" {
		plant(os.Getenv("SIMRUN_LEAK"))
		os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
	}
	goleak.VerifyTestMain(m)
}

// simrun calls the command in this process.
func simrun(args ...string) (exit int, out, problems string) {
	var stdout, stderr bytes.Buffer
	exit = run(args, &stdout, &stderr)
	return exit, stdout.String(), stderr.String()
}

func TestTheMainJobShowsTwoStartsTwoEffectsAndConverges(t *testing.T) {
	exit, out, problems := simrun("--scenario", "crash-after-side-effect")
	if exit != exitHolds || problems != "" {
		t.Fatalf("exit %d, %s", exit, problems)
	}
	for _, want := range []string{
		"handler starts: 2, side effects: 2, idempotency keys: 1, attempts: 1 worker_lost, 2 success, delivery: success",
		"✗ FAULT: crash, after effect.perform",
		"ok    I1   no-loss",
		"ok    I14  truth",
		"reproduce go run ./cmd/simrun --scenario crash-after-side-effect --variant at-least-once,ordered,3 --seed 1",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("the output lacks %q:\n%s", want, out)
		}
	}
}

func TestAfterHistorySuccessTheHandlerDoesNotRunAgain(t *testing.T) {
	exit, out, _ := simrun("--scenario", "crash-after-history-success")
	if exit != exitHolds || !strings.Contains(out, "handler starts: 1,") {
		t.Errorf("exit %d\n%s", exit, out)
	}
}

func TestWrongCallsExitWith2AndSayWhatIsAllowed(t *testing.T) {
	file := filepath.Join(t.TempDir(), "old")
	if err := os.WriteFile(file, []byte("fencepost-replay 0\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	dangling := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(filepath.Join(t.TempDir(), "nothing"), dangling); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, "allowed: list, replay FILE, --scenario NAME"},
		{[]string{"--scenario", "crash-on-monday"}, "allowed: no-faults, crash-before-handler"},
		{[]string{"--scenario", "no-faults", "--variant", "sometimes"}, "allowed: at-least-once,ordered,1"},
		{[]string{"--scenario", "no-faults", "--runs", "0"}, `"0" for flag -runs: allowed: a whole number from 1 to 1000000`},
		{[]string{"--scenario", "no-faults", "--runs", "4611686018427387904", "--variant", "all"}, "from 1 to 1000000"},
		{[]string{"--scenario", "no-faults", "--runs", "many"}, `"many" for flag -runs: allowed: a whole number`},
		{[]string{"--scenario", "no-faults", "--seed", "-1"}, `"-1" for flag -seed: allowed: a whole number from 0`},
		{[]string{"--scenario", "no-faults", "--bogus"}, "-bogus; allowed: --guard, --json, --runs"},
		{[]string{"--scenario", "no-faults", "--save", "/no/such/folder/run"}, "--save: open /no/such/folder/run"},
		{[]string{"--scenario", "no-faults", "--json=maybe"}, "allowed: true, false"},
		{[]string{"--scenario", "no-faults", "--runs", "1000000", "--variant", "all"}, "--runs 1000000 in 8 variants; allowed: 1000000 in all"},
		{[]string{"--scenario", "no-faults", "--seed", "18446744073709551615", "--runs", "3"}, "beyond the largest seed"},
		{[]string{"--scenario", "no-faults", "--save", os.DevNull}, "not a regular file"},
		{[]string{"--scenario", "no-faults", "--save", dangling}, "a link to nothing"},
		{[]string{"explore", "--strategy", "guess"}, "allowed: exhaustive, orders, random, pct, coverage"},
		{[]string{"explore", "--budget", "-1s"}, "allowed: a duration above zero"},
		{[]string{"explore", "--mutant", "none"}, "allowed: scan-skips-first"},
		{[]string{"explore", "--save", "/nowhere"}, `"/nowhere" is not a folder`},
		{[]string{"explore", "now"}, "takes no arguments"},
		{[]string{"serve", "--seed", "-1"}, "allowed: a whole number"},
		{[]string{"serve", "--listen", "127.0.0.1:99999"}, "allowed: ports 0 to 65535"},
		{[]string{"--scenario", "no-faults", "--schedule", "fair"}, "allowed: listed, seeded, slow"},
		{[]string{"--scenario", "no-faults", "--through", "a tunnel"}, "allowed: model, driver"},
		{[]string{"--colour"}, "-colour"},
		{[]string{"discover"}, `"discover"; allowed: list`},
		{[]string{"list", "all"}, "list takes no arguments"},
		{[]string{"replay"}, "replay takes one file"},
		{[]string{"replay", file, "--at", "x"}, "allowed: a whole number from 0"},
		{[]string{"replay", file, "--from", "2"}, "allowed: --at STEP, or --from STEP with --to STEP"},
		{[]string{"replay", file, "--from", "2", "--to", "1"}, "allowed: from less than to"},
		{[]string{"replay", "/nowhere"}, "/nowhere"},
		{[]string{"replay", file}, `line 1 is "fencepost-replay 0"; allowed: "fencepost-replay 2"`},
	} {
		exit, _, problems := simrun(c.args...)
		if exit != exitUsage || !strings.Contains(problems, c.want) {
			t.Errorf("simrun %v: exit %d, %q; want 2 with %q", c.args, exit, problems, c.want)
		}
	}
}

func TestListNamesEveryScenario(t *testing.T) {
	exit, out, _ := simrun("list")
	if exit != exitHolds || !strings.Contains(out, "crash-after-side-effect") || !strings.Contains(out, "at-most-once,unordered,3") {
		t.Errorf("exit %d\n%s", exit, out)
	}
}

func TestTheSameRunUnderEachGuard(t *testing.T) {
	for guard, want := range map[string]string{
		"none":                 "side effects: 2,",
		"redis":                "side effects: 2,", // the crash is between the effect and COMPLETE
		"postgres":             "side effects: 1,",
		"postgres-claim-alone": "side effects: 1,",
	} {
		file := filepath.Join(t.TempDir(), "run")
		exit, out, problems := simrun("--scenario", "crash-after-side-effect", "--guard", guard, "--save", file)
		if exit != exitHolds || !strings.Contains(out, want) {
			t.Errorf("%s: exit %d, %s, no %q in\n%s", guard, exit, problems, want, out)
		}
		if named := strings.Contains(out, "note  C-III event"); named != (guard == "redis") {
			t.Errorf("%s: the window is named: %v", guard, named)
		}
		if exit, again, problems := simrun("replay", file); exit != exitHolds || !strings.Contains(again, want) {
			t.Errorf("%s: replay: exit %d, %s\n%s", guard, exit, problems, again)
		}
	}
	if exit, _, problems := simrun("--scenario", "no-faults", "--guard", "hope"); exit != exitUsage || !strings.Contains(problems, `guard "hope"; allowed: none, redis, postgres`) {
		t.Errorf("exit %d, %s", exit, problems)
	}
}

func TestARecordedRunIsReplayedStepByStep(t *testing.T) {
	file := filepath.Join(t.TempDir(), "run")
	if exit, _, problems := simrun("--scenario", "heartbeat-stall", "--seed", "9", "--schedule", "slow", "--save", file); problems != "" {
		t.Fatalf("exit %d, %s", exit, problems)
	}
	exit, out, problems := simrun("replay", file)
	if exit != exitHolds || !strings.Contains(out, "steps are the same") {
		t.Errorf("exit %d, %s, %s", exit, problems, out)
	}
}

func TestAReplayShowsAMomentAndWhatChangedBetweenTwo(t *testing.T) {
	file := filepath.Join(t.TempDir(), "run")
	if exit, _, problems := simrun("--scenario", "crash-after-side-effect", "--save", file); exit != exitHolds {
		t.Fatal(problems)
	}
	for _, c := range []struct {
		args []string
		want []string
	}{
		{[]string{"--at", "306"}, []string{
			"after step 306 of ", "runs the handler of event", "billing: attempt 1 of event", "ends in 30s", "orionjs.pulse.deliveries (1)", `"status":"pending"`,
		}},
		{[]string{"--from", "305", "--to", "700"}, []string{
			"SIDE EFFECT", "records E1, attempt 1: worker_lost", `{"status":"pending"} → {"status":"error"}`,
		}},
	} {
		exit, out, problems := simrun(append([]string{"replay", file}, c.args...)...)
		for _, want := range c.want {
			if exit != exitHolds || !strings.Contains(out, want) {
				t.Errorf("%v: exit %d, %s: no %q in\n%s", c.args, exit, problems, want, out)
			}
		}
	}
	if exit, _, problems := simrun("replay", file, "--at", "999999"); exit != exitUsage || !strings.Contains(problems, "the last of this run") {
		t.Errorf("exit %d, %s", exit, problems)
	}
}

func TestARunThroughTheDriverIsReplayedThroughTheDriver(t *testing.T) {
	file := filepath.Join(t.TempDir(), "run")
	exit, out, problems := simrun("--scenario", "failed-reads", "--through", "driver", "--save", file)
	if exit != exitHolds || !strings.Contains(out, "--through driver") {
		t.Fatalf("exit %d, %s\n%s", exit, problems, out)
	}
	if exit, out, problems := simrun("replay", file); exit != exitHolds || !strings.Contains(out, "steps are the same") {
		t.Errorf("exit %d, %s, %s", exit, problems, out)
	}
}

func TestAReplayThatDiffersNamesTheFirstStep(t *testing.T) {
	file := filepath.Join(t.TempDir(), "run")
	if exit, _, problems := simrun("--scenario", "no-faults", "--save", file); exit != exitHolds {
		t.Fatal(problems)
	}
	recorded, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	changed := bytes.Replace(recorded, []byte(`"kind":"handler-started"`), []byte(`"kind":"handler-ended"`), 1)
	if err := os.WriteFile(file, changed, 0o600); err != nil {
		t.Fatal(err)
	}
	exit, _, problems := simrun("replay", file)
	if exit != exitViolated || !strings.Contains(problems, "the runs differ at step") || !strings.Contains(problems, "handler-ended") {
		t.Errorf("exit %d, %s", exit, problems)
	}
}

func TestJSONHoldsTheVerdictOfEveryProperty(t *testing.T) {
	exit, out, _ := simrun("--scenario", "crash-during-handler", "--json")
	var summary struct {
		Holds      bool
		Hash       string
		Properties []struct {
			ID    string
			Holds bool
		}
	}
	if err := json.Unmarshal([]byte(out), &summary); err != nil {
		t.Fatal(err)
	}
	if exit != exitHolds || !summary.Holds || len(summary.Properties) != 14 || len(summary.Hash) != 64 {
		t.Errorf("exit %d, %+v", exit, summary)
	}
}

func TestASweepPrintsTheSameWhateverTheNumberOfCores(t *testing.T) {
	var outputs []string
	for _, procs := range []string{"1", "2"} {
		for range 2 {
			command := exec.Command(os.Args[0], "--scenario", "crash-after-history-error", "--variant", "all", "--runs", "5", "--json")
			command.Env = append(os.Environ(), "SIMRUN_AS_COMMAND=1", "GOMAXPROCS="+procs)
			out, err := command.Output()
			if err != nil {
				t.Fatal(err)
			}
			outputs = append(outputs, string(out))
		}
	}
	for i, out := range outputs[1:] {
		if out != outputs[0] {
			t.Errorf("process %d printed\n%s\nthe first printed\n%s", i+2, out, outputs[0])
		}
	}
	if !strings.Contains(outputs[0], fmt.Sprintf(`"runs": %d`, 40)) {
		t.Errorf("printed %s", outputs[0])
	}
}
