package mongosim

import (
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/fencepost-sim/fencepost/engine/store"
)

// Commands on databases, collections and indexes. Sources: the manual's pages on the commands of the same names.

// DatabaseNames returns the names of the databases, sorted as listDatabases sorts them.
func (s *Server) DatabaseNames() []string {
	var names []string
	for _, d := range s.catalog.databases {
		names = append(names, d.name)
	}
	slices.Sort(names)
	return names
}

// IndexCount is how many indexes a collection has, and whether there is one.
func (s *Server) IndexCount(caller Caller, database, collection string) (n int, exists bool) {
	_ = s.within(caller, false, func() error {
		if c := s.lookup(database, collection); c != nil {
			n, exists = len(c.indexes), true
		}
		return nil
	})
	return n, exists
}

// SizeOf is the number of bytes of the documents in a database.
func (s *Server) SizeOf(database string) (bytes int64) {
	for _, c := range s.catalog.collections(database) {
		for r := c.first; r != nil; r = r.next {
			bytes += int64(size(r.document))
		}
	}
	return bytes
}

// Count is the number of documents in a collection, from its metadata: transactions and snapshots do not matter to it.
func (s *Server) Count(database, collection string) int {
	if c := s.catalog.lookup(database, collection); c != nil {
		return c.size
	}
	return 0
}

func (s *Server) listCollections(name string, request *Request) (store.Reply, error) {
	reply := store.Reply{Documents: []bson.D{}}
	filter, err := normalizeDocument(request.Filter)
	if err != nil {
		return reply, err
	}
	n, err := parseFilter(filter)
	if err != nil {
		return reply, err
	}
	for _, c := range s.catalog.collections(name) {
		document := bson.D{{Key: "name", Value: c.name}, {Key: "type", Value: "collection"}}
		if len(c.settings.document) > 0 {
			document = append(document, bson.E{Key: "options", Value: c.settings.document})
		}
		if ok, err := n.matches(document, s.moment()); err != nil {
			return reply, err
		} else if ok {
			reply.Documents = append(reply.Documents, document)
		}
	}
	return reply, nil
}

// CreateWith creates a collection with options, which are shown by listCollections. Only changeStreamPreAndPostImages means something to
// the model; the caller refuses others whose meaning it would miss. If the collection exists with the same options that is
// a success.
func (s *Server) CreateWith(caller Caller, database, name string, options bson.D) error {
	return s.within(caller, true, func() error {
		if err := checkDatabase(database); err != nil {
			return err
		}
		if err := checkCollection(database, name); err != nil {
			return err
		}
		canonical, err := normalizeDocument(options)
		if err != nil {
			return err
		}
		if c := s.lookup(database, name); c != nil {
			if identicalDocuments(c.settings.document, canonical) {
				return nil
			}
			return refuse(codeNamespaceExists, "namespace %s.%s already exists, but with different options: %s",
				database, name, format(c.settings.document))
		}
		s.createWith(database, name, newSettings(canonical))
		return nil
	})
}

func newSettings(document bson.D) settings {
	images, _ := get(document, "changeStreamPreAndPostImages").(bson.D)
	return settings{document: document, recordPreImages: truth(get(images, "enabled"))}
}

// Drop removes a collection with its indexes, and reports how many indexes it had and whether there was one. Change streams on it
// end.
func (s *Server) Drop(caller Caller, database, name string) (indexes int, existed bool, err error) {
	err = s.within(caller, true, func() error {
		c := s.catalog.lookup(database, name)
		if c == nil {
			return nil
		}
		if err := s.busy(c); err != nil {
			return err
		}
		indexes, existed = len(c.indexes), true
		s.drop(c)
		return nil
	})
	return indexes, existed, err
}

func (s *Server) drop(c *collection) {
	s.catalog.remove(c)
	s.log(Entry{Operation: Drop, Database: c.database, Collection: c.name})
}

// busy: an operation on a collection waits for the transactions that have written to it.
func (s *Server) busy(c *collection) error {
	for _, t := range s.open {
		if t.copies.lookup(c.database, c.name) != nil {
			return ErrBlocked
		}
	}
	return nil
}

// DropDatabase removes a database with its collections, and reports whether there was one.
func (s *Server) DropDatabase(caller Caller, name string) (existed bool, err error) {
	err = s.within(caller, true, func() error {
		collections := slices.Clone(s.catalog.collections(name))
		for _, c := range collections {
			if err := s.busy(c); err != nil {
				return err
			}
		}
		for _, c := range collections {
			s.drop(c)
		}
		if existed = len(collections) > 0; existed {
			s.log(Entry{Operation: DropDatabase, Database: name})
		}
		return nil
	})
	return existed, err
}

// Rename gives a collection another name, and with dropTarget replaces the one that has it.
func (s *Server) Rename(caller Caller, database, name, toDatabase, to string, dropTarget bool) error {
	return s.within(caller, true, func() error {
		c := s.catalog.lookup(database, name)
		if c == nil {
			return refuse(codeNamespaceNotFound, "Source collection %s.%s does not exist", database, name)
		}
		if err := checkCollection(toDatabase, to); err != nil {
			return err
		}
		if database == toDatabase && name == to {
			return refuse(codeIllegalOperation, "Can't rename a collection to itself")
		}
		if err := s.busy(c); err != nil {
			return err
		}
		target := s.catalog.lookup(toDatabase, to)
		if target != nil && !dropTarget {
			return refuse(codeNamespaceExists, "target namespace exists")
		}
		s.catalog.rename(c, toDatabase, to)
		s.log(Entry{Operation: Rename, Database: database, Collection: name, Detail: &Detail{Database: toDatabase, Collection: to, Replaced: target != nil}})
		return nil
	})
}

// DropIndexes removes indexes by name, by key pattern, or with the name "*" all but the one on _id. It returns how many there were.
func (s *Server) DropIndexes(caller Caller, database, name string, names []string, keys bson.D) (had int, err error) {
	err = s.within(caller, true, func() error {
		c := s.catalog.lookup(database, name)
		if c == nil {
			return refuse(codeNamespaceNotFound, "ns not found %s.%s", database, name)
		}
		if err := s.busy(c); err != nil {
			return err
		}
		had = len(c.indexes)
		dropped, err := c.chooseIndexes(names, keys)
		if err != nil {
			return err
		}
		for _, x := range dropped {
			c.dropIndex(x.Name)
		}
		if len(dropped) > 0 {
			s.log(Entry{Operation: DropIndexes, Database: database, Collection: name, Detail: &Detail{Indexes: dropped}})
		}
		return nil
	})
	return had, err
}

func (c *collection) chooseIndexes(names []string, keys bson.D) (chosen []store.Index, err error) {
	if keys != nil {
		if keys, err = normalizeDocument(keys); err != nil {
			return nil, err
		}
		for _, x := range c.indexes {
			if compareDocuments(x.Keys, keys) == 0 {
				chosen = append(chosen, x.Index)
			}
		}
		switch {
		case len(chosen) == 0:
			return nil, refuse(codeIndexNotFound, "can't find index with key: %s", format(keys))
		case len(chosen) > 1:
			return nil, refuse(181, "%d indexes found for key: %s, identify by name instead.", len(chosen), format(keys))
		}
	}
	for _, wanted := range names {
		if wanted == "*" {
			for _, x := range c.indexes[1:] {
				chosen = append(chosen, x.Index)
			}
			return chosen, nil
		}
		i := slices.IndexFunc(c.indexes, func(x *index) bool { return x.Name == wanted })
		if i < 0 {
			return nil, refuse(codeIndexNotFound, "index not found with name [%s]", wanted)
		}
		chosen = append(chosen, c.indexes[i].Index)
	}
	for _, x := range chosen {
		if x.Name == "_id_" {
			return nil, refuse(codeInvalidOptions, "cannot drop _id index")
		}
	}
	return chosen, nil
}

func (c *collection) dropIndex(name string) {
	i := slices.IndexFunc(c.indexes, func(x *index) bool { return x.Name == name })
	if i < 0 {
		return
	}
	c.indexes = slices.Delete(c.indexes, i, i+1)
	for r := c.first; r != nil; r = r.next {
		r.keys = slices.Delete(r.keys, i, i+1)
	}
}

// redefine changes what can be changed of an index that exists: whether it is hidden, and when documents expire.
func (c *collection) redefine(definition store.Index) {
	for _, x := range c.indexes {
		if x.Name == definition.Name {
			x.Hidden, x.ExpireAfterSeconds = definition.Hidden, definition.ExpireAfterSeconds
		}
	}
}

// Modification is what collMod changes. Nil leaves it as it is.
type Modification struct {
	IndexName          string
	IndexKeys          bson.D
	Hidden             *bool
	ExpireAfterSeconds *int32
	Images             *bool // changeStreamPreAndPostImages
}

// CollMod changes a collection or one of its indexes. It returns the index as it was, and whether one was named.
func (s *Server) CollMod(caller Caller, database, name string, m Modification) (before store.Index, named bool, err error) {
	err = s.within(caller, true, func() error {
		c := s.catalog.lookup(database, name)
		if c == nil {
			return refuse(codeNamespaceNotFound, "ns does not exist: %s.%s", database, name)
		}
		detail := &Detail{Settings: c.settings}
		if m.Images != nil {
			detail.Settings = c.settings.withImages(*m.Images)
		}
		if named = m.IndexName != "" || m.IndexKeys != nil; named {
			keys := m.IndexKeys
			var names []string
			if keys == nil {
				names = []string{m.IndexName}
			}
			chosen, err := c.chooseModified(names, keys)
			if err != nil {
				return err
			}
			before = chosen
			if m.Hidden != nil {
				chosen.Hidden = *m.Hidden
			}
			if m.ExpireAfterSeconds != nil {
				chosen.ExpireAfterSeconds = m.ExpireAfterSeconds
			}
			detail.Indexes = []store.Index{chosen}
			c.redefine(chosen)
		}
		c.settings = detail.Settings
		s.log(Entry{Operation: Modify, Database: database, Collection: name, Detail: detail})
		return nil
	})
	return before, named, err
}

func (c *collection) chooseModified(names []string, keys bson.D) (store.Index, error) {
	chosen, err := c.chooseIndexes(names, keys)
	if err != nil {
		return store.Index{}, err
	}
	return chosen[0], nil
}

func (s settings) withImages(enabled bool) settings {
	value := bson.E{Key: "changeStreamPreAndPostImages", Value: bson.D{{Key: "enabled", Value: enabled}}}
	s.document = append(slices.DeleteFunc(slices.Clone(s.document), func(e bson.E) bool { return e.Key == value.Key }), value)
	s.recordPreImages = enabled
	return s
}

// DescribeIndex writes a definition the way listIndexes shows it.
func DescribeIndex(x store.Index) bson.D { return describe(x) }
