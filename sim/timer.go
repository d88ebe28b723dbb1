package sim

import (
	"container/heap"
	"time"
)

// timer calls fire at a virtual time. Equal times fire in the order in which the timers were set.
type timer struct {
	at       time.Duration
	sequence int
	fire     func()
	task     *task // or: the task to make ready
	index    int   // in the heap
}

type timerHeap []*timer

func (h timerHeap) Len() int { return len(h) }
func (h timerHeap) Less(i, j int) bool {
	if h[i].at != h[j].at {
		return h[i].at < h[j].at
	}
	return h[i].sequence < h[j].sequence
}
func (h timerHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}
func (h *timerHeap) Push(x any) {
	t := x.(*timer)
	t.index = len(*h)
	*h = append(*h, t)
}
func (h *timerHeap) Pop() any {
	last := len(*h) - 1
	t := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	t.index = -1
	return t
}

// after sets a timer of the world itself.
func (w *World) after(wait time.Duration, fire func()) *timer {
	return w.setTimer(wait, &timer{fire: fire})
}

func (w *World) setTimer(wait time.Duration, t *timer) *timer {
	w.timerSeq++
	t.at, t.sequence = w.now+max(0, wait), w.timerSeq
	heap.Push(&w.timers, t)
	return t
}

func (w *World) cancelTimer(t *timer) {
	if t != nil && t.index >= 0 && t.index < len(w.timers) && w.timers[t.index] == t {
		heap.Remove(&w.timers, t.index)
	}
}

// advance moves the clock to the next timer and fires all that are due then.
func (w *World) advance() {
	at := w.timers[0].at
	span := at - w.now
	w.now, w.instant = at, w.step
	w.recordAdvance(span)
	for len(w.timers) > 0 && w.timers[0].at == at {
		t := heap.Pop(&w.timers).(*timer)
		if t.task != nil {
			t.task.timedOut = true
			w.makeReady(t.task)
		} else {
			t.fire()
		}
	}
}
