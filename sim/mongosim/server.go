package mongosim

import (
	"encoding/binary"
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/fencepost-sim/fencepost/engine/store"
)

// Options configures a Server. The zero value is the primary of a replica set "rs0" with one member.
type Options struct {
	// Seed decides what MongoDB leaves open: the order among documents with equal sort keys, and the order
	// in which a scan of a collection meets documents. Zero keeps the order of insertion.
	Seed uint64
	// Standalone makes a server outside a replica set: it has no change streams.
	Standalone bool
}

// Server is one MongoDB server. It is not safe for concurrent use.
type Server struct {
	options   Options
	databases []*database
	oplog     []Entry
	history   int // oplog entries before this one are gone for change streams
	generated uint64

	now         time.Time // of the command that runs
	clusterTime bson.Timestamp

	// What a command is compiled into, kept to be used again by the next.
	query     query
	modifiers modifiers
	at        moment
}

type database struct {
	name        string
	collections []*collection
}

// New returns an empty server.
func New(options Options) *Server {
	s := &Server{options: options}
	s.modifiers.stamp = s.tick
	return s
}

// Run applies one command atomically at the given time of the server's wall clock. An error is a *store.Error; with it, the
// reply counts what was done before.
func (s *Server) Run(now time.Time, database string, command store.Command) (store.Reply, error) {
	s.now = now
	if command.Kind == store.Hello {
		return store.Reply{Document: s.hello()}, nil
	}
	if database == "" || strings.ContainsAny(database, "/\\. \"$\x00") {
		return store.Reply{}, refuse(codeInvalidNamespace, "Invalid database name: '%s'", database)
	}
	if command.Kind == store.ListCollections {
		return s.listCollections(database, command)
	}
	if err := checkCollection(database, command.Collection); err != nil {
		return store.Reply{}, err
	}
	switch command.Kind {
	case store.Find:
		return s.find(database, &command)
	case store.Insert:
		return s.batch(database, &command, s.insert)
	case store.Update:
		return s.batch(database, &command, s.update)
	case store.FindAndModify:
		return s.findAndModify(database, &command)
	case store.Delete:
		return s.delete(database, &command)
	case store.CreateCollection:
		s.create(database, command.Collection)
		return store.Reply{}, nil
	case store.CreateIndexes:
		return store.Reply{}, s.createIndexes(database, &command)
	case store.ListIndexes:
		return s.listIndexes(database, &command)
	}
	return store.Reply{}, refuse(codeCommandNotFound, "no such command: '%s'", string(command.Kind))
}

func checkCollection(database, name string) error {
	if name == "" || strings.HasPrefix(name, ".") || strings.HasSuffix(name, ".") || strings.ContainsAny(name, "$\x00") {
		return refuse(codeInvalidNamespace, "Invalid namespace specified '%s.%s'", database, name)
	}
	return nil
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
	return &s.at
}

// lookup returns the collection, or nil.
func (s *Server) lookup(name, collection string) *collection {
	for _, d := range s.databases {
		if d.name == name {
			for _, c := range d.collections {
				if c.name == collection {
					return c
				}
			}
		}
	}
	return nil
}

// create returns the collection and makes it if necessary. To create one that exists with the same options is a success
// since MongoDB 7.0 (manual, "create").
func (s *Server) create(name, collection string) *collection {
	if c := s.lookup(name, collection); c != nil {
		return c
	}
	i := slices.IndexFunc(s.databases, func(d *database) bool { return d.name == name })
	if i < 0 {
		i, s.databases = len(s.databases), append(s.databases, &database{name: name})
	}
	c := newCollection(name, collection, s.options.Seed)
	s.databases[i].collections = append(s.databases[i].collections, c)
	s.log(Entry{Operation: Create, Database: name, Collection: collection})
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

func (s *Server) listCollections(name string, command store.Command) (store.Reply, error) {
	reply := store.Reply{Documents: []bson.D{}}
	filter, err := normalizeDocument(command.Filter)
	if err != nil {
		return reply, err
	}
	n, err := parseFilter(filter)
	if err != nil {
		return reply, err
	}
	for _, d := range s.databases {
		if d.name != name {
			continue
		}
		for _, c := range d.collections {
			document := bson.D{{Key: "name", Value: c.name}, {Key: "type", Value: "collection"}}
			if ok, err := n.matches(document, s.moment()); err != nil {
				return reply, err
			} else if ok {
				reply.Documents = append(reply.Documents, document)
			}
		}
	}
	return reply, nil
}

// Documents returns the documents of a collection in natural order. They must not be changed.
func (s *Server) Documents(database, collection string) []bson.D {
	c := s.lookup(database, collection)
	if c == nil {
		return nil
	}
	documents := make([]bson.D, 0, c.size)
	for r := c.first; r != nil; r = r.next {
		documents = append(documents, r.document)
	}
	return documents
}

// find answers a find command.
func (s *Server) find(database string, command *store.Command) (store.Reply, error) {
	q, err := s.compile(command)
	if err != nil {
		return store.Reply{}, err
	}
	show, err := compileProjection(command.Projection)
	if err != nil {
		return store.Reply{}, err
	}
	// A negative limit asks for one batch: manual, "cursor.limit()".
	q.limit = int(max(command.Limit, -command.Limit))
	reply := store.Reply{Documents: []bson.D{}}
	c := s.lookup(database, command.Collection)
	if c == nil {
		return reply, nil
	}
	found, err := c.find(q, nil)
	if err != nil {
		return store.Reply{}, err
	}
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

// compile makes the query of a command. It is good until the next command.
func (s *Server) compile(command *store.Command) (*query, error) {
	q := &s.query
	*q = query{hint: command.Hint, at: s.moment(), filter: node{op: opAnd, children: q.filter.children[:0]}, demands: q.demands[:0]}
	filter, err := normalizeDocument(command.Filter)
	if err != nil {
		return q, err
	}
	if q.filter.children, err = parseConditions(q.filter.children, filter); err != nil {
		return q, err
	}
	sort, err := normalizeDocument(command.Sort)
	if err != nil {
		return q, err
	}
	return q, parseSort(q, sort)
}

// Explain tells how a find, update, findAndModify or delete would find its documents.
func (s *Server) Explain(database string, command store.Command) (Plan, error) {
	var plan Plan
	q, err := s.compile(&command)
	if err != nil {
		return plan, err
	}
	q.limit = int(max(command.Limit, -command.Limit))
	if command.Kind == store.FindAndModify || command.Kind != store.Find && !command.Multi {
		q.limit = 1
	}
	c := s.lookup(database, command.Collection)
	if c == nil {
		return plan, nil
	}
	_, err = c.find(q, &plan)
	return plan, err
}

// Drop removes a collection with its indexes, and reports whether there was one. Change streams on it end.
func (s *Server) Drop(now time.Time, name, dropped string) bool {
	s.now = now
	c := s.lookup(name, dropped)
	if c == nil {
		return false
	}
	for _, d := range s.databases {
		if d.name == name {
			d.collections = slices.DeleteFunc(d.collections, func(o *collection) bool { return o == c })
		}
	}
	s.log(Entry{Operation: Drop, Database: name, Collection: dropped})
	return true
}
