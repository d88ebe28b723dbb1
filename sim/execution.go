package sim

import (
	"context"
	"errors"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/fencepost-sim/fencepost/engine"
	"github.com/fencepost-sim/fencepost/engine/idempotency"
	"github.com/fencepost-sim/fencepost/sim/journal"
)

// GuardOpened tells the journal that the process guards its handlers, by claims in the store that last for the lease.
func (p *Process) GuardOpened(store string, lease time.Duration) {
	p.world.record(journal.Event{Kind: journal.GuardOpened, Process: p.index, Name: store, Span: lease})
}

// Guarded wraps what a guard protects, inside a handler wrapped by Handle, so that the journal shows when it starts and ends, and
// under which claim. A handler whose result is replayed, or which is refused, starts and ends without an execution.
func Guarded[T any](handler engine.Handler[T]) engine.Handler[T] {
	return func(ctx context.Context, event engine.Event[T]) (err error) {
		outer, err := fromContext(ctx)
		if err != nil {
			return err
		}
		r := *outer
		r.task, r.context, r.cancelled, r.claim = r.process.world.current.id, ctx, false, claimOf(ctx)
		w := r.process.world
		w.record(r.as(journal.ExecutionStarted))
		w.handlers = append(w.handlers, &r)
		defer w.handlerOver(&r)
		ended := r.as(journal.ExecutionEnded)
		ended.Error = "did not return"
		defer func() {
			if !r.life.over {
				w.record(ended)
			}
		}()
		err = handler(context.WithValue(ctx, runningKey{}, &r), event)
		ended.Error = errorText(err)
		return err
	}
}

// ErrFenced is what FencedEffect returns when a newer owner of the claim has been there.
var ErrFenced = errors.New("sim: the receiver has seen a larger fence")

// FencedEffect is Effect on a receiver that remembers, for each key, the largest fence that it has seen, and refuses smaller ones:
// owners of a claim who were overtaken.
func FencedEffect(ctx context.Context, name, key string) error {
	claim, _ := idempotency.ClaimFromContext(ctx) // without a guard the fence is zero
	return perform(ctx, name, key, func(w *World) error {
		if claim.Fence < w.fences[key] {
			return ErrFenced
		}
		w.fences[key] = claim.Fence
		return nil
	})
}

// claimOf is the claim under which the function with this context runs, or an empty document.
func claimOf(ctx context.Context) bson.D {
	claim, held := idempotency.ClaimFromContext(ctx)
	if !held {
		return bson.D{}
	}
	return bson.D{{Key: "key", Value: string(claim.Key)}, {Key: "token", Value: claim.Token.String()}, {Key: "fence", Value: int64(claim.Fence)}}
}
