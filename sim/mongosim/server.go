package mongosim

import (
	"cmp"
	"encoding/binary"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/fencepost-sim/fencepost/engine/store"
)

// Options configures a Server. The zero value is the primary of a replica set "rs0" with one member.
type Options struct {
	// Seed decides what MongoDB leaves open: the order among documents with equal sort keys, and the order
	// in which a scan of a collection meets documents. Zero keeps the order of insertion.
	Seed uint64
	// Standalone makes a server outside a replica set: it has no change streams, transactions and retryable writes.
	Standalone bool
	// Name is the name of the replica set; empty is "rs0".
	Name string
}

// Server is one MongoDB server. It is not safe for concurrent use.
type Server struct {
	options   Options
	catalog   catalog
	oplog     []Entry
	history   int // oplog entries before this one are gone for change streams
	generated uint64
	sessions  map[string]*memory
	open      []*Transaction // that have not ended

	set       *ReplicaSet // nil for a server alone
	member    int
	role      role
	term      int64
	committed int // entries of the oplog that a majority has
	changes   int64
	majority  *view // of majority reads

	now         time.Time // of the command that runs
	clusterTime bson.Timestamp
	// On whose behalf the command runs.
	view        *view
	statement   *Statement
	transaction *Transaction

	// What a command is compiled into, kept to be used again by the next.
	query     query
	modifiers modifiers
	at        moment
}

// New returns an empty server.
func New(options Options) *Server {
	s := &Server{options: options, term: 1}
	s.modifiers.stamp = s.tick
	if !options.Standalone {
		s.set = &ReplicaSet{name: cmp.Or(options.Name, replicaSetName), term: 1, members: []*Server{s}, cut: make([]bool, 1)}
	}
	return s
}

// Standalone reports whether the server is outside of a replica set.
func (s *Server) Standalone() bool { return s.options.Standalone }

// SetName is the name of the server's replica set, or empty.
func (s *Server) SetName() string {
	if s.set == nil {
		return ""
	}
	return s.set.name
}

// tick takes the next time of the logical clock, which follows the wall clock but never goes back.
// Source: manual, "BSON Types", "Timestamps"; src/mongo/db/vector_clock_mutable.cpp.
func (s *Server) tick() bson.Timestamp {
	seconds := uint32(max(s.now.Unix(), 0))
	if seconds > s.clusterTime.T {
		s.clusterTime = bson.Timestamp{T: seconds, I: 1}
	} else {
		s.clusterTime.I++
	}
	return s.clusterTime
}

func (s *Server) moment() *moment {
	s.at = moment{now: bson.NewDateTimeFromTime(s.now), clusterTime: s.clusterTime, replicated: !s.options.Standalone, stack: s.at.stack}
	s.at.draws = s.options.Seed ^ uint64(s.at.now)<<20 ^ uint64(len(s.oplog))
	return &s.at
}

// ClusterTime is the newest time of the logical clock.
func (s *Server) ClusterTime() bson.Timestamp { return s.clusterTime }

// Gossip moves the logical clock up to a time that the server hears of from a client or another server.
func (s *Server) Gossip(heard bson.Timestamp) {
	if heard.After(s.clusterTime) {
		s.clusterTime = heard
	}
}

// lookup returns the collection as the running command sees it, or nil.
func (s *Server) lookup(name, collection string) *collection {
	if s.view != nil {
		return s.view.lookup(name, collection)
	}
	return s.catalog.lookup(name, collection)
}

// create returns the collection and makes it if necessary. To create one that exists with the same options is a success
// since MongoDB 7.0 (manual, "create").
func (s *Server) create(name, collection string) *collection {
	if c := s.lookup(name, collection); c != nil {
		return c
	}
	return s.createWith(name, collection, settings{})
}

func (s *Server) createWith(name, collection string, options settings) *collection {
	c := newCollection(name, collection, s.options.Seed)
	c.settings = options
	if s.view != nil {
		s.view.copies.add(c)
	} else {
		s.catalog.add(c)
	}
	e := Entry{Operation: Create, Database: name, Collection: collection}
	if options.document != nil {
		e.Detail = &Detail{Settings: options}
	}
	s.log(e)
	return c
}

// newID makes an ObjectID as a server does, but from the seed and a counter.
func (s *Server) newID() bson.ObjectID {
	var id bson.ObjectID
	s.generated++
	binary.BigEndian.PutUint32(id[:4], uint32(s.now.Unix()))
	random := scramble(s.options.Seed, "ObjectId")
	binary.BigEndian.PutUint64(id[4:], random<<24|s.generated&0xffffff)
	return id
}

// Documents returns the documents of a collection in natural order. They must not be changed.
func (s *Server) Documents(database, collection string) []bson.D {
	c := s.catalog.lookup(database, collection)
	if c == nil {
		return nil
	}
	return c.documents()
}

func (c *collection) documents() []bson.D {
	documents := make([]bson.D, 0, c.size)
	for r := c.first; r != nil; r = r.next {
		documents = append(documents, r.document)
	}
	return documents
}

// MajorityDocuments returns the documents as a majority of the members has them: what is not to be rolled back. They must not be changed.
func (s *Server) MajorityDocuments(database, collection string) ([]bson.D, error) {
	seen, err := s.snapshot(&Caller{Majority: true})
	if err != nil || seen == nil {
		return s.Documents(database, collection), err
	}
	c := seen.lookup(database, collection)
	if seen.failure != nil || c == nil {
		return nil, seen.failure
	}
	return c.documents(), nil
}

// find answers a find command.
func (s *Server) find(database string, request *Request) (store.Reply, error) {
	q, err := s.compile(request)
	if err != nil {
		return store.Reply{}, err
	}
	show, err := compileProjection(request.Projection)
	if err != nil {
		return store.Reply{}, err
	}
	// A negative limit asks for one batch: manual, "cursor.limit()".
	q.limit = int(max(request.Limit, -request.Limit))
	if q.limit > 0 {
		q.limit += int(request.Skip)
	}
	reply := store.Reply{Documents: []bson.D{}}
	c := s.lookup(database, request.Collection)
	if c == nil {
		return reply, nil
	}
	found, err := c.find(q, nil)
	if err != nil {
		return store.Reply{}, err
	}
	found = found[min(int(request.Skip), len(found)):]
	reply.Documents = make([]bson.D, len(found))
	for i, r := range found {
		reply.Documents[i] = r.document
		if show != nil {
			if reply.Documents[i], err = show.apply(r.document, q.at); err != nil {
				return store.Reply{}, err
			}
		}
	}
	return reply, nil
}

// compile makes the query of a request. It is good until the next.
func (s *Server) compile(request *Request) (*query, error) {
	q := &s.query
	*q = query{hint: request.Hint, at: s.moment(), filter: node{op: opAnd, children: q.filter.children[:0]}, demands: q.demands[:0]}
	if err := q.let(request.Let); err != nil {
		return q, err
	}
	var err error
	if q.hintKeys, err = normalizeDocument(request.HintKeys); err != nil {
		return q, err
	}
	filter, err := normalizeDocument(request.Filter)
	if err != nil {
		return q, err
	}
	if q.filter.children, err = parseConditions(q.filter.children, filter); err != nil {
		return q, err
	}
	sort, err := normalizeDocument(request.Sort)
	if err != nil {
		return q, err
	}
	return q, parseSort(q, sort)
}

// let makes the variables of a command. Source: manual, "find", let.
func (q *query) let(variables bson.D) error {
	if len(variables) == 0 {
		return nil
	}
	canonical, err := normalizeDocument(variables)
	if err != nil {
		return err
	}
	q.at.variables, err = bind(canonical, nil, q.at)
	return err
}

// Explain tells how a find, update, findAndModify or delete would find its documents.
func (s *Server) Explain(database string, command store.Command) (Plan, error) {
	return s.explain(database, &Request{Command: command})
}

func (s *Server) explain(database string, request *Request) (Plan, error) {
	var plan Plan
	q, err := s.compile(request)
	if err != nil {
		return plan, err
	}
	q.limit = int(max(request.Limit, -request.Limit))
	if request.Kind == store.FindAndModify || request.Kind != store.Find && !request.Multi {
		q.limit = 1
	}
	c := s.lookup(database, request.Collection)
	if c == nil {
		return plan, nil
	}
	_, err = c.find(q, &plan)
	return plan, err
}

// ExplainRequest is Explain for any caller.
func (s *Server) ExplainRequest(caller Caller, database string, request *Request) (plan Plan, err error) {
	err = s.within(caller, false, func() error {
		plan, err = s.explain(database, request)
		return err
	})
	return plan, err
}
