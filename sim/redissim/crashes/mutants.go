package crashes

import (
	"time"

	"github.com/fencepost-sim/fencepost/engine/idempotency/redisport"
	"github.com/fencepost-sim/fencepost/sim/redissim/holes"
)

// Mutant is a hole of the specification's section 3, planted to prove that the invariants find it: a hole in what Redis is asked to do (package
// holes), or one of those below, which are in the guard.
type Mutant string

// The mutants.
const (
	CompleteByAnyone    = Mutant(holes.CompleteByAnyone)
	ReleaseByAnyone     = Mutant(holes.ReleaseByAnyone)
	ExtendByAnyone      = Mutant(holes.ExtendByAnyone)
	SweepIgnoresLease   = Mutant(holes.SweepIgnoresLease)
	SweepIgnoresState   = Mutant(holes.SweepIgnoresState)
	NoHeartbeat         = Mutant(holes.NoHeartbeat)
	LeaseOfADay         = Mutant(holes.LeaseOfADay)
	TakeoverAtOnce      = Mutant(holes.TakeoverAtOnce)
	ReleaseOnSuccess    = Mutant(holes.ReleaseOnSuccess)
	RunOnUnknownClaim   = Mutant("run-on-unknown-claim")  // hole 6: the handler runs although nobody confirmed the claim
	ReplyBeforeComplete = Mutant("reply-before-complete") // C8: the client sees a success that is not stored yet
)

// apply lets the server run a script, with the hole if there is one.
func (m Mutant) apply(w *world, now time.Time, call redisport.Call) (redisport.Reply, error) {
	return holes.Hole(m).Run(w.server, now, lease, &call)
}
