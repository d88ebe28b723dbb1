package idempotency

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestR26TheUnframedVectorsAreEqualAndTheFramedOnesDiffer(t *testing.T) {
	one, other := []string{"t1", "POST /a", "dmin/refundsvk"}, []string{"t1", "POST /admin/refunds", "vk"}
	if ComputeKey(one...) != ComputeKey(other...) {
		t.Error("the unframed keys differ: the vectors are wrong")
	}
	if framed(domainRequest, one...) == framed(domainRequest, other...) {
		t.Error("the framed digests are equal")
	}
}

func TestR26DistinctTuplesHaveDistinctPreImages(t *testing.T) {
	parts := rapid.SliceOfN(rapid.SliceOfN(rapid.ByteRange('a', 'b'), 0, 3), 0, 4)
	equal := func(a, b [][]byte) bool {
		if len(a) != len(b) {
			return false
		}
		for i := range a {
			if !bytes.Equal(a[i], b[i]) {
				return false
			}
		}
		return true
	}
	rapid.Check(t, func(t *rapid.T) {
		a, b := parts.Draw(t, "a"), parts.Draw(t, "b")
		if same := bytes.Equal(preImage(nil, domainRequest, a...), preImage(nil, domainRequest, b...)); same != equal(a, b) {
			t.Fatalf("%q and %q: same pre-image %v", a, b, same)
		}
	})
}

func TestR14ComputeKeyIsTheUnframedDigestOfTheContract(t *testing.T) {
	sum := sha256.Sum256([]byte("abc"))
	for _, parts := range [][]string{{"abc"}, {"a", "bc"}, {"", "ab", "c"}} {
		if got := ComputeKey(parts...); got != hex.EncodeToString(sum[:]) {
			t.Errorf("%q became %s", parts, got)
		}
	}
}

func TestR13KeysOfDifferentKindsNeverMeet(t *testing.T) {
	keys := []Key{
		RequestDigest([]byte("a"), []byte("b"), []byte("c")), Event{"a", "b", "c"}.Key(), Event{"a", "bc", ""}.Key(),
		Delivery{Provider: "a", ID: "b"}.Key(), Delivery{Provider: "ab", ID: ""}.Key(),
		Step{"a", "b", Action}.Key(), Step{"a", "b", Compensate}.Key(), Step{"ab", "", Action}.Key(),
	}
	seen := map[Key]bool{}
	for _, key := range keys {
		if seen[key] || strings.ContainsAny(string(key), "*?[]\\ ") {
			t.Errorf("%s is there twice, or has a character that patterns use", key)
		}
		seen[key] = true
	}
}

// slotTag is the part of a key that Redis Cluster hashes: between the first '{' and the next '}'.
func slotTag(key Key) string {
	_, rest, _ := strings.Cut(string(key), "{")
	tag, _, _ := strings.Cut(rest, "}")
	return tag
}

func TestC15BothHalvesOfASagaStepShareAHashTag(t *testing.T) {
	action, compensation := Step{"saga 1", "pay", Action}.Key(), Step{"saga 1", "pay", Compensate}.Key()
	if slotTag(action) == "" || slotTag(action) != slotTag(compensation) {
		t.Errorf("%s and %s", action, compensation)
	}
	if slotTag(action) == slotTag(Step{"saga 2", "pay", Action}.Key()) {
		t.Error("all sagas share one tag")
	}
}

func TestC04KeysAreVisibleASCIIOrTheSameQuoted(t *testing.T) {
	longest := strings.Repeat("k", 255)
	for text, want := range map[string]string{
		"a": "a", "8e03978e-40d5-43e8-bc93-6894a57f9324": "8e03978e-40d5-43e8-bc93-6894a57f9324", longest: longest,
		`"a"`: "a", `"` + longest + `"`: longest, `"a\"b\\c"`: `a"b\c`, "~!": "~!", `a"b`: `a"b`,
		"": "", `""`: "", "a b": "", "a\tb": "", "é": "", longest + "k": "", `"a`: "", `"`: "", `"a"b`: "", `"a\n"`: "", `"a\`: "", "\x7f": "", `"a b"`: "",
	} {
		got, err := ParseKey(text)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%q: got %q, %v; want %q", text, got, err, want)
		}
	}
}

func TestC05FingerprintsOfOneAlgorithmDifferAndOthersDoNot(t *testing.T) {
	for _, c := range []struct {
		a, b    Fingerprint
		differs bool
	}{
		{"c1:a", "c1:a", false}, {"c1:a", "c1:b", true}, {"c1:a", "c2:b", false}, {"", "c1:a", false}, {"c1:a", "", false},
		{"r1:1:a", "r1:2:b", false}, {"r1:1:a", "c1:b", false}, {"c1:a", "r1:1:b", false},
	} {
		if got := c.a.Differs(c.b); got != c.differs {
			t.Errorf("%q and %q: %v", c.a, c.b, got)
		}
	}
}

func TestR25TheActorIsTheFirstOfSixPlaces(t *testing.T) {
	ctx := t.Context()
	if _, err := ActorFrom(ctx); err != ErrActorRequired {
		t.Errorf("nobody: %v", err)
	}
	for i := len(actorKeys) - 1; i >= 0; i-- {
		ctx = context.WithValue(ctx, actorKeys[i], fmt.Sprint(actorKeys[i]))
		if actor, err := ActorFrom(ctx); err != nil || actor != fmt.Sprint(actorKeys[i]) {
			t.Errorf("got %q, %v; want %s", actor, err, actorKeys[i])
		}
	}
	if _, err := TenantFrom(ctx); err != ErrTenantRequired {
		t.Errorf("no tenant: %v", err)
	}
	if tenant, err := TenantFrom(context.WithValue(ctx, TenantID, "t1")); err != nil || tenant != "t1" {
		t.Errorf("got %q, %v", tenant, err)
	}
	if _, err := TenantFrom(context.WithValue(ctx, TenantID, "")); err != ErrTenantRequired {
		t.Errorf("an empty tenant: %v", err)
	}
}

func TestR05EachProcessDrawsACadenceOfItsOwnEvenlyWithinAFifth(t *testing.T) {
	const draws, buckets = 10_000, 10
	config := SweeperConfig{}
	if err := config.complete(); err != nil {
		t.Fatal(err)
	}
	low, high := config.Interval*8/10, config.Interval*12/10
	var counts [buckets]int
	for seed := range draws {
		sum := sha256.Sum256([]byte{byte(seed), byte(seed >> 8)})
		token := Token(sum[:16])
		cadence := config.cadence(token)
		if cadence < low || cadence > high {
			t.Fatalf("seed %d: %v is not within %v and %v", seed, cadence, low, high)
		}
		if again := config.cadence(token); again != cadence {
			t.Fatalf("seed %d: %v, then %v", seed, cadence, again)
		}
		counts[min(buckets-1, int((cadence-low)*buckets/(high-low)))]++
	}
	for i, count := range counts {
		if count < draws/buckets*8/10 || count > draws/buckets*12/10 {
			t.Errorf("bucket %d of %d holds %d of %d", i, buckets, count, draws)
		}
	}
	config.IntervalJitterRatio = Exact
	if got := config.cadence(Token{255}); got != config.Interval {
		t.Errorf("exact: %v", got)
	}
}
