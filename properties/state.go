package properties

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/fencepost-sim/fencepost/faults"
	"github.com/fencepost-sim/fencepost/internal/document"
	"github.com/fencepost-sim/fencepost/sim/journal"
)

// State is the fold that all properties share: the documents as the journal shows them, decoded, and
// the handlers that run. Lists are in the order of the journal, so that nothing depends on map order.
type State struct {
	Journal *journal.Journal

	Events        []*Event
	Subscriptions []*Subscription
	Deliveries    []*Delivery
	Attempts      []*Attempt
	Handlers      []*Handler // every start, in order
	Engines       []*Engine

	// What the event that is being observed changed, if it wrote one of these.
	Subscription *Change[Subscription]
	Delivery     *Change[Delivery]
	Attempt      *Change[Attempt]
	// Guards is nil if no handler is guarded in the run.
	Guards *Guards

	// Unstored says that the event acknowledges a publication that was never stored.
	Unstored bool

	Now        time.Duration
	Ended      string // the reason, once the run has ended
	LastFault  time.Duration
	Forced     time.Duration // by how much the clock was moved while tasks were ready
	start      time.Time
	step       int
	verdict    *Verdict
	events     map[string]*Event
	deliveries map[string]*Delivery
	attempts   map[string]*Attempt
	byDelivery map[string][]*Attempt
	lives      map[int]int // process → incarnation
	tasks      map[int]int // task → incarnation of its process
	claimers   map[string]Claimer
	struck     map[int]bool
	allStruck  bool
	frozen     map[int]bool
	left       map[int]bool // unsubscribed
	thawed     map[int]time.Duration
}

// Change is a document before and after a write. Before is nil if it was inserted.
type Change[T any] struct {
	Before *T
	After  *T
}

// Event is a published event.
type Event struct {
	ID           string
	Topic        string
	Sequence     bson.Timestamp
	Stored       time.Duration
	Acknowledged bool
	Gone         bool // deleted by the TTL monitor
	task         int  // that stored it
}

// Subscription is a group's policy and position for a topic.
type Subscription struct {
	ID           string
	Group, Topic string
	Ordered      bool
	AtMostOnce   bool
	MaxRetries   int64
	RetryDelay   time.Duration
	Multiplier   float64
	Begin        bson.Timestamp // sequence of the last event before its beginning
	Cursor       Position
	Order        Lease // the right to run the topic's head
	Discovery    Lease // the right to move the cursor
}

// Position is a place in a topic.
type Position struct {
	Sequence bson.Timestamp
	EventID  string
}

// Lease is held by who wrote its token; the zero value is free.
type Lease struct {
	Token string
	Until time.Duration // true virtual time by the database's clock
}

// Delivery is a delivery document.
type Delivery struct {
	ID           string
	EventID      string
	Group, Topic string
	Status       string
	Expires      bson.DateTime
	Created      time.Duration
	Ended        time.Duration // when its status became terminal
	EndedAt      bson.DateTime // as recorded
	Gone         bool
}

// Terminal tells whether the delivery has ended.
func (d *Delivery) Terminal() bool { return d != nil && d.Status != "pending" }

// Attempt is a history document.
type Attempt struct {
	ID           string
	DeliveryID   string
	EventID      string
	Group, Topic string
	Number       int64
	Status       string
	Code         string
	Token        string
	LockedUntil  time.Duration // true virtual time by the database's clock
	Due          time.Duration
	StartedAt    time.Duration // as recorded, like the next
	EndedAt      time.Duration
	Took         time.Duration
	Expires      bson.DateTime
	Gone         bool
}

// Claimer is who wrote a lock token.
type Claimer struct {
	Process, Life, Task int
}

// Handler is one run of a handler.
type Handler struct {
	Process, Life, Task int
	EventID             string
	Group, Topic        string
	DeliveryID          string
	Number              int64
	Started             time.Duration
	Ended               bool // also when its process died
	Returned            bool
	Error               string
	Effects             int
	Cancelled           bool // its context is done
}

// Engine is an opened engine of a process.
type Engine struct {
	Process, Life int
	Group         string
	Prefix        string
	LockTimeout   time.Duration
	PollInterval  time.Duration
	Retention     time.Duration // of history; zero if it is kept for ever
	Limits        []Limit       // by topic
}

// Limit is how many handlers of a topic may run at once in a process.
type Limit struct {
	Topic string
	Most  int
}

func newState(j *journal.Journal) *State {
	return &State{
		Journal: j, Guards: newGuards(storeOf(j)),
		events: map[string]*Event{}, deliveries: map[string]*Delivery{}, attempts: map[string]*Attempt{},
		byDelivery: map[string][]*Attempt{}, lives: map[int]int{}, tasks: map[int]int{}, claimers: map[string]Claimer{}, struck: map[int]bool{}, frozen: map[int]bool{}, left: map[int]bool{}, thawed: map[int]time.Duration{},
	}
}

// mostViolations is how many violations of one property are kept: a run that goes wrong can violate it at every step.
const mostViolations = 20

// Violate notes that the property which is being asked does not hold.
func (s *State) Violate(format string, values ...any) {
	if len(s.verdict.Violations) == mostViolations {
		return
	}
	s.verdict.Violations = append(s.verdict.Violations, Violation{
		Property: s.verdict.Property.ID + " " + s.verdict.Property.Name,
		Step:     s.step, Time: s.Now, What: fmt.Sprintf(format, values...),
	})
}

// Note notes the excuse of the property which is being asked.
func (s *State) Note(format string, values ...any) {
	s.verdict.Notes = append(s.verdict.Notes, fmt.Sprintf(format, values...))
}

// apply folds an event in, before the properties see it.
func (s *State) apply(event *journal.Event) {
	s.step, s.Now = event.Step, event.Time
	s.Subscription, s.Delivery, s.Attempt, s.Unstored = nil, nil, nil, false
	s.guard(event)
	switch event.Kind {
	case journal.RunStarted:
		s.start = time.UnixMilli(event.Number)
	case journal.RunEnded:
		s.Ended = event.Name
	case journal.Advanced:
		if event.Number > 0 {
			s.Forced += event.Span
		}
	case journal.FaultStruck:
		s.faultStruck(event)
	case journal.ProcessStarted:
		s.lives[event.Process] = int(event.Number)
	case journal.TaskStarted:
		s.tasks[event.Task] = s.lives[event.Process]
	case journal.ProcessFrozen:
		s.frozen[event.Process] = true
	case journal.ProcessThawed:
		s.frozen[event.Process], s.thawed[event.Process] = false, event.Time
	case journal.ProcessDied:
		s.frozen[event.Process] = false
		s.endHandlers(event.Process)
	case journal.EngineOpened:
		s.Engines = append(s.Engines, &Engine{
			Process: event.Process, Life: s.lives[event.Process], Group: event.Group, Prefix: event.Name,
			Retention:   retentionOf(event.Key),
			LockTimeout: event.Span, PollInterval: time.Duration(event.Number) * time.Millisecond,
		})
	case journal.Subscribed:
		s.subscribed(event)
	case journal.Unsubscribed:
		s.left[event.Process] = true
	case journal.Wrote:
		s.wrote(event)
	case journal.Deleted, journal.Expired:
		s.deleted(event)
	case journal.Answered:
		s.answered(event)
	case journal.HandlerStarted, journal.HandlerEnded, journal.HandlerCancelled, journal.EffectPerformed:
		s.handler(event)
	}
}

func (s *State) faultStruck(event *journal.Event) {
	s.struck[event.Process] = true
	span := event.Span
	switch kind, _, _ := strings.Cut(event.Name, " "); faults.Kind(kind) {
	case faults.Refuse, faults.Failover, faults.Lag:
		s.allStruck = true // the server refuses them all, or lets them all wait
	case faults.Rollback:
		s.allStruck = true
		span *= 2 // until another is elected, and then until the last has noticed
	case faults.SetClock, faults.Drift:
		span = 0 // it is no time that passes
	}
	s.LastFault = max(s.LastFault, event.Time+span)
}

// settle takes in what must not show before the properties have seen the event.
func (s *State) settle(event *journal.Event) {
	if event.Kind == journal.HandlerEnded {
		if h := s.Running(event); h != nil {
			h.Ended = true
		}
	}
}

func (s *State) endHandlers(process int) {
	for _, h := range s.Handlers {
		if h.Process == process {
			h.Ended = true
		}
	}
}

func (s *State) subscribed(event *journal.Event) {
	if s.left[event.Process] {
		s.LastFault = max(s.LastFault, event.Time) // the process was away until now
	}
	for _, engine := range slices.Backward(s.Engines) {
		if engine.Process == event.Process && engine.Group == event.Group {
			engine.Limits = append(engine.Limits, Limit{event.Name, int(event.Number)})
			return
		}
	}
}

func (s *State) handler(event *journal.Event) {
	if event.Kind == journal.HandlerStarted {
		s.Handlers = append(s.Handlers, &Handler{
			Process: event.Process, Life: s.lives[event.Process], Task: event.Task, EventID: event.Key, Group: event.Group, Topic: event.Name,
			DeliveryID: event.Delivery, Number: event.Number, Started: event.Time,
		})
		return
	}
	h := s.Running(event)
	if h == nil {
		if event.Kind == journal.HandlerCancelled {
			s.cancelledLate(event)
		}
		return
	}
	switch event.Kind {
	case journal.HandlerEnded:
		h.Returned, h.Error = true, event.Error
	case journal.HandlerCancelled:
		h.Cancelled = true
	case journal.EffectPerformed:
		h.Effects++
	}
}

// cancelledLate marks a handler whose context was cancelled after its last instruction, and before the engine had its outcome.
func (s *State) cancelledLate(event *journal.Event) {
	for _, h := range slices.Backward(s.Handlers) {
		if h.Task == event.Task {
			h.Cancelled = true
			return
		}
	}
}

// Running returns the handler that the event's task runs, or nil.
func (s *State) Running(event *journal.Event) *Handler {
	for _, h := range slices.Backward(s.Handlers) {
		if h.Task == event.Task && !h.Ended {
			return h
		}
	}
	return nil
}

// answered learns which publications were acknowledged: their writer saw the reply.
func (s *State) answered(event *journal.Event) {
	if event.Point != "event.publish" || event.Error != "" {
		return
	}
	for _, stored := range slices.Backward(s.Events) {
		if stored.task == event.Task && !stored.Acknowledged {
			stored.Acknowledged = true
			return
		}
	}
	s.Unstored = true
}

func (s *State) wrote(event *journal.Event) {
	switch {
	case strings.HasSuffix(event.Collection, ".events"):
		s.wroteEvent(event)
	case strings.HasSuffix(event.Collection, ".subscriptions"):
		s.wroteSubscription(event)
	case strings.HasSuffix(event.Collection, ".deliveries"):
		s.wroteDelivery(event)
	case strings.HasSuffix(event.Collection, ".history"):
		s.wroteAttempt(event)
	}
}

func (s *State) wroteEvent(event *journal.Event) {
	if s.events[event.Key] != nil {
		return
	}
	stored := &Event{
		ID: event.Key, Topic: document.Text(event.Document, "topic"), Stored: event.Time, task: event.Task,
	}
	stored.Sequence, _ = document.Get(event.Document, "sequence").(bson.Timestamp)
	s.events[event.Key] = stored
	s.Events = append(s.Events, stored)
}

func (s *State) wroteSubscription(event *journal.Event) {
	i := slices.IndexFunc(s.Subscriptions, func(known *Subscription) bool { return known.ID == event.Key })
	s.Subscription = &Change[Subscription]{}
	if i >= 0 {
		before := *s.Subscriptions[i]
		s.Subscription.Before, s.Subscription.After = &before, s.Subscriptions[i]
	} else {
		s.Subscription.After = &Subscription{
			ID: event.Key, Group: document.Text(event.Document, "consumerGroup"), Topic: document.Text(event.Document, "topic"),
			Ordered:    document.Get(event.Document, "ordered") == true,
			AtMostOnce: document.Text(event.Document, "delivery") == "at-most-once",
		}
		s.Subscription.After.Begin, _ = document.Get(event.Document, "cursorSequence").(bson.Timestamp)
		s.Subscriptions = append(s.Subscriptions, s.Subscription.After)
	}
	now := s.Subscription.After
	now.MaxRetries = integer(event.Document, "maxRetries")
	now.RetryDelay = time.Duration(integer(event.Document, "retryDelayMs")) * time.Millisecond
	now.Multiplier, _ = document.Get(event.Document, "retryBackoffMultiplier").(float64)
	now.Cursor.Sequence, _ = document.Get(event.Document, "cursorSequence").(bson.Timestamp)
	now.Cursor.EventID = document.Text(event.Document, "cursorSequenceEventId")
	now.Order = Lease{document.Text(event.Document, "orderedLockToken"), s.virtual(document.Get(event.Document, "orderedLockedUntil"))}
	now.Discovery = Lease{document.Text(event.Document, "discoveryLockToken"), s.virtual(document.Get(event.Document, "discoveryLockedUntil"))}
	s.claimed(now.Order.Token, event)
	s.claimed(now.Discovery.Token, event)
}

// claimed remembers who wrote a token first.
func (s *State) claimed(token string, event *journal.Event) {
	if token != "" && s.claimers[token] == (Claimer{}) {
		s.claimers[token] = s.Author(event)
	}
}

func (s *State) wroteDelivery(event *journal.Event) {
	known := s.deliveries[event.Key]
	now := Delivery{
		ID: event.Key, EventID: document.Text(event.Document, "eventId"), Group: document.Text(event.Document, "consumerGroup"),
		Topic: document.Text(event.Document, "topic"), Status: document.Text(event.Document, "status"), Created: event.Time,
	}
	now.Expires, _ = document.Get(event.Document, "expiresAt").(bson.DateTime)
	now.EndedAt, _ = document.Get(event.Document, "endedAt").(bson.DateTime)
	s.Delivery = &Change[Delivery]{}
	if known == nil {
		known = &Delivery{}
		s.deliveries[event.Key] = known
		s.Deliveries = append(s.Deliveries, known)
	} else {
		before := *known
		s.Delivery.Before = &before
		now.Created, now.Ended = before.Created, before.Ended
	}
	if now.Terminal() && !s.Delivery.Before.Terminal() {
		now.Ended = event.Time
	}
	*known = now
	s.Delivery.After = known
}

func (s *State) wroteAttempt(event *journal.Event) {
	known := s.attempts[event.Key]
	d := event.Document
	now := Attempt{
		ID: event.Key, DeliveryID: document.Text(d, "deliveryId"), EventID: document.Text(d, "eventId"), Group: document.Text(d, "consumerGroup"),
		Topic: document.Text(d, "topic"), Number: integer(d, "attempt"), Status: document.Text(d, "status"), Token: document.Text(d, "lockToken"),
		LockedUntil: s.virtual(document.Get(d, "lockedUntil")), Due: s.virtual(document.Get(d, "nextAttemptAt")),
		StartedAt: s.virtual(document.Get(d, "startedAt")), EndedAt: s.virtual(document.Get(d, "endedAt")),
		Took: time.Duration(integer(d, "durationMs")) * time.Millisecond,
	}
	now.Expires, _ = document.Get(d, "expiresAt").(bson.DateTime)
	if failure, ok := document.Get(d, "error").(bson.D); ok {
		now.Code = document.Text(failure, "code")
	}
	s.Attempt = &Change[Attempt]{}
	if known == nil {
		known = &Attempt{}
		s.attempts[event.Key] = known
		s.Attempts = append(s.Attempts, known)
		s.byDelivery[now.DeliveryID] = append(s.byDelivery[now.DeliveryID], known)
	} else {
		before := *known
		s.Attempt.Before = &before
	}
	s.claimed(now.Token, event)
	*known = now
	s.Attempt.After = known
}

func (s *State) deleted(event *journal.Event) {
	if known := s.events[event.Key]; known != nil {
		known.Gone = true
	}
	if known := s.deliveries[event.Key]; known != nil {
		known.Gone = true
	}
	if known := s.attempts[event.Key]; known != nil {
		known.Gone = true
	}
}

// Claimer returns who wrote the lock token.
func (s *State) Claimer(token string) Claimer { return s.claimers[token] }

// EventOf returns the event with the ID, or nil.
func (s *State) EventOf(id string) *Event { return s.events[id] }

// DeliveryOf returns the delivery with the ID, or nil if there never was one.
func (s *State) DeliveryOf(id string) *Delivery { return s.deliveries[id] }

// AttemptsOf returns the attempts of a delivery in the order of their insertion.
func (s *State) AttemptsOf(delivery string) []*Attempt { return s.byDelivery[delivery] }

// SubscriptionOf returns the group's subscription to the topic, or nil.
func (s *State) SubscriptionOf(group, topic string) *Subscription {
	for _, subscription := range s.Subscriptions {
		if subscription.Group == group && subscription.Topic == topic {
			return subscription
		}
	}
	return nil
}

// Frozen tells whether the process is frozen, or thaws at this instant: its tasks may not have had their turn yet.
func (s *State) Frozen(process int) bool {
	thawed, was := s.thawed[process]
	return s.frozen[process] || (was && thawed == s.Now)
}

// Struck tells whether a fault has struck the process.
func (s *State) Struck(process int) bool { return s.allStruck || s.struck[process] }

// Author is who did the event. A write is in the journal when a majority has it: a process may have died and started again since it was done.
func (s *State) Author(event *journal.Event) Claimer {
	life, known := s.tasks[event.Task]
	if !known {
		life = s.lives[event.Process]
	}
	return Claimer{event.Process, life, event.Task}
}

// Life returns the present incarnation of a process.
func (s *State) Life(process int) int { return s.lives[process] }

// Settled tells whether every event that was stored so far has been delivered, to every group that must get it.
func (s *State) Settled() bool {
	for _, subscription := range s.Subscriptions {
		for _, event := range s.Events {
			if s.Deserves(subscription, event) && !s.delivered(subscription.Group, event.ID) {
				return false
			}
		}
	}
	return true
}

func (s *State) delivered(group, event string) bool {
	return slices.ContainsFunc(s.Deliveries, func(d *Delivery) bool {
		return d.Group == group && d.EventID == event && d.Terminal()
	})
}

// Deserves tells whether the group of the subscription must get the event.
func (s *State) Deserves(subscription *Subscription, event *Event) bool {
	return event.Topic == subscription.Topic && event.Sequence.After(subscription.Begin)
}

// HoldsLease tells whether the handler's attempt is leased to its process now.
func (s *State) HoldsLease(h *Handler) bool {
	for _, attempt := range s.byDelivery[h.DeliveryID] {
		if attempt.Number == h.Number && attempt.Status == "pending" && attempt.LockedUntil > s.Now {
			by := s.claimers[attempt.Token]
			return by.Process == h.Process && by.Life == h.Life
		}
	}
	return false
}

// Member tells whether an engine of that life of the process belongs to the group and, unless the topic is empty, has subscribed to it.
func (s *State) Member(who Claimer, group, topic string) bool {
	return slices.ContainsFunc(s.Engines, func(e *Engine) bool {
		return e.Process == who.Process && e.Life == who.Life && e.Group == group &&
			(topic == "" || slices.ContainsFunc(e.Limits, func(l Limit) bool { return l.Topic == topic }))
	})
}

// retentionOf reads the retention from an engine's event.
func retentionOf(text string) time.Duration {
	retention, err := time.ParseDuration(text)
	if err != nil {
		return 0 // journal.KeepForever
	}
	return retention
}

// virtual turns a date of the database into virtual time.
func (s *State) virtual(date any) time.Duration {
	d, ok := date.(bson.DateTime)
	if !ok {
		return 0
	}
	return time.Duration(int64(d)-s.start.UnixMilli()) * time.Millisecond
}

func integer(stored bson.D, key string) int64 {
	switch n := document.Get(stored, key).(type) {
	case int32:
		return int64(n)
	case int64:
		return n
	}
	return 0
}
