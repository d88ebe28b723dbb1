package httpidem_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencepost-sim/fencepost/engine/idempotency"
	"github.com/fencepost-sim/fencepost/engine/idempotency/httpidem"
	"github.com/fencepost-sim/fencepost/engine/idempotency/idemtest"
)

func TestR41AnAnswerUpTo256KiBIsStoredAndALargerOneDeliveredOnly(t *testing.T) {
	const limit = 256 << 10
	for size, stored := range map[int]bool{limit - 1: true, limit: true, limit + 1: false, 4 * limit: false} {
		for _, write := range []int{size, 1000} {
			for _, announced := range []bool{false, true} {
				text := pattern(size)
				s := serve(t, httpidem.Options{}, func(w http.ResponseWriter, _ *http.Request) {
					if announced {
						w.Header().Set("Content-Length", fmt.Sprint(size))
					}
					for rest := text; rest != ""; rest = rest[min(write, len(rest)):] {
						if _, err := io.WriteString(w, rest[:min(write, len(rest))]); err != nil {
							t.Error(err)
						}
					}
				})
				if a := s.do(); a.body != text || a.err != nil {
					t.Errorf("%d bytes: got %d, %v", size, len(a.body), a.err)
				}
				if a := s.do(); a.body != text || a.replayed() != stored {
					t.Errorf("%d bytes in writes of %d: replayed %v, %d bytes", size, write, a.replayed(), len(a.body))
				}
			}
		}
	}
}

// slow is a mounted handler in a bubble, so that five seconds take no time.
func slow(t *testing.T, options httpidem.Options, handler http.HandlerFunc) (call func() *httptest.ResponseRecorder) {
	t.Helper()
	g := newGuard(t, idempotency.Config{Store: &idemtest.Memory{}})
	mounted := authenticate(httpidem.New(g, options)(handler))
	s := &service{T: t, url: "http://example"}
	return func() *httptest.ResponseRecorder {
		recorded := httptest.NewRecorder()
		mounted.ServeHTTP(recorded, s.build())
		return recorded
	}
}

func TestR41AnAnswerThatTakesLongerThanFiveSecondsToWriteIsNotHeldBackAndNotStored(t *testing.T) {
	for after, stored := range map[time.Duration]bool{4 * time.Second: true, 6 * time.Second: false} {
		synctest.Test(t, func(t *testing.T) {
			runs := 0
			var recorded *httptest.ResponseRecorder
			call := slow(t, httpidem.Options{}, func(w http.ResponseWriter, _ *http.Request) {
				runs++
				time.Sleep(time.Minute) // before the first byte it may take what it likes
				_, _ = io.WriteString(w, "first ")
				time.Sleep(after)
				synctest.Wait()
				_, _ = io.WriteString(w, "last")
			})
			recorded = call()
			if recorded.Body.String() != "first last" || recorded.Flushed == stored {
				t.Errorf("after %v: %q, flushed %v", after, recorded.Body, recorded.Flushed)
			}
			if recorded = call(); (recorded.Header().Get("Idempotency-Replayed") == "true") != stored || recorded.Body.String() != "first last" {
				t.Errorf("after %v: %v, %q, %d runs", after, recorded.Header(), recorded.Body, runs)
			}
		})
	}
}

func TestR41PinUncachedRefusesARepetitionInsteadOfRunningItAgain(t *testing.T) {
	s := serve(t, httpidem.Options{PinUncached: true, MaxCachedResponse: 10}, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, pattern(100))
	})
	if a := s.expect(200, "", 1); a.body != pattern(100) {
		t.Errorf("got %d bytes", len(a.body))
	}
	s.expect(409, "idempotency_result_not_stored", 1)
	s.expect(422, "idempotency_key_body_mismatch", 1, body("other"))
}

func TestR42StreamsReachTheClientAtOnceAndAreNotStored(t *testing.T) {
	for _, contentType := range []string{"text/event-stream", "application/x-ndjson", "Text/Event-Stream; charset=utf-8", "application/x-ndjson;profile=x"} {
		t.Run(contentType, func(t *testing.T) {
			proceed := make(chan struct{})
			s := serve(t, httpidem.Options{}, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", contentType)
				for i := range 3 {
					fmt.Fprintf(w, "event %d\n", i)
					if err := http.NewResponseController(w).Flush(); err != nil {
						t.Error(err)
					}
					<-proceed // the client has seen this event before the next is made
				}
			})
			for range 2 {
				response, err := s.client.Do(s.build())
				if err != nil {
					t.Fatal(err)
				}
				lines := bufio.NewScanner(response.Body)
				for i := range 3 {
					if !lines.Scan() || lines.Text() != fmt.Sprint("event ", i) {
						t.Fatalf("event %d: %q, %v", i, lines.Text(), lines.Err())
					}
					proceed <- struct{}{}
				}
				if lines.Scan() { // the response ends when the claim is released
					t.Errorf("a fourth line: %q", lines.Text())
				}
				_ = response.Body.Close()
			}
			if s.runs.Load() != 2 {
				t.Errorf("%d runs of 2", s.runs.Load())
			}
		})
	}
}

func TestR42AFlushOfAnyKindSendsWhatWasHeldBack(t *testing.T) {
	for name, flush := range map[string]func(http.ResponseWriter) error{
		"controller": func(w http.ResponseWriter) error { return http.NewResponseController(w).Flush() },
		"assertion":  func(w http.ResponseWriter) error { w.(http.Flusher).Flush(); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			proceed := make(chan struct{})
			s := serve(t, httpidem.Options{}, func(w http.ResponseWriter, _ *http.Request) {
				_, _ = io.WriteString(w, "one\n")
				if err := flush(w); err != nil {
					t.Error(err)
				}
				<-proceed
				_, _ = io.WriteString(w, "two\n")
			})
			response, err := s.client.Do(s.build())
			if err != nil {
				t.Fatal(err)
			}
			defer response.Body.Close()
			lines := bufio.NewReader(response.Body)
			if first, err := lines.ReadString('\n'); first != "one\n" {
				t.Errorf("got %q, %v", first, err)
			}
			close(proceed)
			if second, err := lines.ReadString('\n'); second != "two\n" {
				t.Errorf("got %q, %v", second, err)
			}
		})
	}
}

// plain is a writer that can do nothing but write.
type plain struct{ http.ResponseWriter }

func TestAWriterCanDoWhatTheClientsWriterCanAndNothingElse(t *testing.T) {
	g := newGuard(t, idempotency.Config{Store: &idemtest.Memory{}})
	s := &service{T: t, url: "http://example"}
	look := func(w http.ResponseWriter, key string, check func(http.ResponseWriter)) {
		handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { check(w) })
		authenticate(httpidem.New(g, httpidem.Options{})(handler)).ServeHTTP(w, s.build(header("Idempotency-Key", key)))
	}
	look(plain{httptest.NewRecorder()}, "plain", func(w http.ResponseWriter) {
		_, flushes := w.(http.Flusher)
		_, hijacks := w.(http.Hijacker)
		if err := http.NewResponseController(w).Flush(); flushes || hijacks || !errors.Is(err, http.ErrNotSupported) {
			t.Errorf("plain: flusher %v, hijacker %v, %v", flushes, hijacks, err)
		}
	})
	look(httptest.NewRecorder(), "flusher", func(w http.ResponseWriter) {
		_, flushes := w.(http.Flusher)
		_, hijacks := w.(http.Hijacker)
		if !flushes || hijacks {
			t.Errorf("recorder: flusher %v, hijacker %v", flushes, hijacks)
		}
	})
}

func TestAHijackedConnectionIsTheHandlersAndItsKeyIsFreed(t *testing.T) {
	s := serve(t, httpidem.Options{}, func(w http.ResponseWriter, _ *http.Request) {
		connection, buffered, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer connection.Close()
		if _, err := w.Write([]byte("x")); err != http.ErrHijacked {
			t.Errorf("a write afterwards: %v", err)
		}
		_, _ = buffered.WriteString("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello")
		_ = buffered.Flush()
	})
	returned := make(chan struct{}, 1) // the client has its answer before the mount has freed the key
	mounted := s.server.Config.Handler
	s.server.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mounted.ServeHTTP(w, r)
		returned <- struct{}{}
	})
	for runs := range int64(2) {
		if a := s.expect(200, "", runs+1); a.body != "hello" {
			t.Errorf("got %q", a.body)
		}
		<-returned
	}
}

func TestInformationalAnswersAreNotTheAnswer(t *testing.T) {
	s := serve(t, httpidem.Options{}, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Link", "</style.css>; rel=preload")
		w.WriteHeader(http.StatusEarlyHints)
		w.Header().Del("Link")
		w.WriteHeader(http.StatusCreated)
		w.WriteHeader(http.StatusTeapot) // superfluous
		_, _ = io.WriteString(w, "made")
	})
	for _, replayed := range []bool{false, true} {
		if a := s.expect(201, "", 1); a.body != "made" || a.header.Get("Link") != "" || a.replayed() != replayed {
			t.Errorf("got %+v", a)
		}
	}
}

func TestHeadersAfterWriteHeaderCountOnlyAsTrailers(t *testing.T) {
	s := serve(t, httpidem.Options{}, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Trailer", "Checksum")
		w.Header().Set("Location", "/1")
		w.WriteHeader(http.StatusCreated)
		w.Header().Set("Location", "/2")
		_, _ = io.WriteString(w, strings.Repeat("x", 5000))
		w.Header().Set("Checksum", "abc")
	})
	response, err := s.client.Do(s.build())
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if text, err := io.ReadAll(response.Body); len(text) != 5000 || err != nil {
		t.Errorf("%d bytes, %v", len(text), err)
	}
	if response.Header.Get("Location") != "/1" || response.Trailer.Get("Checksum") != "abc" {
		t.Errorf("header %v, trailer %v", response.Header, response.Trailer)
	}
	if a := s.expect(201, "", 1); a.header.Get("Location") != "/1" {
		t.Errorf("replayed %v", a.header)
	}
}

func TestAHandlerThatWritesNothingAnswers200AndABodyWhereNoneIsAllowedIsRefused(t *testing.T) {
	s := serve(t, httpidem.Options{}, func(http.ResponseWriter, *http.Request) {})
	s.expect(200, "", 1)
	if a := s.expect(200, "", 1); !a.replayed() {
		t.Error("not replayed")
	}
	s = serve(t, httpidem.Options{}, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNoContent)
		if _, err := w.Write([]byte("x")); !errors.Is(err, http.ErrBodyNotAllowed) {
			t.Errorf("got %v", err)
		}
	})
	s.expect(204, "", 1)
	s.expect(204, "", 1)
}

func TestR32APanicFreesTheKeyAndGoesOn(t *testing.T) {
	for _, value := range []any{"boom", http.ErrAbortHandler} {
		g := newGuard(t, idempotency.Config{Store: &idemtest.Memory{}})
		runs := 0
		mounted := authenticate(httpidem.New(g, httpidem.Options{})(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if runs++; runs == 1 {
				w.WriteHeader(http.StatusCreated)
				panic(value)
			}
		})))
		s := &service{T: t, url: "http://example"}
		recorded := httptest.NewRecorder()
		func() {
			defer func() {
				if got := recover(); got != value {
					t.Errorf("the panic %v became %v", value, got)
				}
			}()
			mounted.ServeHTTP(recorded, s.build())
		}()
		if recorded.Body.Len() != 0 {
			t.Errorf("an answer that was held back was sent: %v", recorded)
		}
		recorded = httptest.NewRecorder()
		mounted.ServeHTTP(recorded, s.build())
		if runs != 2 || recorded.Code != 200 {
			t.Errorf("%d runs, then %d", runs, recorded.Code)
		}
	}
}

func TestR32AHandlerThatEndsItsGoroutineFreesTheKey(t *testing.T) {
	g := newGuard(t, idempotency.Config{Store: &idemtest.Memory{}})
	mounted := authenticate(httpidem.New(g, httpidem.Options{})(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { runtime.Goexit() })))
	s, ended := &service{T: t, url: "http://example"}, make(chan struct{})
	go func() {
		defer close(ended)
		mounted.ServeHTTP(httptest.NewRecorder(), s.build())
	}()
	<-ended
	if stats := g.Stats(); stats.Released != 1 {
		t.Errorf("got %+v", stats)
	}
}

func TestC08TheAnswerIsSentAfterItIsStored(t *testing.T) {
	memory := &idemtest.Memory{}
	store := &completing{Memory: memory}
	g := newGuard(t, idempotency.Config{Store: store})
	recorded := httptest.NewRecorder()
	store.before = func() {
		if recorded.Body.Len() != 0 || recorded.Code != 200 || len(recorded.Result().Header) != 0 {
			t.Error("the client has the answer before it is stored")
		}
	}
	s := &service{T: t, url: "http://example"}
	authenticate(httpidem.New(g, httpidem.Options{})(http.HandlerFunc(created))).ServeHTTP(recorded, s.build())
	if recorded.Code != 201 || !store.called {
		t.Errorf("got %d", recorded.Code)
	}
}

type completing struct {
	*idemtest.Memory
	before func()
	called bool
}

func (c *completing) Complete(ctx context.Context, claim idempotency.Claim, f idempotency.Fingerprint, r idempotency.Result, ttl time.Duration) error {
	c.called = true
	c.before()
	return c.Memory.Complete(ctx, claim, f, r, ttl)
}

func TestC09AClientThatIsGoneDoesNotKeepItsAnswerFromBeingStored(t *testing.T) {
	g := newGuard(t, idempotency.Config{Store: &idemtest.Memory{}})
	s := &service{T: t, url: "http://example"}
	ctx, leave := context.WithCancel(t.Context())
	mounted := authenticate(httpidem.New(g, httpidem.Options{})(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		leave()
		created(w, r)
	})))
	mounted.ServeHTTP(httptest.NewRecorder(), s.build().WithContext(ctx))
	recorded := httptest.NewRecorder()
	mounted.ServeHTTP(recorded, s.build())
	if recorded.Code != 201 || recorded.Header().Get("Idempotency-Replayed") != "true" {
		t.Errorf("got %d, %v", recorded.Code, recorded.Header())
	}
}

func TestAPanicOfAnOptionHoldsNothing(t *testing.T) {
	s := serve(t, httpidem.Options{CacheableStatus: func(int) bool { panic(http.ErrAbortHandler) }}, func(http.ResponseWriter, *http.Request) {})
	if response, err := s.client.Do(s.build()); err == nil {
		_ = response.Body.Close()
		t.Errorf("an answer: %d", response.StatusCode)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := s.guard.Shutdown(ctx); err != nil {
		t.Error(err)
	}
}

func TestAnImpossibleStatusPanicsAsItDoesUnmounted(t *testing.T) {
	recovered := make(chan any, 1)
	s := serve(t, httpidem.Options{}, func(w http.ResponseWriter, _ *http.Request) {
		defer func() {
			recovered <- recover()
			w.WriteHeader(http.StatusTeapot)
		}()
		w.WriteHeader(0)
	})
	if got := s.do(); got.status != http.StatusTeapot {
		t.Errorf("status %d", got.status)
	}
	if value := <-recovered; value != "invalid WriteHeader code 0" {
		t.Errorf("recovered %v", value)
	}
}

func TestR42AStreamThatIsNeverFlushedIsNotStoredEither(t *testing.T) {
	for _, contentType := range []string{"text/event-stream", "application/x-ndjson"} {
		s := serve(t, httpidem.Options{}, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", contentType)
			fmt.Fprintln(w, "{}")
		})
		s.expect(200, "", 1)
		if a := s.expect(200, "", 2); a.replayed() {
			t.Errorf("%s was replayed", contentType)
		}
	}
}
