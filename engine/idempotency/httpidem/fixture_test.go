package httpidem_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"github.com/fencepost-sim/fencepost/engine/idempotency"
	"github.com/fencepost-sim/fencepost/engine/idempotency/httpidem"
	"github.com/fencepost-sim/fencepost/engine/idempotency/idemtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// service is a real server with a guarded handler behind an authentication that believes the headers Tenant and Actor.
type service struct {
	*testing.T
	url    string
	client *http.Client
	close  func()
	server *httptest.Server
	store  *idemtest.Failing
	guard  *idempotency.Guard
	runs   atomic.Int64 // of the handler
}

func authenticate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := r.Context()
		if tenant := r.Header.Get("Tenant"); tenant != "" {
			ctx = context.WithValue(ctx, idempotency.TenantID, tenant)
		}
		if actor := r.Header.Get("Actor"); actor != "" {
			ctx = context.WithValue(ctx, idempotency.UserID, actor)
		}
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

func newGuard(t testing.TB, config idempotency.Config) *idempotency.Guard {
	t.Helper()
	config.DisableSweeper = true
	g, err := idempotency.Init(context.Background(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return g
}

func serve(t *testing.T, options httpidem.Options, handler http.HandlerFunc) *service {
	t.Helper()
	s := &service{T: t, store: &idemtest.Failing{Store: &idemtest.Memory{}}}
	s.guard = newGuard(t, idempotency.Config{Store: s.store, OnError: func(err error) { t.Logf("reported: %v", err) }})
	counted := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.runs.Add(1)
		handler(w, r)
	})
	server := httptest.NewUnstartedServer(authenticate(httpidem.New(s.guard, options)(counted)))
	server.Config.ErrorLog = nil
	server.Start()
	t.Cleanup(server.Close)
	s.url, s.client, s.server = server.URL, server.Client(), server
	return s
}

// request changes what a request of the tests is; see service.do.
type request func(*http.Request)

func header(name string, values ...string) request {
	return func(r *http.Request) { r.Header[http.CanonicalHeaderKey(name)] = values }
}

func without(name string) request { return func(r *http.Request) { r.Header.Del(name) } }

func method(name string) request { return func(r *http.Request) { r.Method = name } }

func path(p string) request {
	return func(r *http.Request) {
		u, err := r.URL.Parse(p)
		if err != nil {
			panic(err)
		}
		r.URL = u
	}
}

func body(text string) request {
	return func(r *http.Request) {
		r.Body, r.ContentLength = io.NopCloser(strings.NewReader(text)), int64(len(text))
	}
}

func chunked(text string) request {
	return func(r *http.Request) {
		r.Body, r.ContentLength = io.NopCloser(struct{ io.Reader }{strings.NewReader(text)}), -1
	}
}

type answer struct {
	status int
	header http.Header
	body   string
	code   string // of a problem
	err    error  // reading the body
}

func (a answer) replayed() bool { return a.header.Get("Idempotency-Replayed") == "true" }

func (s *service) build(changes ...request) *http.Request {
	r, err := http.NewRequestWithContext(s.Context(), http.MethodPost, s.url+"/payments", nil)
	if err != nil {
		s.Fatal(err)
	}
	r.Header = http.Header{"Idempotency-Key": {"k1"}, "Tenant": {"t1"}, "Actor": {"a1"}, "Content-Type": {"application/json"}}
	body(`{"amount":1}`)(r)
	for _, change := range changes {
		change(r)
	}
	return r
}

// do sends the request of tenant t1 and actor a1 with the key k1 and a small JSON body, changed.
func (s *service) do(changes ...request) answer {
	s.Helper()
	response, err := s.client.Do(s.build(changes...))
	if err != nil {
		s.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	a := answer{status: response.StatusCode, header: response.Header, body: string(text), err: err}
	if response.Header.Get("Content-Type") == "application/problem+json" {
		var p struct {
			Title  string
			Status int
			Code   string
		}
		if err := json.Unmarshal(text, &p); err != nil || p.Status != a.status || p.Title == "" {
			s.Errorf("the problem %q is not what RFC 9457 wants: %v", text, err)
		}
		a.code = p.Code
	}
	return a
}

// expect sends a request and checks the status, the problem's code if there is one, and the number of runs so far.
func (s *service) expect(status int, code string, runs int64, changes ...request) answer {
	s.Helper()
	a := s.do(changes...)
	if a.status != status || a.code != code || s.runs.Load() != runs {
		s.Errorf("got %d %s %q after %d runs, want %d %s after %d", a.status, a.code, a.body, s.runs.Load(), status, code, runs)
	}
	return a
}

func created(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Location", "/payments/1")
	w.Header().Set("X-Trace-Id", "abc")
	http.SetCookie(w, &http.Cookie{Name: "session", Value: "secret"})
	w.WriteHeader(http.StatusCreated)
	_, _ = io.Copy(w, io.MultiReader(strings.NewReader(`{"echo":`), r.Body, strings.NewReader("}")))
}

func status(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
}

// pattern is a body whose bytes tell their place.
func pattern(size int) string {
	var b bytes.Buffer
	for i := 0; b.Len() < size; i++ {
		b.WriteString("line ")
		b.WriteByte(byte(i))
		b.WriteByte(byte(i >> 8))
		b.WriteByte('\n')
	}
	return b.String()[:size]
}
