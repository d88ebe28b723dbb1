package idempotency

import "github.com/fencepost-sim/fencepost/engine/host"

func newRealHost() host.Host { return host.New(host.Options{}) }
