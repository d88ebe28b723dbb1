//go:build !linux

package host

import "time"

// suspended is not known on this system.
func suspended() time.Duration { return 0 }
