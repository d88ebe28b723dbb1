package main

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/fencepost-sim/fencepost/engine"
	"github.com/fencepost-sim/fencepost/engine/store/mongostore"
)

// said collects what a server says while its clients are at work.
type said struct {
	mu   sync.Mutex
	text strings.Builder
}

func (s *said) Write(text []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(text)
}

func (s *said) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// serving runs simrun serve on a free port until the test ends, and returns its connection string and what it says meanwhile.
func serving(t *testing.T, args ...string) (uri string, problems *said) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	out, written := io.Pipe()
	problems = &said{}
	ended := make(chan error, 1)
	go func() {
		err := serveUntil(ctx, append([]string{"--listen", "127.0.0.1:0"}, args...), written, problems)
		_ = written.CloseWithError(err)
		ended <- err
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return line[strings.Index(line, "mongodb://") : len(line)-1], problems
}

func planFile(t *testing.T, plan string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "plan")
	if err := os.WriteFile(path, []byte(plan), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func connected(t *testing.T, uri string) *mongo.Client {
	t.Helper()
	client, err := mongo.Connect(options.Client().ApplyURI(uri))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Disconnect(context.Background()) })
	return client
}

func TestServeLosesAReplyByPlanAndTheDriverSendsTheWriteAgain(t *testing.T) {
	uri, problems := serving(t, "--faults", planFile(t, "# the first insert\nlose-reply command=insert\n"))
	orders := connected(t, uri).Database("shop").Collection("orders")
	if _, err := orders.InsertOne(t.Context(), bson.D{{Key: "_id", Value: 1}}); err != nil {
		t.Fatal(err)
	}
	if n, err := orders.CountDocuments(t.Context(), bson.D{}); n != 1 || err != nil {
		t.Errorf("%d orders, %v", n, err)
	}
	if problems.String() != "simrun: fault lose-reply insert\n" {
		t.Errorf("it said %q", problems)
	}
}

func TestServeRefusesAPlanThatCannotBe(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--faults", planFile(t, "explode command=insert")}, "line 1: wire: invalid fault: explode: allowed: [lose-request"},
		{[]string{"--faults", "/no/such/plan"}, "/no/such/plan"},
		{[]string{"--standalone", "--faults", planFile(t, "stepdown after=1s")}, "--standalone has nobody who could step down"},
	} {
		exit, _, problems := simrun(append([]string{"serve"}, c.args...)...)
		if exit != exitUsage || !strings.Contains(problems, c.want) {
			t.Errorf("%v: exit %d, %s; want %q", c.args, exit, problems, c.want)
		}
	}
}

// node runs a step of testdata/node/client.js and decodes what it prints.
func node(t *testing.T, folder, uri, step string, argument, result any) {
	t.Helper()
	input, err := bson.MarshalExtJSON(bson.D{{Key: "x", Value: argument}}, true, false)
	if err != nil {
		t.Fatal(err)
	}
	text := strings.TrimSuffix(strings.TrimPrefix(string(input), `{"x":`), "}")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	command := exec.CommandContext(ctx, "node", "client.js", uri, step, text)
	command.Dir = folder
	var complaints strings.Builder
	command.Stderr = &complaints
	out, err := command.Output()
	if err != nil {
		t.Fatalf("node client.js %s: %v\n%s", step, err, complaints.String())
	}
	if err := json.Unmarshal(out, result); err != nil {
		t.Fatalf("node client.js %s printed %q: %v", step, out, err)
	}
}

// TestNodesDriver has MongoDB's driver for Node do on simrun serve what the engine's TypeScript replicas would. It installs the driver, so it asks to be asked:
// FENCEPOST_NODE=1 go test ./cmd/simrun -run Node -v
func TestNodesDriver(t *testing.T) {
	if os.Getenv("FENCEPOST_NODE") == "" {
		t.Skip("SKIP: FENCEPOST_NODE is not set; with it, npm installs MongoDB's driver for Node, and it is run against simrun serve")
	}
	folder := t.TempDir()
	if err := os.CopyFS(folder, os.DirFS("testdata/node")); err != nil {
		t.Fatal(err)
	}
	install := exec.CommandContext(t.Context(), "npm", "install", "--no-audit", "--no-fund")
	install.Dir = folder
	if out, err := install.CombinedOutput(); err != nil {
		t.Fatalf("npm install: %v\n%s", err, out)
	}
	// The first request for events gets no answer, so that the stream has to be resumed on another connection. (So early
	// in its life the driver notices only with its next heartbeat that the server is there, after 10 s.)
	uri, problems := serving(t, "--faults", planFile(t, "lose-request command=getMore collection=events"))
	client := connected(t, uri)

	t.Run("creates the engine's indexes", func(t *testing.T) {
		wanted := engineIndexes(t, client)
		var listed map[string][]map[string]any
		node(t, folder, uri, "indexes", wanted, &listed)
		for _, w := range wanted {
			name := w[0].Value.(string)
			if engines, nodes := indexNames(t, client, "app", name), indexNames(t, client, "node", name); !reflect.DeepEqual(engines, nodes) {
				t.Errorf("%s: the engine made %v, node %v", name, engines, nodes)
			}
			if len(listed[name]) != len(w[1].Value.(bson.A))+1 {
				t.Errorf("%s: node lists %v", name, listed[name])
			}
		}
	})
	t.Run("resumes a change stream with its token", func(t *testing.T) {
		var watched struct {
			Token map[string]any
			Key   int
		}
		node(t, folder, uri, "watch", nil, &watched)
		var resumed struct{ Keys []int }
		node(t, folder, uri, "resume", bson.D{{Key: "token", Value: watched.Token}, {Key: "count", Value: 2}, {Key: "insertAt", Value: 1}}, &resumed)
		if n := strings.Count(problems.String(), "fault lose-request getMore"); n != 1 {
			t.Errorf("%d requests for events were lost; want 1: %s", n, problems)
		}
		if watched.Key != 1 || !reflect.DeepEqual(resumed.Keys, []int{2, 3}) {
			t.Errorf("saw %d, and after a restart of the client with the token %v; want 1, and then 2 and 3", watched.Key, resumed.Keys)
		}
	})
	t.Run("commits and aborts transactions", func(t *testing.T) {
		var accounts []map[string]any
		node(t, folder, uri, "transaction", nil, &accounts)
		want := []map[string]any{{"_id": "a"}, {"_id": "b", "n": 1.0}}
		if !reflect.DeepEqual(accounts, want) {
			t.Errorf("accounts %v; want %v", accounts, want)
		}
	})
}

// engineIndexes has an engine make its indexes, and returns them as another client would make them.
func engineIndexes(t *testing.T, client *mongo.Client) (collections []bson.D) {
	t.Helper()
	database := client.Database("app")
	eng, err := engine.Open(t.Context(), engine.Options{Store: mongostore.New(database), ConsumerGroup: "node"})
	if err != nil {
		t.Fatal(err)
	}
	if err := eng.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	names, err := database.ListCollectionNames(t.Context(), bson.D{})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		indexes := bson.A{}
		for _, index := range specifications(t, client, "app", name) {
			if index[2].Value == "_id_" {
				continue
			}
			indexes = append(indexes, index[1:]) // without v
		}
		collections = append(collections, bson.D{{Key: "collection", Value: name}, {Key: "indexes", Value: indexes}})
	}
	if len(collections) != 4 {
		t.Fatalf("the engine made %v; want 4 collections", names)
	}
	return collections
}

func specifications(t *testing.T, client *mongo.Client, database, collection string) (all []bson.D) {
	t.Helper()
	cursor, err := client.Database(database).Collection(collection).Indexes().List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := cursor.All(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	return all
}

// indexNames are the specifications by name.
func indexNames(t *testing.T, client *mongo.Client, database, collection string) map[string]bson.D {
	all := map[string]bson.D{}
	for _, index := range specifications(t, client, database, collection) {
		all[index[2].Value.(string)] = index
	}
	return all
}
