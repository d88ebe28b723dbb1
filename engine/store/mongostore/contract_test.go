package mongostore_test

import (
	"context"
	"os"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.uber.org/goleak"

	"github.com/fencepost-sim/fencepost/engine/store"
	"github.com/fencepost-sim/fencepost/engine/store/mongostore"
	"github.com/fencepost-sim/fencepost/engine/store/storetest"
	"github.com/fencepost-sim/fencepost/sim/mongosim"
	"github.com/fencepost-sim/fencepost/sim/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestTheDriverOverTheWireAndTheModelKeepTheContract(t *testing.T) {
	storetest.Run(t, func(t *testing.T) store.Store {
		server := newServer(t)
		return mongostore.New(connect(t, options.Client().SetDialer(server.Dialer())).Database("contract"))
	})
}

// addressVariable names the MongoDB replica set on which the contract is checked as well, as a connection string.
const addressVariable = "FENCEPOST_MONGODB_URI"

func TestMongoDBKeepsTheContract(t *testing.T) {
	uri := os.Getenv(addressVariable)
	if uri == "" {
		t.Run("not checked here", func(t *testing.T) {
			t.Logf("%s names no MongoDB, so the contract was not checked against a real one", addressVariable)
		})
		return
	}
	name := "fencepost_contract_" + bson.NewObjectID().Hex()
	client := connect(t, options.Client().ApplyURI(uri))
	t.Cleanup(func() {
		if err := client.Database(name).Drop(context.WithoutCancel(t.Context())); err != nil {
			t.Errorf("drop the test's database: %v", err)
		}
	})
	storetest.Run(t, func(*testing.T) store.Store { return mongostore.New(client.Database(name)) })
}

// newServer is the model behind the wire protocol. An error of the protocol fails the test.
func newServer(t testing.TB) *wire.Server {
	server := wire.NewServer(wire.Options{
		Model:  mongosim.New(mongosim.Options{Seed: 1}),
		Report: func(err error) { t.Error(err) },
	})
	t.Cleanup(server.Close)
	return server
}

// connect makes a client that is disconnected before the server closes.
func connect(t testing.TB, how *options.ClientOptions) *mongo.Client {
	t.Helper()
	if how.GetURI() == "" {
		how.SetHosts([]string{"model.test:27017"})
	}
	client, err := mongo.Connect(how.SetServerSelectionTimeout(5 * time.Second))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.Disconnect(context.WithoutCancel(t.Context())); err != nil {
			t.Errorf("disconnect: %v", err)
		}
	})
	return client
}
