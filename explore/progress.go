package explore

import (
	"errors"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// Limits bounds an exploration. The zero value of a field sets no bound.
type Limits struct {
	// Budget is how long it may take, by the wall clock.
	Budget time.Duration
	// Failures is after how many failing runs it stops.
	Failures int
	// Progress, if set, is told now and then how many runs are over, from one goroutine at a time.
	Progress func(runs, failures int)
}

// errStop ends an exploration early.
var errStop = errors.New("explore: enough")

// tally counts runs on several cores and says when to stop.
type tally struct {
	limits  Limits
	until   time.Time
	observe func(*Outcome)

	mutex    sync.Mutex
	runs     int
	steps    int
	failures int
}

func newTally(limits Limits) *tally {
	t := &tally{limits: limits}
	if limits.Budget > 0 {
		t.until = time.Now().Add(limits.Budget)
	}
	return t
}

// add takes a run into account. It returns errStop when a limit is reached.
func (t *tally) add(outcome *Outcome) error {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	t.runs++
	t.steps += outcome.Journal.Steps()
	if len(outcome.Violations) > 0 {
		t.failures++
	}
	if t.observe != nil {
		t.observe(outcome)
	}
	if t.limits.Progress != nil {
		t.limits.Progress(t.runs, t.failures)
	}
	return t.enough()
}

func (t *tally) enough() error {
	if t.limits.Failures > 0 && t.failures >= t.limits.Failures {
		return errStop
	}
	if !t.until.IsZero() && time.Now().After(t.until) {
		return errStop
	}
	return nil
}

// Counter returns a function that counts what is done, on any goroutine, and tells show; see Limits.Progress.
func Counter(show func(done, failed int)) func(failed bool) {
	var mutex sync.Mutex
	done, bad := 0, 0
	return func(failed bool) {
		mutex.Lock()
		defer mutex.Unlock()
		if done++; failed {
			bad++
		}
		show(done, bad)
	}
}

// Each calls work with the numbers from 0 to n-1 on all cores, in order of the beginning, and waits for all.
func Each(n int, work func(i int) error) error {
	var group errgroup.Group
	group.SetLimit(runtime.GOMAXPROCS(0))
	var mutex sync.Mutex
	var stop error
	for i := range n {
		mutex.Lock()
		stopped := stop
		mutex.Unlock()
		if stopped != nil {
			break
		}
		group.Go(func() error {
			err := work(i)
			if err != nil {
				mutex.Lock()
				stop = err
				mutex.Unlock()
			}
			return err
		})
	}
	return group.Wait()
}

// unlessStopped turns errStop into a success that is marked as incomplete.
func unlessStopped(err error) (complete bool, _ error) {
	if errors.Is(err, errStop) {
		return false, nil
	}
	return err == nil, err
}
