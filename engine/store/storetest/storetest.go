// Package storetest is the contract that every [store.Store] keeps: those facts about MongoDB that the engine relies on,
// tested through the port.
//
// The same suite runs against the model of sim/mongosim, against the model behind a wire server and the real driver, and
// against a real MongoDB. It is what keeps the model honest: a test here that MongoDB fails is wrong, and a
// test that only the model fails is a bug of the model.
//
// The facts and their sources are in MongoDB's manual and specifications. A test says only what they promise: it
// does not look at the order of fields that one update adds, at messages, or at what stands where no sort was asked for.
package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/fencepost-sim/fencepost/engine/store"
)

// patience bounds one test, so that a store that never answers fails instead of hanging.
const patience = time.Minute

// Run checks the contract. Each test gets a store from open, which closes it with t.Cleanup, and uses
// collections of its own with names that were never used before. The store must be on a replica
// set, since change streams need one.
func Run(t *testing.T, open func(t *testing.T) store.Store) {
	for _, chapter := range []struct {
		name  string
		tests []test
	}{
		{"finding", finding},
		{"inserting", inserting},
		{"updating", updating},
		{"pipelines", pipelines},
		{"upserting", upserting},
		{"find and modify", findAndModify},
		{"deleting", deleting},
		{"indexes", indexes},
		{"administration", administration},
		{"change streams", changeStreams},
	} {
		t.Run(chapter.name, func(t *testing.T) {
			for _, test := range chapter.tests {
				t.Run(test.sentence, func(t *testing.T) { test.check(newFixture(t, open(t))) })
			}
		})
	}
}

type test struct {
	sentence string
	check    func(f *fixture)
}

// fixture is one collection of one store. Its methods fail the test when a command fails that should not.
type fixture struct {
	*testing.T
	ctx        context.Context
	store      store.Store
	collection string
}

func newFixture(t *testing.T, s store.Store) *fixture {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return &fixture{t, ctx, s, "contract_" + bson.NewObjectID().Hex()}
}

// try runs a command on the fixture's collection, unless it names another.
func (f *fixture) try(c store.Command) (store.Reply, error) {
	if c.Collection == "" {
		c.Collection = f.collection
	}
	c.Point = "storetest." + store.Point(c.Kind)
	return f.store.Run(f.ctx, c)
}

// run runs a command that must succeed.
func (f *fixture) run(c store.Command) store.Reply {
	f.Helper()
	reply, err := f.try(c)
	if err != nil {
		f.Fatalf("%s %v %v%v: %v", c.Kind, c.Filter, c.Update, c.Pipeline, err)
	}
	return reply
}

// refused runs a command that the server must refuse with one of the codes.
func (f *fixture) refused(c store.Command, codes ...int32) *store.Error {
	f.Helper()
	_, err := f.try(c)
	var answer *store.Error
	if !errors.As(err, &answer) {
		f.Fatalf("%s: got error %v, want a server error with code %v", c.Kind, err, codes)
	}
	if !slices.Contains(codes, answer.Code) {
		f.Fatalf("%s: got code %d (%v), want %v", c.Kind, answer.Code, answer, codes)
	}
	if errors.Is(err, store.ErrUnknownOutcome) {
		f.Errorf("%s: a refusal leaves the outcome open: %v", c.Kind, err)
	}
	return answer
}

func (f *fixture) insert(documents ...bson.D) {
	f.Helper()
	f.run(store.Command{Kind: store.Insert, Documents: documents})
}

// find returns what the filter matches, sorted by _id.
func (f *fixture) find(filter bson.D) []bson.D {
	f.Helper()
	return f.run(store.Command{Kind: store.Find, Filter: filter, Sort: d("_id", int32(1))}).Documents
}

// get returns the document with the _id, which must exist.
func (f *fixture) get(id any) bson.D {
	f.Helper()
	found := f.find(d("_id", id))
	if len(found) != 1 {
		f.Fatalf("%d documents have _id %v", len(found), id)
	}
	return found[0]
}

// has checks that the document has the fields with exactly these values and BSON types. A value of absent demands that
// there is no such field.
func (f *fixture) has(document, fields bson.D) {
	f.Helper()
	for _, want := range fields {
		got, exists := lookup(document, want.Key)
		switch {
		case want.Value == absent && exists:
			f.Errorf("%v has the field %s", document, want.Key)
		case want.Value == absent:
		case !exists:
			f.Errorf("%v has no field %s", document, want.Key)
		case !same(got, want.Value):
			f.Errorf("%s is %#v, want %#v", want.Key, got, want.Value)
		}
	}
}

// ids checks that the documents have these _ids, in this order.
func (f *fixture) ids(documents []bson.D, want ...int32) {
	f.Helper()
	got := []int32{}
	for _, document := range documents {
		id, _ := lookup(document, "_id")
		number, _ := id.(int32)
		got = append(got, number)
	}
	if !slices.Equal(got, want) {
		f.Errorf("got documents %v, want %v", got, want)
	}
}

// counted checks the numbers that an update answers.
func (f *fixture) counted(reply store.Reply, matched, modified int64) {
	f.Helper()
	if reply.Matched != matched || reply.Modified != modified {
		f.Errorf("matched %d and modified %d, want %d and %d", reply.Matched, reply.Modified, matched, modified)
	}
}

type absence struct{}

var absent any = absence{}

// d makes a document of alternating keys and values.
func d(pairs ...any) bson.D {
	document := bson.D{}
	for i := 0; i < len(pairs); i += 2 {
		document = append(document, bson.E{Key: pairs[i].(string), Value: pairs[i+1]})
	}
	return document
}

// numbered makes a document with this _id and these further fields.
func numbered(id int32, pairs ...any) bson.D { return append(d("_id", id), d(pairs...)...) }

func lookup(document bson.D, key string) (any, bool) {
	for _, field := range document {
		if field.Key == key {
			return field.Value, true
		}
	}
	return nil, false
}

// same compares two values as BSON, so that equal numbers of different types differ.
func same(a, b any) bool {
	encodedA, errA := bson.Marshal(d("v", a))
	encodedB, errB := bson.Marshal(d("v", b))
	return errA == nil && errB == nil && bytes.Equal(encodedA, encodedB)
}

// date reads a date field.
func (f *fixture) date(document bson.D, key string) bson.DateTime {
	f.Helper()
	value, _ := lookup(document, key)
	date, ok := value.(bson.DateTime)
	if !ok {
		f.Fatalf("%s is %#v, not a date", key, value)
	}
	return date
}

// together runs the function n times at once and waits for all.
func together(n int, do func(i int) error) error {
	failures := make(chan error, n)
	for i := range n {
		go func() { failures <- do(i) }()
	}
	var all []error
	for range n {
		all = append(all, <-failures)
	}
	return errors.Join(all...)
}

var (
	past   = bson.NewDateTimeFromTime(time.Date(2001, 1, 1, 0, 0, 0, 0, time.UTC))
	future = bson.NewDateTimeFromTime(time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC))
)

// expect fails the test with a message that tells the two values apart.
func expect[T comparable](f *fixture, what string, got, want T) {
	f.Helper()
	if got != want {
		f.Errorf("%s is %s, want %s", what, fmt.Sprintf("%#v", got), fmt.Sprintf("%#v", want))
	}
}
