package mongostore

import (
	"context"
	"errors"
	"io"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/fencepost-sim/fencepost/engine/store"
)

// raw is the part of a server's answer that describes the index key of a duplicate.
func raw(t *testing.T, key string) bson.Raw {
	t.Helper()
	encoded, err := bson.Marshal(bson.D{
		{Key: "keyPattern", Value: bson.D{{Key: "topic", Value: int32(1)}}},
		{Key: "keyValue", Value: bson.D{{Key: "topic", Value: key}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return encoded
}

func command(code int32, labels ...string) error {
	return mongo.CommandError{Code: code, Message: "said the server", Labels: labels}
}

func TestAnErrorSaysWhetherTheOutcomeIsKnown(t *testing.T) {
	duplicate := mongo.WriteError{Code: store.CodeDuplicateKey}
	concern := &mongo.WriteConcernError{Code: 64, Message: "waiting for replication timed out"}
	cases := map[string]struct {
		from              error
		answered, unknown bool
	}{
		"duplicate key of a find-and-modify": {command(store.CodeDuplicateKey), true, false},
		"duplicate key of an update":         {mongo.WriteException{WriteErrors: mongo.WriteErrors{duplicate}}, true, false},
		"duplicate key of an insert": {
			mongo.BulkWriteException{WriteErrors: []mongo.BulkWriteError{{WriteError: duplicate}}}, true, false},
		"a write that no majority confirmed":  {mongo.WriteException{WriteConcernError: concern}, true, true},
		"inserts that no majority confirmed":  {mongo.BulkWriteException{WriteConcernError: concern}, true, true},
		"a primary that stepped down":         {command(189), true, true},
		"a write that may have been repeated": {command(20, store.LabelRetryableWrite), true, true},
		"a promise that nothing was written":  {command(10107, store.LabelRetryableWrite, labelNoWritesPerformed), true, false},
		"a time limit":                        {command(50), true, true},
		"a refusal":                           {command(13), true, false},
		"a lost connection": {
			mongo.CommandError{Message: "connection reset", Labels: []string{"NetworkError"}, Wrapped: io.EOF}, false, true},
		"a deadline":                {context.DeadlineExceeded, false, true},
		"a client that is closed":   {mongo.ErrClientDisconnected, false, true},
		"a command without content": {mongo.ErrEmptySlice, false, false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			err := translate(c.from)
			var answer *store.Error
			if errors.As(err, &answer) != c.answered {
				t.Errorf("%v: a server's answer: %v, want %v", err, !c.answered, c.answered)
			}
			if errors.Is(err, store.ErrUnknownOutcome) != c.unknown {
				t.Errorf("%v: outcome unknown: %v, want %v", err, !c.unknown, c.unknown)
			}
			if answer == nil && !errors.Is(err, c.from) && !errors.Is(err, io.EOF) {
				t.Errorf("%v does not wrap the driver's error", err)
			}
			if answer != nil && answer.Cause == nil {
				t.Errorf("%v does not keep the driver's error", err)
			}
		})
	}
	if translate(nil) != nil {
		t.Error("no error became one")
	}
}

func TestErrorsOfSingleDocumentsKeepTheirKeysAndAreSorted(t *testing.T) {
	err := translate(mongo.BulkWriteException{
		Labels: []string{"SomeLabel"},
		WriteErrors: []mongo.BulkWriteError{
			{WriteError: mongo.WriteError{Index: 4, Code: store.CodeDuplicateKey, Raw: raw(t, "four")}},
			{WriteError: mongo.WriteError{Index: 1, Code: store.CodeDuplicateKey, Raw: raw(t, "one")}},
		},
	})
	var first *store.Error
	if !errors.As(err, &first) || len(first.Others) != 1 {
		t.Fatalf("got %#v", err)
	}
	if !store.IsDuplicateKey(err) || first.CodeName != "DuplicateKey" || !first.HasLabel("SomeLabel") {
		t.Errorf("got %#v", first)
	}
	for i, e := range []*store.Error{first, first.Others[0]} {
		wantIndex, wantKey := []int{1, 4}[i], []string{"one", "four"}[i]
		if e.Index != wantIndex || len(e.KeyPattern) != 1 || len(e.KeyValue) != 1 || e.KeyValue[0].Value != wantKey {
			t.Errorf("error %d is %#v", i, e)
		}
	}
}

func TestADuplicateKeyThatNoMajorityConfirmedIsNotADuplicateKeyAlone(t *testing.T) {
	err := translate(mongo.BulkWriteException{
		WriteErrors:       []mongo.BulkWriteError{{WriteError: mongo.WriteError{Code: store.CodeDuplicateKey}}},
		WriteConcernError: &mongo.WriteConcernError{Code: 91, Name: "ShutdownInProgress"},
	})
	if store.IsDuplicateKey(err) || !store.HasCode(err, store.CodeDuplicateKey) {
		t.Errorf("got %v", err)
	}
}

func TestACodeWithoutANameIsNamedAsTheServerDoes(t *testing.T) {
	if name := nameOf(17419, ""); name != "Location17419" {
		t.Errorf("got %q", name)
	}
}
