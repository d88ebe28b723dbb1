// Package worker is the other name under which the single-active lease of package lease is looked for. Its types are the same types.
package worker

import "github.com/fencepost-sim/fencepost/engine/idempotency/lease"

// SingleActiveLease is lease.Single.
type SingleActiveLease = lease.Single

// LeaseHandle is lease.Handle.
type LeaseHandle = lease.Handle

// LeaseOptions is lease.Options.
type LeaseOptions = lease.Options

// NewSingleActiveLease is lease.New.
var NewSingleActiveLease = lease.New
