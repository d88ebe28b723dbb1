package scenarios

import (
	"fmt"

	"github.com/fencepost-sim/fencepost/engine/store"
	"github.com/fencepost-sim/fencepost/sim"
	"github.com/fencepost-sim/fencepost/sim/mongodriver"
)

// Through is the way by which the engines of a run reach the database.
type Through string

const (
	// ThroughModel is the shortest way: commands go to the model as the engine makes them. The default.
	ThroughModel Through = ""
	// ThroughDriver is the way of production: mongostore, the official driver, the wire protocol, and then the same model. Requests and
	// replies are lost on the wire, so what the driver does about it is part of the run.
	ThroughDriver Through = "driver"
)

// ParseThrough reads the name of a way: model or driver.
func ParseThrough(text string) (Through, error) {
	if text == "model" {
		return ThroughModel, nil
	}
	_, err := Through(text).way()
	return Through(text), err
}

func (t Through) way() (func(*sim.World) func(*sim.Process) store.Store, error) {
	switch t {
	case ThroughModel:
		return nil, nil
	case ThroughDriver:
		return mongodriver.Through, nil
	}
	return nil, fmt.Errorf("%w way to the database %q; allowed: model, driver", ErrUnknown, string(t))
}
