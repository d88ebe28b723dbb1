package mongosim

import (
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// catalog is a set of databases with their collections, in the order in which they were created.
type catalog struct{ databases []*database }

type database struct {
	name        string
	collections []*collection
}

// lookup returns the collection, or nil.
func (c *catalog) lookup(name, wanted string) *collection {
	for _, d := range c.databases {
		if d.name != name {
			continue
		}
		for _, found := range d.collections {
			if found.name == wanted {
				return found
			}
		}
	}
	return nil
}

// collections returns the collections of a database. They must not be changed.
func (c *catalog) collections(name string) []*collection {
	for _, d := range c.databases {
		if d.name == name {
			return d.collections
		}
	}
	return nil
}

// add takes in a collection whose name is free.
func (c *catalog) add(added *collection) {
	i := slices.IndexFunc(c.databases, func(d *database) bool { return d.name == added.database })
	if i < 0 {
		i, c.databases = len(c.databases), append(c.databases, &database{name: added.database})
	}
	c.databases[i].collections = append(c.databases[i].collections, added)
}

// remove takes a collection out, and its database if that was the last.
func (c *catalog) remove(removed *collection) {
	for i, d := range c.databases {
		if d.name != removed.database {
			continue
		}
		d.collections = slices.DeleteFunc(d.collections, func(o *collection) bool { return o == removed })
		if len(d.collections) == 0 {
			c.databases = slices.Delete(c.databases, i, i+1)
		}
		return
	}
}

// clone returns a copy of the collection that can be changed by itself. The documents, which are never changed, are shared.
func (c *collection) clone() *collection {
	out := &collection{
		database: c.database, name: c.name, seed: c.seed, size: c.size, sequence: c.sequence, settings: c.settings,
		indexes: make([]*index, len(c.indexes)),
	}
	twins := make([]record, c.size)
	i := 0
	for r := c.first; r != nil; r = r.next {
		twin := &twins[i]
		*twin = record{document: r.document, keys: slices.Clone(r.keys), sequence: r.sequence, tie: r.tie, previous: out.last}
		if out.last == nil {
			out.first = twin
		} else {
			out.last.next = twin
		}
		out.last, r.twin = twin, twin
		i++
	}
	for i, x := range c.indexes {
		copied := *x
		copied.buffer, copied.entries = nil, x.entries.clone()
		out.indexes[i] = &copied
	}
	for r := c.first; r != nil; r = r.next {
		r.twin = nil
	}
	return out
}

// clone copies the sequence; each entry leads to the twin of its record.
func (s *ordered) clone() ordered {
	out := ordered{size: s.size, blocks: make([][]entry, len(s.blocks))}
	for i, block := range s.blocks {
		copied := make([]entry, len(block))
		for j, e := range block {
			copied[j] = entry{e.key, e.record.twin}
		}
		out.blocks[i] = copied
	}
	return out
}

// apply carries out an entry of the oplog that another member, or a transaction, has made. The data is then as it was
// there after it.
func (c *catalog) apply(e *Entry, seed uint64) error {
	on := c.lookup(e.Database, e.Collection)
	if on == nil && e.Operation != Create && e.Operation != Insert {
		if e.ID == nil {
			return nil // about a collection that is gone, or the whole database
		}
		return refuse(codeNamespaceNotFound, "no collection %s.%s for an entry of the oplog", e.Database, e.Collection)
	}
	switch e.Operation {
	case Create:
		if on == nil {
			created := newCollection(e.Database, e.Collection, seed)
			if e.Detail != nil {
				created.settings = e.Detail.Settings
			}
			c.add(created)
		}
	case Insert:
		if on == nil {
			on = newCollection(e.Database, e.Collection, seed)
			c.add(on)
		}
		return on.insert(e.After)
	case Update, Replace:
		return on.replace(on.byID(e.ID), e.After)
	case Delete:
		on.remove(on.byID(e.ID))
	case CreateIndexes:
		for _, definition := range e.Detail.Indexes {
			if err := on.build(definition); err != nil {
				return err
			}
		}
	case DropIndexes:
		for _, definition := range e.Detail.Indexes {
			on.dropIndex(definition.Name)
		}
	case Modify:
		on.settings = e.Detail.Settings
		for _, definition := range e.Detail.Indexes {
			on.redefine(definition)
		}
	case Drop:
		c.remove(on)
	case Rename:
		c.rename(on, e.Detail.Database, e.Detail.Collection)
	}
	return nil
}

// undo takes back an entry about a document. The data is then as it was before it.
func (c *catalog) undo(e *Entry) error {
	on := c.lookup(e.Database, e.Collection)
	if on == nil {
		return nil
	}
	switch e.Operation {
	case Insert:
		on.remove(on.byID(e.ID))
	case Update, Replace:
		return on.replace(on.byID(e.ID), e.Before)
	case Delete:
		return on.insert(e.Before)
	case Create:
		c.remove(on)
	}
	return nil
}

func (c *catalog) rename(on *collection, database, name string) {
	if replaced := c.lookup(database, name); replaced != nil {
		c.remove(replaced)
	}
	c.remove(on)
	on.database, on.name = database, name
	c.add(on)
}

// settings are the options of a collection that the model knows.
type settings struct {
	// recordPreImages: change streams can show documents as they were before a change.
	recordPreImages bool
	// document is what listCollections shows as options.
	document bson.D
}
