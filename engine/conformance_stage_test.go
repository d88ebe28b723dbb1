package engine_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/fencepost-sim/fencepost/engine"
	"github.com/fencepost-sim/fencepost/engine/store"
	"github.com/fencepost-sim/fencepost/engine/store/mongostore"
	"github.com/fencepost-sim/fencepost/sim"
	"github.com/fencepost-sim/fencepost/sim/mongosim"
	"github.com/fencepost-sim/fencepost/sim/wire"
)

// A conformance test is written once and runs on two stages: in virtual time in a simulated world, where handlers and engines are
// coroutines and the database is the model; and in real time, on goroutines, through the official driver and the wire
// protocol. The numbers are those of the list in the specification of the engine, section 6.

// platform is what a stage is made of.
type platform interface {
	// store is a connection of its own.
	store() store.Store
	// open opens an engine; the stage closes what is left open.
	open(ctx context.Context, options engine.Options) (*engine.Engine, error)
	// pause waits: for virtual or for real time.
	pause(ctx context.Context, d time.Duration) error
	// background runs beside the test, and ends before it does.
	background(run func(ctx context.Context))
	// expire runs the TTL monitor now.
	expire()
	dropIndex(collection, name string)
	// scale is how much slower things go than the list says, so that a busy machine does not lose leases.
	scale() time.Duration
}

// stage is a platform with what conformance tests share.
type stage struct {
	platform
	*testing.T
	ctx  context.Context
	lock sync.Mutex // handlers run on goroutines in real time
}

// settings are those of the list, unless a test says otherwise.
func (s *stage) settings(group string) engine.Options {
	return engine.Options{
		ConsumerGroup: group, PollInterval: 20 * time.Millisecond, LockTimeout: 300 * time.Millisecond * s.scale(), Workers: 4,
		EventRetention: engine.KeepForever, HistoryRetention: engine.KeepForever, ChangeStreams: engine.ChangeStreamsDisabled,
		VisibilityWindow: time.Second, OnError: func(error) {},
	}
}

func (s *stage) engine(options engine.Options) *engine.Engine {
	s.Helper()
	eng, err := s.open(s.ctx, options)
	if err != nil {
		s.Fatal(err)
	}
	return eng
}

// subscribe subscribes or fails the test.
func (s *stage) subscribe(eng *engine.Engine, options engine.SubscribeOptions, handler engine.Handler[string]) *engine.Subscription {
	s.Helper()
	subscription, err := jobs.Subscribe(s.ctx, eng, options, handler)
	if err != nil {
		s.Fatal(err)
	}
	return subscription
}

func (s *stage) publish(eng *engine.Engine, data ...string) (ids []string) {
	s.Helper()
	for _, one := range data {
		id, err := jobs.Publish(s.ctx, eng, one)
		if err != nil {
			s.Fatal(err)
		}
		ids = append(ids, id)
	}
	return ids
}

var jobs = engine.NewTopic[string]("jobs")

// until waits for the condition, and fails the test if it does not come true.
func (s *stage) until(what string, condition func() bool) {
	s.Helper()
	for waited := time.Duration(0); waited < slowdown*30*time.Second; waited += 10 * time.Millisecond {
		if condition() {
			return
		}
		if err := s.pause(s.ctx, 10*time.Millisecond); err != nil {
			s.Fatal(err)
		}
	}
	s.Fatalf("not in time: %s", what)
}

// find reads documents of a collection.
func (s *stage) find(collection string, filter bson.D) []bson.D {
	s.Helper()
	reply, err := s.store().Run(s.ctx, store.Command{
		Kind: store.Find, Collection: "orionjs.pulse." + collection, Filter: filter, Sort: bson.D{{Key: "_id", Value: int32(1)}},
	})
	if err != nil {
		s.Fatal(err)
	}
	return reply.Documents
}

func (s *stage) count(collection string, filter bson.D) int { return len(s.find(collection, filter)) }

func (s *stage) insert(collection string, documents ...bson.D) {
	s.Helper()
	_, err := s.store().Run(s.ctx, store.Command{Kind: store.Insert, Collection: "orionjs.pulse." + collection, Documents: documents})
	if err != nil {
		s.Fatal(err)
	}
}

func (s *stage) update(collection string, filter, update bson.D) {
	s.Helper()
	_, err := s.store().Run(s.ctx, store.Command{
		Kind: store.Update, Collection: "orionjs.pulse." + collection, Filter: filter, Update: update, Multi: true,
	})
	if err != nil {
		s.Fatal(err)
	}
}

// calls collects what handlers did.
type calls struct {
	stage   *stage
	all     []string
	running int
	peak    int
}

func (s *stage) calls() *calls { return &calls{stage: s} }

// handler notes each call as data and attempt, like "a1", and holds it for the duration.
func (c *calls) handler(hold time.Duration) engine.Handler[string] {
	return c.handlerThat(func(ctx context.Context, _ engine.Event[string]) error { return c.stage.pause(ctx, hold) })
}

func (c *calls) handlerThat(work engine.Handler[string]) engine.Handler[string] {
	return func(ctx context.Context, event engine.Event[string]) error {
		c.note(func() {
			c.all = append(c.all, fmt.Sprint(event.Data, event.Attempt))
			c.running++
			c.peak = max(c.peak, c.running)
		})
		defer c.note(func() { c.running-- })
		return work(ctx, event)
	}
}

func (c *calls) note(change func()) {
	c.stage.lock.Lock()
	defer c.stage.lock.Unlock()
	change()
}

func (c *calls) list() (list string) {
	c.note(func() { list = strings.Join(c.all, " ") })
	return list
}

func (c *calls) number() (n int) {
	c.note(func() { n = len(c.all) })
	return n
}

// perform runs the test on both stages.
func perform(t *testing.T, name string, play func(s *stage)) {
	t.Run(name+"/virtual time", func(t *testing.T) {
		w, err := sim.New(sim.Config{Limit: time.Hour, Done: func(*sim.World) bool { return false }})
		if err != nil {
			t.Fatal(err)
		}
		played := false
		w.Add("test", func(ctx context.Context, p *sim.Process) error {
			platform := &virtual{process: p, world: w}
			play(&stage{platform: platform, T: t, ctx: ctx})
			for platform.running > 0 {
				if err := p.Sleep(ctx, 10*time.Millisecond); err != nil {
					return err
				}
			}
			p.Close()
			played = true
			return nil
		})
		w.Run()
		if !played && !t.Failed() {
			t.Error("the test did not come to its end")
		}
	})
	t.Run(name+"/real time", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithTimeout(context.Background(), slowdown*time.Minute)
		defer cancel()
		platform := newReal(t)
		defer platform.close()
		play(&stage{platform: platform, T: t, ctx: ctx})
	})
}

// virtual is a stage in a simulated world.
type virtual struct {
	process *sim.Process
	world   *sim.World
	running int
}

func (v *virtual) store() store.Store { return v.process.Store() }

func (v *virtual) open(ctx context.Context, options engine.Options) (*engine.Engine, error) {
	return v.process.Open(ctx, options)
}

func (v *virtual) pause(ctx context.Context, d time.Duration) error { return v.process.Sleep(ctx, d) }

func (v *virtual) background(run func(context.Context)) {
	v.running++
	v.process.Go("background", func() {
		defer func() { v.running-- }()
		run(context.Background())
	})
}

func (v *virtual) dropIndex(collection, name string) {
	caller := mongosim.Caller{Now: time.Now()}
	if _, err := v.world.Model().DropIndexes(caller, sim.Database, "orionjs.pulse."+collection, []string{name}, nil); err != nil {
		panic(err)
	}
}

func (v *virtual) scale() time.Duration { return 1 }

func (v *virtual) expire() { v.world.ExpireNow() }

// actual is a stage in real time.
type actual struct {
	t        *testing.T
	server   *wire.Server
	database *mongo.Database
	group    sync.WaitGroup
	lock     sync.Mutex
	engines  []*engine.Engine
}

func newReal(t *testing.T) *actual {
	t.Helper()
	server := wire.NewServer(wire.Options{Model: mongosim.New(mongosim.Options{}), Report: func(err error) { t.Log(err) }})
	client, err := mongo.Connect(options.Client().SetDialer(server.Dialer()).SetMaxPoolSize(20))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = client.Disconnect(context.Background())
		server.Close()
	})
	return &actual{t: t, server: server, database: client.Database("app")}
}

func (a *actual) store() store.Store { return mongostore.New(a.database) }

func (a *actual) open(ctx context.Context, options engine.Options) (*engine.Engine, error) {
	if options.Store == nil {
		options.Store = a.store()
	}
	eng, err := engine.Open(ctx, options)
	if err == nil {
		a.lock.Lock()
		a.engines = append(a.engines, eng)
		a.lock.Unlock()
	}
	return eng, err
}

func (a *actual) pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (a *actual) background(run func(context.Context)) {
	a.group.Go(func() { run(context.Background()) })
}

func (a *actual) dropIndex(collection, name string) {
	if err := a.database.Collection("orionjs.pulse."+collection).Indexes().DropOne(context.Background(), name); err != nil {
		a.t.Error(err)
	}
}

func (a *actual) scale() time.Duration { return 6 * slowdown }

func (a *actual) expire() {
	a.server.Do(func(model *mongosim.Server) { model.ExpireTTL(time.Now()) })
}

func (a *actual) close() {
	a.group.Wait()
	for _, eng := range a.engines {
		if err := eng.Close(context.Background()); err != nil {
			a.t.Error(err)
		}
	}
}
