package httpidem_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/fencepost-sim/fencepost/engine/idempotency"
	"github.com/fencepost-sim/fencepost/engine/idempotency/httpidem"
	"github.com/fencepost-sim/fencepost/engine/idempotency/idemtest"
)

func TestR20C20OnlyFourVerbsAreGuarded(t *testing.T) {
	for verb, guarded := range map[string]bool{
		"POST": true, "PUT": true, "PATCH": true, "DELETE": true,
		"GET": false, "HEAD": false, "OPTIONS": false, "QUERY": false, "TRACE": false, "PROPFIND": false,
	} {
		t.Run(verb, func(t *testing.T) {
			s := serve(t, httpidem.Options{}, status(http.StatusOK))
			s.do(method(verb))
			if a := s.do(method(verb)); a.replayed() != guarded || s.runs.Load() != map[bool]int64{true: 1, false: 2}[guarded] {
				t.Errorf("replayed %v after %d runs", a.replayed(), s.runs.Load())
			}
		})
	}
}

func TestR21TheKeyComesInEitherHeaderAndWithoutOneNothingIsGuarded(t *testing.T) {
	s := serve(t, httpidem.Options{}, created)
	s.expect(201, "", 1)
	other := []request{without("Idempotency-Key"), header("x-nodii-idempotency-key", "k1")}
	if a := s.expect(201, "", 1, other...); !a.replayed() {
		t.Error("the other header names another key")
	}
	both := header("x-nodii-idempotency-key", `"k1"`)
	if a := s.expect(201, "", 1, both); !a.replayed() {
		t.Error("both headers with one key are not that key")
	}
	for runs := range int64(2) {
		s.expect(201, "", runs+2, without("Idempotency-Key"), without("Tenant"), without("Actor"))
	}
}

func TestR23R24WithoutTenantOrActorNothingRuns(t *testing.T) {
	s := serve(t, httpidem.Options{}, created)
	s.expect(400, "idempotency_tenant_required", 0, without("Tenant"))
	s.expect(400, "idempotency_actor_required", 0, without("Actor"))
	s.expect(400, "idempotency_tenant_required", 0, without("Tenant"), without("Actor"))
}

func TestR22TheMountTakesWhatAuthenticationLeft(t *testing.T) {
	s := serve(t, httpidem.Options{}, created)
	s.expect(201, "", 1)
	s.expect(201, "", 2, header("Tenant", "t2"))
	if a := s.expect(201, "", 2, header("Tenant", "t2")); !a.replayed() {
		t.Error("not replayed")
	}
}

func TestR25ResolversReplaceTheContext(t *testing.T) {
	fail := errors.New("no such api key")
	s := serve(t, httpidem.Options{
		Tenant: func(r *http.Request) (string, error) { return r.Header.Get("X-Org"), nil },
		Actor: func(r *http.Request) (string, error) {
			if r.Header.Get("X-Api-Key") == "bad" {
				return "someone", fail
			}
			return r.Header.Get("X-Api-Key"), nil
		},
	}, created)
	s.expect(201, "", 1, header("X-Org", "o"), header("X-Api-Key", "p"), without("Tenant"), without("Actor"))
	s.expect(400, "idempotency_tenant_required", 1, header("X-Api-Key", "p"))
	s.expect(400, "idempotency_actor_required", 1, header("X-Org", "o"))
	s.expect(400, "idempotency_actor_required", 1, header("X-Org", "o"), header("X-Api-Key", "bad"))
}

func TestR26TheKeyIsFramedSoThatRouteAndKeyCannotRunTogether(t *testing.T) {
	s := serve(t, httpidem.Options{}, created)
	s.expect(201, "", 1, path("/a"), header("Idempotency-Key", "dmin/refundsvk"))
	s.expect(201, "", 2, path("/admin/refunds"), header("Idempotency-Key", "vk"))
	s.expect(201, "", 3, path("/admin%2Frefunds"), header("Idempotency-Key", "vk"))
	s.expect(201, "", 4, path("/admin/refunds/"), header("Idempotency-Key", "vk"))
	s.expect(201, "", 5, path("/Admin/refunds"), header("Idempotency-Key", "vk"))
	s.expect(201, "", 6, path("/a"), header("Idempotency-Key", "dmin/refundsvk"), method("PUT"))
}

func TestR27C13TheFirstAnswerIsReplayedWithoutWhatBelongsToItsMoment(t *testing.T) {
	s := serve(t, httpidem.Options{}, created)
	first := s.expect(201, "", 1)
	second := s.expect(201, "", 1)
	if first.replayed() || !second.replayed() || first.body != `{"echo":{"amount":1}}` || first.body != second.body {
		t.Errorf("first %+v, second %+v", first, second)
	}
	for _, name := range []string{"Content-Type", "Location"} {
		if first.header.Get(name) == "" || first.header.Get(name) != second.header.Get(name) {
			t.Errorf("%s: %q became %q", name, first.header.Get(name), second.header.Get(name))
		}
	}
	for _, name := range []string{"Set-Cookie", "X-Trace-Id"} {
		if first.header.Get(name) == "" || second.header.Get(name) != "" {
			t.Errorf("%s: %q became %q", name, first.header.Get(name), second.header.Get(name))
		}
	}
}

func TestC13TheReplayedHeadersAreAnOption(t *testing.T) {
	for name, c := range map[string]struct {
		policy httpidem.HeaderPolicy
		want   map[string]bool
	}{
		"further names":    {httpidem.AllowList("x-trace-id"), map[string]bool{"Location": true, "X-Trace-Id": true, "Set-Cookie": false}},
		"all but a cookie": {httpidem.AllExcept("set-cookie"), map[string]bool{"Location": true, "X-Trace-Id": true, "Set-Cookie": false}},
		"never these":      {httpidem.AllowList("date", "connection"), map[string]bool{"Location": true, "X-Trace-Id": false}},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, httpidem.Options{ReplayHeaders: c.policy}, created)
			s.do()
			a := s.expect(201, "", 1)
			for name, want := range c.want {
				if (a.header.Get(name) != "") != want {
					t.Errorf("%s is replayed as %q", name, a.header.Get(name))
				}
			}
			if len(a.header["Date"]) != 1 {
				t.Errorf("Date is %q", a.header["Date"])
			}
		})
	}
}

func TestR28AnotherBodyQueryOrTypeUnderTheSameKeyIs422(t *testing.T) {
	s := serve(t, httpidem.Options{}, created)
	s.expect(201, "", 1)
	for _, change := range []request{
		body(`{"amount":2}`), body(``), body(`{"amount":1.0}`), path("/payments?dry=1"), header("Content-Type", "text/plain"), without("Content-Type"),
	} {
		s.expect(422, "idempotency_key_body_mismatch", 1, change)
	}
	s.expect(201, "", 1, header("Content-Type", "Application/JSON; charset=utf-8"), body(` { "amount" : 1 } `))
}

func TestC05TheOrderOfQueryNamesDoesNotMatter(t *testing.T) {
	s := serve(t, httpidem.Options{}, created)
	s.expect(201, "", 1, path("/payments?b=2&a=1&a=0"))
	s.expect(201, "", 1, path("/payments?a=1&b=2&a=0"))
	s.expect(422, "idempotency_key_body_mismatch", 1, path("/payments?a=0&a=1&b=2"))
}

func TestR29C11AConcurrentRequestIs409WithTheLeaseLeft(t *testing.T) {
	var s *service
	s = serve(t, httpidem.Options{}, func(w http.ResponseWriter, _ *http.Request) {
		a := s.expect(409, "idempotency_in_flight", 1)
		if retry := a.header.Get("Retry-After"); retry != "30" && retry != "29" {
			t.Errorf("Retry-After is %q, and the lease 30 s", retry)
		}
		if a := s.do(body(`{"amount":2}`)); a.code != "idempotency_key_body_mismatch" {
			t.Errorf("another body is %d %s", a.status, a.code)
		}
		w.WriteHeader(http.StatusOK)
	})
	s.expect(200, "", 1)
}

func TestC11RetryAfterFollowsTheLease(t *testing.T) {
	g := newGuard(t, idempotency.Config{Store: &idemtest.Memory{}, Lease: 7 * time.Second})
	var nested http.Handler
	got := http.Header{}
	nested = authenticate(httpidem.New(g, httpidem.Options{})(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		again := r.Clone(context.Background())
		again.Body = http.NoBody
		nested.ServeHTTP(&discard{header: got}, again)
	})))
	r := httptest.NewRequest(http.MethodPost, "/payments", nil)
	r.Header = http.Header{"Idempotency-Key": {"k"}, "Tenant": {"t1"}, "Actor": {"a1"}}
	nested.ServeHTTP(httptest.NewRecorder(), r)
	if retry := got.Get("Retry-After"); retry != "7" && retry != "6" {
		t.Errorf("Retry-After is %q, and the lease 7 s", retry)
	}
}

func TestR30C04MalformedKeysAre400(t *testing.T) {
	s := serve(t, httpidem.Options{}, created)
	for _, change := range []request{
		header("Idempotency-Key", ""), header("Idempotency-Key", "a b"), header("Idempotency-Key", "k1", "k1"), header("Idempotency-Key", `"k1`),
		header("Idempotency-Key", strings.Repeat("k", 256)), header("Idempotency-Key", "schlüssel"),
		header("x-nodii-idempotency-key", "k2"), header("x-nodii-idempotency-key", "k1", "k1"), header("x-nodii-idempotency-key", ""),
	} {
		s.expect(400, "idempotency_key_invalid", 0, change)
	}
	s.expect(201, "", 1, header("Idempotency-Key", strings.Repeat("k", 255)))
}

func TestC02TheFirstThingThatIsWrongIsTheAnswer(t *testing.T) {
	s := serve(t, httpidem.Options{}, created)
	invalid, noTenant, noActor := header("Idempotency-Key", ""), without("Tenant"), without("Actor")
	s.store.Always = map[idemtest.Step]idemtest.Failure{idemtest.StepClaim: idemtest.BeforeApply}
	s.expect(201, "", 1, method("QUERY"), invalid, noTenant)
	s.expect(400, "idempotency_key_invalid", 1, invalid, noTenant, noActor)
	s.expect(400, "idempotency_tenant_required", 1, noTenant, noActor)
	s.expect(400, "idempotency_actor_required", 1, noActor)
	s.expect(503, "idempotency_unavailable", 1)
}

func TestR31R32Only2xxIsStoredAndEverythingElseFreesTheKey(t *testing.T) {
	for code, stored := range map[int]bool{
		200: true, 201: true, 202: true, 204: true, 299: true,
		301: false, 304: false, 400: false, 401: false, 404: false, 409: false, 422: false, 429: false, 500: false, 503: false,
	} {
		s := serve(t, httpidem.Options{}, status(code))
		s.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
		s.do()
		if a := s.do(); a.status != code || a.replayed() != stored {
			t.Errorf("%d: got %d, replayed %v", code, a.status, a.replayed())
		}
	}
}

func TestR33CacheableStatusWidensWhatIsStored(t *testing.T) {
	s := serve(t, httpidem.Options{CacheableStatus: func(code int) bool { return code/100 == 2 || code == 422 }}, status(422))
	s.do()
	if a := s.expect(422, "", 1); !a.replayed() {
		t.Error("not replayed")
	}
}

// The stated hazard: the handler changes something, and then says that it did not.
func TestR34AHandlerThatMutatesAndAnswers4xxIsRunAgainUnlessThatStatusIsPinned(t *testing.T) {
	for pinned, effects := range map[bool]int64{false: 2, true: 1} {
		options := httpidem.Options{}
		if pinned {
			options.CacheableStatus = func(code int) bool { return code/100 == 2 || code == http.StatusConflict }
		}
		s := serve(t, options, status(http.StatusConflict))
		s.do()
		s.expect(409, "", effects)
	}
}

func TestR35ActorsOfOneTenantDoNotSeeEachOthersAnswers(t *testing.T) {
	s := serve(t, httpidem.Options{}, created)
	s.expect(201, "", 1)
	if a := s.expect(201, "", 2, header("Actor", "a2")); a.replayed() {
		t.Error("an answer crossed actors")
	}
}

func TestR36TenantScopeNeedsNoActorSharesReplaysAndNeverMeetsActorScope(t *testing.T) {
	s := serve(t, httpidem.Options{Scope: idempotency.TenantScope}, created)
	s.expect(201, "", 1, without("Actor"))
	if a := s.expect(201, "", 1, header("Actor", "a2")); !a.replayed() {
		t.Error("the tenant's actors do not share")
	}
	s.expect(400, "idempotency_tenant_required", 1, without("Tenant"))

	// The other mount, on the same store, with an actor: it does not meet what the tenant shares.
	var runs int
	actors := httpidem.New(s.guard, httpidem.Options{})(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { runs++ }))
	r := s.build()
	r.RequestURI = r.URL.RequestURI()
	w := &discard{header: http.Header{}}
	authenticate(actors).ServeHTTP(w, r)
	if runs != 1 || w.header.Get("Idempotency-Replayed") != "" {
		t.Errorf("an answer of the tenant scope was replayed in the actor scope: %v", w.header)
	}
}

type discard struct{ header http.Header }

func (d *discard) Header() http.Header         { return d.header }
func (d *discard) Write(p []byte) (int, error) { return len(p), nil }
func (d *discard) WriteHeader(int)             {}

func TestR37ARevokedPermissionDoesNotTouchTheActorsOwnAnswerUnlessRevalidated(t *testing.T) {
	revoked := false
	handler := func(w http.ResponseWriter, _ *http.Request) {
		if revoked {
			w.WriteHeader(http.StatusForbidden)
		}
	}
	s := serve(t, httpidem.Options{}, handler)
	s.expect(200, "", 1)
	revoked = true
	if a := s.expect(200, "", 1); !a.replayed() {
		t.Error("the residual is gone: document it")
	}
	revoked = false
	s = serve(t, httpidem.Options{Revalidate: func(*http.Request) error {
		if revoked {
			return errors.New("revoked")
		}
		return nil
	}}, handler)
	s.expect(200, "", 1)
	s.expect(200, "", 1)
	revoked = true
	s.expect(403, "idempotency_replay_forbidden", 1)
}

func TestR40WithSkipBodyTheBodyIsNotRead(t *testing.T) {
	read := false
	s := serve(t, httpidem.Options{SkipBody: true}, created)
	s.expect(201, "", 1)
	a := s.expect(201, "", 1, body(`{"amount":2}`))
	if !a.replayed() || a.body != `{"echo":{"amount":1}}` {
		t.Errorf("got %+v", a)
	}
	g := newGuard(t, idempotency.Config{Store: &idemtest.Memory{}})
	untouched := httpidem.New(g, httpidem.Options{SkipBody: true})(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	r := s.build(func(r *http.Request) { r.Body = watched{&read} })
	authenticate(untouched).ServeHTTP(&discard{header: http.Header{}}, r)
	if read {
		t.Error("the body was read")
	}
}

type watched struct{ read *bool }

func (w watched) Read([]byte) (int, error) { *w.read = true; return 0, errors.New("read") }
func (w watched) Close() error             { return nil }

func TestC10WithoutTheStoreTheAnswerIs503UnlessFailOpen(t *testing.T) {
	down := map[idemtest.Step]idemtest.Failure{idemtest.StepClaim: idemtest.BeforeApply}
	closed := serve(t, httpidem.Options{}, created)
	closed.store.Always = down
	if a := closed.expect(503, "idempotency_unavailable", 0); a.header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
	open := serve(t, httpidem.Options{FailOpen: true}, created)
	open.store.Always = down
	for runs := range int64(2) {
		if a := open.expect(201, "", runs+1); a.header.Get("Idempotency-Stored") != "false" || a.body != `{"echo":{"amount":1}}` {
			t.Errorf("got %+v", a)
		}
	}
}

func TestC09AnAnswerThatCouldNotBeStoredIsDeliveredAndSaysSo(t *testing.T) {
	s := serve(t, httpidem.Options{}, created)
	s.store.Always = map[idemtest.Step]idemtest.Failure{idemtest.StepComplete: idemtest.BeforeApply}
	if a := s.expect(201, "", 1); a.header.Get("Idempotency-Stored") != "false" || a.body != `{"echo":{"amount":1}}` {
		t.Errorf("got %+v", a)
	}
	s.expect(409, "idempotency_in_flight", 1) // the claim is kept
	if s.store.Calls(idemtest.StepRelease) != 0 || s.guard.Stats().Unstored != 1 {
		t.Errorf("%d releases, %+v", s.store.Calls(idemtest.StepRelease), s.guard.Stats())
	}
}

func TestC12ErrorsAreProblemsThatAreNotCachedOnTheWay(t *testing.T) {
	s := serve(t, httpidem.Options{}, created)
	if a := s.expect(400, "idempotency_key_invalid", 0, header("Idempotency-Key", "")); a.header.Get("Cache-Control") != "no-store" {
		t.Errorf("got %v", a.header)
	}
}

func TestWrongOptionsOfAMountPanic(t *testing.T) {
	g := newGuard(t, idempotency.Config{Store: &idemtest.Memory{}})
	for _, o := range []httpidem.Options{{Scope: "world"}, {MaxHashedBody: -1}, {MaxCachedResponse: 1 << 40}, {DrainTimeout: -1}} {
		func() {
			defer func() {
				if err, _ := recover().(error); !errors.Is(err, idempotency.ErrConfiguration) {
					t.Errorf("%+v: %v", o, err)
				}
			}()
			httpidem.New(g, o)
		}()
	}
}

func TestTheSameRouteUnderTwoPrefixesIsTwoRoutes(t *testing.T) {
	s := serve(t, httpidem.Options{}, created)
	runs := 0
	mount := httpidem.New(s.guard, httpidem.Options{})(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { runs++ }))
	mux := http.NewServeMux()
	mux.Handle("/v1/", http.StripPrefix("/v1", authenticate(mount)))
	mux.Handle("/v2/", http.StripPrefix("/v2", authenticate(mount)))
	ask := func(target string) *discard {
		r := s.build()
		r.URL.Path, r.RequestURI = target, target
		w := &discard{header: http.Header{}}
		mux.ServeHTTP(w, r)
		return w
	}
	for i, target := range []string{"/v1/pay", "/v2/pay", "/v2/pay"} {
		want := min(i+1, 2)
		if ask(target); runs != want {
			t.Errorf("request %d, of %s: %d runs, want %d", i+1, target, runs, want)
		}
	}
}
