package httpidem_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"

	"github.com/fencepost-sim/fencepost/engine/idempotency"
	"github.com/fencepost-sim/fencepost/engine/idempotency/httpidem"
	"github.com/fencepost-sim/fencepost/engine/idempotency/idemtest"
)

// echoDigest answers with what a handler can learn of its request's body.
func echoDigest(w http.ResponseWriter, r *http.Request) {
	h := sha256.New()
	n, err := io.Copy(h, r.Body)
	fmt.Fprintf(w, "%d %s %v %d %v", n, hex.EncodeToString(h.Sum(nil)), err, r.ContentLength, r.TransferEncoding)
}

// routers are the two ways in which handlers are usually mounted.
var routers = map[string]func(guarded func(http.Handler) http.Handler, handler http.HandlerFunc) http.Handler{
	"net/http": func(guarded func(http.Handler) http.Handler, handler http.HandlerFunc) http.Handler {
		mux := http.NewServeMux()
		mux.Handle("POST /payments/{id}", guarded(handler))
		return mux
	},
	"chi": func(guarded func(http.Handler) http.Handler, handler http.HandlerFunc) http.Handler {
		router := chi.NewRouter()
		router.Use(middleware.RequestID, middleware.Recoverer)
		router.With(guarded).Post("/payments/{id}", handler)
		return router
	},
}

func multipartBody(boundary string) (contentType, text string) {
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	_ = w.SetBoundary(boundary)
	_ = w.WriteField("amount", "1")
	file, _ := w.CreateFormFile("receipt", "receipt.bin")
	_, _ = io.WriteString(file, pattern(100_000))
	_ = w.Close()
	return w.FormDataContentType(), b.String()
}

func TestR38BodiesBelowTheMountAreByteIdenticalToUnmountedOnes(t *testing.T) {
	multipartType, multipartText := multipartBody("b0undary")
	bodies := []struct{ name, contentType, text string }{
		{"json", "application/json", "{ \"b\" : 1.50,\r\n\"a\":\"\\u0041\" }\n"},
		{"multipart", multipartType, multipartText},
		{"urlencoded", "application/x-www-form-urlencoded", "b=2&a=1&b=%20+x"},
		{"broken json", "application/json", "{\"a\":"},
		{"binary", "application/octet-stream", pattern(70_000)},
		{"empty", "application/json", ""},
	}
	for name, route := range routers {
		g := newGuard(t, idempotency.Config{Store: &idemtest.Memory{}})
		guarded := httptest.NewServer(authenticate(route(httpidem.New(g, httpidem.Options{}), echoDigest)))
		plain := httptest.NewServer(authenticate(route(func(h http.Handler) http.Handler { return h }, echoDigest)))
		for _, b := range bodies {
			for encoding, with := range map[string]request{"length": body(b.text), "chunked": chunked(b.text)} {
				s := &service{T: t, url: guarded.URL, client: guarded.Client()}
				changes := []request{path("/payments/7"), header("Content-Type", b.contentType), with, header("Idempotency-Key", strings.ReplaceAll(b.name+encoding, " ", "-"))}
				got := s.do(changes...)
				s.url, s.client = plain.URL, plain.Client()
				if want := s.do(changes...); got.status != want.status || got.body != want.body || got.status != 200 {
					t.Errorf("%s, %s, %s: got %d %s, unmounted %d %s", name, b.name, encoding, got.status, got.body, want.status, want.body)
				}
			}
		}
		guarded.Close()
		plain.Close()
	}
}

func TestR38FormsAreParsedBelowTheMountAndTheirFilesAreRemoved(t *testing.T) {
	folder := t.TempDir()
	t.Setenv("TMPDIR", folder)
	contentType, text := multipartBody("b0undary")
	s := serveDirectly(t, httpidem.Options{}, func(w http.ResponseWriter, r *http.Request) {
		if err := r.ParseMultipartForm(1000); err != nil { // the file goes to a temporary file
			t.Error(err)
		}
		file, _, err := r.FormFile("receipt")
		if err != nil {
			t.Error(err)
			return
		}
		defer file.Close()
		content, err := io.ReadAll(file)
		if err != nil || string(content) != pattern(100_000) || r.FormValue("amount") != "1" {
			t.Errorf("the form lost something: %v", err)
		}
		if files, _ := filepath.Glob(filepath.Join(folder, "*")); len(files) != 1 {
			t.Errorf("the file is not where it was expected: %v", files)
		}
	})
	s.expect(200, "", 1, header("Content-Type", contentType), body(text))
	s.close() // waits for the server to have done with the request
	if files, _ := os.ReadDir(folder); len(files) != 0 {
		t.Errorf("left behind: %v", files)
	}
	s = serve(t, httpidem.Options{}, func(w http.ResponseWriter, r *http.Request) {
		if r.FormValue("b") != "2" || r.PostForm.Get("a") != "1" {
			t.Errorf("the form is %v", r.PostForm)
		}
	})
	s.expect(200, "", 1, header("Content-Type", "application/x-www-form-urlencoded"), body("b=2&a=1"))
}

// serveDirectly is serve without a middleware that copies the request, as WithContext does: the server removes the files of the form that
// belongs to its own request.
func serveDirectly(t *testing.T, options httpidem.Options, handler http.HandlerFunc) *service {
	t.Helper()
	options.Tenant = func(r *http.Request) (string, error) { return r.Header.Get("Tenant"), nil }
	options.Actor = func(r *http.Request) (string, error) { return r.Header.Get("Actor"), nil }
	s := serve(t, options, handler)
	server := httptest.NewServer(httpidem.New(s.guard, options)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.runs.Add(1)
		handler(w, r)
	})))
	t.Cleanup(server.Close)
	s.url, s.client, s.close = server.URL, server.Client(), server.Close
	return s
}

func TestR38AMultipartRetryWithAnotherBoundaryIsTheSameRequest(t *testing.T) {
	s := serve(t, httpidem.Options{}, echoDigest)
	for i, boundary := range []string{"first", "second"} {
		contentType, text := multipartBody(boundary)
		if a := s.expect(200, "", 1, header("Content-Type", contentType), body(text)); a.replayed() != (i == 1) {
			t.Errorf("boundary %s: replayed %v", boundary, a.replayed())
		}
	}
	contentType, text := multipartBody("third")
	s.expect(422, "idempotency_key_body_mismatch", 1, header("Content-Type", contentType), body(strings.Replace(text, "receipt.bin", "receipt.txt", 1)))
	s.expect(422, "idempotency_key_body_mismatch", 1, header("Content-Type", contentType), body(strings.Replace(text, "\r\n\r\n1\r\n", "\r\n\r\n2\r\n", 1)))
}

func TestR39TheBoundaryOfOneMiBIsExact(t *testing.T) {
	const limit = 1 << 20
	for _, size := range []int{limit - 1, limit, limit + 1, 2 * limit} {
		for name, with := range map[string]func(string) request{"length": body, "chunked": chunked} {
			t.Run(fmt.Sprint(size, name), func(t *testing.T) {
				text := pattern(size)
				s := serve(t, httpidem.Options{}, echoDigest)
				binary := header("Content-Type", "application/octet-stream")
				first := s.expect(200, "", 1, with(text), binary)
				if sum := sha256.Sum256([]byte(text)); !strings.HasPrefix(first.body, fmt.Sprintf("%d %x <nil>", size, sum)) {
					t.Errorf("the handler read %s", first.body)
				}
				if a := s.expect(200, "", 1, with(text), binary); !a.replayed() || a.body != first.body {
					t.Errorf("not replayed: %+v", a)
				}
				s.expect(422, "idempotency_key_body_mismatch", 1, with(text[:size-1]+"?"), binary)
				s.expect(422, "idempotency_key_body_mismatch", 1, with(text[:size-1]), binary)
				found, err := s.store.Claim(t.Context(), keyOf("k1"), idempotency.ClaimRequest{Lease: 1e9, TTL: 1e9})
				if want := map[bool]string{true: "c1", false: "r1"}[size <= limit]; err != nil || found.Fingerprint.Label() != want {
					t.Errorf("the fingerprint is %q, %v; want label %s", found.Fingerprint, err, want)
				}
			})
		}
	}
}

// keyOf is the digest of the tests' request.
func keyOf(key string) idempotency.Key {
	return idempotency.RequestDigest([]byte("actor"), []byte("t1"), []byte("a1"), []byte("POST /payments"), []byte(key))
}

func TestC06ALargeBodyIsComparedByWhatTheHandlerHasRead(t *testing.T) {
	const read = 1000
	s := serve(t, httpidem.Options{MaxHashedBody: 100}, func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.CopyN(io.Discard, r.Body, read); err != nil {
			t.Error(err)
		}
	})
	text := pattern(5000)
	s.expect(200, "", 1, body(text))
	s.expect(200, "", 1, body(text))
	s.expect(200, "", 1, body(text[:read]+"whatever follows was not read by the handler"))
	s.expect(422, "idempotency_key_body_mismatch", 1, body("?"+text[1:]))
	s.expect(422, "idempotency_key_body_mismatch", 1, body(text[:read-1]))
}

func TestC06ADuplicateOfALargeUploadIsRefusedWithoutReadingItsBody(t *testing.T) {
	var s *service
	read := false
	var inner http.Handler
	s = serve(t, httpidem.Options{MaxHashedBody: 100}, func(w http.ResponseWriter, r *http.Request) {
		duplicate := s.build(func(r *http.Request) { r.Body, r.ContentLength = watched{&read}, 5000 })
		recorded := httptest.NewRecorder()
		inner.ServeHTTP(recorded, duplicate)
		if recorded.Code != http.StatusConflict {
			t.Errorf("the duplicate got %d %s", recorded.Code, recorded.Body)
		}
	})
	inner = authenticate(httpidem.New(s.guard, httpidem.Options{MaxHashedBody: 100})(http.NotFoundHandler()))
	s.expect(200, "", 1, body(pattern(5000)))
	if read {
		t.Error("the duplicate's body was read")
	}
}

func TestC05AChangedLimitDuringARollingDeployMakesNoFalse422(t *testing.T) {
	store := &idemtest.Memory{}
	g := newGuard(t, idempotency.Config{Store: store})
	small := httptest.NewServer(authenticate(httpidem.New(g, httpidem.Options{MaxHashedBody: 100})(http.HandlerFunc(echoDigest))))
	defer small.Close()
	large := httptest.NewServer(authenticate(httpidem.New(g, httpidem.Options{})(http.HandlerFunc(echoDigest))))
	defer large.Close()
	text := `{"a":"` + strings.Repeat("x", 500) + `"}`
	for i, order := range [][]*httptest.Server{{small, large}, {large, small}} {
		for n, server := range order {
			s := &service{T: t, url: server.URL, client: server.Client()}
			key := header("Idempotency-Key", fmt.Sprint("rolling-", i))
			if a := s.do(key, body(text)); a.status != 200 || a.replayed() != (n == 1) {
				t.Errorf("order %d, server %d: %d %s", i, n, a.status, a.body)
			}
			if n == 1 {
				if a := s.do(key, body(strings.Replace(text, "x", "y", 1))); a.status != 422 {
					t.Errorf("order %d: another body got %d", i, a.status)
				}
			}
		}
	}
}

// The heap is looked at while the upload is under way, after collecting what is not held.
func TestR39AnUploadOf64MiBIsNotRetained(t *testing.T) {
	const size, most = 64 << 20, 2 << 20
	var largest atomic.Uint64
	inUse := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	for name, with := range map[string]request{
		"length":  func(r *http.Request) { r.Body, r.ContentLength = io.NopCloser(io.LimitReader(zeros{}, size)), size },
		"chunked": func(r *http.Request) { r.Body, r.ContentLength = io.NopCloser(io.LimitReader(zeros{}, size)), -1 },
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, httpidem.Options{}, func(w http.ResponseWriter, r *http.Request) {
				buffer := make([]byte, 256<<10)
				total := 0
				for i := 0; ; i++ {
					n, err := r.Body.Read(buffer)
					total += n
					if i%200 == 0 {
						largest.Store(max(largest.Load(), inUse()))
					}
					if err != nil {
						break
					}
				}
				fmt.Fprint(w, total)
			})
			s.do(header("Idempotency-Key", "warm-up"))
			before := inUse()
			largest.Store(before)
			if a := s.do(with); a.body != fmt.Sprint(size) {
				t.Errorf("the handler read %s bytes", a.body)
			}
			grown := int64(largest.Load()) - int64(before)
			t.Logf("heap grew by %d KiB at the most", grown>>10)
			if grown > most {
				t.Errorf("the heap grew by %d bytes, more than %d", grown, most)
			}
		})
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func TestABodyThatBreaksOffIsTheHandlersToJudge(t *testing.T) {
	g := newGuard(t, idempotency.Config{Store: &idemtest.Memory{}})
	var got error
	handler := httpidem.New(g, httpidem.Options{})(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, err := io.ReadAll(r.Body)
		if got = err; string(text) != "abc" {
			t.Errorf("read %q", text)
		}
		w.WriteHeader(http.StatusRequestEntityTooLarge)
	}))
	limited := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, 3)
		handler.ServeHTTP(w, r)
	})
	s := &service{T: t, url: "http://example"}
	recorded := httptest.NewRecorder()
	authenticate(limited).ServeHTTP(recorded, s.build(body("abcdef")))
	if _, tooLarge := got.(*http.MaxBytesError); recorded.Code != http.StatusRequestEntityTooLarge || !tooLarge {
		t.Errorf("got %d, %v", recorded.Code, got)
	}
}

// A chunked upload that the client breaks off must not be taken for a whole one.
func TestAChunkedBodyThatIsCutOffIsNotTakenForWhole(t *testing.T) {
	g := newGuard(t, idempotency.Config{Store: &idemtest.Memory{}})
	var got error
	handler := authenticate(httpidem.New(g, httpidem.Options{})(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, got = io.ReadAll(r.Body)
		w.WriteHeader(http.StatusBadRequest)
	})))
	s := &service{T: t, url: "http://example"}
	recorded := httptest.NewRecorder()
	handler.ServeHTTP(recorded, s.build(func(r *http.Request) {
		r.Body, r.ContentLength = io.NopCloser(io.MultiReader(strings.NewReader("{}"), broken{})), -1
	}))
	if got != io.ErrUnexpectedEOF {
		t.Errorf("the handler read to %v", got)
	}
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

func TestR38ABodyThatIsLongerThanItsLengthSaysArrivesWhole(t *testing.T) {
	var got string
	g := newGuard(t, idempotency.Config{Store: &idemtest.Memory{}})
	guarded := httpidem.New(g, httpidem.Options{})(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		text, err := io.ReadAll(r.Body)
		if got = string(text); err != nil {
			t.Error(err)
		}
	}))
	for i, size := range []int{11, 100_000, 1 << 20, 1<<20 + 1} { // what a middleware that decompresses leaves
		text := pattern(size)
		r := httptest.NewRequest(http.MethodPost, "/payments", io.NopCloser(strings.NewReader(text)))
		r.ContentLength = 10
		r.Header = http.Header{"Idempotency-Key": {fmt.Sprint("k", i)}, "Tenant": {"t1"}, "Actor": {"a1"}}
		if authenticate(guarded).ServeHTTP(httptest.NewRecorder(), r); got != text {
			t.Errorf("%d bytes of %d arrived", len(got), size)
		}
	}
}
