package sim

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/fencepost-sim/fencepost/engine/store"
	"github.com/fencepost-sim/fencepost/faults"
	"github.com/fencepost-sim/fencepost/sim/journal"
	"github.com/fencepost-sim/fencepost/sim/mongosim"
)

// replication is the replica set of a world whose plan has faults of one. In other worlds the database is a single member, which acknowledges
// at once: the runs are the same, since a set without faults replicates every write before anybody can look.
//
// One fault of the set is under way at a time: one that strikes meanwhile does nothing more.
type replication struct {
	set        *mongosim.ReplicaSet
	leaderless bool // no member is primary, or can be reached by clients
	unsettled  bool // a fault of the set is under way
	// The process that has not noticed an election, by its life, and the primary that it still talks to.
	behind  *instance
	deposed *mongosim.Server
	// authors are in whose name the writes were done that a majority does not have yet, from World.applied on.
	authors []journal.Event
}

// members is the size of the set: with three, one can be cut off, and the others are a majority.
const members = 3

// setFaults are those of a replica set.
var setFaults = []faults.Kind{faults.Failover, faults.Rollback, faults.Lag}

// errSteppedDown is what the clients of a server get that is primary no more. A write may have been done and may be rolled back.
var errSteppedDown = fmt.Errorf("sim: the server is not primary any more: %w", store.ErrUnknownOutcome)

// startDatabase makes the model.
func (w *World) startDatabase() error {
	options := mongosim.Options{Seed: w.config.Seed, Standalone: w.config.Standalone}
	i := slices.IndexFunc(w.config.Plan.Faults, func(f faults.Fault) bool { return slices.Contains(setFaults, f.Kind) })
	switch {
	case i < 0:
		w.model = mongosim.New(options)
		return nil
	case w.config.Standalone:
		return fmt.Errorf("%w: %s: a standalone has no other members; allowed: faults of a single server", faults.ErrInvalid, w.config.Plan.Faults[i].Kind)
	}
	w.set = mongosim.NewReplicaSet(options, members)
	w.model = w.set.Primary()
	return nil
}

// serverOf is the member that a process takes for the primary.
func (w *World) serverOf(p *Process) *mongosim.Server {
	if w.deposed != nil && p.instance == w.behind {
		return w.deposed
	}
	return w.model
}

func (c *Connection) server() *mongosim.Server { return c.process.world.serverOf(c.process) }

// Member is the member of the replica set, from 0, that the process takes for the primary.
func (c *Connection) Member() int { return c.server().Member() }

// caller is on whose behalf the servers run commands: reads have the read concern "majority", as those of mongostore.
func (w *World) caller(kind store.Kind) mongosim.Caller {
	return mongosim.Caller{Now: w.ServerNow(), Majority: w.set != nil && kind == store.Find}
}

// Documents returns the documents of a collection as a majority of the members has them; what only a member has may be rolled back. They must
// not be changed.
func (w *World) Documents(collection string) []bson.D {
	documents, err := w.model.MajorityDocuments(Database, collection)
	if err != nil {
		return w.model.Documents(Database, collection) // its indexes are being built, so that nothing can be in it yet
	}
	return documents
}

// replicate lets all members within reach of the primary have everything.
func (w *World) replicate() {
	if w.set != nil {
		w.set.ReplicateAll(w.ServerNow())
	}
}

// awaitMajority waits until a majority of the members has all that the server has now. The error says that this can no longer be known;
// role is what the server's StateChanges were when the command began.
func (c *Connection) awaitMajority(ctx context.Context, server *mongosim.Server, role int64) error {
	c.process.world.replicate()
	length := server.OplogLen()
	for {
		if !server.IsPrimary() || server.StateChanges() != role {
			return errSteppedDown
		}
		if server.MajorityCommitted(length) {
			return nil
		}
		if err := c.Wait(ctx, -1); err != nil {
			return fmt.Errorf("sim: waiting for replication: %w: %w", store.ErrUnknownOutcome, err)
		}
	}
}

// authorOf is in whose name the i-th write after World.applied was done: of those that are new, as.
func (w *World) authorOf(i int, as journal.Event) journal.Event {
	if i < len(w.authors) {
		return w.authors[i]
	}
	return as
}

// keepAuthors forgets the authors of the first writes, and remembers who did those that are open.
func (w *World) keepAuthors(committed, open int, as journal.Event) {
	w.authors = w.authors[min(committed, len(w.authors)):]
	for len(w.authors) < open {
		w.authors = append(w.authors, as)
	}
}

// failOver lets the primary hand over everything and step down. Another is elected later.
func (w *World) failOver(span time.Duration) {
	if w.unsettled {
		return
	}
	w.unsettled, w.leaderless = true, true
	w.recordWrites(journal.Event{})
	w.set.StepDown(w.ServerNow(), w.model.Member())
	w.primaryLost(nil)
	w.meanwhile(span, func() {
		w.unsettled, w.leaderless = false, false
		w.elect()
	})
}

// rollBack cuts the primary off from the other members. Another is elected later; the process does not notice until, later still, the old one is
// connected again.
func (w *World) rollBack(p *Process, span time.Duration) {
	if w.unsettled {
		return
	}
	w.unsettled = true
	old := w.model
	w.isolate(old)
	w.meanwhile(span, func() {
		w.deposed, w.behind = old, p.instance
		w.elect()
		w.primaryLost(p)
		w.meanwhile(span, w.reunite)
	})
}

// reunite connects the deposed primary again, and takes back what it wrote alone.
func (w *World) reunite() {
	old, late := w.deposed, w.behind.process
	w.unsettled, w.deposed, w.behind = false, nil, nil
	w.set.Heal(w.ServerNow(), old.Member())
	_, undone := w.set.Replicate(w.ServerNow(), old.Member(), -1)
	w.record(journal.Event{Kind: journal.WritesRolledBack, Number: int64(old.Member()) + 1, Name: strconv.Itoa(len(undone))})
	w.failFeeds(func(p *Process) bool { return p == late })
	w.Changed()
}

// lag cuts the primary off from the other members, and connects it again before they have elected another.
func (w *World) lag(span time.Duration) {
	if w.unsettled {
		return
	}
	w.unsettled = true
	w.isolate(w.model)
	w.meanwhile(span, func() {
		w.unsettled = false
		w.set.Heal(w.ServerNow(), w.model.Member())
		w.recordWrites(journal.Event{})
		w.Changed()
	})
}

func (w *World) isolate(server *mongosim.Server) {
	w.recordWrites(journal.Event{})
	w.set.Isolate(server.Member())
}

// elect makes the next member the primary. It has all that was acknowledged.
func (w *World) elect() {
	next := (w.model.Member() + 1) % members
	if err := w.set.Elect(w.ServerNow(), next); err != nil {
		panic(err) // the other members are a majority, and one has what the other has
	}
	w.model, w.authors = w.set.Primary(), nil
	w.record(journal.Event{Kind: journal.PrimaryElected, Number: int64(next) + 1})
	w.recordWrites(journal.Event{})
	w.Changed()
}

// primaryLost breaks the connections to the old primary, but those of the process that has not noticed.
func (w *World) primaryLost(unaware *Process) {
	w.failFeeds(func(p *Process) bool { return p != unaware })
	w.Changed()
}

func (w *World) failFeeds(of func(p *Process) bool) {
	for _, f := range w.feeds {
		if of(f.process) {
			f.fail(errSteppedDown)
		}
	}
}
