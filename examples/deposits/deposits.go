// Package deposits books deposits in MongoDB. It shows how an effect that is in MongoDB itself happens once although the handler may run more than
// once: a mark with the event's ID commits in the same transaction as the domain's write, so a second attempt finds the mark, and nothing
// commits twice or by halves.
//
// Its test runs the handler, with the official driver, through every crash window, and beside it two twins without the transaction: one
// loses deposits, the other doubles them.
package deposits

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/fencepost-sim/fencepost/engine"
)

// Deposit is the data of the topic "deposit.made".
type Deposit struct {
	Account string
	Cents   int
}

// Handler books a deposit in the database.
func Handler(database *mongo.Database) engine.Handler[Deposit] {
	return func(ctx context.Context, event engine.Event[Deposit]) error {
		session, err := database.Client().StartSession()
		if err != nil {
			return err
		}
		defer session.EndSession(context.WithoutCancel(ctx))
		_, err = session.WithTransaction(ctx, func(ctx context.Context) (any, error) {
			if err := mark(ctx, database, event.ID); err != nil {
				return nil, err
			}
			return nil, book(ctx, database, event.Data)
		})
		return unlessDone(err)
	}
}

// mark says that the event was processed. It fails with a duplicate key if that has been said before.
func mark(ctx context.Context, database *mongo.Database, event string) error {
	_, err := database.Collection("processed").InsertOne(ctx, bson.D{{Key: "_id", Value: event}})
	return err
}

func book(ctx context.Context, database *mongo.Database, deposit Deposit) error {
	change := bson.D{{Key: "$inc", Value: bson.D{{Key: "cents", Value: deposit.Cents}}}}
	_, err := database.Collection("balances").UpdateOne(ctx, bson.D{{Key: "_id", Value: deposit.Account}}, change, options.UpdateOne().SetUpsert(true))
	return err
}

// unlessDone takes "an earlier attempt did it" for the success that it is.
func unlessDone(err error) error {
	if mongo.IsDuplicateKeyError(err) {
		return nil
	}
	return err
}
