package crashes

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// option is one thing that can happen next.
type option struct {
	text string
	do   func()
}

// options lists what can happen next, in a fixed order: a ready task runs, or a fault strikes it. The clock moves only when nobody is
// ready: that a process is slow is a fault.
func (w *world) options() (list []option) {
	for _, p := range w.alive {
		if p.thaws > w.now {
			continue
		}
		for _, t := range p.tasks {
			if t.ready {
				list = append(list, option{fmt.Sprintf("client %d: %s goes on %s", p.client, t.name, t.at), func() { w.resume(t) }})
			}
		}
	}
	if w.left == 0 {
		return list
	}
	for _, p := range w.alive {
		if p.thaws > w.now {
			continue
		}
		for _, t := range p.tasks {
			if t.ready && t.at != "" {
				list = append(list, w.faults(t)...)
			}
		}
	}
	return list
}

// faults lists what can strike a task at a point.
func (w *world) faults(t *task) (list []option) {
	p := t.process
	add := func(kind Kind, do func()) {
		if slices.Contains(w.config.Kinds, kind) {
			list = append(list, option{fmt.Sprintf("client %d: FAULT %s at %s", p.client, kind, t.at), func() {
				w.left--
				do()
			}})
		}
	}
	add(Crash, func() {
		w.watch.crashed(p)
		p.kill()
		w.alive = slices.DeleteFunc(w.alive, func(other *process) bool { return other == p })
		w.due = append(w.due, restart{w.now + retryAfter, p.client, p.life + 1})
	})
	if t.call {
		add(Lose, func() {
			t.lost = true
			w.resume(t)
		})
	}
	add(Freeze, func() {
		w.watch.paused = true
		p.thaws = w.now + frozen
	})
	add(Failover, func() {
		w.watch.lostData = w.server.Failover(1, 0) > 0 || w.watch.lostData
	})
	return list
}

func (w *world) resume(t *task) {
	t.ready = false
	w.current = t
	t.next()
	w.current = nil
	for _, p := range w.alive {
		for _, other := range p.tasks {
			if other.ctx != nil && other.ctx.Err() != nil {
				other.ready = true
			}
		}
	}
}

// advance moves the clock to what comes next, and reports whether there is anything.
func (w *world) advance() bool {
	next := time.Duration(-1)
	consider := func(at time.Duration) {
		if at > w.now && (next < 0 || at < next) {
			next = at
		}
	}
	for _, p := range w.alive {
		consider(p.thaws)
		for _, t := range p.tasks {
			consider(t.wakes)
		}
	}
	for _, r := range w.due {
		consider(r.at)
	}
	if next < 0 {
		return false
	}
	w.now = next
	for _, p := range w.alive {
		for _, t := range p.tasks {
			t.ready = t.ready || (t.wakes >= 0 && t.wakes <= w.now)
		}
	}
	w.due = slices.DeleteFunc(w.due, func(r restart) bool {
		if r.at <= w.now {
			w.start(r.client, r.life)
		}
		return r.at <= w.now
	})
	return true
}

// Violation is an invariant that did not hold, and how to get there.
type Violation struct {
	What    string
	Choices []int
	Steps   []string // in words
}

func (v Violation) String() string {
	return fmt.Sprintf("%s\nchoices %v:\n  %s", v.What, v.Choices, strings.Join(v.Steps, "\n  "))
}

// Report is what an exploration found.
type Report struct {
	States, Runs int
	Whole        bool // everything was seen
	Violations   []Violation
	// Points says how often a fault struck where, as "crash at complete applied".
	Points map[string]int
}

// Explore walks all choices of the case, each reachable state once, up to a limit of states, and stops at the first violation.
func Explore(config Case, limit int) Report {
	report := Report{Whole: true, Points: map[string]int{}}
	seen := map[uint64]bool{}
	for pending := [][]int{nil}; len(pending) > 0; {
		prefix := pending[len(pending)-1]
		pending = pending[:len(pending)-1]
		report.Runs++
		w, choices := newWorld(config), slices.Clone(prefix)
		for at := 0; w.step(func(options []option) int {
			defer func() { at++ }()
			if at < len(prefix) {
				if at == len(prefix)-1 {
					if _, fault, found := strings.Cut(options[prefix[at]].text, "FAULT "); found {
						report.Points[fault]++
					}
				}
				return prefix[at]
			}
			state := w.digest()
			if seen[state] {
				return -1
			}
			seen[state] = true
			for other := 1; other < len(options); other++ {
				pending = append(pending, append(slices.Clone(choices), other))
			}
			choices = append(choices, 0)
			return 0
		}); {
		}
		w.tearDown()
		if len(w.watch.violations) > 0 {
			report.Violations = append(report.Violations, Violation{w.watch.violations[0], choices, w.steps})
			break
		}
		if len(seen) > limit {
			report.Whole = false
			break
		}
	}
	report.States = len(seen)
	return report
}

// Replay repeats a run by its choices, and goes on with the first option where they end. It returns what was violated.
func Replay(config Case, choices []int) (violations, steps []string) {
	w := newWorld(config)
	for at := 0; w.step(func(options []option) int {
		at++
		if at <= len(choices) {
			return choices[at-1]
		}
		return 0
	}); {
	}
	w.tearDown()
	return w.watch.violations, w.steps
}

// step makes one step, asking which if there is a choice. It returns false when the run is over, or when it is not worth going on.
func (w *world) step(choose func([]option) int) bool {
	if w.done() || len(w.watch.violations) > 0 {
		return false
	}
	options := w.options()
	if len(options) == 0 {
		if !w.advance() || w.now > patience {
			w.violate("U4: after %v %d of %d clients wait", w.now, w.config.Requests-len(w.watch.answers), w.config.Requests)
			return false
		}
		return true
	}
	choice := 0
	if len(options) > 1 {
		if choice = choose(options); choice < 0 {
			return false
		}
	}
	w.steps = append(w.steps, fmt.Sprintf("%v %s", w.now, options[choice].text))
	options[choice].do()
	return true
}
