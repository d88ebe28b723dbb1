package engine

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/fencepost-sim/fencepost/engine/host"
	"github.com/fencepost-sim/fencepost/engine/store"
	"github.com/fencepost-sim/fencepost/internal/defect"
)

// Engine publishes events and delivers them to the handlers of one consumer group. Make one with Open. Its methods are
// safe for concurrent use, also from inside handlers.
//
// Everything below runs in turns (see package host): between two calls of the Store, of Sleep or of Wait, a task
// has the engine for itself.
type Engine struct {
	options     Options
	host        host.Host
	store       store.Store
	collections collections
	telemetry   telemetry

	defects defect.Set // planted by a simulation; none in production

	context context.Context // of all database calls and handlers; cancelled when Close gives up waiting
	cancel  context.CancelCauseFunc

	topics     []*topicState // in the order of subscription; never iterated as a map
	claimTurn  rotation
	searchTurn rotation

	work        work
	news        host.Signal   // for the coordinator
	newsReady   bool          // there may be something to discover
	nextPass    time.Duration // monotonic time of the next full pass of the coordinator
	due         []dueAttempt  // ascending
	scanFrom    string        // event id after which the next recovery pass goes on
	sweptTo     string        // attempt id after which the next pass over overdue attempts goes on
	nextSweep   time.Duration // monotonic time of the next such pass
	undatedFrom string        // delivery id after which the next pass over undated deliveries goes on
	undated     bool          // there may be ended deliveries that can get their dates

	clock time.Time // what the database's clock said, less the monotonic time; only to guess when it is worth while to look

	closing     bool
	open        context.Context // of what ends as soon as closing begins: the change stream, and pauses after errors
	stop        context.CancelCauseFunc
	tasks       int // running tasks
	idle        host.Signal
	streamsOkay bool
}

type collections struct {
	events, subscriptions, deliveries, history string
}

// topicState is what this process knows about a topic that it has subscribed to. It outlives Unsubscribe,
// so that handlers that still run keep counting against MaxConcurrency.
type topicState struct {
	name         string
	subscription subscriptionDocument
	options      SubscribeOptions
	deliver      deliverFunc
	subscribed   bool
	subscribing  bool
	running      int    // handlers of the topic that hold a slot
	skipped      bool   // a worker passed over the topic since it had no free slot
	cursor       cursor // the group's, as this process knows it
	horizon      horizon
	nextCheck    time.Duration // monotonic time of the next look whether the subscription is still there
	nextRepair   time.Duration // monotonic time of the next look whether the head is torn
	nextMark     time.Duration // monotonic time at which it is written down again that the group has looked
}

// Open validates the options, creates missing collections and indexes, checks those that exist, and starts the workers. On
// an error nothing runs. The error is a *ConfigurationError or an *IndexError, or wraps what the database said.
//
// ctx bounds the start only; Close ends the engine.
func Open(ctx context.Context, options Options) (*Engine, error) {
	options, err := options.withDefaults()
	if err != nil {
		return nil, err
	}
	e := &Engine{
		options: options,
		host:    options.Host,
		store:   options.Store,
		defects: defect.Of(options.Host),
		collections: collections{
			events:        options.CollectionPrefix + ".events",
			subscriptions: options.CollectionPrefix + ".subscriptions",
			deliveries:    options.CollectionPrefix + ".deliveries",
			history:       options.CollectionPrefix + ".history",
		},
	}
	if e.telemetry, err = newTelemetry(options.Meter, options.Tracer); err != nil {
		return nil, err
	}
	e.context, e.cancel = context.WithCancelCause(context.Background())
	e.open, e.stop = context.WithCancelCause(e.context)
	e.host.Enter(func() {
		if err = e.prepare(ctx); err == nil {
			e.start()
		}
	})
	if err != nil {
		e.cancel(ErrClosed)
		return nil, err
	}
	return e, nil
}

// Options returns the options with all defaults filled in.
func (e *Engine) Options() Options { return e.options }

func (e *Engine) start() {
	e.work.signal, e.news, e.idle = e.host.NewSignal(), e.host.NewSignal(), e.host.NewSignal()
	e.work.forgets = e.defects.Has(defect.TicketForgets)
	e.task("coordinator", e.coordinate)
	for i := range e.options.Workers {
		e.task(fmt.Sprintf("worker-%d", i+1), e.workLoop)
	}
	if e.streamsOkay {
		e.task("stream", e.listen)
	}
}

// task starts a task that Close waits for.
func (e *Engine) task(name string, run func()) {
	e.tasks++
	e.host.Go(name, func() {
		defer func() {
			e.tasks--
			e.idle.Broadcast()
		}()
		run()
	})
}

// run sends one command, outside the turn.
func (e *Engine) run(ctx context.Context, command store.Command) (reply store.Reply, err error) {
	e.host.GiveWay(func() { reply, err = e.store.Run(ctx, command) })
	if err != nil {
		return reply, fmt.Errorf("fencepost: %s: %w", command.Point, err)
	}
	return reply, nil
}

// findOne answers nil if nothing matched.
func (e *Engine) findOne(ctx context.Context, command store.Command) (bson.D, error) {
	command.Kind, command.Limit = store.Find, 1
	reply, err := e.run(ctx, command)
	if err != nil || len(reply.Documents) == 0 {
		return nil, err
	}
	return reply.Documents[0], nil
}

// report passes an error that no caller gets to OnError, which may do what it likes.
func (e *Engine) report(err error) {
	if err == nil {
		return
	}
	e.host.GiveWay(func() {
		defer func() { host.Rethrow(recover()) }()
		e.options.OnError(err)
	})
}

// supervise runs one pass of a loop, reports its error, and turns a panic into an error: a worker never dies silently.
func (e *Engine) supervise(pass func() error) (err error) {
	defer func() { e.report(err) }()
	defer func() {
		if value := recover(); value != nil {
			host.Rethrow(value)
			err = fmt.Errorf("fencepost: panic in the engine: %s", describe(value))
		}
	}()
	return pass()
}

// shortestPause is the least that a loop waits after an error.
const shortestPause = 10 * time.Millisecond

// pauseAfter waits before a loop that has failed so many times in a row tries again, so that a database that refuses or does not
// answer is not asked without pause: at first for a fraction of the poll interval, in the end for all of it.
func (e *Engine) pauseAfter(failures int) {
	if e.defects.Has(defect.NoPause) {
		return
	}
	first := max(shortestPause, e.options.PollInterval/64)
	_ = e.host.Sleep(e.open, min(e.options.PollInterval, first<<min(failures-1, 6)))
}

// wakeCoordinator says that there may be something to discover.
func (e *Engine) wakeCoordinator() {
	e.newsReady = true
	e.news.Broadcast()
}

// dueAttempt is a retry that this process has made, and that nobody can claim yet.
type dueAttempt struct {
	at    time.Duration // on the monotonic clock
	topic *topicState
}

// dueIn says that an attempt of the topic becomes claimable after the duration, so that a retry need not wait for a poll.
func (e *Engine) dueIn(wait time.Duration, topic *topicState) {
	due := dueAttempt{e.host.Monotonic() + wait, topic}
	if e.defects.Has(defect.OneTimer) && len(e.due) > 0 {
		return
	}
	at, _ := slices.BinarySearchFunc(e.due, due, func(a, b dueAttempt) int { return cmp.Compare(a.at, b.at) })
	if e.due = slices.Insert(e.due, at, due); at == 0 {
		e.news.Broadcast()
	}
}

// fallDue wakes the workers for what has become claimable by now.
func (e *Engine) fallDue() {
	now := e.host.Monotonic()
	for len(e.due) > 0 && e.due[0].at <= now {
		e.claimable(e.due[0].topic, 1)
		e.due = e.due[1:]
	}
}

// rotation is where the next walk over the topics begins, so that none comes first for ever. Each loop has its own: loops that
// shared one could fall into step, and always begin with the same topic.
type rotation int

// rotated lists the subscribed topics, beginning at another one each time.
func (e *Engine) rotated(turn *rotation) []*topicState {
	subscribed := make([]*topicState, 0, len(e.topics))
	for _, topic := range e.topics {
		if topic.subscribed {
			subscribed = append(subscribed, topic)
		}
	}
	if len(subscribed) == 0 {
		return nil
	}
	if e.defects.Has(defect.SharedRotation) {
		turn = &e.claimTurn
	}
	if !e.defects.Has(defect.NoRotation) {
		*turn++
	}
	first := int(*turn) % len(subscribed)
	return append(subscribed[first:len(subscribed):len(subscribed)], subscribed[:first]...)
}

// topicNames lists the subscribed topics for an $in filter.
func (e *Engine) topicNames() bson.A {
	names := bson.A{} // $in takes no null: the last topic may be gone since the pass began
	for _, topic := range e.topics {
		if topic.subscribed {
			names = append(names, topic.name)
		}
	}
	return names
}

func (e *Engine) topicState(name string) *topicState {
	for _, topic := range e.topics {
		if topic.name == name {
			return topic
		}
	}
	return nil
}
