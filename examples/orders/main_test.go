package main

import (
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// output is written to by handlers, which run beside each other.
type output struct {
	lock sync.Mutex
	text strings.Builder
}

func (o *output) Write(bytes []byte) (int, error) {
	o.lock.Lock()
	defer o.lock.Unlock()
	return o.text.Write(bytes)
}

// TestOrdersAreChargedOnceEachThroughTheRealDriver is the whole of production but the server: goroutines, the wall clock,
// the official driver and the wire protocol.
func TestOrdersAreChargedOnceEachThroughTheRealDriver(t *testing.T) {
	var out output
	if err := run(t.Context(), &out, "", true, 5); err != nil {
		t.Fatal(err)
	}
	want := "charge 250 cents for order 1, attempt 1\n" +
		"charge 500 cents for order 2, attempt 1\n" +
		"charge 750 cents for order 3, attempt 1\n" +
		"charge 1000 cents for order 4, attempt 1\n" +
		"charge 1250 cents for order 5, attempt 1\n"
	if got := out.text.String(); got != want {
		t.Errorf("printed\n%s\nwant\n%s", got, want)
	}
}

func TestWithoutADatabaseItSaysWhatToDo(t *testing.T) {
	var out output
	for uri, want := range map[string]string{
		"":                  "--demo",
		"mongodb://host/":   "names no database",
		"postgres://host/x": "scheme",
	} {
		if err := run(t.Context(), &out, uri, false, 1); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", uri, err, want)
		}
	}
}
