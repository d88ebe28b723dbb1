// Package projection keeps a read model of accounts: how much money each has. It needs the events of a topic in order, and each once.
//
// Order is what an ordered topic gives. "Once" is not: a handler whose worker dies after its write runs again. So the
// projection keeps, beside each balance, the number of the last change that it contains, and leaves out what it has seen.
//
// Its test runs the handler through every crash window, and beside it a twin that only adds, which counts changes twice.
package projection

import (
	"context"
	"fmt"

	"github.com/fencepost-sim/fencepost/engine"
)

// Change is the data of the topic "account.changed". Numbers count the changes of an account from 1.
type Change struct {
	Account string
	Number  int
	Cents   int
}

// Balance is a row of the read model.
type Balance struct {
	Number int // of the last change that it contains
	Cents  int
}

// Store keeps the read model. Update changes one row in one step: nobody sees it half-changed.
type Store interface {
	Update(ctx context.Context, account string, change func(Balance) (Balance, error)) error
}

// Handler applies changes. It must be subscribed in order.
func Handler(store Store) engine.Handler[Change] {
	return func(ctx context.Context, event engine.Event[Change]) error {
		change := event.Data
		return store.Update(ctx, change.Account, func(b Balance) (Balance, error) {
			switch {
			case change.Number <= b.Number:
				return b, nil // an earlier attempt, or an earlier publication of the same change, did it
			case change.Number > b.Number+1:
				return b, fmt.Errorf("change %d of account %s comes after change %d", change.Number, change.Account, b.Number)
			}
			return Balance{change.Number, b.Cents + change.Cents}, nil
		})
	}
}
