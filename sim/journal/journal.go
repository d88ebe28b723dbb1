// Package journal is the record of a simulated run, and its only source of truth: properties and reports read nothing
// else, and the state of the world at any step is a fold of the journal up to it.
//
// A run is a pure function of its scenario, plan and seed, so its journal is too: byte for byte, on any machine. Its
// [Journal.Hash] is the run's identity.
//
// The journal is appended to by one world, which is single-threaded. After the run it is read-only
// and may be read by many.
package journal

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// Kind says what an event tells.
type Kind uint8

// The kinds of events. The comment names the fields that an event of the kind fills besides Step and Time.
const (
	_ Kind = iota

	// The scheduler.
	Resumed     // Process, Task: a task got its turn
	Advanced    // Span: the clock moved to the next timer; Number: tasks that were ready all the same
	TaskStarted // Process, Task, Name
	TaskEnded   // Process, Task, Error if it panicked

	// Processes.
	ProcessStarted // Process, Name, Number: the incarnation, from 1
	ProcessDied    // Process, Name: the reason
	ProcessFrozen  // Process, Span
	ProcessThawed  // Process
	ProcessClosing // Process: an orderly end was asked for
	ProcessClosed  // Process, Error

	// Operations on the database. Applied is followed by one Wrote or Deleted for each document that changed; where a write waits for
	// a majority of the members, they stand where the majority has it, and Applied comes after them.
	Issued   // Process, Task, Point, Name: the kind of command, Collection
	Applied  // Process, Task, Point, Number: documents read or matched, Error; of a script in Redis: Key, Document: its arguments and reply
	Wrote    // Process, Task, Point, Collection, Key, Document: as it is now
	Deleted  // Process, Task, Point, Collection, Key
	Expired  // Collection, Key: deleted by the TTL monitor
	Answered // Process, Task, Point, Error: the caller saw the reply

	// Notifications of change streams.
	StreamOpened // Process, Task
	StreamFailed // Process, Task, Error
	Notified     // Process, Task, Key: of the document
	Withheld     // Process, Key, Name: dropped, delayed or duplicated; Span

	// Engines.
	EngineOpened // Process, Group, Name: collection prefix, Span: lock timeout, Number: poll interval in milliseconds, Key: history retention
	Subscribed   // Process, Group, Name: topic, Number: most handlers at once in this process
	Unsubscribed // Process, Group, Name: topic

	// User code.
	HandlerStarted   // Process, Task, Key: event, Name: topic, Group, Delivery, Number: attempt
	HandlerEnded     // Process, Task, Key, Name, Group, Delivery, Number, Error
	HandlerCancelled // Process, Task, Key, Name, Group, Delivery, Number: its context is done; Error: the cause
	EffectPerformed  // Process, Task, Name, Key: idempotency key, Delivery, Number: attempt
	ErrorReported    // Process, Task, Error: what OnError got

	// Idempotency guards. Of what a guard protects: Key is the event, Document the claim.
	GuardOpened        // Process, Name: the store, Span: the lease
	ExecutionStarted   // Process, Task, Key, Name: topic, Group, Delivery, Number: attempt, Document: key, token, fence
	ExecutionEnded     // the same, Error
	ExecutionCancelled // the same: its context is done; Error: the cause

	// Faults and the run.
	FaultStruck // Process, Task, Point, Name: the fault as text; Span
	RunStarted  // Number: the wall clock at the start, in milliseconds since 1970
	RunEnded    // Name: the reason

	// The replica set, in worlds whose plan has faults of it. Wrote and its like then tell of what a majority of the members has.
	PrimaryElected   // Number: the member, from 1
	WritesRolledBack // Number: the member, from 1; Name: how many
)

var kindNames = [...]string{
	Resumed: "resumed", Advanced: "advanced", TaskStarted: "task-started", TaskEnded: "task-ended",
	ProcessStarted: "process-started", ProcessDied: "process-died", ProcessFrozen: "process-frozen",
	ProcessThawed: "process-thawed", ProcessClosing: "process-closing", ProcessClosed: "process-closed",
	Issued: "issued", Applied: "applied", Wrote: "wrote", Deleted: "deleted", Expired: "expired", Answered: "answered",
	StreamOpened: "stream-opened", StreamFailed: "stream-failed", Notified: "notified", Withheld: "withheld",
	HandlerStarted: "handler-started", HandlerEnded: "handler-ended", HandlerCancelled: "handler-cancelled",
	EffectPerformed: "effect-performed", ErrorReported: "error-reported",
	EngineOpened: "engine-opened", Subscribed: "subscribed", Unsubscribed: "unsubscribed",
	GuardOpened: "guard-opened", ExecutionStarted: "execution-started", ExecutionEnded: "execution-ended",
	ExecutionCancelled: "execution-cancelled",
	FaultStruck:        "fault-struck", RunStarted: "run-started", RunEnded: "run-ended",
	PrimaryElected: "primary-elected", WritesRolledBack: "writes-rolled-back",
}

func (k Kind) String() string {
	if int(k) < len(kindNames) && kindNames[k] != "" {
		return kindNames[k]
	}
	return "unknown"
}

// KeepForever is the history retention of an engine that keeps history for ever, in its EngineOpened event.
const KeepForever = "keep forever"

// Event is one thing that happened. Which fields are filled depends on its kind; documents are
// immutable.
type Event struct {
	Step       int           // number of the scheduler's step, from 1; 0 before the first
	Time       time.Duration // true virtual time since the start of the run
	Kind       Kind
	Process    int // index into Journal.Processes, plus one; 0 is the world or the database
	Task       int // unique in the run
	Number     int64
	Span       time.Duration
	Point      string
	Name       string
	Collection string
	Key        string
	Group      string
	Delivery   string
	Document   bson.D
	Error      string
}

// Journal is the record of one run.
type Journal struct {
	Processes []string // their names, in the order in which they were added to the world
	Events    []Event
}

// Append adds an event. The list is doubled when it is full: append alone would grow it by a quarter, and copying events
// would be most of what a run costs.
func (j *Journal) Append(event Event) {
	if len(j.Events) == cap(j.Events) {
		j.Events = slices.Grow(j.Events, max(512, len(j.Events)))
	}
	j.Events = append(j.Events, event)
}

// ProcessName returns the name of the process of an event; "database" for zero.
func (j *Journal) ProcessName(process int) string {
	if process == 0 {
		return "database"
	}
	return j.Processes[process-1]
}

// Steps returns the number of the last step.
func (j *Journal) Steps() int {
	if len(j.Events) == 0 {
		return 0
	}
	return j.Events[len(j.Events)-1].Step
}

// Tasks returns how many tasks there were.
func (j *Journal) Tasks() (count int) {
	for i := range j.Events {
		if j.Events[i].Kind == TaskStarted {
			count++
		}
	}
	return count
}

// Hash is the identity of the run: SHA-256 over the encoded events, in hexadecimal.
func (j *Journal) Hash() string {
	digest := sha256.New()
	var line []byte
	for i := range j.Events {
		line = append(j.AppendLine(line[:0], &j.Events[i]), '\n')
		digest.Write(line)
	}
	return hex.EncodeToString(digest.Sum(nil))
}
