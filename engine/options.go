package engine

import (
	"fmt"
	"log/slog"
	"math"
	"strings"
	"time"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/fencepost-sim/fencepost/engine/host"
	"github.com/fencepost-sim/fencepost/engine/store"
)

// KeepForever, as a retention, keeps documents until somebody deletes them.
const KeepForever time.Duration = -1

// ChangeStreams says whether change streams wake the workers. They only shorten the wait: polling
// guarantees progress without them.
type ChangeStreams string

const (
	// ChangeStreamsAuto uses them where the topology supports them (replica sets and sharded clusters). The default.
	ChangeStreamsAuto ChangeStreams = "auto"
	// ChangeStreamsRequired makes Open fail where they are not supported.
	ChangeStreamsRequired ChangeStreams = "required"
	// ChangeStreamsDisabled only polls.
	ChangeStreamsDisabled ChangeStreams = "disabled"
)

// Options configures an Engine. Store and ConsumerGroup are required; the zero value of every other field is
// the default that its comment names. Durations are rounded down to milliseconds.
type Options struct {
	// Store is the database, for example mongostore.New(database).
	Store store.Store
	// ConsumerGroup names the group that this process belongs to. Every group gets every event of its topics once.
	ConsumerGroup string
	// CollectionPrefix is put before ".events", ".subscriptions", ".deliveries" and ".history". Default "orionjs.pulse".
	CollectionPrefix string

	// EventRetention counts from publication. Default 7 days; KeepForever turns it off.
	EventRetention time.Duration
	// HistoryRetention counts from the moment a delivery ends, for the delivery and all its attempts. Default
	// 7 days; KeepForever turns it off.
	HistoryRetention time.Duration
	// PollInterval is how often a process looks for work and for things to repair when nothing wakes
	// it. Default 3 s, at least 1 ms, at most 24 h.
	PollInterval time.Duration
	// LockTimeout is how long a lease lasts without a heartbeat. It must comfortably exceed every expected pause of
	// the process and every expected loss of the database. Default 30 s, at least 30 ms, at most 24 h.
	LockTimeout time.Duration
	// Workers is how many handlers run at once in this process. Default 4, at most 10,000.
	Workers int
	// ChangeStreams defaults to ChangeStreamsAuto.
	ChangeStreams ChangeStreams
	// VisibilityWindow is how long after the database has stamped an event it may become visible, at the most. Discovery looks
	// that far back, so that no event is passed over; a larger window costs more reads, not latency. Default 5 s, at least
	// 1 s, at most 10 minutes. Rounded up to seconds.
	VisibilityWindow time.Duration
	// DiscoveryBatch is how many events one scan materializes. Default 100, at most 10,000.
	DiscoveryBatch int
	// ReconcileBatch is how many deliveries one step of recovery examines; a pass takes up to eight steps. Default 25, at most 10,000.
	ReconcileBatch int

	// OnError gets every error that no caller gets: lost leases, failed database calls. It must not block. If it
	// panics, the panic is dropped. Default: slog.Error, with the error as attribute "error" and the group as "group".
	OnError func(error)

	// Meter and Tracer are OpenTelemetry's, for metrics ("fencepost.…") and for a span around each publication and each handler. The trace of a
	// publication goes on in its handlers: it travels in the event's headers. Default: none. They are called while the engine's other tasks wait, and must not block.
	Meter  metric.Meter
	Tracer trace.Tracer

	// Host is the machine. Default host.New: goroutines, the wall clock, UUIDv7.
	Host host.Host
}

const (
	defaultPrefix = "orionjs.pulse"
	week          = 7 * 24 * time.Hour
	oneDay        = 24 * time.Hour
	shortestLock  = 30 * time.Millisecond
	century       = 100 * 365 * 24 * time.Hour
)

func (o Options) withDefaults() (Options, error) {
	if o.Store == nil {
		return o, &ConfigurationError{"Options.Store", nil, "a store, for example mongostore.New(database)"}
	}
	if strings.TrimSpace(o.ConsumerGroup) == "" {
		return o, &ConfigurationError{"Options.ConsumerGroup", o.ConsumerGroup, "a name that is not blank"}
	}
	if o.CollectionPrefix == "" {
		o.CollectionPrefix = defaultPrefix
	}
	if strings.TrimSpace(o.CollectionPrefix) == "" || strings.ContainsAny(o.CollectionPrefix, "$\x00") {
		return o, &ConfigurationError{"Options.CollectionPrefix", o.CollectionPrefix, "a name that is not blank, without $ or NUL"}
	}
	switch o.ChangeStreams {
	case "":
		o.ChangeStreams = ChangeStreamsAuto
	case ChangeStreamsAuto, ChangeStreamsRequired, ChangeStreamsDisabled:
	default:
		return o, &ConfigurationError{"Options.ChangeStreams", o.ChangeStreams, `"auto", "required" or "disabled"`}
	}
	for _, err := range []error{
		retention("Options.EventRetention", &o.EventRetention),
		retention("Options.HistoryRetention", &o.HistoryRetention),
		duration("Options.PollInterval", &o.PollInterval, 3*time.Second, time.Millisecond),
		duration("Options.LockTimeout", &o.LockTimeout, 30*time.Second, shortestLock),
		window("Options.VisibilityWindow", &o.VisibilityWindow),
		count("Options.Workers", &o.Workers, 4),
		count("Options.DiscoveryBatch", &o.DiscoveryBatch, 100),
		count("Options.ReconcileBatch", &o.ReconcileBatch, 25),
	} {
		if err != nil {
			return o, err
		}
	}
	if o.OnError == nil {
		group := o.ConsumerGroup
		o.OnError = func(err error) { slog.Error("fencepost", "group", group, "error", err) }
	}
	if o.Host == nil {
		o.Host = newRealHost()
	}
	return o, nil
}

func retention(field string, value *time.Duration) error {
	switch {
	case *value == 0:
		*value = week
	case *value == KeepForever:
	case *value < 0 || *value > century:
		return &ConfigurationError{field, *value, "KeepForever, or above zero and at most 100 years"}
	}
	return nil
}

func duration(field string, value *time.Duration, byDefault, least time.Duration) error {
	if *value == 0 {
		*value = byDefault
	}
	if *value < least || *value > oneDay {
		return &ConfigurationError{field, *value, fmt.Sprintf("%v to %v", least, oneDay)}
	}
	*value = value.Truncate(time.Millisecond)
	return nil
}

func window(field string, value *time.Duration) error {
	if *value == 0 {
		*value = 5 * time.Second
	}
	if *value < time.Second || *value > 10*time.Minute {
		return &ConfigurationError{field, *value, "1s to 10m0s"}
	}
	*value = (*value + time.Second - 1).Truncate(time.Second)
	return nil
}

func count(field string, value *int, byDefault int) error {
	if *value == 0 {
		*value = byDefault
	}
	if *value < 1 || *value > 10_000 {
		return &ConfigurationError{field, *value, "1 to 10000"}
	}
	return nil
}

// Delivery says how often an event may reach a handler.
type Delivery string

const (
	// AtLeastOnce retries after errors and lost workers. The default.
	AtLeastOnce Delivery = "at-least-once"
	// AtMostOnce never starts a handler twice for one event, and never retries.
	AtMostOnce Delivery = "at-most-once"
)

// OffsetReset says where a new subscription begins. It has no effect once the group has one.
type OffsetReset string

const (
	// Latest begins after the newest event that is visible when the group first subscribes. The default.
	Latest OffsetReset = "latest"
	// Earliest begins with the oldest event that retention has kept.
	Earliest OffsetReset = "earliest"
)

// NoRetries, as MaxRetries, makes the first attempt the only one.
const NoRetries = -1

// NoDelay, as RetryDelay, retries at once.
const NoDelay time.Duration = -1

// SubscribeOptions configures a subscription. All replicas of a consumer group must agree on everything but
// MaxConcurrency, and on Options.HistoryRetention; see Version. The zero value of each field is the default that its comment names.
type SubscribeOptions struct {
	// Version counts the changes of what the replicas must agree on. Replicas with the same version and other options are refused. A higher version replaces
	// what is stored, in one write; a replica with a lower one, such as one that is still to be deployed anew, takes what is stored
	// instead of its own. Running replicas follow when they discover the next events. Unordered and Delivery cannot change: attempts that run
	// under the old rule cannot be called back, so that takes another consumer group. Default 0, at most 1,000,000,000.
	Version int
	// Unordered lets events of the topic run beside each other. By default they run one at a time, in the order in which
	// the database received them, and an event that waits for its retry holds up the topic.
	Unordered bool
	// OffsetReset defaults to Latest.
	OffsetReset OffsetReset
	// Delivery defaults to AtLeastOnce.
	Delivery Delivery
	// MaxRetries is how many attempts may follow the first. Default 3, at most 1,000,000; NoRetries for none.
	// Always none with AtMostOnce.
	MaxRetries int
	// RetryDelay is the wait before the second attempt. Default 1 s; NoDelay for none.
	RetryDelay time.Duration
	// RetryMultiplier multiplies the wait before each further attempt. Default 2. The longest wait
	// may not exceed 100 years.
	RetryMultiplier float64
	// MaxConcurrency is how many handlers of this topic run at once in this process. Default Options.Workers;
	// always 1 for an ordered topic.
	MaxConcurrency int
}

func (o SubscribeOptions) withDefaults(workers int) (SubscribeOptions, error) {
	switch o.OffsetReset {
	case "":
		o.OffsetReset = Latest
	case Latest, Earliest:
	default:
		return o, &ConfigurationError{"SubscribeOptions.OffsetReset", o.OffsetReset, `"latest" or "earliest"`}
	}
	switch o.Delivery {
	case "":
		o.Delivery = AtLeastOnce
	case AtLeastOnce, AtMostOnce:
	default:
		return o, &ConfigurationError{"SubscribeOptions.Delivery", o.Delivery, `"at-least-once" or "at-most-once"`}
	}
	if o.Version < 0 || o.Version > 1_000_000_000 {
		return o, &ConfigurationError{"SubscribeOptions.Version", o.Version, "0 to 1000000000"}
	}
	if err := o.retryDefaults(); err != nil {
		return o, err
	}
	if o.MaxConcurrency == 0 {
		o.MaxConcurrency = workers
	}
	if o.MaxConcurrency < 1 || o.MaxConcurrency > 10_000 {
		return o, &ConfigurationError{"SubscribeOptions.MaxConcurrency", o.MaxConcurrency, "1 to 10000"}
	}
	if !o.Unordered {
		o.MaxConcurrency = 1
	}
	return o, nil
}

func (o *SubscribeOptions) retryDefaults() error {
	if o.Delivery == AtMostOnce {
		if o.MaxRetries > 0 {
			return &ConfigurationError{"SubscribeOptions.MaxRetries", o.MaxRetries, "0 or NoRetries with AtMostOnce"}
		}
		o.MaxRetries = NoRetries
	}
	switch {
	case o.MaxRetries == 0:
		o.MaxRetries = 3
	case o.MaxRetries == NoRetries:
		o.MaxRetries = 0
	case o.MaxRetries < 0 || o.MaxRetries > 1_000_000:
		return &ConfigurationError{"SubscribeOptions.MaxRetries", o.MaxRetries, "NoRetries, or 1 to 1000000"}
	}
	switch {
	case o.RetryDelay == 0:
		o.RetryDelay = time.Second
	case o.RetryDelay == NoDelay:
		o.RetryDelay = 0
	case o.RetryDelay < 0:
		return &ConfigurationError{"SubscribeOptions.RetryDelay", o.RetryDelay, "NoDelay, or above zero"}
	}
	if o.RetryMultiplier == 0 {
		o.RetryMultiplier = 2
	}
	if !(o.RetryMultiplier > 0) || math.IsInf(o.RetryMultiplier, 0) {
		return &ConfigurationError{"SubscribeOptions.RetryMultiplier", o.RetryMultiplier, "a finite number above zero"}
	}
	wait := float64(o.RetryDelay) * math.Pow(o.RetryMultiplier, math.Max(0, float64(o.MaxRetries-1)))
	if o.MaxRetries > 0 && !(wait <= float64(century)) {
		return &ConfigurationError{"SubscribeOptions.RetryDelay and RetryMultiplier",
			fmt.Sprintf("%v × %v^%d", o.RetryDelay, o.RetryMultiplier, o.MaxRetries-1), "a longest wait of at most 100 years"}
	}
	return nil
}

// keptForever is how a policy says KeepForever.
const keptForever = -1

func (o SubscribeOptions) policy(retention time.Duration) policy {
	p := policy{
		version:     int64(o.Version),
		ordered:     !o.Unordered,
		offsetReset: string(o.OffsetReset),
		delivery:    string(o.Delivery),
		maxRetries:  int64(o.MaxRetries),
		retryDelay:  o.RetryDelay.Milliseconds(),
		multiplier:  o.RetryMultiplier,
		retention:   max(1, retention.Milliseconds()),
	}
	if retention == KeepForever {
		p.retention = keptForever
	}
	return p
}

// adopt takes the stored policy over into the options.
func (o *SubscribeOptions) adopt(p policy) {
	o.Version, o.OffsetReset, o.MaxRetries = int(p.version), OffsetReset(p.offsetReset), int(p.maxRetries)
	o.RetryDelay, o.RetryMultiplier = time.Duration(p.retryDelay)*time.Millisecond, p.multiplier
}
