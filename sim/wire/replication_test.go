package wire

import (
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/fencepost-sim/fencepost/sim/mongosim"
)

// trio is a set of three members whose secondaries replicate when they are told to.
type trio struct {
	*testing.T
	set *mongosim.ReplicaSet
	at  func(member int) *Link
}

func newSet(t *testing.T) trio {
	t.Helper()
	set := mongosim.NewReplicaSet(mongosim.Options{}, 3)
	server := NewServer(Options{Model: set.Primary(), ManualReplication: true, Now: still})
	t.Cleanup(server.Close)
	return trio{t, set, server.Link}
}

func insert(id int) bson.D {
	return bson.D{{Key: "insert", Value: "c"}, {Key: "documents", Value: bson.A{bson.D{{Key: "_id", Value: id}}}}, {Key: "$db", Value: "db"}}
}

// unconcerned writes are acknowledged by the primary alone.
var unconcerned = bson.E{Key: "writeConcern", Value: bson.D{{Key: "w", Value: 1}}}

// failOver makes member 1 the primary while member 0 is cut off, lets somebody write there, and connects member 0 again.
func (m trio) failOver() {
	m.Helper()
	m.set.ReplicateAll(still())
	if err := m.set.Elect(still(), 1); err != nil {
		m.Fatal(err)
	}
	for id := 2; id < 6; id++ {
		ask(m.T, m.at(1), noWaiting, append(insert(id), unconcerned))
	}
	m.set.Heal(still(), 0)
	m.set.ReplicateAll(still())
}

func TestAMajorityWriteThatIsRolledBackIsNotAcknowledgedWhenOthersStandInItsPlace(t *testing.T) {
	m := newSet(t)
	m.set.Isolate(0)
	waited := 0
	reply := ask(m.T, m.at(0), func(time.Duration, Events) error {
		if waited++; waited == 1 {
			m.failOver()
		}
		return nil
	}, insert(1))
	problem, _ := find(reply, "writeConcernError")
	details, _ := problem.(bson.D)
	if code, _ := find(details, "code"); waited != 1 || code != int32(189) {
		t.Errorf("it waited %d times and answered %v; want 1, and that the primary stepped down", waited, reply)
	}
	if !m.set.Members()[0].MajorityCommitted(4) {
		t.Fatal("as many writes as the primary had must be with a majority, or nothing was tested")
	}
}

func TestAMajorityWriteIsAcknowledgedWhenThePrimaryIsBack(t *testing.T) {
	m := newSet(t)
	m.set.Isolate(0)
	waited := 0
	reply := ask(m.T, m.at(0), func(time.Duration, Events) error {
		if waited++; waited == 2 {
			m.set.Heal(still(), 0)
			m.set.ReplicateAll(still())
		}
		return nil
	}, insert(1))
	if problem, is := find(reply, "writeConcernError"); waited != 2 || is {
		t.Errorf("it waited %d times and said %v; want 2, and nothing wrong", waited, problem)
	}
}

func TestACursorIsKnownToTheMemberThatOpenedIt(t *testing.T) {
	m := newSet(t)
	for id := range 3 {
		ask(m.T, m.at(0), noWaiting, append(insert(id), unconcerned))
	}
	m.set.ReplicateAll(still())
	found := ask(m.T, m.at(0), noWaiting, bson.D{{Key: "find", Value: "c"}, {Key: "batchSize", Value: int32(1)}, {Key: "$db", Value: "db"}})
	cursor, _ := find(found, "cursor")
	id, _ := find(cursor.(bson.D), "id")
	more := bson.D{
		{Key: "getMore", Value: id}, {Key: "collection", Value: "c"}, {Key: "$db", Value: "db"},
		{Key: "$readPreference", Value: bson.D{{Key: "mode", Value: "secondary"}}},
	}
	if code, _ := find(ask(m.T, m.at(1), noWaiting, more), "code"); code != int32(codeCursorNotFound) {
		t.Errorf("another member answers with code %v, want %d", code, codeCursorNotFound)
	}
	if code, failed := find(ask(m.T, m.at(0), noWaiting, more), "code"); failed {
		t.Errorf("the member that has the cursor answers with code %v", code)
	}
}
