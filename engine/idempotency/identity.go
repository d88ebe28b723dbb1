package idempotency

import "context"

// ContextKey is the type of the keys under which authentication leaves who is asking in a request's context, as text.
type ContextKey string

// TenantID is where the tenant is found.
const TenantID ContextKey = "tenantId"

// The places where the actor is looked for, in this order.
const (
	ActorID      ContextKey = "actorId"
	UserID       ContextKey = "userId"
	SubjectID    ContextKey = "subjectId"
	Subject      ContextKey = "sub"
	MembershipID ContextKey = "membershipId"
	PrincipalID  ContextKey = "principalId"
)

// actorKeys are interfaces already, so that looking costs no allocation.
var actorKeys = [...]any{ActorID, UserID, SubjectID, Subject, MembershipID, PrincipalID}

// TenantFrom returns the tenant that authentication has left in the context, or ErrTenantRequired.
func TenantFrom(ctx context.Context) (string, error) {
	if tenant, _ := ctx.Value(TenantID).(string); tenant != "" {
		return tenant, nil
	}
	return "", ErrTenantRequired
}

// ActorFrom returns the first actor that authentication has left in the context, or ErrActorRequired.
func ActorFrom(ctx context.Context) (string, error) {
	for _, key := range actorKeys {
		if actor, _ := ctx.Value(key).(string); actor != "" {
			return actor, nil
		}
	}
	return "", ErrActorRequired
}

// BucketScope says who shares replays.
type BucketScope string

// The scopes. The scope is part of the key, so that they never meet.
const (
	ActorScope  BucketScope = "actor"  // each actor of a tenant has its own; the default
	TenantScope BucketScope = "tenant" // all actors of a tenant share one
)

// ParseKey checks a key that a client sent: 1 to 255 visible ASCII characters, or the same as a quoted string of RFC 8941, which
// is equal to its bare form. Else ErrKeyInvalid.
func ParseKey(text string) (string, error) {
	if len(text) > 0 && text[0] == '"' {
		bare, ok := unquote(text)
		if !ok {
			return "", ErrKeyInvalid
		}
		text = bare
	}
	if len(text) == 0 || len(text) > 255 {
		return "", ErrKeyInvalid
	}
	for i := range len(text) {
		if text[i] < 0x21 || text[i] > 0x7E {
			return "", ErrKeyInvalid
		}
	}
	return text, nil
}

// unquote reads a quoted string (RFC 8941, section 3.3.3: only \" and \\ are escapes).
func unquote(text string) (string, bool) {
	body := make([]byte, 0, len(text))
	for i := 1; i < len(text); i++ {
		switch c := text[i]; c {
		case '"':
			return string(body), i == len(text)-1
		case '\\':
			i++
			if i == len(text) || (text[i] != '"' && text[i] != '\\') {
				return "", false
			}
			body = append(body, text[i])
		default:
			body = append(body, c)
		}
	}
	return "", false
}
