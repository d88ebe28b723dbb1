// Package pgsim is an in-memory model of the part of PostgreSQL that the de-duplication of events uses: one table with a unique key, and
// transactions that wait for each other on it.
//
// A [Server] knows each statement of package pgport by its name. It is a pure state machine: it starts no goroutine, takes no lock
// and reads no clock; a statement that must wait says for whom, and is asked again. A [Client] is the port on it: it waits on its
// host, and can lose its connection before and after COMMIT.
//
// The reference is PostgreSQL 15: its manual (chapter 13, "Concurrency Control"; INSERT, "ON CONFLICT Clause") and experiments. The contract
// suite of durable/pgtest runs on the model and on a real server; where they disagree, the model is wrong. Serializable transactions are
// modelled as repeatable read: dependencies between reads are not looked for.
package pgsim
