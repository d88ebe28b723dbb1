package sim

import (
	"context"
	"encoding/hex"
	"slices"
	"time"

	"github.com/fencepost-sim/fencepost/engine/host"
	"github.com/fencepost-sim/fencepost/internal/defect"
)

// simulatedHost is the Host of one life of a process.
type simulatedHost struct {
	process *Process
	life    *instance
}

var _ host.Host = (*simulatedHost)(nil)

// task returns the running task; a dead one unwinds here.
func (h *simulatedHost) task() *task {
	if h.life.over {
		panic(host.Killed{})
	}
	return h.process.world.current
}

func (h *simulatedHost) Now() time.Time {
	p := h.process
	return p.world.ServerNow().Add(p.clock.wrong + p.clock.gained(p.world.now))
}

func (h *simulatedHost) Monotonic() time.Duration {
	p := h.process
	return p.world.now - p.started + p.clock.gained(p.world.now) - p.began
}

// NewID makes a UUIDv7 (RFC 9562, section 5.7) of the process's clock and its seeded stream.
func (h *simulatedHost) NewID() string {
	milliseconds := uint64(h.Now().UnixMilli())
	low, high := h.process.ids.next(), h.process.ids.next()
	var id [16]byte
	for i := range 6 {
		id[i] = byte(milliseconds >> (40 - 8*i))
	}
	for i := range 8 {
		id[8+i] = byte(low >> (8 * i))
	}
	id[6] = 0x70 | byte(high)&0x0F
	id[7] = byte(high >> 8)
	id[8] = 0x80 | id[8]&0x3F
	var text [36]byte
	hex.Encode(text[0:8], id[0:4])
	hex.Encode(text[9:13], id[4:6])
	hex.Encode(text[14:18], id[6:8])
	hex.Encode(text[19:23], id[8:10])
	hex.Encode(text[24:36], id[10:16])
	text[8], text[13], text[18], text[23] = '-', '-', '-', '-'
	return string(text[:])
}

func (h *simulatedHost) Go(name string, run func()) {
	h.task()
	h.process.world.spawn(h.process, name, run)
}

func (h *simulatedHost) Sleep(ctx context.Context, wait time.Duration) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	h.task().sleep(ctx, h.process.clock.trueTime(max(0, wait)), nil)
	return context.Cause(ctx)
}

// GiveWay yields, as the real host does, unless what it runs has yielded already (a call of the Store does so twice).
func (h *simulatedHost) GiveWay(outside func()) {
	t, step := h.task(), h.process.world.step
	outside()
	if h.process.world.step == step {
		t.pause()
	}
}

// Enter yields first: others may have the turn when a caller wants it.
func (h *simulatedHost) Enter(inside func()) {
	h.task().pause()
	inside()
}

// Defects are the bugs that the world plants into its engines.
func (h *simulatedHost) Defects() defect.Set { return h.process.world.config.Defects }

func (h *simulatedHost) NewSignal() host.Signal { return &signal{host: h} }

// signal is a list of waiting tasks.
type signal struct {
	host    *simulatedHost
	waiters []*task
}

func (s *signal) Wait(ctx context.Context, timeout time.Duration) bool {
	t := s.host.task()
	if ctx.Err() != nil {
		return false
	}
	s.waiters = append(s.waiters, t)
	t.sleep(ctx, s.host.process.clock.trueTime(timeout), s)
	return t.woken
}

// Broadcast wakes those that wait now. The deferred functions of a process that is being killed may call it: nobody hears.
func (s *signal) Broadcast() {
	if s.host.life.over {
		return
	}
	waiters := slices.Clone(s.waiters)
	s.waiters = s.waiters[:0]
	for _, t := range waiters {
		t.woken = true
		s.host.process.world.makeReady(t)
	}
}
