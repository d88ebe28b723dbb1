package mongosim

import (
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/fencepost-sim/fencepost/engine/store"
)

// batch applies the parts of a request one by one.
func (s *Server) batch(database string, request *Request, one func(string, *Request) (store.Reply, error)) (store.Reply, error) {
	if n := len(request.Documents) + len(request.Statements); n > maxWriteBatchSize || request.Kind == store.Insert && n == 0 {
		return store.Reply{}, refuse(codeInvalidLength,
			"Write batch sizes must be between 1 and %d. Got %d operations.", maxWriteBatchSize, n)
	}
	return request.Gather(func(command store.Command) (store.Reply, error) {
		part := *request
		part.Command = command
		return one(database, &part)
	})
}

func (s *Server) insert(database string, request *Request) (store.Reply, error) {
	if err := s.insertOne(database, request.Collection, request.Documents[0]); err != nil {
		return store.Reply{}, err
	}
	return store.Reply{Inserted: 1}, nil
}

func (s *Server) insertOne(database, name string, d bson.D) error {
	d, err := normalizeDocument(d)
	if err != nil {
		return err
	}
	if n := size(d); n > maxDocumentSize {
		return refuse(codeBadValue, "object to insert too large. size in bytes: %d, max size: %d", n, maxDocumentSize)
	}
	if tooDeep(d, maxDepth) {
		return refuse(codeOverflow, "cannot insert document because it exceeds %d levels of nesting", maxDepth)
	}
	if isMissing(get(d, "_id")) {
		d = append(bson.D{{Key: "_id", Value: s.newID()}}, d...)
	}
	d = stampZeros(withIDFirst(d), s.modifiers.stamp)
	return s.store(s.create(database, name), d)
}

// store puts a finished document into the collection.
func (s *Server) store(c *collection, d bson.D) error {
	if err := checkID(d[0].Value); err != nil {
		return err
	}
	if err := s.guard(c, d[0].Value, d); err != nil {
		return err
	}
	if err := c.insert(d); err != nil {
		return err
	}
	s.log(Entry{Operation: Insert, Database: c.database, Collection: c.name, ID: d[0].Value, After: d, Images: c.settings.recordPreImages})
	return nil
}

// updater compiles the command's update.
func (s *Server) updater(command *Request) (updater, error) {
	if command.Pipeline != nil {
		stages := make([]bson.D, len(command.Pipeline))
		for i, d := range command.Pipeline {
			var err error
			if stages[i], err = normalizeDocument(d); err != nil {
				return nil, err
			}
		}
		return parsePipeline(stages)
	}
	if command.Update == nil {
		return nil, refuse(codeFailedToParse, "Update argument must be either an object or an array")
	}
	update, err := normalizeDocument(command.Update)
	if err != nil {
		return nil, err
	}
	return s.modifiers.parse(update, command)
}

// compileChange makes the query and the update of a command.
func (s *Server) compileChange(command *Request) (*query, updater, error) {
	q, err := s.compile(command)
	if err != nil {
		return nil, nil, err
	}
	u, err := s.updater(command)
	return q, u, err
}

func (s *Server) update(database string, command *Request) (store.Reply, error) {
	var reply store.Reply
	q, u, err := s.compileChange(command)
	if err != nil {
		return reply, err
	}
	if !command.Multi {
		q.limit = 1
	}
	c := s.lookup(database, command.Collection)
	var found []*record
	if c != nil {
		if found, err = c.find(q, nil); err != nil {
			return reply, err
		}
	}
	for _, r := range found {
		changed, err := s.change(c, r, u, q)
		if err != nil {
			return reply, err
		}
		reply.Matched++
		if changed {
			reply.Modified++
		}
	}
	if len(found) == 0 && command.Upsert {
		document, err := s.upsert(database, command.Collection, q, u)
		if err != nil {
			return reply, err
		}
		reply.Upserted = document[0].Value
	}
	return reply, nil
}

// change updates one document.
func (s *Server) change(c *collection, r *record, u updater, q *query) (changed bool, err error) {
	before := r.document
	after, changed, err := u.apply(before, q, false)
	if err != nil || !changed {
		return false, err
	}
	if len(after) == 0 || !equal(get(after, "_id"), before[0].Value) {
		return false, immutableID()
	}
	if n := size(after); n > maxDocumentSize {
		return false, refuse(17419, "Resulting document after update is larger than %d", maxDocumentSize)
	}
	if tooDeep(after, maxDepth) {
		return false, refuse(codeOverflow, "The resulting document exceeds %d levels of nesting", maxDepth)
	}
	if err := s.guard(c, after[0].Value, after); err != nil {
		return false, err
	}
	if err := c.replace(r, after); err != nil {
		return false, err
	}
	operation := Update
	if _, whole := u.(*replacement); whole {
		operation = Replace
	}
	s.log(Entry{Operation: operation, Database: c.database, Collection: c.name, ID: after[0].Value, Before: before, After: after, Images: c.settings.recordPreImages})
	return true, nil
}

func immutableID() error {
	return refuse(codeImmutableField, "Performing an update on the path '_id' would modify the immutable field '_id'")
}

func (s *Server) findAndModify(database string, request *Request) (Outcome, error) {
	var outcome Outcome
	q, err := s.compile(request)
	if err != nil {
		return outcome, err
	}
	var u updater
	if !request.Remove {
		if u, err = s.updater(request); err != nil {
			return outcome, err
		}
	}
	show, err := compileProjection(request.Projection)
	if err != nil {
		return outcome, err
	}
	q.limit = 1
	if outcome, err = s.modifyOne(database, request, q, u); err != nil || outcome.Document == nil || show == nil {
		return outcome, err
	}
	outcome.Document, err = show.apply(outcome.Document, q.at)
	return outcome, err
}

// modifyOne changes, deletes or inserts a document, and returns the version that the request asks for, if there is one.
func (s *Server) modifyOne(database string, request *Request, q *query, u updater) (Outcome, error) {
	c := s.lookup(database, request.Collection)
	var found []*record
	var err error
	if c != nil {
		if found, err = c.find(q, nil); err != nil {
			return Outcome{}, err
		}
	}
	var outcome Outcome
	if len(found) == 0 {
		if !request.Upsert {
			return Outcome{}, nil
		}
		inserted, err := s.upsert(database, request.Collection, q, u)
		if err != nil {
			return Outcome{}, err
		}
		outcome.Created = inserted[0].Value
		if !request.ReturnBefore {
			outcome.Document = inserted
		}
		return outcome, nil
	}
	r := found[0]
	outcome.Existing, outcome.Document = true, r.document
	if request.Remove {
		return outcome, s.remove(c, r, false)
	}
	if _, err := s.change(c, r, u, q); err != nil {
		return Outcome{}, err
	}
	if !request.ReturnBefore {
		outcome.Document = r.document
	}
	return outcome, nil
}

func (s *Server) delete(database string, request *Request) (store.Reply, error) {
	var reply store.Reply
	q, err := s.compile(request)
	if err != nil {
		return reply, err
	}
	c := s.lookup(database, request.Collection)
	if c == nil {
		return reply, nil
	}
	if !request.Multi {
		q.limit = 1
	}
	found, err := c.find(q, nil)
	if err != nil {
		return reply, err
	}
	for _, r := range found {
		if err := s.remove(c, r, false); err != nil {
			return reply, err
		}
		reply.Matched++
	}
	return reply, nil
}

func (s *Server) remove(c *collection, r *record, expired bool) error {
	if err := s.guard(c, r.document[0].Value, nil); err != nil {
		return err
	}
	c.remove(r)
	s.log(Entry{Operation: Delete, Database: c.database, Collection: c.name, ID: r.document[0].Value, Before: r.document, Expired: expired, Images: c.settings.recordPreImages})
	return nil
}
