package pgsim_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/fencepost-sim/fencepost/engine/host"
	"github.com/fencepost-sim/fencepost/engine/idempotency/pgport"
	"github.com/fencepost-sim/fencepost/sim/pgsim"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func begin(t *testing.T, c *pgsim.Client) pgport.Tx {
	t.Helper()
	tx, err := c.Begin(t.Context(), pgport.ReadCommitted)
	if err != nil {
		t.Fatal(err)
	}
	return tx
}

func TestWhoeverFindsThePoolEmptyWaitsForAConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := pgsim.NewClient(pgsim.New(), host.New(host.Options{}), time.Now)
		c.Connections = 2
		first := begin(t, c)
		begin(t, c)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := c.Begin(ctx, ""); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a third connection: %v", err)
		}
		got := make(chan pgport.Tx)
		go func() { got <- begin(t, c) }()
		synctest.Wait()
		if err := first.Rollback(t.Context()); err != nil {
			t.Error(err)
		}
		if err := (<-got).Commit(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestAFailoverEndsOpenTransactionsAndWhatTheyWaitFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, h := pgsim.New(), host.New(host.Options{})
		c := pgsim.NewClient(server, h, time.Now)
		tx := begin(t, c)
		if _, err := tx.Exec(t.Context(), pgport.CreateTable); err != nil {
			t.Fatal(err)
		}
		h.Enter(func() { server.Failover(0) })
		if _, err := tx.Exec(t.Context(), pgport.Claim, "a", "t"); !errors.Is(err, pgport.ErrUnknownOutcome) {
			t.Errorf("a statement of a transaction that is gone: %v", err)
		}
		if _, err := begin(t, c).Exec(t.Context(), pgport.Claim, "a", "t"); !pgport.HasCode(err, "42P01") {
			t.Errorf("the table of a transaction that is gone: %v", err)
		}
	})
}

func TestUnknownStatementsAndValuesFailTheTransaction(t *testing.T) {
	c := pgsim.NewClient(pgsim.New(), host.New(host.Options{}), time.Now)
	for code, call := range map[string]func(tx pgport.Tx) error{
		"0A000": func(tx pgport.Tx) error {
			_, err := tx.Exec(t.Context(), &pgport.Statement{Name: "mystery"})
			return err
		},
		"22023": func(tx pgport.Tx) error {
			_, err := tx.Text(t.Context(), pgport.LockTimeout, "soon")
			return err
		},
	} {
		tx := begin(t, c)
		if err := call(tx); !pgport.HasCode(err, code) {
			t.Errorf("got %v, want %s", err, code)
		}
		if err := tx.Commit(t.Context()); err == nil {
			t.Error("the failed transaction commits")
		}
	}
}
