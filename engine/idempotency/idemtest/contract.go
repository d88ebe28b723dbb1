package idemtest

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fencepost-sim/fencepost/engine/idempotency"
)

// Subject is a store under the contract.
type Subject struct {
	Store idempotency.Store
	// Pass returns when the clock of the store has moved on by at least the duration.
	Pass func(time.Duration)
	// Foreign puts so many keys of somebody else into the same database, if the store shares one.
	Foreign func(count int)
}

// Contract checks what a guard relies on. Each test opens a subject without records.
//
// It runs on the store in memory, on the Redis model and on a real Redis: a test that the real server fails is wrong, and one that
// only a model fails is a bug of the model.
func Contract(t *testing.T, open func(t *testing.T) Subject) {
	for _, chapter := range []struct {
		name  string
		tests []contractTest
	}{
		{"claiming", claiming}, {"keeping", keeping}, {"completing", completing}, {"releasing", releasing},
		{"tombstones", tombstones}, {"sweeping", sweeping}, {"random steps", randomSteps},
	} {
		t.Run(chapter.name, func(t *testing.T) {
			for _, test := range chapter.tests {
				t.Run(test.sentence, func(t *testing.T) { test.check(&fixture{T: t, Subject: open(t)}) })
			}
		})
	}
}

type contractTest struct {
	sentence string
	check    func(f *fixture)
}

type fixture struct {
	*testing.T
	Subject
}

// Times of the contract. A short lease has lapsed after lapse, whatever the rounding of clocks; a long one lasts for the whole test.
const (
	short = 5 * time.Millisecond
	lapse = 15 * time.Millisecond
	long  = 10 * time.Minute
)

const key = idempotency.Key("req:contract")

func token(n uint64) (t idempotency.Token) {
	binary.BigEndian.PutUint64(t[:], n)
	return t
}

func (f *fixture) claimAs(owner uint64, lease time.Duration, change ...func(*idempotency.ClaimRequest)) idempotency.ClaimResult {
	f.Helper()
	request := idempotency.ClaimRequest{Token: token(owner), Lease: lease, TTL: long, Fingerprint: "c1:a"}
	for _, apply := range change {
		apply(&request)
	}
	result, err := f.Store.Claim(f.Context(), key, request)
	if err != nil {
		f.Fatalf("claim by %d: %v", owner, err)
	}
	return result
}

// expect claims and fails unless the state is found.
func (f *fixture) expect(owner uint64, lease time.Duration, state idempotency.State, change ...func(*idempotency.ClaimRequest)) idempotency.ClaimResult {
	f.Helper()
	result := f.claimAs(owner, lease, change...)
	if result.State != state {
		f.Fatalf("claim by %d: %v, want %v", owner, result.State, state)
	}
	return result
}

func owned(owner uint64) idempotency.Claim { return idempotency.Claim{Key: key, Token: token(owner)} }

func (f *fixture) complete(owner uint64, result idempotency.Result) error {
	return f.Store.Complete(f.Context(), owned(owner), "", result, long)
}

func (f *fixture) tombstone() idempotency.TombstoneResult {
	f.Helper()
	result, err := f.Store.Tombstone(f.Context(), key, long)
	if err != nil {
		f.Fatal(err)
	}
	return result
}

func (f *fixture) succeeds(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

func (f *fixture) lost(err error) {
	f.Helper()
	if !errors.Is(err, idempotency.ErrLostClaim) {
		f.Fatalf("got %v, want ErrLostClaim", err)
	}
}

func fingerprint(text string) func(*idempotency.ClaimRequest) {
	return func(r *idempotency.ClaimRequest) { r.Fingerprint = idempotency.Fingerprint(text) }
}

func pin(r *idempotency.ClaimRequest) { r.Pin = true }

func ttl(span time.Duration) func(*idempotency.ClaimRequest) {
	return func(r *idempotency.ClaimRequest) { r.TTL = span }
}

var done = idempotency.Result{Kind: idempotency.Success, Payload: []byte("done\x00\xff\r\n")}

var claiming = []contractTest{
	{"a free key is claimed, with a fence", func(f *fixture) {
		if result := f.expect(1, long, idempotency.Claimed); result.Fence == 0 {
			f.Error("the fence is zero")
		}
	}},
	{"a held key is in flight, with the lease that is left and the stored fingerprint", func(f *fixture) {
		f.expect(1, long, idempotency.Claimed)
		result := f.expect(2, long, idempotency.InFlight)
		if result.LeaseLeft <= 0 || result.LeaseLeft > long || result.Fingerprint != "c1:a" {
			f.Errorf("got %+v", result)
		}
	}},
	{"the same claim asked for again is claimed again, with the same fence", func(f *fixture) {
		first := f.expect(1, long, idempotency.Claimed)
		if again := f.expect(1, long, idempotency.Claimed); again.Fence != first.Fence {
			f.Errorf("fences %d and %d", first.Fence, again.Fence)
		}
	}},
	{"a lapsed claim is taken over, with a larger fence", func(f *fixture) {
		first := f.expect(1, short, idempotency.Claimed)
		f.Pass(lapse)
		if second := f.expect(2, long, idempotency.Takeover); second.Fence <= first.Fence {
			f.Errorf("fence %d after %d", second.Fence, first.Fence)
		}
	}},
	{"fences grow also when the record was released in between", func(f *fixture) {
		first := f.expect(1, long, idempotency.Claimed)
		f.succeeds(f.Store.Release(f.Context(), owned(1)))
		f.Pass(short)
		if second := f.expect(2, long, idempotency.Claimed); second.Fence <= first.Fence {
			f.Errorf("fence %d after %d", second.Fence, first.Fence)
		}
	}},
	{"another fingerprint is a mismatch before it is in flight", func(f *fixture) {
		f.expect(1, long, idempotency.Claimed)
		f.expect(2, long, idempotency.Mismatch, fingerprint("c1:b"))
	}},
	{"another fingerprint does not take a lapsed claim over", func(f *fixture) {
		f.expect(1, short, idempotency.Claimed)
		f.Pass(lapse)
		f.expect(2, long, idempotency.Mismatch, fingerprint("c1:b"))
	}},
	{"fingerprints that are unknown, partial or of another algorithm are no mismatch", func(f *fixture) {
		f.expect(1, long, idempotency.Claimed)
		for _, other := range []string{"", "r1:9:b", "c2:b", "c1:a"} {
			f.expect(2, long, idempotency.InFlight, fingerprint(other))
		}
	}},
	{"a pinned claim that lapsed is taken over by nobody", func(f *fixture) {
		f.expect(1, short, idempotency.Claimed, pin)
		f.Pass(lapse)
		f.expect(2, long, idempotency.Pinned)
	}},
	{"who must not take over does not, whatever the first owner said", func(f *fixture) {
		f.expect(1, short, idempotency.Claimed)
		f.Pass(lapse)
		f.expect(2, long, idempotency.Pinned, pin)
	}},
	{"a record is forgotten after its time to live", func(f *fixture) {
		f.expect(1, short, idempotency.Claimed, ttl(short), pin)
		f.Pass(lapse)
		f.expect(2, long, idempotency.Claimed)
	}},
	{"a record lives as long as its lease at the least", func(f *fixture) {
		f.expect(1, long, idempotency.Claimed, ttl(short))
		f.Pass(lapse)
		f.expect(2, long, idempotency.InFlight)
	}},
	{"nothing happens under a context that is done", func(f *fixture) {
		ctx, cancel := context.WithCancel(f.Context())
		cancel()
		if _, err := f.Store.Claim(ctx, key, idempotency.ClaimRequest{Token: token(1), Lease: long, TTL: long}); err == nil {
			f.Error("the claim was answered")
		}
		f.expect(2, long, idempotency.Claimed)
	}},
}

var keeping = []contractTest{
	{"a lease that is extended lasts on", func(f *fixture) {
		f.expect(1, short, idempotency.Claimed)
		f.succeeds(f.Store.Extend(f.Context(), owned(1), long))
		f.Pass(lapse)
		f.expect(2, long, idempotency.InFlight)
	}},
	{"a lapsed lease that nobody took over can be extended", func(f *fixture) {
		f.expect(1, short, idempotency.Claimed)
		f.Pass(lapse)
		f.succeeds(f.Store.Extend(f.Context(), owned(1), long))
		f.expect(2, long, idempotency.InFlight)
	}},
	{"an extension keeps the record alive", func(f *fixture) {
		f.expect(1, lapse, idempotency.Claimed, ttl(lapse))
		f.succeeds(f.Store.Extend(f.Context(), owned(1), long))
		f.Pass(2 * lapse)
		f.expect(2, long, idempotency.InFlight)
	}},
	{"nobody extends what is not theirs, is completed, or is gone", func(f *fixture) {
		f.lost(f.Store.Extend(f.Context(), owned(1), long))
		f.expect(1, long, idempotency.Claimed)
		f.lost(f.Store.Extend(f.Context(), owned(2), long))
		f.succeeds(f.complete(1, done))
		f.lost(f.Store.Extend(f.Context(), owned(1), long))
	}},
}

var completing = []contractTest{
	{"a completed key replays its result, byte for byte", func(f *fixture) {
		f.expect(1, long, idempotency.Claimed)
		f.succeeds(f.complete(1, done))
		result := f.expect(2, long, idempotency.Replay)
		if result.Result.Kind != done.Kind || string(result.Result.Payload) != string(done.Payload) || result.Fingerprint != "c1:a" {
			f.Errorf("got %+v", result)
		}
	}},
	{"a large result comes back whole", func(f *fixture) {
		f.expect(1, long, idempotency.Claimed)
		payload := strings.Repeat("0123456789abcdef", 1<<14)
		f.succeeds(f.complete(1, idempotency.Result{Kind: idempotency.Rejection, Payload: []byte(payload)}))
		result := f.expect(2, long, idempotency.Replay)
		if string(result.Result.Payload) != payload || result.Result.Kind != idempotency.Rejection {
			f.Errorf("got %d bytes of kind %d", len(result.Result.Payload), result.Result.Kind)
		}
	}},
	{"completing again with the same token changes nothing", func(f *fixture) {
		f.expect(1, long, idempotency.Claimed)
		f.succeeds(f.complete(1, done))
		f.succeeds(f.complete(1, idempotency.Result{Kind: idempotency.NotStored}))
		if result := f.expect(2, long, idempotency.Replay); result.Result.Kind != done.Kind {
			f.Errorf("got %+v", result)
		}
	}},
	{"a late completion is accepted while nobody took over", func(f *fixture) {
		f.expect(1, short, idempotency.Claimed)
		f.Pass(lapse)
		f.succeeds(f.complete(1, done))
		f.expect(2, long, idempotency.Replay)
	}},
	{"a stale owner cannot complete, and changes nothing", func(f *fixture) {
		f.expect(1, short, idempotency.Claimed)
		f.Pass(lapse)
		f.expect(2, long, idempotency.Takeover)
		f.lost(f.complete(1, idempotency.Result{Kind: idempotency.NotStored}))
		f.expect(3, long, idempotency.InFlight)
		f.succeeds(f.complete(2, done))
		f.lost(f.complete(1, idempotency.Result{Kind: idempotency.NotStored}))
		if result := f.expect(3, long, idempotency.Replay); result.Result.Kind != done.Kind {
			f.Errorf("got %+v", result)
		}
	}},
	{"nobody completes what is gone", func(f *fixture) {
		f.lost(f.complete(1, done))
		f.expect(2, long, idempotency.Claimed)
	}},
	{"a fingerprint given at completion replaces the one of the claim", func(f *fixture) {
		f.expect(1, long, idempotency.Claimed, fingerprint(""))
		f.succeeds(f.Store.Complete(f.Context(), owned(1), "r1:3:abc", done, long))
		if result := f.expect(2, long, idempotency.Replay, fingerprint("c1:z")); result.Fingerprint != "r1:3:abc" {
			f.Errorf("got %q", result.Fingerprint)
		}
	}},
	{"another fingerprint is a mismatch after completion, too", func(f *fixture) {
		f.expect(1, long, idempotency.Claimed)
		f.succeeds(f.complete(1, done))
		f.expect(2, long, idempotency.Mismatch, fingerprint("c1:b"))
	}},
	{"a completed record is kept for its own time to live", func(f *fixture) {
		f.expect(1, long, idempotency.Claimed)
		f.succeeds(f.Store.Complete(f.Context(), owned(1), "", done, short))
		f.Pass(lapse)
		f.expect(2, long, idempotency.Claimed)
	}},
}

var releasing = []contractTest{
	{"a released key is free", func(f *fixture) {
		f.expect(1, long, idempotency.Claimed)
		f.succeeds(f.Store.Release(f.Context(), owned(1)))
		f.expect(2, long, idempotency.Claimed, fingerprint("c1:b"))
	}},
	{"releasing what is free is no error", func(f *fixture) {
		f.succeeds(f.Store.Release(f.Context(), owned(1)))
	}},
	{"a stale owner does not free what another holds", func(f *fixture) {
		f.expect(1, short, idempotency.Claimed)
		f.Pass(lapse)
		f.expect(2, long, idempotency.Takeover)
		f.lost(f.Store.Release(f.Context(), owned(1)))
		f.expect(3, long, idempotency.InFlight)
	}},
	{"a completed key is freed by nobody", func(f *fixture) {
		f.expect(1, long, idempotency.Claimed)
		f.succeeds(f.complete(1, done))
		f.lost(f.Store.Release(f.Context(), owned(1)))
		f.expect(2, long, idempotency.Replay)
	}},
}

var tombstones = []contractTest{
	{"a key that was never claimed is closed, and did not run", func(f *fixture) {
		for range 2 {
			if result := f.tombstone(); result.Held || result.Ran {
				f.Errorf("got %+v", result)
			}
		}
		f.expect(1, long, idempotency.Tombstoned)
	}},
	{"a held key is left alone", func(f *fixture) {
		f.expect(1, long, idempotency.Claimed)
		if result := f.tombstone(); !result.Held || result.LeaseLeft <= 0 || result.LeaseLeft > long {
			f.Errorf("got %+v", result)
		}
		f.succeeds(f.complete(1, done))
	}},
	{"a lapsed key is closed, may have run, and its owner is refused", func(f *fixture) {
		f.expect(1, short, idempotency.Claimed)
		f.Pass(lapse)
		for range 2 {
			if result := f.tombstone(); result.Held || !result.Ran {
				f.Errorf("got %+v", result)
			}
		}
		f.lost(f.complete(1, done))
		f.lost(f.Store.Release(f.Context(), owned(1)))
		f.lost(f.Store.Extend(f.Context(), owned(1), long))
		f.expect(1, long, idempotency.Tombstoned)
	}},
	{"a completed key is closed, and ran", func(f *fixture) {
		f.expect(1, long, idempotency.Claimed)
		f.succeeds(f.complete(1, done))
		for range 2 {
			if result := f.tombstone(); result.Held || !result.Ran {
				f.Errorf("got %+v", result)
			}
		}
		f.expect(2, long, idempotency.Tombstoned)
	}},
}

// sweepAll makes whole cycles of the records in small steps, and counts.
func (f *fixture) sweepAll(batch int) (total idempotency.SweepPage) {
	f.Helper()
	for cursor := idempotency.Cursor(""); ; {
		page, err := f.Store.Sweep(f.Context(), cursor, batch)
		if err != nil {
			f.Fatal(err)
		}
		total.Scanned += page.Scanned
		total.Matched += page.Matched
		total.Released += page.Released
		if cursor = page.Next; cursor == "" {
			return total
		}
		if total.Scanned > 1_000_000 {
			f.Fatal("the cursor does not come to an end")
		}
	}
}

func (f *fixture) turn(owner uint64, lease time.Duration, change ...func(*idempotency.SweepRequest)) idempotency.SweepTurn {
	f.Helper()
	request := idempotency.SweepRequest{Token: token(owner), Lease: lease}
	for _, apply := range change {
		apply(&request)
	}
	turn, err := f.Store.SweepTurn(f.Context(), request)
	if err != nil {
		f.Fatal(err)
	}
	return turn
}

func save(cursor idempotency.Cursor) func(*idempotency.SweepRequest) {
	return func(r *idempotency.SweepRequest) { r.Save, r.Cursor = true, cursor }
}

func finish(cursor idempotency.Cursor) func(*idempotency.SweepRequest) {
	return func(r *idempotency.SweepRequest) { r.Finish, r.Cursor = true, cursor }
}

var sweeping = []contractTest{
	{"a sweep releases lapsed claims and nothing else", func(f *fixture) {
		claim := func(name string, lease time.Duration, change ...func(*idempotency.ClaimRequest)) {
			request := idempotency.ClaimRequest{Token: token(1), Lease: lease, TTL: long}
			for _, apply := range change {
				apply(&request)
			}
			_, err := f.Store.Claim(f.Context(), idempotency.Key(name), request)
			f.succeeds(err)
		}
		claim("lapsed", short)
		claim("pinned", short, pin)
		claim("held", long)
		claim("done", short)
		f.succeeds(f.Store.Complete(f.Context(), idempotency.Claim{Key: "done", Token: token(1)}, "", done, long))
		_, err := f.Store.Tombstone(f.Context(), "closed", long)
		f.succeeds(err)
		f.Pass(lapse)
		if total := f.sweepAll(2); total.Released != 1 || total.Matched < 5 {
			f.Errorf("got %+v", total)
		}
		for name, want := range map[idempotency.Key]idempotency.State{
			"lapsed": idempotency.Claimed, "pinned": idempotency.Pinned, "held": idempotency.InFlight,
			"done": idempotency.Replay, "closed": idempotency.Tombstoned,
		} {
			result, err := f.Store.Claim(f.Context(), name, idempotency.ClaimRequest{Token: token(2), Lease: long, TTL: long})
			if err != nil || result.State != want {
				f.Errorf("%s: %v, %v; want %v", name, result.State, err, want)
			}
		}
	}},
	{"a sweep in small steps finds every lapsed claim among the keys of others", func(f *fixture) {
		const count = 300
		for i := range count {
			request := idempotency.ClaimRequest{Token: token(1), Lease: short, TTL: long}
			_, err := f.Store.Claim(f.Context(), idempotency.Key(fmt.Sprintf("req:%d", i)), request)
			f.succeeds(err)
		}
		if f.Foreign != nil {
			f.Foreign(2000)
		}
		f.Pass(lapse)
		if total := f.sweepAll(50); total.Released != count {
			f.Errorf("got %+v", total)
		}
	}},
	{"one sweeper has the turn at a time", func(f *fixture) {
		if !f.turn(1, long).Held || f.turn(2, long).Held || !f.turn(1, long).Held {
			f.Error("the turn is not with the first")
		}
		if !f.turn(1, long, finish("here")).Held {
			f.Error("the owner could not finish")
		}
		if turn := f.turn(2, long); !turn.Held || turn.Cursor != "here" {
			f.Errorf("got %+v", turn)
		}
	}},
	{"a turn that lapsed passes on, with the saved cursor", func(f *fixture) {
		f.turn(1, long)
		if turn := f.turn(1, short, save("there")); !turn.Held {
			f.Errorf("got %+v", turn)
		}
		f.Pass(lapse)
		if turn := f.turn(2, long); !turn.Held || turn.Cursor != "there" {
			f.Errorf("got %+v", turn)
		}
		if f.turn(1, long, save("elsewhere")).Held || f.turn(1, long, finish("elsewhere")).Held {
			f.Error("a stale sweeper kept the turn")
		}
		f.turn(2, long, finish(""))
		if turn := f.turn(3, long); turn.Cursor != "" {
			f.Errorf("got %+v", turn)
		}
	}},
}
