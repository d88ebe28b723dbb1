// Package store is the port between the delivery protocol and MongoDB.
//
// The engine does not call a driver. It describes one MongoDB operation as a [Command], plain data
// whose filters and updates are the BSON that the server will see, and hands it to a [Store].
// In production the Store is engine/store/mongostore, a thin adapter on the official driver; in a
// simulation it is sim/mongosim, an in-memory model that interprets exactly the same BSON. Because
// the port sits below the protocol, what a simulation proves is the very query that production
// sends.
//
// A Command is data, rather than a method per operation, so that a decorator can match a command
// by its [Point] and change it: that is how mutants are planted and faults are placed.
package store

import (
	"context"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// Point names the step of the protocol that a command carries out, for example
// "attempt.claim". Adapters send it as the command's comment, so that an operator
// reading MongoDB's profiler or currentOp sees which step is at work.
type Point string

// Kind says which MongoDB operation a Command is.
type Kind string

// The operations of the port. Each is one MongoDB command.
const (
	Find             Kind = "find"            // Filter, Sort, Limit, Projection, Hint → Reply.Documents
	Insert           Kind = "insert"          // Documents, Unordered → Reply.Inserted
	Update           Kind = "update"          // Filter, Update or Pipeline, Multi, Upsert; or Statements, Unordered → Reply.Matched, Modified, Upserted
	FindAndModify    Kind = "findAndModify"   // Filter, Sort, Update or Pipeline, Upsert, ReturnBefore → Reply.Document
	Delete           Kind = "delete"          // Filter, Multi → Reply.Matched
	CreateCollection Kind = "create"          // Collection
	ListCollections  Kind = "listCollections" // → Reply.Documents, one {name: …} each
	CreateIndexes    Kind = "createIndexes"   // Indexes
	ListIndexes      Kind = "listIndexes"     // → Reply.Documents, one index specification each
	Hello            Kind = "hello"           // on the admin database → Reply.Document
)

// Command is one MongoDB operation on one collection.
//
// Values in its documents are the Go types that the driver's bson package uses for BSON
// (string, bool, int32, int64, float64, nil, time.Time or bson.DateTime, bson.Timestamp, bson.ObjectID,
// bson.Binary, bson.D, bson.A, bson.Raw, bson.RawValue, …). A time.Time is truncated to milliseconds,
// as BSON stores it. Neither side changes a document after it was handed over.
type Command struct {
	Point      Point
	Kind       Kind
	Collection string

	Filter     bson.D
	Sort       bson.D
	Limit      int64 // documents; zero means no limit
	Projection bson.D
	Hint       string // name of the index to use; empty leaves it to the server

	Update   bson.D   // update operators ($set, …)
	Pipeline []bson.D // an update pipeline; exactly one of Update and Pipeline is set
	Upsert   bool
	Multi    bool

	// ReturnBefore makes FindAndModify answer the document as it was; otherwise it answers
	// the document as it became.
	ReturnBefore bool

	Documents  []bson.D    // for Insert
	Statements []Statement // for Update: several updates in one command, instead of one in the fields above
	Unordered  bool        // Insert, Statements: go on after a part that failed

	Indexes []Index // for CreateIndexes
}

// Statement is one of the updates of a command that has several. Its fields are those of Command.
type Statement struct {
	Filter   bson.D
	Update   bson.D
	Pipeline []bson.D
	Upsert   bool
	Multi    bool
}

// Index describes one index, in the terms of createIndexes.
type Index struct {
	Name               string
	Keys               bson.D
	Unique             bool
	ExpireAfterSeconds *int32 // a TTL index when not nil
	Sparse             bool
	Hidden             bool
	Partial            bson.D // partialFilterExpression
}

// Reply is what the server answered.
type Reply struct {
	Documents []bson.D // Find, ListCollections, ListIndexes
	Document  bson.D   // FindAndModify (nil when nothing matched), Hello
	Inserted  int64    // documents inserted
	Matched   int64    // documents that the filter matched (Update), or that were deleted (Delete)
	Modified  int64    // documents that really changed; equal values change nothing
	Upserted  any      // the _id of the document that an upsert inserted, or nil
	Upserts   []any    // the same for each of Statements
}

// Store runs commands. Implementations are safe for use by several tasks at once. Both methods may block; in a
// simulation they give way to other tasks.
//
// An error that wraps ErrUnknownOutcome says nothing about whether the command was applied, also when it is an *Error as well (a write
// concern that was not met, for example): ask for it first. Where it matters the protocol reads back its own token
// instead of guessing. Any other *Error means that the server refused the command.
type Store interface {
	Run(ctx context.Context, command Command) (Reply, error)
	// Watch opens a change stream for inserts into the collection. The pipeline, which may be empty, is
	// appended after $changeStream on the server.
	Watch(ctx context.Context, watch Watch) (Stream, error)
}

// Watch describes a change stream on one collection.
type Watch struct {
	Point      Point
	Collection string
	Pipeline   []bson.D
	MaxAwait   time.Duration // upper bound on one getMore
	// ResumeAfter is the resume token of the last change that was seen, or nil to start now.
	ResumeAfter bson.D
}

// Stream is an open change stream. Next is called by one task at a time; Close may be called by another.
type Stream interface {
	// Next waits for the next change. It returns an error when the stream failed, when it was
	// closed, or when ctx is done.
	Next(ctx context.Context) (Change, error)
	// Token is the resume token of what Next has returned so far; before the first change it is that of the place where the
	// stream began. A stream that is opened after it misses nothing and repeats nothing. Only the task that calls Next may call it.
	Token() bson.D
	// Close releases the stream. It may be called more than once.
	Close(ctx context.Context) error
}

// Change is one change-stream event.
type Change struct {
	Token     bson.D // resume token
	Operation string // "insert", "update", "replace", "delete", "invalidate", …
	Document  bson.D // fullDocument, if the operation carries one
	Key       bson.D // documentKey
}
