package sim

import (
	"context"
	"fmt"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/fencepost-sim/fencepost/engine/host"
	"github.com/fencepost-sim/fencepost/engine/idempotency/record"
	"github.com/fencepost-sim/fencepost/engine/idempotency/redisport"
	"github.com/fencepost-sim/fencepost/faults"
	"github.com/fencepost-sim/fencepost/sim/journal"
	"github.com/fencepost-sim/fencepost/sim/redissim"
)

// RedisCollection is under what name the journal keeps the claims in Redis, by key.
const RedisCollection = "redis"

// RedisPoints are the points at which guards ask Redis.
var RedisPoints = []string{
	"redis.check", redisPoint(redisport.Claim), redisPoint(redisport.Extend), redisPoint(redisport.Complete), redisPoint(redisport.Release),
	redisPoint(redisport.Lease), "redis.scan", redisPoint(redisport.Sweep),
}

func redisPoint(script *redisport.Script) string { return "redis." + script.Name }

// redisServer is the Redis of a world, and what the journal knows of its claims.
type redisServer struct {
	*redissim.Server
	keys  []string // in the order in which they were first written
	known map[string]record.Record
}

func newRedisServer(seed uint64) redisServer {
	return redisServer{Server: redissim.New(redissim.Options{Seed: seed}), known: map[string]record.Record{}}
}

// Redis returns the connection of this process to Redis.
func (p *Process) Redis() redisport.Port { return &simulatedRedis{p, p.instance} }

// simulatedRedis is the connection of one life of a process to Redis.
type simulatedRedis struct {
	process *Process
	life    *instance
}

var _ redisport.Port = (*simulatedRedis)(nil)

var redisPeer = &peer{redissim.ErrLost, func(kind string) error {
	return fmt.Errorf("%w: NOPERM this user has no permissions to run %s", redisport.ErrRefused, kind)
}}

// ask is one round trip.
func (r *simulatedRedis) ask(ctx context.Context, kind string, apply func(c call) error) error {
	if r.life.over {
		panic(host.Killed{})
	}
	if ctx.Err() != nil {
		return context.Cause(ctx) // go-redis sends nothing under a context that is done
	}
	c := call{r.process.world, r.process.world.current, "redis." + kind, redisPeer}
	return c.exchange(kind, "", func() error { return apply(c) })
}

// Run implements redisport.Port.
func (r *simulatedRedis) Run(ctx context.Context, calls ...redisport.Call) (replies []redisport.Reply, err error) {
	err = r.ask(ctx, calls[0].Script.Name, func(c call) (err error) {
		for i := 0; i < len(calls) && err == nil; i++ {
			if i > 0 {
				c.task.pause() // the calls are not atomic together
			}
			var reply redisport.Reply
			reply, err = c.script(calls[i])
			replies = append(replies, reply)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return replies, nil
}

// script lets the server run one script.
func (c call) script(call redisport.Call) (reply redisport.Reply, err error) {
	w := c.world
	if w.config.Script != nil {
		reply, err = w.config.Script(w.redis.Server, w.ServerNow(), &call)
	} else {
		var replies []redisport.Reply
		if replies, err = w.redis.Run(w.ServerNow(), call); err == nil {
			reply = replies[0]
		}
	}
	applied := c.event(journal.Applied)
	applied.Name, applied.Key, applied.Error = call.Script.Name, call.Key, errorText(err)
	applied.Document = bson.D{{Key: "arguments", Value: texts(call.Args)}, {Key: "reply", Value: texts(reply)}}
	w.record(applied)
	w.recordClaim(c.event(0), call.Key)
	return reply, err
}

func texts(list []string) bson.A {
	array := make(bson.A, len(list))
	for i, text := range list {
		array[i] = text
	}
	return array
}

// recordClaim puts into the journal what has become of a claim, in the name of the event.
func (w *World) recordClaim(as journal.Event, key string) {
	found, before := w.redis.Record(w.ServerNow(), key), w.redis.known[key]
	if same(found, before) {
		return
	}
	if !slices.Contains(w.redis.keys, key) {
		w.redis.keys = append(w.redis.keys, key)
	}
	w.redis.known[key] = found
	as.Collection, as.Key = RedisCollection, key
	if as.Kind = journal.Deleted; found.State != record.Absent {
		as.Kind, as.Document = journal.Wrote, claimDocument(found)
	}
	w.record(as)
}

func same(a, b record.Record) bool {
	payloads := slices.Equal(a.Result.Payload, b.Result.Payload)
	a.Result.Payload, b.Result.Payload = nil, nil
	return payloads && fmt.Sprint(a) == fmt.Sprint(b)
}

func claimDocument(r record.Record) bson.D {
	return bson.D{
		{Key: "state", Value: string(rune(r.State))},
		{Key: "token", Value: r.Token.String()},
		{Key: "fence", Value: int64(r.Fence)},
		{Key: "leaseUntil", Value: bson.DateTime(r.LeaseUntil)},
		{Key: "expires", Value: bson.DateTime(r.Expires)},
	}
}

// failOverRedis puts a replica into the place of the server that has not seen the last writes.
func (w *World) failOverRedis(writes int, clock time.Duration) {
	switch writes {
	case 0:
		writes = 1
	case faults.All:
		w.redis.Flush() // it had seen nothing
	}
	w.redis.Failover(writes, clock)
	for _, key := range w.redis.keys {
		w.recordClaim(journal.Event{}, key)
	}
}

// Scan implements redisport.Port.
func (r *simulatedRedis) Scan(ctx context.Context, scan redisport.Scan) (page redisport.Page, err error) {
	err = r.ask(ctx, "scan", func(c call) (err error) {
		page, err = c.world.redis.Scan(c.world.ServerNow(), scan)
		c.applied(len(page.Keys), err)
		return err
	})
	if err != nil {
		return redisport.Page{}, err
	}
	return page, nil
}

// Check implements redisport.Port.
func (r *simulatedRedis) Check(ctx context.Context) error {
	return r.ask(ctx, "check", func(c call) error {
		err := c.world.redis.Check()
		c.applied(0, err)
		return err
	})
}

// applied records that a server has done what it was asked.
func (c call) applied(concerned int, err error) {
	applied := c.event(journal.Applied)
	applied.Number, applied.Error = int64(concerned), errorText(err)
	c.world.record(applied)
}
