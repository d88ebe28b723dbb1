// Package httpidem guards HTTP handlers by the Idempotency-Key header.
//
// Mount it below authentication: it takes tenant and actor from what authentication left in the request's context, and refuses
// requests that have none.
//
//	guarded := httpidem.New(guard, httpidem.Options{})
//	mux.Handle("POST /payments", authenticate(guarded(payments)))
//
// # What a client sees
//
// The first request with a key runs the handler. If it answers with 2xx the answer is stored before it is sent, and every repetition of the
// request gets it again, with Idempotency-Replayed: true, for the guard's TTL. Any other status, and a panic, frees the key, so that a
// repetition runs the handler again. Errors are problem+json (RFC 9457) whose member "code" is the text of an error of package
// idempotency: 400 for a malformed key or a missing identity, 409 while the first request runs (with Retry-After), 422 if
// the key was used for another request, 503 if the store does not answer.
//
// # Hazards
//
// A handler that changes something and then answers 4xx is run again by the repetition. CacheableStatus can pin that one status.
// Never make all of 4xx cacheable: a validation error would outlive its correction.
//
// What an actor was allowed to see when the answer was stored is replayed to that actor, even if the permission has been revoked
// since. Revalidate can refuse it.
//
// An answer that is too large, too slow or a stream is delivered as usual and not stored: its repetition runs the handler again, although
// it did its work. PinUncached refuses the repetition instead.
package httpidem

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/fencepost-sim/fencepost/engine/host"
	"github.com/fencepost-sim/fencepost/engine/idempotency"
)

// Options configures a mount. The zero value is the default.
type Options struct {
	// Tenant and Actor say on whose behalf a request comes, if it is not in the request's context. Default: idempotency.TenantFrom and
	// idempotency.ActorFrom. An error, or an empty text, is answered with 400.
	Tenant func(*http.Request) (string, error)
	Actor  func(*http.Request) (string, error)
	// Scope says who shares replays. Default ActorScope.
	Scope idempotency.BucketScope
	// CacheableStatus says which answers are stored. Default: 2xx.
	CacheableStatus func(status int) bool
	// MaxHashedBody is up to which size a request's body is held in memory and compared by meaning. Larger ones are compared by
	// the bytes that the handler has read. Default 1 MiB.
	MaxHashedBody int64
	// SkipBody leaves bodies alone: a key that is used for another body gets the first answer.
	SkipBody bool
	// MaxCachedResponse is the largest body of an answer that is stored. Default 256 KiB.
	MaxCachedResponse int64
	// DrainTimeout is how long the handler may take from its first byte to its return for its answer to be stored. Default 5 s.
	DrainTimeout time.Duration
	// PinUncached answers repetitions of a success that could not be stored with 409 idempotency_result_not_stored.
	PinUncached bool
	// ReplayHeaders says which headers are stored. Default: AllowList().
	ReplayHeaders HeaderPolicy
	// Revalidate is asked before an answer is replayed. An error refuses it with 403.
	Revalidate func(*http.Request) error
	// FailOpen runs the handler unguarded while the store does not answer. The guard's Config.FailOpen does so for all mounts.
	FailOpen bool
}

// The headers of requests and answers, in their canonical form.
const (
	KeyHeader          = "Idempotency-Key"
	AlternateKeyHeader = "X-Nodii-Idempotency-Key"
	ReplayedHeader     = "Idempotency-Replayed" // "true" on replays
	StoredHeader       = "Idempotency-Stored"   // "false" on answers that should have been stored
)

func (o Options) withDefaults() (Options, error) {
	if o.Tenant == nil {
		o.Tenant = func(r *http.Request) (string, error) { return idempotency.TenantFrom(r.Context()) }
	}
	if o.Actor == nil {
		o.Actor = func(r *http.Request) (string, error) { return idempotency.ActorFrom(r.Context()) }
	}
	if o.Scope == "" {
		o.Scope = idempotency.ActorScope
	}
	if o.CacheableStatus == nil {
		o.CacheableStatus = func(status int) bool { return status >= 200 && status <= 299 }
	}
	if o.MaxHashedBody == 0 {
		o.MaxHashedBody = 1 << 20
	}
	if o.MaxCachedResponse == 0 {
		o.MaxCachedResponse = 256 << 10
	}
	if o.DrainTimeout == 0 {
		o.DrainTimeout = 5 * time.Second
	}
	if o.ReplayHeaders == nil {
		o.ReplayHeaders = AllowList()
	}
	const largest = 64 << 20
	switch {
	case o.Scope != idempotency.ActorScope && o.Scope != idempotency.TenantScope:
		return o, &idempotency.ConfigurationError{Field: "Options.Scope", Value: o.Scope, Allowed: "ActorScope or TenantScope"}
	case o.MaxHashedBody < 1 || o.MaxHashedBody > largest:
		return o, &idempotency.ConfigurationError{Field: "Options.MaxHashedBody", Value: o.MaxHashedBody, Allowed: "1 to 64 MiB"}
	case o.MaxCachedResponse < 1 || o.MaxCachedResponse > largest:
		return o, &idempotency.ConfigurationError{Field: "Options.MaxCachedResponse", Value: o.MaxCachedResponse, Allowed: "1 to 64 MiB"}
	case o.DrainTimeout < time.Millisecond || o.DrainTimeout > time.Hour:
		return o, &idempotency.ConfigurationError{Field: "Options.DrainTimeout", Value: o.DrainTimeout, Allowed: "1ms to 1h"}
	}
	return o, nil
}

// New returns a middleware that guards handlers. It panics if the options are wrong: they are written in code.
func New(g *idempotency.Guard, options Options) func(http.Handler) http.Handler {
	if g == nil {
		panic(&idempotency.ConfigurationError{Field: "guard", Value: nil, Allowed: "a guard of idempotency.New"})
	}
	options, err := options.withDefaults()
	if err != nil {
		panic(err)
	}
	options.FailOpen = options.FailOpen || g.Config().FailOpen
	return func(next http.Handler) http.Handler { return &mount{options, g, next} }
}

type mount struct {
	options Options
	guard   *idempotency.Guard
	next    http.Handler
}

// ServeHTTP checks in this order: verb, header, its syntax, tenant, actor, claim.
func (m *mount) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.Method {
	case http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete:
	default:
		m.next.ServeHTTP(w, r)
		return
	}
	ours, theirs := r.Header[KeyHeader], r.Header[AlternateKeyHeader]
	if len(ours)+len(theirs) == 0 {
		m.next.ServeHTTP(w, r)
		return
	}
	key, err := m.key(r, ours, theirs)
	if err != nil {
		problem(w, err)
		return
	}
	m.serve(w, r, key)
}

// key is the digest of scope, tenant, actor, route and the client's key.
func (m *mount) key(r *http.Request, ours, theirs []string) (idempotency.Key, error) {
	text, err := clientKey(ours, theirs)
	if err != nil {
		return "", err
	}
	tenant, err := m.options.Tenant(r)
	if err != nil || tenant == "" {
		return "", identityError(idempotency.ErrTenantRequired, err)
	}
	actor := ""
	if m.options.Scope == idempotency.ActorScope {
		if actor, err = m.options.Actor(r); err != nil || actor == "" {
			return "", identityError(idempotency.ErrActorRequired, err)
		}
	}
	route := r.Method + " " + path(r)
	return idempotency.RequestDigest([]byte(m.options.Scope), []byte(tenant), []byte(actor), []byte(route), []byte(text)), nil
}

// path is the path as it came: cleaned, decoded, or without the prefix that http.StripPrefix took away, two routes could become one.
func path(r *http.Request) string {
	seen := r.URL.EscapedPath()
	if whole, _, _ := strings.Cut(r.RequestURI, "?"); strings.HasPrefix(whole, "/") && strings.HasSuffix(whole, seen) {
		return whole
	}
	return seen // a request that no server has read, or whose path somebody has rewritten
}

// clientKey reads the key from the two headers. Both may be there if they say the same.
func clientKey(ours, theirs []string) (string, error) {
	if len(ours) > 1 || len(theirs) > 1 {
		return "", idempotency.ErrKeyInvalid
	}
	if len(ours) == 0 {
		ours, theirs = theirs, nil
	}
	key, err := idempotency.ParseKey(ours[0])
	if err != nil || len(theirs) == 0 {
		return key, err
	}
	if other, err := idempotency.ParseKey(theirs[0]); err != nil || other != key {
		return "", idempotency.ErrKeyInvalid
	}
	return key, nil
}

// identityError makes sure that the answer carries the code, whatever the resolver said.
func identityError(code, err error) error {
	if err == nil || errors.Is(err, code) {
		return code
	}
	return errors.Join(code, err)
}

func (m *mount) serve(w http.ResponseWriter, r *http.Request, key idempotency.Key) {
	body, err := m.readBody(r)
	if err != nil {
		problem(w, err)
		return
	}
	execution, stored, err := m.guard.Begin(r.Context(), idempotency.Op{Key: key, Fingerprint: body.fingerprint})
	switch {
	case err != nil && m.options.FailOpen && mayFailOpen(err):
		w.Header().Set(StoredHeader, "false")
		m.next.ServeHTTP(w, body.attach(r))
	case err != nil:
		problem(w, err)
	case stored != nil:
		m.replay(w, r, body, *stored)
	default:
		m.run(w, r, body, execution)
	}
}

func mayFailOpen(err error) bool {
	var version *idempotency.VersionError
	return errors.Is(err, idempotency.ErrUnavailable) && !errors.Is(err, idempotency.ErrClosed) && !errors.As(err, &version)
}

// run calls the handler, stores its answer or frees the key, and only then answers: whoever sees a 2xx gets it again.
func (m *mount) run(w http.ResponseWriter, r *http.Request, body *requestBody, execution *idempotency.Execution) {
	rec := newRecorder(w, &m.options)
	inner := body.attach(r.WithContext(execution.Context()))
	ended := false
	defer func() {
		r.MultipartForm = inner.MultipartForm // the server removes its files from here
		if ended {
			return
		}
		value := recover() // also http.ErrAbortHandler; nil for runtime.Goexit
		host.Rethrow(value)
		rec.abandon()
		_ = execution.Release(r.Context()) // it was reported
		if value != nil {
			panic(value)
		}
	}()
	m.next.ServeHTTP(rec.forHandler(), inner)
	ended = true
	defer execution.Abandon() // if an option panics
	if status, whole := rec.finish(); !m.settle(r.Context(), rec, status, whole, body.final(), execution) {
		rec.markNotStored()
	}
	rec.send()
}

// settle stores or frees, and tells whether what should be stored is.
func (m *mount) settle(ctx context.Context, rec *recorder, status int, whole bool, print idempotency.Fingerprint, execution *idempotency.Execution) bool {
	cacheable := m.options.CacheableStatus(status)
	switch {
	case cacheable && whole:
		result := idempotency.Result{Kind: idempotency.Success, Payload: rec.encode()}
		return execution.Complete(ctx, print, result) == nil
	case cacheable && m.options.PinUncached:
		return execution.Complete(ctx, print, idempotency.Result{Kind: idempotency.NotStored}) == nil
	}
	_ = execution.Release(ctx) // it was reported
	return true
}

// replay answers with what was stored, if it belongs to this request.
func (m *mount) replay(w http.ResponseWriter, r *http.Request, body *requestBody, stored idempotency.Stored) {
	if !m.options.SkipBody && !body.matches(stored.Fingerprint) {
		problem(w, idempotency.ErrBodyMismatch)
		return
	}
	if m.options.Revalidate != nil {
		if err := m.options.Revalidate(r); err != nil {
			problem(w, errors.Join(ErrReplayForbidden, err))
			return
		}
	}
	if stored.Result.Kind != idempotency.Success {
		problem(w, idempotency.ErrResultNotStored)
		return
	}
	if err := sendStored(w, stored.Result.Payload); err != nil {
		problem(w, err)
	}
}
