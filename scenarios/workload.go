package scenarios

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/fencepost-sim/fencepost/engine"
	"github.com/fencepost-sim/fencepost/internal/document"
	"github.com/fencepost-sim/fencepost/sim"
)

// Order is the data of the events that workloads publish.
type Order struct {
	Number int
	// Generation counts the handlers that led to the event: zero for what a publisher published.
	Generation int
}

// Workload is what the processes of a run do, apart from the faults: data, so that it can be drawn at random. The zero value of a
// field is the default that its comment names.
type Workload struct {
	// Groups is how many consumer groups there are: "billing", "shipping", … Default 1. Those after the first do not retry, and do not publish.
	Groups int
	// Replicas is how many processes consume in each group. Those of the first are named worker-1, worker-2, …; those of others
	// have their group in front. Default 1.
	Replicas int
	// Partial lets each replica leave out one topic. It needs two replicas and two topics, and is without effect otherwise.
	Partial bool
	// Standby is how many processes consume besides those of the variant.
	Standby int
	// Workers, LockTimeout, PollInterval, HistoryRetention, DiscoveryBatch and ReconcileBatch are options of their engines.
	Workers          int
	LockTimeout      time.Duration
	PollInterval     time.Duration
	HistoryRetention time.Duration
	DiscoveryBatch   int
	ReconcileBatch   int
	// Topics are subscribed to by every replica, and published to by every publisher. Default: one topic, "order.created".
	Topics []TopicLoad
	// Guard is what the replicas guard their handlers with. Default: Unguarded.
	Guard Guard
	// GuardLease is how long a claim in Redis lasts. Default 30 s.
	GuardLease time.Duration
	// SweepEvery is the interval of the guards' sweepers. Default: no sweeper.
	SweepEvery time.Duration
	// Publishers is how many processes publish: publisher, publisher-2, … Default 1.
	Publishers int
	// PublishAt is when publishing begins. Default 0.
	PublishAt time.Duration
	// Latest makes new subscriptions begin with what is published after them. Default: with the oldest event.
	Latest bool
	// RollAt is when worker-1 closes although the others go on, as in a rolling deployment. Default: never.
	RollAt time.Duration
	// LeaveAt is when worker-1 unsubscribes from everything, to subscribe again a lock timeout later. Default: never.
	LeaveAt time.Duration
	// Upgrade makes the last replica of each group come with a newer policy, which allows one more retry.
	Upgrade bool
	// Audit makes every replica read the history once after it has subscribed.
	Audit bool
	// StayFor is how long the processes go on after everything is delivered. Default 0.
	StayFor time.Duration
	// CloseAt is when the processes are told to close although handlers may run. Default: when everything is delivered.
	CloseAt time.Duration
	// Through is the engines' way to the database. Default: ThroughModel.
	Through Through

	bug Bug
}

// TopicLoad is the load on one topic.
type TopicLoad struct {
	Name    string
	Options engine.SubscribeOptions
	Events  int
	// Pause is the time between two publications.
	Pause time.Duration
	Do    Work
}

// Work is what the handler does: it works, performs the side effect "charge" with the event's ID as idempotency key,
// and works on.
type Work struct {
	Time time.Duration
	// FailFirst is how many attempts fail before they have the effect.
	FailFirst int
	// Misleading failures say that the lease is lost, as those of another library of leases may.
	Misleading bool
	// Fenced effects carry the fence of the guard's claim, and their receiver refuses owners who were overtaken.
	Fenced bool
	// Stubborn work does not look at its context: it goes on after its lease is lost.
	Stubborn bool
	// Publish is how many further events follow each published one, one after the other, each published to its own topic by the
	// handler of the one before.
	Publish int
}

// ErrDeclined is the error with which handlers fail when Work says so.
var ErrDeclined = errors.New("declined")

// groupNames are the consumer groups.
var groupNames = []string{"billing", "shipping", "audit"}

func (w Workload) withDefaults() Workload {
	w.Groups = min(max(1, w.Groups), len(groupNames))
	if w.Guard == "" {
		w.Guard = Unguarded
	}
	w.Replicas, w.Publishers = max(1, w.Replicas), max(1, w.Publishers)
	if w.Topics = slices.Clone(w.Topics); len(w.Topics) == 0 { // worlds that run beside each other share the original
		w.Topics = []TopicLoad{{}}
	}
	for i := range w.Topics {
		topic := &w.Topics[i]
		if topic.Name == "" {
			topic.Name = "order.created"
		}
		if topic.Options.OffsetReset = engine.Earliest; w.Latest {
			topic.Options.OffsetReset = engine.Latest
		}
		topic.Events = max(1, topic.Events)
	}
	return w
}

// Build adds the workload's processes to a world and returns the function that tells when all its events have been
// delivered.
func (w Workload) Build(world *sim.World) (done func(*sim.World) bool) {
	w = w.withDefaults()
	for g := range w.Groups {
		for i := range w.Replicas {
			r := replica{w, g, i}
			world.Add(r.name(), r.consume)
		}
	}
	publishers := make([]progress, w.Publishers)
	for i := range publishers {
		name := "publisher"
		if i > 0 {
			name = fmt.Sprintf("publisher-%d", i+1)
		}
		publishers[i].published = make([]int, len(w.Topics))
		world.Add(name, func(ctx context.Context, p *sim.Process) error { return w.publish(ctx, p, &publishers[i]) })
	}
	seen := map[string]bool{} // looked up and counted only
	deliveredAt := time.Duration(-1)
	return func(world *sim.World) bool {
		busy := slices.ContainsFunc(publishers, func(p progress) bool { return !p.finished })
		if !w.delivered(world, seen) || busy {
			return false
		}
		if deliveredAt < 0 {
			deliveredAt = world.Now()
		}
		return world.Now() >= max(deliveredAt, world.LastFault())+w.StayFor
	}
}

// progress is what the publisher remembers across crashes: it stands for the caller that tries again.
type progress struct {
	published []int // by topic
	finished  bool
}

func (w Workload) options(group int) engine.Options {
	return engine.Options{
		ConsumerGroup:    groupNames[group],
		Workers:          w.Workers,
		LockTimeout:      w.LockTimeout,
		PollInterval:     w.PollInterval,
		HistoryRetention: w.HistoryRetention,
		DiscoveryBatch:   w.DiscoveryBatch,
		ReconcileBatch:   w.ReconcileBatch,
	}
}

// replica is one consuming process of a workload.
type replica struct {
	Workload
	group, number int // from 0
}

func (r replica) name() string {
	name := fmt.Sprintf("worker-%d", r.number+1)
	if r.group > 0 {
		return groupNames[r.group] + "-" + name
	}
	return name
}

// topics are those that the replica subscribes to.
func (r replica) topics() (topics []TopicLoad) {
	for i, topic := range r.Topics {
		if r.Partial && r.Replicas > 1 && len(r.Topics) > 1 && i == r.number%len(r.Topics) {
			continue
		}
		if r.Upgrade && r.number == r.Replicas-1 {
			topic.Options.Version, topic.Options.MaxRetries = 1, topic.Options.MaxRetries+1
		}
		if r.group > 0 {
			topic.Do.Publish = 0
			if topic.Options.Delivery != engine.AtMostOnce {
				topic.Options.MaxRetries = engine.NoRetries
			}
		}
		topics = append(topics, topic)
	}
	return topics
}

// consume is the main function of a replica.
func (r replica) consume(ctx context.Context, p *sim.Process) error {
	eng, err := p.Open(ctx, r.options(r.group))
	if err != nil {
		return err
	}
	guarded, err := r.guard(ctx, p)
	if err != nil {
		return err
	}
	subscriptions, err := r.subscribe(ctx, p, eng, guarded)
	if err != nil {
		return err
	}
	if r.Audit {
		if _, err := eng.History(ctx, engine.HistoryQuery{ConsumerGroup: groupNames[r.group]}); err != nil {
			return err
		}
	}
	if r.group > 0 || r.number > 0 {
		return nil
	}
	if r.LeaveAt > 0 {
		if err := r.leave(ctx, p, eng, subscriptions, guarded); err != nil {
			return err
		}
	}
	if r.RollAt == 0 || r.Replicas == 1 {
		return nil
	}
	if err := p.Sleep(ctx, r.RollAt-p.World().Now()); err != nil {
		return err
	}
	p.Close()
	return nil
}

func (r replica) subscribe(ctx context.Context, p *sim.Process, eng *engine.Engine, guarded protect) (subscriptions []*engine.Subscription, err error) {
	for _, topic := range r.topics() {
		subscription, err := sim.Subscribe(ctx, p, eng, engine.NewTopic[Order](topic.Name), topic.Options, guarded(topic.Do.task(eng)))
		if err != nil {
			return nil, err
		}
		subscriptions = append(subscriptions, subscription)
	}
	return subscriptions, nil
}

// leave unsubscribes, and subscribes again after a while.
func (r replica) leave(ctx context.Context, p *sim.Process, eng *engine.Engine, subscriptions []*engine.Subscription, guarded protect) error {
	if err := p.Sleep(ctx, r.LeaveAt-p.World().Now()); err != nil {
		return err
	}
	for _, subscription := range subscriptions {
		sim.Unsubscribe(p, eng, subscription)
	}
	if err := p.Sleep(ctx, eng.Options().LockTimeout); err != nil {
		return err
	}
	if _, err := r.subscribe(ctx, p, eng, guarded); err != nil && !errors.Is(err, engine.ErrClosed) {
		return err
	}
	return nil
}

func (k Work) task(eng *engine.Engine) task {
	return func(ctx context.Context, event engine.Event[Order], perform effect) error {
		if k.Fenced {
			perform = fenced
		}
		return k.handle(ctx, eng, event, perform)
	}
}

func (k Work) failure() error {
	if k.Misleading {
		return fmt.Errorf("%w: %w", ErrDeclined, engine.ErrLeaseLost)
	}
	return ErrDeclined
}

func (k Work) handle(ctx context.Context, eng *engine.Engine, event engine.Event[Order], perform effect) error {
	if k.Stubborn {
		ctx = context.WithoutCancel(ctx)
	}
	if err := k.work(ctx); err != nil {
		return err
	}
	if event.Attempt <= k.FailFirst {
		return k.failure()
	}
	if err := perform(ctx, event.ID); err != nil {
		return err
	}
	if event.Data.Generation < k.Publish {
		next := Order{event.Data.Number, event.Data.Generation + 1}
		if _, err := engine.NewTopic[Order](event.Topic).Publish(ctx, eng, next); err != nil {
			return err
		}
	}
	return k.work(ctx)
}

func (k Work) work(ctx context.Context) error {
	if k.Time == 0 {
		return ctx.Err()
	}
	return sim.Sleep(ctx, k.Time/2)
}

// publish is the main function of the publisher.
func (w Workload) publish(ctx context.Context, p *sim.Process, progress *progress) error {
	options := w.options(0)
	options.ChangeStreams = engine.ChangeStreamsDisabled
	eng, err := p.Open(ctx, options)
	if err != nil {
		return err
	}
	if err := p.Sleep(ctx, w.PublishAt-p.World().Now()); err != nil {
		return err
	}
	for i, topic := range w.Topics {
		for progress.published[i] < topic.Events {
			number := progress.published[i] + 1
			if _, err := engine.NewTopic[Order](topic.Name).Publish(ctx, eng, Order{Number: number}); err != nil {
				return err
			}
			progress.published[i] = number
			if err := p.Sleep(ctx, topic.Pause); err != nil {
				return err
			}
		}
	}
	progress.finished = true
	return nil
}

// delivered tells whether every event has ended in every group, and carried its retention date where there is one. It remembers
// what it has seen, since retention removes deliveries.
func (w Workload) delivered(world *sim.World, seen map[string]bool) bool {
	for _, delivery := range world.Documents("orionjs.pulse.deliveries") {
		if w.settled(delivery) {
			seen[document.Text(delivery, "consumerGroup")+" "+document.Text(delivery, "eventId")] = true
		}
	}
	return w.Groups*len(world.Documents("orionjs.pulse.events")) <= len(seen)
}

func (w Workload) settled(delivery bson.D) bool {
	dated := slices.ContainsFunc(delivery, func(field bson.E) bool { return field.Key == "expiresAt" })
	return document.Text(delivery, "status") != "pending" && (dated || w.HistoryRetention == engine.KeepForever)
}
