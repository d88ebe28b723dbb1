// Package mongosim is an in-memory model of the part of MongoDB that delivery systems use.
//
// A [Server] interprets the very BSON that production sends: filters, updates, update pipelines, sort orders,
// index definitions. It is a pure state machine: it starts no goroutine, takes no lock, reads no clock and
// draws no random number. The caller says what time it is on the server with each command, so that a
// simulation owns time, and serialises the commands, so that a simulation owns their order.
//
// What MongoDB leaves open, the model decides by a seed instead of by the accident of an implementation: in
// which order documents come whose sort keys are equal, and in which order a scan without a sort finds
// documents. Code that relies on insertion order works with seed zero and fails with others.
//
// The reference is MongoDB 8.0: its manual, the driver specifications, and the server's published source.
// Comments name the source of a fact; no text or code of theirs is copied. Operators that MongoDB knows and
// the model does not are refused with code 238 (NotImplemented), never ignored; what MongoDB does not know
// gets MongoDB's own error.
package mongosim
