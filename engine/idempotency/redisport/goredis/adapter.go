// Package goredis is the Port on the go-redis driver: a few lines a method.
package goredis

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fencepost-sim/fencepost/engine/idempotency"
	"github.com/fencepost-sim/fencepost/engine/idempotency/redisport"
)

// Options adjusts the adapter. The zero value is the default.
type Options struct {
	// CallTimeout bounds each round trip, with its repetitions by the driver. Default 2 s.
	CallTimeout time.Duration
	// Replicas makes every step wait until so many replicas have confirmed it, in the same round trip (WAIT), for CallTimeout/4 at
	// the most. It makes losing a claim at a failover unlikely, not impossible. Not for clusters. Default 0.
	Replicas int
}

// Adapter is a Port.
type Adapter struct {
	client  redis.UniversalClient
	options Options
	scripts map[*redisport.Script]*redis.Script
}

var _ redisport.Port = (*Adapter)(nil)

// New returns an adapter on the client, which stays the caller's to close. The client must respect deadlines
// (ContextTimeoutEnabled), or a hanging server would hold a caller for longer than CallTimeout.
func New(client redis.UniversalClient, options Options) (*Adapter, error) {
	if client == nil {
		return nil, &idempotency.ConfigurationError{Field: "client", Value: nil, Allowed: "a go-redis client"}
	}
	if options.CallTimeout == 0 {
		options.CallTimeout = 2 * time.Second
	}
	if options.CallTimeout < time.Millisecond || options.CallTimeout > time.Minute {
		return nil, &idempotency.ConfigurationError{Field: "Options.CallTimeout", Value: options.CallTimeout, Allowed: "1ms to 1m"}
	}
	obeys, cluster := true, false
	switch c := client.(type) {
	case *redis.Client:
		obeys = c.Options().ContextTimeoutEnabled
	case *redis.ClusterClient:
		obeys, cluster = c.Options().ContextTimeoutEnabled, true
	}
	if !obeys {
		return nil, &idempotency.ConfigurationError{Field: "ContextTimeoutEnabled of the go-redis client", Value: false, Allowed: "true"}
	}
	if most := 16; options.Replicas < 0 || options.Replicas > most || (cluster && options.Replicas > 0) {
		return nil, &idempotency.ConfigurationError{Field: "Options.Replicas", Value: options.Replicas, Allowed: "0 to 16; on a cluster 0"}
	}
	a := &Adapter{client: client, options: options, scripts: map[*redisport.Script]*redis.Script{}}
	for _, script := range redisport.Scripts {
		a.scripts[script] = redis.NewScript(script.Source)
	}
	return a, nil
}

// Run implements redisport.Port.
func (a *Adapter) Run(ctx context.Context, calls ...redisport.Call) ([]redisport.Reply, error) {
	ctx, cancel := context.WithTimeout(ctx, a.options.CallTimeout)
	defer cancel()
	commands, err := a.send(ctx, calls, redis.Scripter.EvalSha, (*redis.Script).Hash)
	if redis.HasErrorPrefix(err, "NOSCRIPT") { // the server was restarted: send the sources once
		commands, err = a.send(ctx, calls, redis.Scripter.Eval, func(*redis.Script) string { return "" })
	}
	if err != nil {
		return nil, err
	}
	replies := make([]redisport.Reply, len(calls))
	for i, command := range commands {
		if replies[i], err = command.StringSlice(); err != nil {
			return nil, err
		}
	}
	return replies, nil
}

type evaluate func(c redis.Scripter, ctx context.Context, script string, keys []string, args ...any) *redis.Cmd

// send makes one round trip. Replies that say NOSCRIPT were not applied; the others may be applied again.
func (a *Adapter) send(ctx context.Context, calls []redisport.Call, eval evaluate, name func(*redis.Script) string) ([]*redis.Cmd, error) {
	one := func(c redis.Scripter, call redisport.Call) *redis.Cmd {
		script := name(a.scripts[call.Script])
		if script == "" {
			script = call.Script.Source
		}
		args := make([]any, len(call.Args))
		for i, arg := range call.Args {
			args[i] = arg
		}
		return eval(c, ctx, script, []string{call.Key}, args...)
	}
	if len(calls) == 1 && a.options.Replicas == 0 {
		command := one(a.client, calls[0])
		return []*redis.Cmd{command}, command.Err()
	}
	commands := make([]*redis.Cmd, len(calls))
	var confirmed *redis.Cmd
	_, err := a.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, call := range calls {
			commands[i] = one(p, call)
		}
		if a.options.Replicas > 0 {
			confirmed = p.Do(ctx, "WAIT", a.options.Replicas, a.options.CallTimeout.Milliseconds()/4)
		}
		return nil
	})
	if err == nil && confirmed != nil {
		if count, countErr := confirmed.Int(); countErr != nil || count < a.options.Replicas {
			err = errors.Join(redisport.ErrNotReplicated, countErr)
		}
	}
	return commands, err
}

// Check implements redisport.Port.
func (a *Adapter) Check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, a.options.CallTimeout)
	defer cancel()
	for _, script := range redisport.Scripts {
		if err := a.scripts[script].Load(ctx, a.client).Err(); err != nil {
			return fmt.Errorf("loading script %s: %w", script.Name, err)
		}
	}
	info, err := a.client.Info(ctx, "memory").Result()
	if err != nil {
		return err
	}
	if limit, policy := field(info, "maxmemory"), field(info, "maxmemory_policy"); limit != "0" && policy != "noeviction" {
		return fmt.Errorf("%w; it is %s, with maxmemory %s", redisport.ErrEvicts, policy, limit)
	}
	return nil
}

// field finds a line of INFO, which are "name:value".
func field(info, name string) string {
	for line := range strings.Lines(info) {
		if value, found := strings.CutPrefix(line, name+":"); found {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
