package mongosim

import (
	"errors"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/fencepost-sim/fencepost/engine/store"
)

// Source of the rules: manual, "Transactions" and "Production Considerations".

func begin(t testing.TB, s *Server, session string, number int64) *Transaction {
	t.Helper()
	started, err := s.Begin(noon, session, number)
	if err != nil {
		t.Fatal(err)
	}
	return started
}

func within(s *Server, t *Transaction, command store.Command) (Outcome, error) {
	command.Collection = "c"
	caller := Caller{Now: noon, Transaction: t}
	if t != nil {
		caller.Statement = &Statement{Session: t.session, Number: t.number, InTransaction: true}
	}
	return s.Execute(caller, "db", &Request{Command: command})
}

func must(t testing.TB, s *Server, in *Transaction, command store.Command) Outcome {
	t.Helper()
	outcome, err := within(s, in, command)
	if err != nil {
		t.Fatal(err)
	}
	return outcome
}

func set(id, value any) store.Command {
	return store.Command{Kind: store.Update, Filter: doc("_id", id), Update: doc("$set", doc("x", value)), Upsert: true}
}

func everything() store.Command { return store.Command{Kind: store.Find, Sort: doc("_id", 1)} }

func commit(t testing.TB, s *Server, in *Transaction) {
	t.Helper()
	if err := s.Commit(noon, in); err != nil {
		t.Fatal(err)
	}
}

func TestATransactionSeesItsSnapshotAndItsOwnWrites(t *testing.T) {
	s := New(Options{})
	insert(t, s, doc("_id", 1, "x", 1), doc("_id", 2, "x", 1))
	in := begin(t, s, "a", 1)
	insert(t, s, doc("_id", 3, "x", 1)) // committed after it began
	run(t, s, store.Command{Kind: store.Delete, Collection: "c", Filter: doc("_id", 2)})
	must(t, s, in, set(1, 2))
	must(t, s, in, set(9, 2))
	same(t, must(t, s, in, everything()).Documents, []bson.D{doc("_id", 1, "x", 2), doc("_id", 2, "x", 1), doc("_id", 9, "x", 2)})
	same(t, must(t, s, nil, everything()).Documents, []bson.D{doc("_id", 1, "x", 1), doc("_id", 3, "x", 1)})
	commit(t, s, in)
	same(t, must(t, s, nil, everything()).Documents, []bson.D{doc("_id", 1, "x", 2), doc("_id", 3, "x", 1), doc("_id", 9, "x", 2)})
}

func TestAllWritesOfATransactionBecomeVisibleAtOneTime(t *testing.T) {
	s := New(Options{})
	st := watch(t, s, store.Watch{})
	in := begin(t, s, "a", 1)
	must(t, s, in, set(1, 1))
	must(t, s, in, set(2, 1))
	nothing(t, st)
	commit(t, s, in)
	entries := s.OplogSince(s.OplogLen() - 2)
	if !entries[0].Time.Equal(entries[1].Time) {
		t.Errorf("written at %v and %v", entries[0].Time, entries[1].Time)
	}
	first := next(t, st)
	same(t, first.Key, doc("_id", 1))
	same(t, next(t, watch(t, s, store.Watch{ResumeAfter: first.Token})).Key, doc("_id", 2)) // between two events of one time
}

func TestAnAbortedTransactionLeavesNoTrace(t *testing.T) {
	s := New(Options{})
	in := begin(t, s, "a", 1)
	must(t, s, in, set(1, 1))
	if err := s.Abort(noon, in); err != nil {
		t.Fatal(err)
	}
	if len(s.Documents("db", "c")) != 0 || s.OplogLen() != 0 {
		t.Error("something is there")
	}
	if err := s.Commit(noon, in); code(err) != codeNoSuchTransaction {
		t.Errorf("committed afterwards: %v", err)
	}
	if _, err := within(s, in, everything()); code(err) != codeNoSuchTransaction {
		t.Errorf("used afterwards: %v", err)
	}
}

func TestOfTwoTransactionsOnOneDocumentTheFirstWriterGoesOn(t *testing.T) {
	for name, committed := range map[string]bool{"while the first is open": false, "after the first has committed": true} {
		s := New(Options{})
		insert(t, s, doc("_id", 1, "x", 0))
		one, two := begin(t, s, "a", 1), begin(t, s, "b", 1)
		must(t, s, one, set(1, 1))
		if committed {
			commit(t, s, one)
		}
		_, err := within(s, two, set(1, 2))
		var answer *store.Error
		if code(err) != codeWriteConflict || !errors.As(err, &answer) || !answer.HasLabel(store.LabelTransientTransaction) {
			t.Errorf("%s: %v", name, err)
		}
		if err := s.Commit(noon, two); code(err) != codeNoSuchTransaction {
			t.Errorf("%s: the loser can commit: %v", name, err)
		}
	}
}

func TestUniqueKeysOfOpenTransactionsConflict(t *testing.T) {
	s := New(Options{})
	run(t, s, createIndexes(store.Index{Name: "x", Keys: doc("x", 1), Unique: true}))
	one, two := begin(t, s, "a", 1), begin(t, s, "b", 1)
	must(t, s, one, set(1, 7))
	if _, err := within(s, two, set(2, 7)); code(err) != codeWriteConflict {
		t.Errorf("a key that another transaction holds: %v", err)
	}
	three := begin(t, s, "c", 1)
	commit(t, s, one)
	if _, err := within(s, three, set(3, 7)); code(err) != codeWriteConflict {
		t.Errorf("a key that was committed after the snapshot: %v", err)
	}
	if _, err := within(s, begin(t, s, "d", 1), set(4, 7)); code(err) != codeDuplicateKey {
		t.Errorf("a key in the snapshot: %v", err)
	}
}

func TestAWriteOutsideWaitsForTheTransactionAndLeavesNothingBehindMeanwhile(t *testing.T) {
	s := New(Options{})
	insert(t, s, doc("_id", 1, "x", 0), doc("_id", 2, "x", 0))
	in := begin(t, s, "a", 1)
	must(t, s, in, set(2, 1))
	before := s.OplogLen()
	all := store.Command{Kind: store.Update, Multi: true, Update: doc("$inc", doc("x", 10))}
	if _, err := within(s, nil, all); !errors.Is(err, ErrBlocked) {
		t.Fatalf("got %v", err)
	}
	if s.OplogLen() != before {
		t.Error("half of the write was done")
	}
	commit(t, s, in)
	must(t, s, nil, all)
	same(t, must(t, s, nil, everything()).Documents, []bson.D{doc("_id", 1, "x", 10), doc("_id", 2, "x", 11)})
}

func TestATransactionEndsWithItsTimeItsErrorsAndItsSession(t *testing.T) {
	s := New(Options{})
	insert(t, s, doc("_id", 1))
	late := begin(t, s, "a", 1)
	if found, err := s.Continue(noon.Add(TransactionLifetime), "a", 1); err != nil || !found.ended() {
		t.Errorf("it outlives its time: %v", err)
	}
	failed := begin(t, s, "b", 1)
	if _, err := within(s, failed, store.Command{Kind: store.Insert, Documents: []bson.D{doc("_id", 1)}}); code(err) != codeDuplicateKey {
		t.Fatal(err)
	}
	left := begin(t, s, "c", 1)
	begin(t, s, "c", 2)
	for name, in := range map[string]*Transaction{"time": late, "error": failed, "session": left} {
		if err := s.Commit(noon, in); code(err) != codeNoSuchTransaction {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := s.Begin(noon, "c", 1); code(err) != codeTransactionTooOld {
		t.Errorf("an old number: %v", err)
	}
	if _, err := New(Options{Standalone: true}).Begin(noon, "a", 1); code(err) != codeIllegalOperation {
		t.Errorf("on a standalone: %v", err)
	}
}

func TestToCommitAgainIsASuccess(t *testing.T) {
	s := New(Options{})
	in := begin(t, s, "a", 1)
	must(t, s, in, set(1, 1))
	commit(t, s, in)
	length := s.OplogLen()
	again, err := s.Continue(noon, "a", 1)
	if err != nil {
		t.Fatal(err)
	}
	commit(t, s, again)
	if s.OplogLen() != length {
		t.Error("committed twice")
	}
	if err := s.Abort(noon, again); code(err) != codeTransactionCommitted {
		t.Errorf("aborted afterwards: %v", err)
	}
}

func TestACollectionAndItsIndexesCanBeMadeInATransaction(t *testing.T) {
	s := New(Options{})
	in := begin(t, s, "a", 1)
	must(t, s, in, createIndexes(store.Index{Name: "x", Keys: doc("x", 1), Unique: true}))
	must(t, s, in, set(1, 1))
	if _, exists := s.IndexCount(Caller{Now: noon, SecondaryOK: true}, "db", "c"); exists {
		t.Error("others see it before it is committed")
	}
	commit(t, s, in)
	fail(t, s, codeDuplicateKey, store.Command{Kind: store.Insert, Collection: "c", Documents: []bson.D{doc("_id", 2, "x", 1)}})
}

func TestASnapshotReadSeesThePast(t *testing.T) {
	s := New(Options{})
	insert(t, s, doc("_id", 1, "x", 1))
	then := s.LastWrite()
	run(t, s, store.Command{Kind: store.Update, Collection: "c", Filter: doc(), Update: doc("$set", doc("x", 2))})
	insert(t, s, doc("_id", 2))
	find := everything()
	find.Collection = "c"
	past, err := s.Execute(Caller{Now: noon, At: &ReadAt{Time: then}}, "db", &Request{Command: find})
	if err != nil {
		t.Fatal(err)
	}
	same(t, past.Documents, []bson.D{doc("_id", 1, "x", 1)})
	s.ForgetHistory(s.OplogLen())
	if _, err := s.Execute(Caller{Now: noon, At: &ReadAt{Time: then}}, "db", &Request{Command: find}); code(err) != codeSnapshotTooOld {
		t.Errorf("beyond the history: %v", err)
	}
}

// Source: the drivers' specification "Retryable Writes".
func TestAStatementThatIsSentAgainIsRecognised(t *testing.T) {
	s := New(Options{})
	statement := &Statement{Session: "a", Number: 1}
	increment := &Request{Command: store.Command{
		Kind: store.FindAndModify, Collection: "c", Filter: doc("_id", 1), Update: doc("$inc", doc("n", 1)), Upsert: true, Projection: doc("n", 1),
	}}
	first, err := s.Execute(Caller{Now: noon, Statement: statement}, "db", increment)
	if err != nil {
		t.Fatal(err)
	}
	done, err := s.Executed(statement)
	if err != nil || done == nil {
		t.Fatalf("not recognised: %v", err)
	}
	again, err := s.Repeat(done, increment)
	if err != nil {
		t.Fatal(err)
	}
	same(t, again.Document, first.Document)
	same(t, again.Created, first.Created)
	for _, other := range []*Statement{{Session: "a", Number: 1, Place: 1}, {Session: "b", Number: 1}, {Session: "a", Number: 2}} {
		if done, err := s.Executed(other); err != nil || done != nil {
			t.Errorf("%+v is taken for it: %v", other, err)
		}
	}
	if _, err := s.Executed(statement); code(err) != codeTransactionTooOld {
		t.Errorf("a number that is over: %v", err)
	}
	if _, err := New(Options{Standalone: true}).Executed(statement); code(err) != codeIllegalOperation {
		t.Errorf("on a standalone: %v", err)
	}
}
