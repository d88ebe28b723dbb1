package host

import "sync"

// turn is the token that tasks of one host hand from one to the next. It is a lock that is fair by construction:
// whoever asked first is served first, so a task that gives way in a loop cannot starve the others.
// (A sync.Mutex lets a running goroutine overtake the waiting ones.)
//
// The mutex inside is held for a few instructions only. Waiting happens on a channel, which a testing/synctest
// bubble understands as being blocked; a contended sync.Mutex would stop its clock.
type turn struct {
	mu          sync.Mutex
	taken       bool
	first, last *place
}

// place is a position in the queue for the turn.
type place struct {
	reached chan struct{} // closed when the turn belongs to whoever stands here
	next    *place
}

// queue stands in line and returns the place. The turn belongs to the caller as soon as the place is reached; it
// must be awaited, since the turn is handed over whether or not somebody looks.
func (t *turn) queue() *place {
	p := &place{reached: make(chan struct{})}
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case !t.taken:
		t.taken = true
		close(p.reached)
	case t.last == nil:
		t.first, t.last = p, p
	default:
		t.last.next = p
		t.last = p
	}
	return p
}

// take waits for the turn.
func (t *turn) take() {
	t.mu.Lock()
	if !t.taken { // the common case needs no place in the queue
		t.taken = true
		t.mu.Unlock()
		return
	}
	t.mu.Unlock()
	<-t.queue().reached
}

// release hands the turn to whoever has waited longest, or leaves it free. Releasing a turn that nobody holds is
// a bug of the caller, which would let two tasks run at once, and panics.
func (t *turn) release() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.taken {
		panic("host: the turn was given away by somebody who did not hold it")
	}
	p := t.first
	if p == nil {
		t.taken = false
		return
	}
	if t.first = p.next; t.first == nil {
		t.last = nil
	}
	close(p.reached)
}
