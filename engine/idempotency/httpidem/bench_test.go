package httpidem_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fencepost-sim/fencepost/engine/idempotency"
	"github.com/fencepost-sim/fencepost/engine/idempotency/httpidem"
	"github.com/fencepost-sim/fencepost/engine/idempotency/idemtest"
)

// free is a store that grants every claim and keeps nothing: what is left is the middleware's own cost.
type free struct{ idemtest.Memory }

func (*free) Claim(context.Context, idempotency.Key, idempotency.ClaimRequest) (idempotency.ClaimResult, error) {
	return idempotency.ClaimResult{State: idempotency.Claimed, Fence: 1}, nil
}
func (*free) Complete(context.Context, idempotency.Claim, idempotency.Fingerprint, idempotency.Result, time.Duration) error {
	return nil
}
func (*free) Release(context.Context, idempotency.Claim) error { return nil }

// kilobyte is a JSON body of 1 KiB with 17 members.
var kilobyte = func() string {
	var members []string
	for i := range 17 {
		members = append(members, fmt.Sprintf(`"member_%02d": {"id": %d, "ok": true, "note": "%s"}`, (i*7)%17, i, strings.Repeat("n", 6)))
	}
	text := "{" + strings.Join(members, ", ") + "}"
	return text + strings.Repeat(" ", 1024-len(text))
}()

// reusable is a writer that allocates nothing.
type reusable struct{ header http.Header }

func (r *reusable) Header() http.Header         { return r.header }
func (r *reusable) Write(p []byte) (int, error) { return len(p), nil }
func (r *reusable) WriteHeader(int)             {}

type repeatable struct{ *bytes.Reader }

func (repeatable) Close() error { return nil }

func answerKilobyte(w http.ResponseWriter, r *http.Request) {
	buffer := [1024]byte{}
	_, _ = io.ReadFull(r.Body, buffer[:])
	w.Header()["Content-Type"] = jsonType
	_, _ = w.Write(buffer[:])
}

var jsonType = []string{"application/json"}

// measured runs a handler again and again on one request. What it reads, decides and writes is the same in every round.
func measured(b *testing.B, handler http.Handler, key ...string) {
	body := repeatable{bytes.NewReader([]byte(kilobyte))}
	ctx := context.WithValue(context.WithValue(b.Context(), idempotency.TenantID, "t1"), idempotency.ActorID, "a1")
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://example/payments", nil)
	if err != nil {
		b.Fatal(err)
	}
	r.Header = http.Header{"Content-Type": jsonType}
	if len(key) > 0 {
		r.Header["Idempotency-Key"] = key
	}
	w := &reusable{http.Header{}}
	b.ReportAllocs()
	for b.Loop() {
		_, _ = body.Seek(0, io.SeekStart)
		r.Body, r.ContentLength = body, int64(len(kilobyte))
		clear(w.header)
		handler.ServeHTTP(w, r)
	}
}

func BenchmarkUnmounted(b *testing.B) { measured(b, http.HandlerFunc(answerKilobyte)) }

func BenchmarkPassThroughWithoutAKey(b *testing.B) {
	g := newGuard(b, idempotency.Config{Store: &free{}})
	measured(b, httpidem.New(g, httpidem.Options{})(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})))
}

func BenchmarkFirstCallOf1KiBJSON(b *testing.B) {
	g := newGuard(b, idempotency.Config{Store: &free{}})
	measured(b, httpidem.New(g, httpidem.Options{})(http.HandlerFunc(answerKilobyte)), "k1")
}

func BenchmarkReplayOf1KiBJSON(b *testing.B) {
	g := newGuard(b, idempotency.Config{Store: &idemtest.Memory{}})
	measured(b, httpidem.New(g, httpidem.Options{})(http.HandlerFunc(answerKilobyte)), "k1")
}
