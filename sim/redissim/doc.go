// Package redissim is an in-memory model of the part of Redis that the idempotency guards use.
//
// A [Server] knows each script of package redisport as a named transition on a keyspace with true SCAN behaviour. It is a pure
// state machine: it starts no goroutine, takes no lock, reads no clock and draws no random number. The caller says what time it is
// on the server with each call, so that a simulation owns time, and serialises the calls, so that it owns their order. What
// goes wrong with a server is a method: Failover, Flush, Evict, JumpClock, Refuse. What goes wrong on the way to it is the
// business of a [Client].
//
// The reference is Redis 7.0.15: its documentation, its published source (dict.c for the cursor) and experiments. The contract suite of
// engine/idempotency/idemtest runs on the model and on a real server; where they disagree, the model is wrong.
package redissim
