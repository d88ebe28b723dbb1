package explore

import (
	"fmt"
	"slices"
	"strings"

	"github.com/fencepost-sim/fencepost/faults"
	"github.com/fencepost-sim/fencepost/properties"
	"github.com/fencepost-sim/fencepost/sim"
	"github.com/fencepost-sim/fencepost/sim/journal"
)

// Covered is what runs have reached: how often each fault struck at each place, and in which state of the protocol.
type Covered struct {
	// Places is kind of fault, point and position → times.
	Places map[string]int
	// States is kind of fault and protocol state → times.
	States map[string]int
}

// NewCovered returns an empty one.
func NewCovered() *Covered { return &Covered{Places: map[string]int{}, States: map[string]int{}} }

// Add takes in a run. It returns how many places and states are new.
func (c *Covered) Add(j *journal.Journal) (fresh int) {
	properties.Fold(j, func(s *properties.State, event *journal.Event) {
		if event.Kind != journal.FaultStruck {
			return
		}
		fault, err := faults.ParseFault(strings.Fields(event.Name))
		if err != nil {
			panic(err) // the journal's own text
		}
		fresh += count(c.Places, place(fault.Kind, fault.Point, fault.Position))
		fresh += count(c.States, string(fault.Kind)+" while "+protocolState(s))
	})
	return fresh
}

// Merge adds what another has covered.
func (c *Covered) Merge(other *Covered) {
	for name, n := range other.Places {
		c.Places[name] += n
	}
	for name, n := range other.States {
		c.States[name] += n
	}
}

func count(cells map[string]int, name string) (fresh int) {
	if cells[name]++; cells[name] == 1 {
		return 1
	}
	return 0
}

func place(kind faults.Kind, point string, position faults.Position) string {
	return strings.TrimSpace(fmt.Sprintf("%s %s %s", kind, point, position))
}

// Declared lists every place at which the catalogue and the protocol say that a fault can strike.
func Declared() (places []string) {
	everywhere := Terrain{Points: slices.Concat(protocolPoints(), sim.RedisPoints, sim.PostgresPoints)}
	for _, entry := range faults.Catalogue {
		switch {
		case entry.Breaks != "":
		case entry.Stream:
			places = append(places, place(entry.Kind, "", ""))
		default:
			for _, point := range everywhere.pointsFor(entry.Kind) {
				for _, position := range positionsAt(point) {
					if slices.Contains(entry.Positions, position) && canStrike(entry.Kind, point) {
						places = append(places, place(entry.Kind, point, position))
					}
				}
			}
		}
	}
	return places
}

// canStrike says where a visibility gap makes sense: only the publication is stamped by the server and read by its stamp.
func canStrike(kind faults.Kind, point string) bool {
	return kind != faults.Gap || point == "event.publish"
}

// protocolState is the state of the deliveries and leases as a whole, with each kind of state named once.
func protocolState(s *properties.State) string {
	var states []string
	add := func(state string) {
		if !slices.Contains(states, state) {
			states = append(states, state)
		}
	}
	for _, delivery := range s.Deliveries {
		add(deliveryState(s, delivery))
	}
	if len(s.Events) > len(s.Deliveries) {
		add("undiscovered")
	}
	for _, subscription := range s.Subscriptions {
		if subscription.Order.Until > s.Now {
			add("order held")
		}
		if subscription.Discovery.Until > s.Now {
			add("discovery held")
		}
	}
	slices.Sort(states)
	return strings.Join(states, "+")
}

func deliveryState(s *properties.State, delivery *properties.Delivery) string {
	if delivery.Gone || delivery.Terminal() {
		return "ended"
	}
	attempts := s.AttemptsOf(delivery.ID)
	if len(attempts) == 0 {
		return "no attempt"
	}
	switch last := attempts[len(attempts)-1]; {
	case last.Status != "pending":
		return "torn after " + last.Status
	case last.Token == "":
		return "queued"
	case last.LockedUntil > s.Now:
		return "leased"
	}
	return "lease over"
}
