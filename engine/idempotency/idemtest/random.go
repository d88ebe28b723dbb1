package idemtest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/fencepost-sim/fencepost/engine/idempotency"
	"github.com/fencepost-sim/fencepost/engine/idempotency/record"
)

// randomSteps draws histories and compares each answer with that of package record, on a clock of its own. Leases are
// either long or have lapsed before the next step, so that the two clocks need not agree.
var randomSteps = []contractTest{
	{"histories of one key are those of the state machine", func(f *fixture) {
		for seed := range uint64(30) {
			random := rand.New(rand.NewPCG(seed, 5))
			w := &lockstep{fixture: f, key: idempotency.Key(fmt.Sprintf("req:random:%d", seed)), now: time.UnixMilli(1_000_000)}
			for range 40 {
				w.step(random)
				if f.Failed() {
					f.Fatalf("seed %d; history:\n%v", seed, w.history)
				}
			}
			f.sweepAll(100) // what this history left is not the next one's
		}
	}},
}

type lockstep struct {
	*fixture
	key     idempotency.Key
	record  record.Record
	now     time.Time
	history []string
	fence   uint64
}

func (w *lockstep) note(format string, values ...any) {
	w.history = append(w.history, fmt.Sprintf(format, values...)+"\n")
}

func (w *lockstep) pass() {
	w.Pass(lapse)
	w.now = w.now.Add(lapse)
	w.record = w.record.Live(w.now)
}

func (w *lockstep) step(random *rand.Rand) {
	w.now = w.now.Add(time.Microsecond) // fences of the state machine grow, too
	owner := token(random.Uint64N(3))
	claim := idempotency.Claim{Key: w.key, Token: owner}
	lease := []time.Duration{short, long}[random.IntN(2)]
	switch random.IntN(8) {
	case 0, 1, 2:
		w.claim(random, owner, lease)
	case 3:
		w.compare("extend", w.Store.Extend(w.Context(), claim, lease), w.record.Extend(w.now, owner, lease))
	case 4:
		result := idempotency.Result{Kind: idempotency.Success, Payload: fmt.Append(nil, random.IntN(9))}
		fingerprint := []idempotency.Fingerprint{"", "c1:c"}[random.IntN(2)]
		err := w.Store.Complete(w.Context(), claim, fingerprint, result, long)
		w.compare("complete", err, w.record.Complete(w.now, owner, fingerprint, result, long))
	case 5:
		w.compare("release", w.Store.Release(w.Context(), claim), w.record.Release(owner))
	case 6:
		w.sweep()
	case 7:
		w.close(random)
	}
	if w.record.State == record.Claimed && time.UnixMilli(w.record.LeaseUntil).Sub(w.now) < long/2 {
		w.pass()
	}
}

func (w *lockstep) claim(random *rand.Rand, owner idempotency.Token, lease time.Duration) {
	request := idempotency.ClaimRequest{
		Token: owner, Lease: lease, TTL: long, Pin: random.IntN(8) == 0,
		Fingerprint: []idempotency.Fingerprint{"", "c1:a", "c1:a", "c1:b", "c2:b", "r1:1:x"}[random.IntN(6)],
	}
	got, err := w.Store.Claim(w.Context(), w.key, request)
	want := w.record.Claim(w.now, request)
	w.note("claim %x %v pin=%v %q: %v", owner[7], lease, request.Pin, request.Fingerprint, got.State)
	if err != nil || got.State != want.State || got.Fingerprint != want.Fingerprint || (got.LeaseLeft > 0) != (want.LeaseLeft > 0) ||
		got.Result.Kind != want.Result.Kind || string(got.Result.Payload) != string(want.Result.Payload) {
		w.Errorf("claim: got %+v, %v; want %+v", got, err, want)
	}
	if got.Fence != 0 {
		if got.Fence < w.fence || (got.State == idempotency.Takeover && got.Fence == w.fence) {
			w.Errorf("fence %d after %d", got.Fence, w.fence)
		}
		w.fence = got.Fence
	}
}

func (w *lockstep) compare(step string, err error, held bool) {
	w.note("%s: %v", step, err)
	if (err == nil) != held || (err != nil && !errors.Is(err, idempotency.ErrLostClaim)) {
		w.Errorf("%s: got %v, want held=%v", step, err, held)
	}
}

func (w *lockstep) sweep() {
	released := w.sweepAll(100).Released
	w.note("sweep: %d", released)
	if swept := w.record.Sweep(w.now); swept != (released == 1) {
		w.Errorf("sweep: released %d, want %v", released, swept)
	}
}

// close writes a tombstone, rarely, since nothing follows it; the history goes on under another key.
func (w *lockstep) close(random *rand.Rand) {
	if random.IntN(4) != 0 {
		return
	}
	got, err := w.Store.Tombstone(w.Context(), w.key, long)
	want := w.record.Tombstone(w.now, long)
	w.note("tombstone: %+v", got)
	if err != nil || got.Held != want.Held || got.Ran != want.Ran {
		w.Errorf("tombstone: got %+v, %v; want %+v", got, err, want)
	}
	if !got.Held && random.IntN(2) == 0 {
		w.key, w.record, w.fence = w.key+"'", record.Record{}, 0
	}
}
