package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/fencepost-sim/fencepost/explore"
	"github.com/fencepost-sim/fencepost/properties"
	"github.com/fencepost-sim/fencepost/properties/mutants"
)

// The command mutants plants every bug that the harness knows, one at a time, and shows which property finds it.

const mutantsUsage = `  simrun mutants                 plant every known bug, one at a time, and show which properties find it
      --only NAME                just this one
      --json                     the result as JSON
`

// hunted is what became of one mutant.
type hunted struct {
	Name       string   `json:"name"`
	What       string   `json:"what"`
	Caught     string   `json:"caught"`     // the property that must find it
	Properties []string `json:"properties"` // that were violated
	Runs       int      `json:"runs"`       // until then
	Faults     int      `json:"faults"`     // of the shrunk plan
	Choices    int      `json:"choices"`
	Seconds    float64  `json:"seconds"` // by the wall clock, with shrinking
	Survived   string   `json:"survived,omitempty"`
}

func runMutants(args []string, out, problems io.Writer) (holds bool, err error) {
	flags := flag.NewFlagSet("simrun mutants", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	only := flags.String("only", "", "")
	asJSON := false
	switchFlag(flags, "json", &asJSON)
	if err := parseFlags(flags, args); err != nil {
		return false, err
	}
	planted, err := chosenMutants(*only)
	if err != nil {
		return false, err
	}
	bar := newProgress(problems, len(planted))
	results := make([]hunted, len(planted))
	done := explore.Counter(bar.show)
	err = explore.Each(len(planted), func(i int) error {
		results[i] = hunt(planted[i])
		done(results[i].Survived != "")
		return nil
	})
	bar.clear()
	if err != nil {
		return false, err
	}
	survived := slices.ContainsFunc(results, func(r hunted) bool { return r.Survived != "" })
	if asJSON {
		encoder := json.NewEncoder(out)
		encoder.SetIndent("", "  ")
		return !survived, encoder.Encode(results)
	}
	_, err = io.WriteString(out, matrix(results))
	return !survived, err
}

func chosenMutants(only string) (planted []*mutants.Mutant, err error) {
	for i := range mutants.All {
		if only == "" || mutants.All[i].Name == only {
			planted = append(planted, &mutants.All[i])
		}
	}
	if len(planted) == 0 {
		return nil, fmt.Errorf("%w: --only %q; allowed: %s", errUsage, only, strings.Join(mutants.Names(), ", "))
	}
	return planted, nil
}

func hunt(m *mutants.Mutant) hunted {
	began := time.Now()
	result := hunted{Name: m.Name, What: m.What, Caught: m.Caught, Properties: []string{}}
	kill, err := m.Hunt()
	result.Seconds = time.Since(began).Seconds()
	if err != nil {
		result.Survived = err.Error()
		return result
	}
	result.Properties, result.Runs = kill.Properties, kill.Runs
	result.Faults, result.Choices = len(kill.Plan.Faults), len(kill.Plan.Choices)
	return result
}

// matrix writes one line a mutant, with a column for each property that found any.
func matrix(results []hunted) string {
	var columns []string
	for _, p := range properties.Everything() {
		if slices.ContainsFunc(results, func(r hunted) bool { return slices.Contains(r.Properties, p.ID) }) {
			columns = append(columns, p.ID)
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%-34s", "mutant")
	for _, id := range columns {
		fmt.Fprintf(&b, " %-5s", id)
	}
	b.WriteString("  run  faults choices    time\n")
	var times []float64
	killed := 0
	for _, r := range results {
		fmt.Fprintf(&b, "%-34s", r.Name)
		for _, id := range columns {
			mark := "·"
			switch {
			case id == r.Caught && slices.Contains(r.Properties, id):
				mark = "KILL"
			case slices.Contains(r.Properties, id):
				mark = "x"
			}
			fmt.Fprintf(&b, " %-5s", mark)
		}
		if r.Survived != "" {
			fmt.Fprintf(&b, "  SURVIVED: %s\n", r.Survived)
			continue
		}
		killed++
		times = append(times, r.Seconds)
		fmt.Fprintf(&b, " %4d  %6d %7d %6.2f s\n", r.Runs, r.Faults, r.Choices, r.Seconds)
	}
	slices.Sort(times)
	fmt.Fprintf(&b, "\n%d of %d killed", killed, len(results))
	if len(times) > 0 {
		fmt.Fprintf(&b, "; half of them within %.2f s", times[len(times)/2])
	}
	b.WriteString("\n")
	for _, id := range columns {
		if alone := aloneBy(results, id); len(alone) > 0 {
			fmt.Fprintf(&b, "%-5s alone finds %s\n", id, strings.Join(alone, ", "))
		}
	}
	return b.String()
}

// aloneBy lists the mutants that only this property found.
func aloneBy(results []hunted, id string) (names []string) {
	for _, r := range results {
		if len(r.Properties) == 1 && r.Properties[0] == id {
			names = append(names, r.Name)
		}
	}
	return names
}
