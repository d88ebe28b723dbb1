// Command simrun runs scenarios of the delivery engine under the deterministic simulator and says what happened.
//
//	simrun list
//	simrun --scenario NAME [--variant V] [--guard G] [--seed N] [--runs N] [--schedule S] [--through WAY] [--json] [--save FILE]
//	simrun replay FILE
//	simrun explore [--strategy S] [--runs N] [--budget D]
//	simrun mutants [--only NAME]
//	simrun selfcheck [--runs N] [--with FILE]
//	simrun serve [--listen HOST:PORT] [--replica-set NAME] [--faults PLAN]
//
// It exits with 0 when every property held, 1 when one was violated or a replay differed, and 2 when
// it was called wrongly, or a file or port was not to be had.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/fencepost-sim/fencepost/scenarios"
)

// Exit codes.
const (
	exitHolds    = 0
	exitViolated = 1
	exitUsage    = 2 // also when a file or a port is not to be had
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// errDiffers is wrapped by errors that say that a replay went another way.
var errDiffers = errors.New("the replay differs")

// errUsage is wrapped by errors about the command line.
var errUsage = errors.New("usage")

func run(args []string, out, problems io.Writer) int {
	holds, err := dispatch(args, out, problems)
	switch {
	case errors.Is(err, flag.ErrHelp):
		if _, err := io.WriteString(out, usage); err != nil {
			fmt.Fprintf(problems, "simrun: %v\n", err)
			return exitUsage
		}
		return exitHolds
	case errors.Is(err, errUsage), errors.Is(err, scenarios.ErrUnknown):
		fmt.Fprintf(problems, "simrun: %v\nsimrun --help says what it takes.\n", err)
		return exitUsage
	case errors.Is(err, errDiffers):
		fmt.Fprintf(problems, "simrun: %v\n", err)
		return exitViolated
	case err != nil:
		fmt.Fprintf(problems, "simrun: %v\n", err)
		return exitUsage
	case !holds:
		return exitViolated
	}
	return exitHolds
}

// commands is what simrun can be asked for.
const commands = "list, replay FILE, --scenario NAME, explore, mutants, selfcheck, serve"

func dispatch(args []string, out, problems io.Writer) (holds bool, err error) {
	if len(args) == 0 {
		fmt.Fprint(out, usage)
		return false, fmt.Errorf("%w: nothing to do; allowed: %s", errUsage, commands)
	}
	if len(args) > 1 && (args[1] == "--help" || args[1] == "-h") {
		return true, flag.ErrHelp
	}
	switch args[0] {
	case "list":
		return true, list(args[1:], out)
	case "replay":
		return replay(args[1:], out)
	case "explore":
		return runExplore(args[1:], out, problems)
	case "mutants":
		return runMutants(args[1:], out, problems)
	case "selfcheck":
		return runSelfcheck(args[1:], out)
	case "testify": // by a child of selfcheck
		return true, testify(args[1:], out)
	case "serve":
		return true, serve(args[1:], out, problems)
	}
	return runScenario(args, out, problems)
}

const usage = `simrun runs the delivery engine in a simulated world and checks what must hold.

  simrun list                    the scenarios
  simrun --scenario NAME         run one and print what happened
      --variant V                one of the configurations of "simrun list", or "all" (default at-least-once,ordered,3)
      --guard G                  the same run under another guard: none, redis, postgres, postgres-claim-alone
      --seed N                   what the run draws (default 1)
      --runs N                   as many seeds, from --seed on, each in its own order of tasks (default 1)
      --schedule S               listed: tasks run in the order in which they became ready (default for one run)
                                 seeded: the seed shuffles them (default for many)
                                 slow: seeded, and tasks can be slow
                                 priorities: the seed gives each task a priority, which changes at two steps
      --through WAY              model: commands go straight to the model of MongoDB (default)
                                 driver: through the official driver and the wire protocol, as in production
      --json                     the result as JSON
      --save FILE                write the run to a file (of many runs: the first that fails)
  simrun replay FILE             run it again and compare every step
      --at STEP                  then show the processes, leases and documents after that step
      --from STEP --to STEP      or what happened between two steps, and how each document changed
` + exploreUsage + mutantsUsage + selfcheckUsage + serveUsage + `
Exit status: 0 everything held, 1 something was violated or a replay differed, 2 called wrongly, or a file or port is not to be had.
`

func list(args []string, out io.Writer) error {
	if len(args) > 0 {
		return fmt.Errorf("%w: list takes no arguments; got %q", errUsage, args)
	}
	var b strings.Builder
	for _, s := range scenarios.All {
		fmt.Fprintf(&b, "%-28s %s\n", s.Name, s.Title)
	}
	b.WriteString("\nEach in these variants (--variant):\n")
	for _, v := range scenarios.Variants() {
		fmt.Fprintf(&b, "  %s\n", v)
	}
	_, err := io.WriteString(out, b.String())
	return err
}
