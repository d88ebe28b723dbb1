package wire

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/fencepost-sim/fencepost/sim/mongosim"
)

func TestAFaultThatCannotBeIsRefusedWithLineFieldAndWhatIsAllowed(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"explode command=insert", "explode: allowed: [lose-request"},
		{"# fine\nlose-reply", `line 2: wire: invalid fault: lose-reply: command ""; allowed: any, or the name`},
		{"lose-reply command=inserts", `command "inserts"; allowed: any`},
		{"lose-reply command=insert occurrence=0", "occurrence 0; allowed: 1 and more"},
		{"lose-reply command=insert occurrence=x", `field "occurrence=x"`},
		{"lose-reply command=insert count=-3", "count -3; allowed: all, or 1 and more"},
		{"lose-reply command=insert colour=red", `field "colour=red": allowed: command, collection`},
		{"refuse command=insert after=1s", "for 0s; allowed: more than 0"},
		{"refuse command=insert for=1s count=2", "occurrence and count do not go with after and for"},
		{"refuse command=insert after=-1s for=1s", "after -1s; allowed: 0 and more"},
		{"refuse command=insert code=0", "code 0; allowed: 1 and more"},
		{"lose-reply command=insert code=7", "code 7; allowed: 1 and more, with refuse"},
		{"stepdown", "it needs either command or after"},
		{"stepdown command=insert after=1s", "it needs either command or after"},
		{"drop-notifications command=insert", "command, after and for do not go with it"},
	} {
		_, err := ParseFaults(c.text)
		if !errors.Is(err, ErrFault) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("ParseFaults(%q) = %v; want ErrFault with %q", c.text, err, c.want)
		}
	}
}

// struck collects what struck.
type struck struct {
	mu   sync.Mutex
	text []string
}

func (s *struck) note(f Fault, command string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.text = append(s.text, strings.TrimSpace(string(f.Kind)+" "+command))
}

func (s *struck) all() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.text, ", ")
}

// clock is a server's clock that stands still until it is set.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) read() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) advance(span time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(span)
}

// planned is a server with a plan, and a client of it that counts the commands that it sends.
type planned struct {
	collection *mongo.Collection
	struck     *struck
	clock      *clock
	mu         sync.Mutex
	sent       map[string]int
}

func (p *planned) count(command string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.sent[command]
}

func servePlan(t *testing.T, plan string, retry bool) *planned {
	t.Helper()
	faults, err := ParseFaults(plan)
	if err != nil {
		t.Fatal(err)
	}
	p := &planned{struck: &struck{}, clock: &clock{now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}, sent: map[string]int{}}
	server := NewServer(Options{
		Model: mongosim.NewReplicaSet(mongosim.Options{}, 1).Members()[0], Faults: faults, Struck: p.struck.note, Now: p.clock.read,
	})
	t.Cleanup(server.Close)
	monitor := &event.CommandMonitor{Started: func(_ context.Context, e *event.CommandStartedEvent) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.sent[e.CommandName]++
	}}
	client, err := mongo.Connect(options.Client().ApplyURI("mongodb://model/?replicaSet=rs0").SetDialer(server.Dialer()).SetMonitor(monitor).
		SetRetryWrites(retry).SetRetryReads(retry))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Disconnect(context.Background()) })
	p.collection = client.Database("db").Collection("c")
	return p
}

func (p *planned) insert(id int) error {
	_, err := p.collection.InsertOne(context.Background(), bson.D{{Key: "_id", Value: id}})
	return err
}

func (p *planned) documents(t *testing.T) int64 {
	t.Helper()
	n, err := p.collection.CountDocuments(context.Background(), bson.D{})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestALostReplyIsRetriedByTheDriverAndAppliedOnce(t *testing.T) {
	p := servePlan(t, "lose-reply command=insert occurrence=2", true)
	for id := range 3 {
		if err := p.insert(id); err != nil {
			t.Fatal(err)
		}
	}
	if n, sent := p.documents(t), p.count("insert"); n != 3 || sent != 4 || p.struck.all() != "lose-reply insert" {
		t.Errorf("%d documents, %d inserts sent, struck: %s", n, sent, p.struck.all())
	}
}

func TestALostReplyWithoutRetriesIsANetworkErrorAfterTheWrite(t *testing.T) {
	p := servePlan(t, "lose-reply command=insert\nlose-request command=insert occurrence=2", false)
	for id := range 2 {
		if err := p.insert(id); !mongo.IsNetworkError(err) {
			t.Errorf("insert %d: %v; want a network error", id, err)
		}
	}
	if n := p.documents(t); n != 1 {
		t.Errorf("%d documents; want that of the lost reply, and not that of the lost request", n)
	}
}

func TestARefusedCommandGetsTheCodeForAsLongAsThePlanSays(t *testing.T) {
	p := servePlan(t, "refuse command=insert after=5s for=10s code=13\nrefuse command=any collection=other count=all code=26", true)
	for _, c := range []struct {
		at      time.Duration
		refused bool
	}{{0, false}, {4 * time.Second, false}, {5 * time.Second, true}, {14 * time.Second, true}, {15 * time.Second, false}} {
		p.clock.advance(c.at - p.clock.read().Sub(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)))
		err := p.insert(int(c.at.Seconds()))
		var answer mongo.CommandError
		if refused := errors.As(err, &answer) && answer.Code == 13; refused != c.refused || err != nil && !refused {
			t.Errorf("after %v: %v; refused should be %v", c.at, err, c.refused)
		}
	}
	_, err := p.collection.Database().Collection("other").Find(context.Background(), bson.D{})
	var answer mongo.CommandError
	if !errors.As(err, &answer) || answer.Code != 26 {
		t.Errorf("find in the other collection: %v; want code 26", err)
	}
}

func TestAPrimaryThatStepsDownBeforeAWriteIsFoundAgainByTheDriver(t *testing.T) {
	p := servePlan(t, "stepdown command=insert occurrence=2 for=50ms", true)
	for id := range 3 {
		if err := p.insert(id); err != nil {
			t.Fatal(err)
		}
	}
	if n, sent := p.documents(t), p.count("insert"); n != 3 || sent != 4 || p.struck.all() != "stepdown insert" {
		t.Errorf("%d documents, %d inserts sent, struck: %s", n, sent, p.struck.all())
	}
}

func TestAPrimaryStepsDownAtItsTime(t *testing.T) {
	faults, err := ParseFaults("stepdown after=1ms for=1h")
	if err != nil {
		t.Fatal(err)
	}
	down := make(chan struct{})
	server := NewServer(Options{
		Model:  mongosim.NewReplicaSet(mongosim.Options{}, 1).Members()[0],
		Faults: faults, Struck: func(Fault, string) { close(down) },
	})
	defer server.Close()
	<-down
	server.Do(func(model *mongosim.Server) {
		if model.IsPrimary() {
			t.Error("it is still primary")
		}
	})
}

func TestDroppedNotificationsNeverComeAndTheStreamGoesOn(t *testing.T) {
	p := servePlan(t, "drop-notifications collection=c occurrence=2", true)
	ctx := context.Background()
	stream, err := p.collection.Watch(ctx, bson.A{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = stream.Close(ctx) }()
	for id := range 3 {
		if err := p.insert(id); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []int32{0, 2} {
		if !stream.Next(ctx) {
			t.Fatal(stream.Err())
		}
		if got := stream.Current.Lookup("documentKey", "_id").Int32(); got != want {
			t.Errorf("notified of %d; want %d", got, want)
		}
	}
	if p.struck.all() != "drop-notifications" {
		t.Errorf("struck: %s", p.struck.all())
	}
}
