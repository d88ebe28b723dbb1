package engine

import (
	"context"

	"github.com/fencepost-sim/fencepost/internal/defect"
)

// Close stops taking work, waits for the handlers that run, and ends all tasks. Their leases are renewed until they
// are done. When ctx is done first, the handlers' contexts are cancelled with ErrClosed as cause, and Close returns ctx's
// cause without waiting further; attempts that are cut off are found by another process when their
// lease expires.
//
// Called with the context of one of its own handlers, Close begins to close and returns at once, since the handler
// would wait for itself. It may be called by many and more than once. It does not close the database client.
func (e *Engine) Close(ctx context.Context) (err error) {
	e.host.Enter(func() { err = e.close(ctx) })
	return err
}

func (e *Engine) close(ctx context.Context) error {
	e.closing = true
	e.stop(ErrClosed)
	e.work.signal.Broadcast()
	e.wakeCoordinator()
	if e.inHandler(ctx) || e.defects.Has(defect.CloseWithoutDrain) {
		return nil
	}
	allowed := 0
	if e.defects.Has(defect.CloseLeavesOne) {
		allowed = 1
	}
	for e.tasks > allowed {
		if e.idle.Wait(ctx, -1) || ctx.Err() == nil {
			continue
		}
		e.cancel(ErrClosed)
		return context.Cause(ctx)
	}
	e.cancel(ErrClosed)
	return nil
}
