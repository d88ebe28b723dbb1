package mongosim

import (
	"errors"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/fencepost-sim/fencepost/engine/store"
)

// Source of the rules: manual, "Replica Set Elections", "Rollbacks During Replica Set Failover", "Read Concern".

func three(t testing.TB) (*ReplicaSet, []*Server) {
	t.Helper()
	set := NewReplicaSet(Options{Seed: 3}, 3)
	return set, set.Members()
}

func elect(t testing.TB, set *ReplicaSet, member int) {
	t.Helper()
	if err := set.Elect(noon, member); err != nil {
		t.Fatal(err)
	}
}

func read(t testing.TB, s *Server, caller Caller) []bson.D {
	t.Helper()
	caller.Now = noon
	found, err := s.Execute(caller, "db", &Request{Command: store.Command{Kind: store.Find, Collection: "c", Sort: doc("_id", 1)}})
	if err != nil {
		t.Fatal(err)
	}
	return found.Documents
}

func TestSecondariesAreStaleUntilTheyReplicate(t *testing.T) {
	set, m := three(t)
	insert(t, m[0], doc("_id", 1))
	run(t, m[0], createIndexes(store.Index{Name: "x", Keys: doc("x", 1)}))
	insert(t, m[0], doc("_id", 2))
	stale := Caller{SecondaryOK: true}
	same(t, read(t, m[1], stale), []bson.D{})
	set.Replicate(noon, 1, 2)
	same(t, read(t, m[1], stale), []bson.D{doc("_id", 1)})
	set.ReplicateAll(noon)
	same(t, read(t, m[1], stale), []bson.D{doc("_id", 1), doc("_id", 2)})
	same(t, run(t, m[2], store.Command{Kind: store.ListIndexes, Collection: "c"}).Documents, run(t, m[0], store.Command{Kind: store.ListIndexes, Collection: "c"}).Documents)
	fail(t, m[1], codeNotWritablePrimary, store.Command{Kind: store.Insert, Collection: "c", Documents: []bson.D{doc("_id", 3)}})
	_, err := m[1].Execute(Caller{Now: noon}, "db", &Request{Command: store.Command{Kind: store.Find, Collection: "c"}})
	if code(err) != codeNotPrimaryNoSecondaryOk {
		t.Errorf("a read that wants the primary: %v", err)
	}
}

func TestMajorityReadsAndStreamsShowOnlyWhatAMajorityHas(t *testing.T) {
	set, m := three(t)
	st := watch(t, m[0], store.Watch{})
	insert(t, m[0], doc("_id", 1))
	if m[0].MajorityCommitted(m[0].OplogLen()) || m[0].Replicated(m[0].OplogLen()) != 1 {
		t.Error("nobody else has it")
	}
	same(t, read(t, m[0], Caller{Majority: true}), []bson.D{})
	same(t, read(t, m[0], Caller{}), []bson.D{doc("_id", 1)})
	nothing(t, st)
	set.Replicate(noon, 2, -1)
	if !m[0].MajorityCommitted(m[0].OplogLen()) || m[0].Replicated(m[0].OplogLen()) != 2 {
		t.Error("two of three have it")
	}
	same(t, read(t, m[0], Caller{Majority: true}), []bson.D{doc("_id", 1)})
	same(t, next(t, st).Key, doc("_id", 1))
}

func TestAWriteThatWasNotReplicatedIsRolledBackAfterAFailover(t *testing.T) {
	set, m := three(t)
	insert(t, m[0], doc("_id", 1))
	set.ReplicateAll(noon)
	set.Isolate(0)
	insert(t, m[0], doc("_id", 2))
	run(t, m[0], store.Command{Kind: store.Delete, Collection: "c", Filter: doc("_id", 1)})
	elect(t, set, 1)
	if !m[0].IsPrimary() || set.Primary() != m[1] {
		t.Fatal("the old primary cannot know of the new one")
	}
	same(t, read(t, m[0], Caller{}), []bson.D{doc("_id", 2)}) // a local read of what will be gone
	insert(t, m[1], doc("_id", 3))
	set.Replicate(noon, 2, -1)
	set.Heal(noon, 0)
	if m[0].IsPrimary() {
		t.Fatal("a deposed primary that learns of the term goes on")
	}
	applied, rolledBack := set.Replicate(noon, 0, -1)
	if applied != 2 || len(rolledBack) != 2 || rolledBack[0].Operation != Insert || rolledBack[1].Operation != Delete {
		t.Fatalf("applied %d, rolled back %v", applied, rolledBack)
	}
	for _, s := range m {
		same(t, read(t, s, Caller{SecondaryOK: true}), []bson.D{doc("_id", 1), doc("_id", 3)})
	}
}

func TestAnElectionNeedsAMajorityThatIsNotAhead(t *testing.T) {
	set, m := three(t)
	insert(t, m[0], doc("_id", 1))
	set.Replicate(noon, 1, -1)
	if err := set.Elect(noon, 2); !errors.Is(err, ErrNotElectable) {
		t.Errorf("a member that is behind two others: %v", err)
	}
	set.Isolate(1)
	set.Isolate(2)
	if err := set.Elect(noon, 0); !errors.Is(err, ErrNoMajority) {
		t.Errorf("alone: %v", err)
	}
	set.Heal(noon, 1)
	elect(t, set, 1)
	if m[0].IsPrimary() || !m[1].IsPrimary() {
		t.Error("the old primary was within reach and must have stepped down")
	}
}

func TestTheCommitPointWaitsForAnEntryOfTheNewTerm(t *testing.T) {
	set, m := three(t)
	set.Isolate(2)
	insert(t, m[0], doc("_id", 1))
	set.Isolate(0)
	set.Heal(noon, 2)
	elect(t, set, 1) // has nothing of it
	if _, rolledBack := set.Replicate(noon, 2, -1); rolledBack != nil {
		t.Errorf("rolled back %v", rolledBack)
	}
	if !m[1].MajorityCommitted(m[1].OplogLen()) {
		t.Error("the new primary's first entry is on a majority")
	}
}

func TestANewPrimaryRecognisesWhatTheOldOneDid(t *testing.T) {
	set, m := three(t)
	statement := &Statement{Session: "a", Number: 5}
	_, err := m[0].Execute(Caller{Now: noon, Statement: statement}, "db",
		&Request{Command: store.Command{Kind: store.Insert, Collection: "c", Documents: []bson.D{doc("_id", 1)}}})
	if err != nil {
		t.Fatal(err)
	}
	in := begin(t, m[0], "b", 1)
	must(t, m[0], in, set1(2))
	commit(t, m[0], in)
	set.ReplicateAll(noon)
	set.StepDown(noon, 0)
	elect(t, set, 1)
	if done, err := m[1].Executed(statement); err != nil || done == nil {
		t.Errorf("a retryable write: %v, %v", done, err)
	}
	again, err := m[1].Continue(noon, "b", 1)
	if err != nil || m[1].Commit(noon, again) != nil {
		t.Errorf("a committed transaction: %v", err)
	}
}

func set1(id any) store.Command { return set(id, 1) }

func TestSteppingDownAbortsOpenTransactions(t *testing.T) {
	set, m := three(t)
	in := begin(t, m[0], "a", 1)
	must(t, m[0], in, set1(1))
	set.StepDown(noon, 0)
	if set.Primary() != nil {
		t.Error("there is still a primary")
	}
	if err := m[0].Commit(noon, in); code(err) != codeNotWritablePrimary {
		t.Errorf("committed on a secondary: %v", err)
	}
	set.ReplicateAll(noon)
	elect(t, set, 0)
	if err := m[0].Commit(noon, in); code(err) != codeNoSuchTransaction {
		t.Errorf("committed after the return: %v", err)
	}
}

func TestOnlyThePrimaryLetsDocumentsExpire(t *testing.T) {
	set, m := three(t)
	run(t, m[0], createIndexes(store.Index{Name: "ttl", Keys: doc("at", 1), ExpireAfterSeconds: seconds(0)}))
	insert(t, m[0], doc("_id", 1, "at", noon.Add(-1)))
	set.ReplicateAll(noon)
	if n := m[1].ExpireTTL(noon); n != 0 {
		t.Errorf("a secondary deleted %d", n)
	}
	if n := m[0].ExpireTTL(noon); n != 1 {
		t.Errorf("the primary deleted %d", n)
	}
	set.ReplicateAll(noon)
	same(t, read(t, m[1], Caller{SecondaryOK: true}), []bson.D{})
}
