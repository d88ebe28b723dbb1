package journal

import (
	"errors"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestTheEncodingIsStable(t *testing.T) {
	j := &Journal{Processes: []string{"worker-1"}}
	for _, c := range []struct {
		event Event
		want  string
	}{
		{Event{}, `{"step":0,"time":0,"kind":"unknown"}`},
		{
			Event{Step: 3, Time: time.Second, Kind: Issued, Process: 1, Task: 4, Point: "attempt.claim", Name: "findAndModify", Collection: "p.history"},
			`{"step":3,"time":1000000000,"kind":"issued","process":"worker-1","task":4,"point":"attempt.claim","name":"findAndModify","collection":"p.history"}`,
		},
		{
			Event{Kind: Wrote, Key: "a\"b\\\n\x7f", Document: bson.D{
				{Key: "text", Value: "ü"}, {Key: "int", Value: int32(1)}, {Key: "long", Value: int64(1)}, {Key: "double", Value: 1.5},
				{Key: "date", Value: bson.DateTime(1)}, {Key: "stamp", Value: bson.Timestamp{T: 1, I: 2}}, {Key: "none", Value: nil},
				{Key: "yes", Value: true}, {Key: "list", Value: bson.A{int32(1), bson.D{}}}, {Key: "bytes", Value: bson.Binary{Subtype: 4, Data: []byte{1, 255}}},
			}},
			`{"step":0,"time":0,"kind":"wrote","key":"a\"b\\\u000a\u007f","document":{"text":"ü","int":1,"long":{"$numberLong":"1"},` +
				`"double":{"$numberDouble":"1.5"},"date":{"$date":"1970-01-01T00:00:00.001Z"},"stamp":{"$timestamp":{"t":1,"i":2}},"none":null,` +
				`"yes":true,"list":[1,{}],"bytes":{"$binary":{"hex":"01ff","subType":"04"}}}}`,
		},
	} {
		if got := j.Line(&c.event); got != c.want {
			t.Errorf("got\n%s\nwant\n%s", got, c.want)
		}
	}
}

func TestEveryKindHasAName(t *testing.T) {
	for kind := Resumed; kind <= RunEnded; kind++ {
		if kind.String() == "unknown" {
			t.Errorf("kind %d has no name", kind)
		}
	}
}

func record(events ...Event) *Journal { return &Journal{Processes: []string{"p"}, Events: events} }

func TestCompareNamesTheFirstDifference(t *testing.T) {
	a := record(Event{Step: 1, Kind: Resumed}, Event{Step: 2, Kind: Resumed}, Event{Step: 3, Kind: Advanced})
	if err := a.Compare(a.Lines()); err != nil {
		t.Errorf("a journal differs from itself: %v", err)
	}
	for name, c := range map[string]struct {
		other *Journal
		step  int
	}{
		"changed": {record(Event{Step: 1, Kind: Resumed}, Event{Step: 2, Kind: Advanced}, Event{Step: 3, Kind: Advanced}), 2},
		"shorter": {record(Event{Step: 1, Kind: Resumed}), 2},
		"longer":  {record(append(a.Events[:3:3], Event{Step: 4, Kind: Resumed})...), 3},
	} {
		var difference *Difference
		if err := a.Compare(c.other.Lines()); !errors.As(err, &difference) || difference.Step != c.step {
			t.Errorf("%s: got %v, want a difference at step %d", name, err, c.step)
		}
		if a.Hash() == c.other.Hash() {
			t.Errorf("%s: the hashes are the same", name)
		}
	}
}

func TestTheDatabaseIsAFoldOfTheWritesUpToAStep(t *testing.T) {
	document := func(n int32) bson.D { return bson.D{{Key: "n", Value: n}} }
	j := record(
		Event{Step: 1, Kind: Wrote, Collection: "c", Key: "a", Document: document(1)},
		Event{Step: 2, Kind: Wrote, Collection: "c", Key: "b", Document: document(2)},
		Event{Step: 3, Kind: Wrote, Collection: "c", Key: "a", Document: document(3)},
		Event{Step: 4, Kind: Expired, Collection: "c", Key: "b"},
		Event{Step: 5, Kind: Wrote, Collection: "a", Key: "x", Document: document(4)},
	)
	for step, want := range map[int]string{0: "", 1: "1", 2: "1 2", 3: "3 2", 4: "3", -1: "3"} {
		var got []string
		for _, d := range j.At(step).Documents("c") {
			got = append(got, strings.Trim(string(appendValue(nil, d[0].Value)), `"`))
		}
		if strings.Join(got, " ") != want {
			t.Errorf("after step %d: %v, want %s", step, got, want)
		}
	}
	if names := j.At(-1).Collections(); strings.Join(names, " ") != "a c" {
		t.Errorf("collections: %v", names)
	}
}
