// Package crashes explores what can happen to idempotency guards on Redis: every order of the steps of a few requests and a sweeper, with
// every place for one or two faults, in a world that is a pure function of the choices made.
//
// The guards, their store and the scripts' transitions are the real code (engine/idempotency, redisstore, redissim). A [Case] says how many requests come
// and which faults may strike; Explore walks all choices, each reachable state once, and checks the invariants of the specification: U1
// to U6 always, C-I to C-III unless a fault struck that excuses them. Every violation comes with the choices that lead there, which Replay
// repeats.
package crashes
