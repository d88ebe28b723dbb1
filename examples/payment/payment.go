// Package payment charges customers when orders are created. It shows how a handler makes an effect in somebody else's system
// happen once although the handler may run more than once: by giving the event's ID as the idempotency key.
//
// Its test runs the handler through every crash window, and beside it a twin that makes up a new key for each attempt, which charges twice.
package payment

import (
	"context"

	"github.com/fencepost-sim/fencepost/engine"
)

// Order is the data of the topic "order.created".
type Order struct {
	Customer string
	Cents    int
}

// Bank takes money. A bank worth its name refuses a key that it has seen, and answers as it did the first time.
type Bank interface {
	Charge(ctx context.Context, key, customer string, cents int) error
}

// Handler charges for an order. The bank refuses the second charge, since the event's ID is the same in every attempt.
func Handler(bank Bank) engine.Handler[Order] {
	return func(ctx context.Context, order engine.Event[Order]) error {
		return bank.Charge(ctx, order.ID, order.Data.Customer, order.Data.Cents)
	}
}
