package storetest_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.uber.org/goleak"

	"github.com/fencepost-sim/fencepost/engine/store"
	"github.com/fencepost-sim/fencepost/engine/store/storetest"
	"github.com/fencepost-sim/fencepost/sim/mongosim"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The model leaves open what MongoDB leaves open, and decides it by a seed: no test may depend on it.
func TestTheModelKeepsTheContract(t *testing.T) {
	for seed := range uint64(4) {
		storetest.Run(t, func(*testing.T) store.Store {
			return &model{server: mongosim.New(mongosim.Options{Seed: seed}), changed: make(chan struct{})}
		})
	}
}

// model is the thinnest Store over the model: one command at a time, on the wall clock.
type model struct {
	mu      sync.Mutex
	server  *mongosim.Server
	changed chan struct{} // closed by the next command
}

const database = "contract"

func (m *model) Run(_ context.Context, command store.Command) (store.Reply, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	reply, err := m.server.Run(time.Now(), database, command)
	close(m.changed)
	m.changed = make(chan struct{})
	return reply, err
}

func (m *model) Watch(_ context.Context, watch store.Watch) (store.Stream, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	changes, err := m.server.OpenStream(database, watch)
	if err != nil {
		return nil, err
	}
	return &stream{model: m, changes: changes, token: changes.Token(), closed: make(chan struct{})}, nil
}

type stream struct {
	model   *model
	changes *mongosim.Stream
	token   bson.D
	once    sync.Once
	closed  chan struct{}
}

func (s *stream) Next(ctx context.Context) (store.Change, error) {
	for {
		change, available, changed, err := s.look()
		if err != nil {
			return store.Change{}, err
		}
		select {
		case <-s.closed:
			return store.Change{}, store.ErrStreamClosed
		default:
		}
		if available {
			s.token = change.Token
			return change, nil
		}
		select {
		case <-changed:
		case <-s.closed:
		case <-ctx.Done():
			return store.Change{}, context.Cause(ctx)
		}
	}
}

func (s *stream) look() (change store.Change, available bool, changed <-chan struct{}, err error) {
	s.model.mu.Lock()
	defer s.model.mu.Unlock()
	change, available, err = s.changes.Next()
	return change, available, s.model.changed, err
}

func (s *stream) Token() bson.D { return s.token }

func (s *stream) Close(context.Context) error {
	s.once.Do(func() { close(s.closed) })
	return nil
}
