// Package pgport is the port between the de-duplication of events and PostgreSQL: named statements in transactions, as data.
//
// In production the port is in package durable, a thin adapter on pgx; in a simulation it is sim/pgsim, which knows each statement by its
// name. One contract suite runs on both.
package pgport

import (
	"context"
	"errors"
	"fmt"
)

// Statement is one SQL statement. Its name is what a model knows it by.
type Statement struct {
	Name string
	SQL  string
}

// Isolation is the level of a transaction. The empty one is the database's default.
type Isolation string

// The levels.
const (
	ReadCommitted  Isolation = "read committed"
	RepeatableRead Isolation = "repeatable read"
	Serializable   Isolation = "serializable"
)

// DB opens transactions, each on a connection of its own. It is safe for use by several tasks at once; a Tx is used by one.
type DB interface {
	Begin(ctx context.Context, isolation Isolation) (Tx, error)
}

// Executor runs a statement.
type Executor interface {
	// Exec returns the number of rows that the statement concerned.
	Exec(ctx context.Context, statement *Statement, args ...any) (rows int64, err error)
}

// Tx is one transaction. After an error of the server nothing but Rollback succeeds.
type Tx interface {
	Executor
	// Text returns the one value of the one row that the statement returns, as text.
	Text(ctx context.Context, statement *Statement, args ...any) (string, error)
	// Commit ends the transaction. An error that wraps ErrUnknownOutcome says nothing about whether it was committed.
	Commit(ctx context.Context) error
	// Rollback ends the transaction without its changes. After Commit it does nothing.
	Rollback(ctx context.Context) error
}

// ErrUnknownOutcome is wrapped by errors of connections that were lost: the server may have done what it was asked, or not.
var ErrUnknownOutcome = errors.New("outcome unknown")

// The SQLSTATEs that the protocol tells apart (PostgreSQL's manual, appendix A).
const (
	SerializationFailure = "40001"
	DeadlockDetected     = "40P01"
	LockNotAvailable     = "55P03"
	InFailedTransaction  = "25P02"
	UniqueViolation      = "23505"
)

// Error is an error that the server answered with.
type Error struct {
	Code    string // SQLSTATE
	Message string
	Cause   error // the driver's own error, if there is one
}

func (e *Error) Error() string { return fmt.Sprintf("%s (SQLSTATE %s)", e.Message, e.Code) }

// Unwrap returns the driver's error.
func (e *Error) Unwrap() error { return e.Cause }

// HasCode tells whether err is, or wraps, an error of the server with one of the codes.
func HasCode(err error, codes ...string) bool {
	var server *Error
	if !errors.As(err, &server) {
		return false
	}
	for _, code := range codes {
		if server.Code == code {
			return true
		}
	}
	return false
}
