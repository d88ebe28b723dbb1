package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/fencepost-sim/fencepost/sim/mongosim"
	"github.com/fencepost-sim/fencepost/sim/wire"
	"golang.org/x/sync/errgroup"
)

// The command serve stands in for a MongoDB, so that clients of any language can be tried on the model.

const serveUsage = `  simrun serve                   a MongoDB model for any driver, until it is interrupted
      --listen HOST:PORT         where (default 127.0.0.1:27027); port 0 takes a free one
      --replica-set NAME         the name of its replica set (default rs0)
      --members N                how many members it has, on consecutive ports (default 1)
      --standalone               a server outside of a replica set: no transactions, no change streams
      --seed N                   decides what MongoDB leaves open: the order among equals (default 0: as inserted)
      --faults PLAN              a file that says what goes wrong, one fault a line:
          lose-request command=update occurrence=2             the connection ends before the second update is run
          lose-reply command=insert collection=orders count=3  … after the insert was run, for the first three into orders
          refuse command=find code=13 after=5s for=10s         an error instead of an answer, 5 s after the start and for 10 s
          stepdown command=insert occurrence=4 for=2s          the primary steps down before the fourth insert, and is back 2 s later
          stepdown after=1m                                    … a minute after the start (other members take over at once)
          drop-notifications collection=orders count=all       change streams do not show what happens to orders
                                 command: any, or a name as the wire protocol has it; occurrence and count are 1 unless given
`

// ttlPass is how often documents expire. Source: manual, "TTL Indexes".
const ttlPass = time.Minute

func serve(args []string, out, problems io.Writer) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return serveUntil(ctx, args, out, problems)
}

func serveUntil(ctx context.Context, args []string, out, problems io.Writer) error {
	o, err := parseServe(args)
	if err != nil {
		return err
	}
	listeners, err := o.open(ctx)
	if err != nil {
		return err
	}
	if ip := net.ParseIP(o.host); o.host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		fmt.Fprintf(problems, "simrun: %s can be reached from other machines, by anybody: there are no passwords and no encryption\n", listeners[0].Addr())
	}
	server := wire.NewServer(wire.Options{
		Model: o.model(), Report: func(err error) { fmt.Fprintf(problems, "simrun: %v\n", err) },
		Faults: o.faults, Struck: func(fault wire.Fault, command string) {
			fmt.Fprintf(problems, "simrun: fault %s %s\n", fault.Kind, command)
		},
	})
	defer server.Close()
	fmt.Fprintf(out, "serving the MongoDB model on %s\n", o.connectionString(listeners))
	var running errgroup.Group
	running.Go(func() error { expire(ctx, server); return nil })
	for member, listener := range listeners {
		running.Go(func() error { return server.ServeMember(ctx, listener, member) })
	}
	return running.Wait()
}

// serveOptions is what the command line of serve says.
type serveOptions struct {
	host, name string
	port       int
	members    int
	standalone bool
	seed       uint64
	faults     []wire.Fault
}

func parseServe(args []string) (o serveOptions, err error) {
	flags := flag.NewFlagSet("simrun serve", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	listen := flags.String("listen", "127.0.0.1:27027", "")
	flags.StringVar(&o.name, "replica-set", "rs0", "")
	flags.IntVar(&o.members, "members", 1, "")
	flags.BoolVar(&o.standalone, "standalone", false, "")
	seedNumber(flags, &o.seed)
	plan := flags.String("faults", "", "")
	if err := flags.Parse(args); err != nil {
		return o, fmt.Errorf("%w: serve: %w", errUsage, withAllowed(err, flags))
	}
	if o.faults, err = readFaults(*plan); err != nil {
		return o, fmt.Errorf("%w: serve: --faults: %w", errUsage, err)
	}
	host, port, err := net.SplitHostPort(*listen)
	if err == nil {
		o.host = host
		o.port, err = strconv.Atoi(port)
	}
	switch {
	case err != nil:
		return o, fmt.Errorf("%w: --listen %q is not HOST:PORT: %w", errUsage, *listen, err)
	case o.port < 0 || o.port+o.members-1 > 65535:
		return o, fmt.Errorf("%w: --listen %q with --members %d; allowed: ports 0 to 65535", errUsage, *listen, o.members)
	case flags.NArg() > 0:
		return o, fmt.Errorf("%w: serve takes no arguments; got %q", errUsage, flags.Args())
	case o.name == "":
		return o, fmt.Errorf("%w: --replica-set is empty; leave it out, or use --standalone", errUsage)
	case o.members < 1 || o.members > 7:
		return o, fmt.Errorf("%w: --members is %d; allowed: 1 to 7", errUsage, o.members)
	case o.standalone && slices.ContainsFunc(o.faults, func(f wire.Fault) bool { return f.Kind == wire.StepDown }):
		return o, fmt.Errorf("%w: --faults has a stepdown, and --standalone has nobody who could step down", errUsage)
	case o.standalone && o.members > 1:
		return o, fmt.Errorf("%w: --standalone goes with one member; got --members %d", errUsage, o.members)
	}
	return o, nil
}

func readFaults(path string) ([]wire.Fault, error) {
	if path == "" {
		return nil, nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	plan, err := wire.ParseFaults(string(text))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return plan, nil
}

// open listens for each member: on the port that was asked for and on those after it, or on free ones.
func (o *serveOptions) open(ctx context.Context) (listeners []net.Listener, err error) {
	for member := range o.members {
		port := o.port
		if port != 0 {
			port += member
		}
		listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(o.host, strconv.Itoa(port)))
		if err != nil {
			for _, opened := range listeners {
				_ = opened.Close()
			}
			return nil, fmt.Errorf("listen: %w", err)
		}
		listeners = append(listeners, listener)
	}
	return listeners, nil
}

func (o *serveOptions) model() *mongosim.Server {
	options := mongosim.Options{Seed: o.seed, Standalone: o.standalone, Name: o.name}
	if o.standalone {
		return mongosim.New(options)
	}
	return mongosim.NewReplicaSet(options, o.members).Members()[0]
}

func (o *serveOptions) connectionString(listeners []net.Listener) string {
	var hosts []string
	for _, listener := range listeners {
		hosts = append(hosts, listener.Addr().String())
	}
	if o.standalone {
		return "mongodb://" + hosts[0] + "/?directConnection=true"
	}
	return "mongodb://" + strings.Join(hosts, ",") + "/?replicaSet=" + o.name
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
