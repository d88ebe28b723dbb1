package record

import (
	"time"

	"github.com/fencepost-sim/fencepost/engine/idempotency"
)

// Lease is a lease that one holder has at a time: the sweeper's turn, with its cursor, and the leases of package lease.
type Lease struct {
	Token  idempotency.Token
	Until  int64 // Unix milliseconds of the store's clock; zero if nobody holds it
	Fence  uint64
	Cursor string
	// Expires is when the store forgets it.
	Expires int64
}

// KeepLease is how long a lease that nobody touches is remembered, with its fence and cursor.
const KeepLease = 30 * 24 * time.Hour

// Live returns the lease, or a new one if it has expired at the time.
func (l Lease) Live(now time.Time) Lease {
	if l.Expires != 0 && l.Expires <= now.UnixMilli() {
		return Lease{}
	}
	return l
}

// Acquire takes the lease if nobody holds it. If somebody does, left is what is left of it.
func (l *Lease) Acquire(now time.Time, token idempotency.Token, ttl time.Duration) (held bool, left time.Duration) {
	ms := now.UnixMilli()
	switch {
	case l.Until > ms && l.Token != token:
		return false, time.Duration(l.Until-ms) * time.Millisecond
	case l.Until <= ms || l.Token != token: // not a repeated request whose reply was lost
		l.Fence = NextFence(l.Fence, now)
	}
	l.Token = token
	l.keep(ms, ttl)
	return true, ttl
}

// Renew extends the lease, and stores the cursor if one is given. The holder keeps it also after it has lapsed, as long as
// nobody else took it.
func (l *Lease) Renew(now time.Time, token idempotency.Token, ttl time.Duration, cursor *string) bool {
	if l.Until == 0 || l.Token != token {
		return false
	}
	if cursor != nil {
		l.Cursor = *cursor
	}
	l.keep(now.UnixMilli(), ttl)
	return true
}

// Release gives the lease back, and stores the cursor if one is given.
func (l *Lease) Release(now time.Time, token idempotency.Token, cursor *string) bool {
	if !l.Renew(now, token, 0, cursor) {
		return false
	}
	l.Token, l.Until = idempotency.Token{}, 0
	return true
}

func (l *Lease) keep(ms int64, ttl time.Duration) {
	l.Until = ms + ttl.Milliseconds()
	l.Expires = ms + max(KeepLease, ttl).Milliseconds()
}
