package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/fencepost-sim/fencepost/sim/mongosim"
	"github.com/fencepost-sim/fencepost/sim/wire"
)

// The command serve stands in for a MongoDB, so that clients of any language can be tried on the model.

const serveUsage = `  simrun serve                   a MongoDB model for any driver, until it is interrupted
      --listen HOST:PORT         where (default 127.0.0.1:27027); port 0 takes a free one
      --replica-set NAME         the name of its replica set (default rs0)
      --standalone               a server outside of a replica set: no transactions, no change streams
      --seed N                   decides what MongoDB leaves open: the order among equals (default 0: as inserted)
`

// ttlPass is how often documents expire. Source: manual, "TTL Indexes".
const ttlPass = time.Minute

func serve(args []string, out, problems io.Writer) error {
	flags := flag.NewFlagSet("simrun serve", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	listen := flags.String("listen", "127.0.0.1:27027", "")
	name := flags.String("replica-set", "rs0", "")
	standalone := flags.Bool("standalone", false, "")
	seed := flags.Uint64("seed", 0, "")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprint(out, usage)
		return err
	case err != nil:
		return fmt.Errorf("%w: serve: %w", errUsage, withAllowed(err, flags))
	case flags.NArg() > 0:
		return fmt.Errorf("%w: serve takes no arguments; got %q", errUsage, flags.Args())
	case *name == "":
		return fmt.Errorf("%w: --replica-set is empty; leave it out, or use --standalone", errUsage)
	}
	host, _, err := net.SplitHostPort(*listen)
	if err != nil {
		return fmt.Errorf("%w: --listen %q is not HOST:PORT: %w", errUsage, *listen, err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", *listen)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		fmt.Fprintf(problems, "simrun: %s can be reached from other machines, by anybody: there are no passwords and no encryption\n", listener.Addr())
	}
	server := wire.NewServer(wire.Options{
		Model:  mongosim.New(mongosim.Options{Seed: *seed, Standalone: *standalone, Name: *name}),
		Report: func(err error) { fmt.Fprintf(problems, "simrun: %v\n", err) },
	})
	defer server.Close()
	go expire(ctx, server)
	fmt.Fprintf(out, "serving the MongoDB model on %s\n", connectionString(listener.Addr().String(), *name, *standalone))
	return server.Serve(ctx, listener)
}

func connectionString(address, name string, standalone bool) string {
	if standalone {
		return "mongodb://" + address + "/?directConnection=true"
	}
	return "mongodb://" + address + "/?replicaSet=" + name
}

// expire lets documents expire until ctx is done.
func expire(ctx context.Context, server *wire.Server) {
	ticker := time.NewTicker(ttlPass)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			server.Do(func(model *mongosim.Server) { model.ExpireTTL(time.Now()) })
		case <-ctx.Done():
			return
		}
	}
}
