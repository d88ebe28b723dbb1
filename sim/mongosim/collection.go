package mongosim

import (
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/fencepost-sim/fencepost/engine/store"
)

// record is one stored document. Records form a list in natural order.
type record struct {
	document       bson.D // immutable; an update replaces it
	keys           []keySet
	sequence       uint64  // in natural order
	tie            uint64  // order among equals: the sequence, or a hash
	visited        uint64  // the last scan that saw it
	twin           *record // while the collection is being copied
	previous, next *record
}

// before is the order among documents that MongoDB leaves unordered.
func (r *record) before(o *record) bool {
	if r.tie != o.tie {
		return r.tie < o.tie
	}
	return r.sequence < o.sequence
}

// keySet holds the keys of one record in one index. Nearly always that is one key; it is none if the index
// does not hold the record, and several if a field is an array.
type keySet struct {
	first string // "" if there is none: a key has at least one byte
	more  []string
}

func (k keySet) each(visit func(key string)) {
	if k.first == "" {
		return
	}
	visit(k.first)
	for _, key := range k.more {
		visit(key)
	}
}

// single reports whether it is exactly one key.
func (k keySet) single() bool { return k.first != "" && k.more == nil }

func (k keySet) equal(o keySet) bool {
	if k.first != o.first || len(k.more) != len(o.more) {
		return false
	}
	for i := range k.more {
		if k.more[i] != o.more[i] {
			return false
		}
	}
	return true
}

// collection is a set of documents with its indexes. The first index is always the one on _id.
type collection struct {
	database, name string
	seed           uint64
	indexes        []*index
	first, last    *record
	size           int
	sequence       uint64
	scan           uint64
	settings       settings
}

func newCollection(database, name string, seed uint64) *collection {
	id := store.Index{Name: "_id_", Keys: bson.D{{Key: "_id", Value: int32(1)}}}
	return &collection{database: database, name: name, seed: seed, indexes: []*index{newIndex(id)}}
}

func (c *collection) namespace() string { return c.database + "." + c.name }

// insert stores a document that has an _id, or reports the unique index that it violates.
func (c *collection) insert(d bson.D) error {
	keys := make([]keySet, len(c.indexes))
	for i, x := range c.indexes {
		var err error
		if keys[i], err = x.keysOf(d); err != nil {
			return err
		}
		if err := c.checkUnique(x, keys[i], nil, d); err != nil {
			return err
		}
	}
	c.sequence++
	r := &record{document: d, keys: keys, sequence: c.sequence, tie: c.sequence, previous: c.last}
	if c.seed != 0 {
		r.tie = scramble(c.seed, keys[0].first)
	}
	if c.last == nil {
		c.first = r
	} else {
		c.last.next = r
	}
	c.last = r
	c.size++
	for i, x := range c.indexes {
		x.add(r, keys[i])
	}
	return nil
}

// scramble hashes an encoded _id with the seed (FNV-1a, then the finalizer of MurmurHash3: both public domain).
func scramble(seed uint64, id string) uint64 {
	h := seed ^ 0xcbf29ce484222325
	for i := range len(id) {
		h = (h ^ uint64(id[i])) * 0x100000001b3
	}
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	h = (h ^ h>>33) * 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}

// replace stores a new version of a document under the same _id.
func (c *collection) replace(r *record, d bson.D) error {
	var buffer [16]keySet
	var names [16]string
	keys, changed := buffer[:0], appendChanged(names[:0], r.document, d)
	for i, x := range c.indexes {
		if !x.touchedBy(changed) {
			keys = append(keys, r.keys[i])
			continue
		}
		k, err := x.keysOf(d)
		if err != nil {
			return err
		}
		if !k.equal(r.keys[i]) {
			if err := c.checkUnique(x, k, r, d); err != nil {
				return err
			}
		}
		keys = append(keys, k)
	}
	for i, x := range c.indexes {
		if !keys[i].equal(r.keys[i]) {
			x.move(r, r.keys[i], keys[i])
			r.keys[i] = keys[i]
		}
	}
	r.document = d
	return nil
}

func (c *collection) remove(r *record) {
	for i, x := range c.indexes {
		x.drop(r, r.keys[i])
	}
	if r.previous == nil {
		c.first = r.next
	} else {
		r.previous.next = r.next
	}
	if r.next == nil {
		c.last = r.previous
	} else {
		r.next.previous = r.previous
	}
	c.size--
}

// checkUnique refuses keys of a document that another record holds in a unique index.
func (c *collection) checkUnique(x *index, keys keySet, self *record, d bson.D) error {
	if !x.unique() || keys.first == "" {
		return nil
	}
	if x.holds(keys.first, self) {
		return c.duplicate(x, d, keys.first)
	}
	for _, key := range keys.more {
		if x.holds(key, self) {
			return c.duplicate(x, d, key)
		}
	}
	return nil
}

// duplicate describes a duplicate key as servers do: message, pattern and value. Source: src/mongo/db/storage/
// duplicate_key_error_info.cpp and the manual's examples of E11000.
func (c *collection) duplicate(x *index, d bson.D, key string) error {
	values := x.valuesOf(d, key)
	text := "{"
	value := make(bson.D, len(values))
	for i, v := range values {
		text += []string{" ", ", "}[min(i, 1)] + x.Keys[i].Key + ": " + format(v)
		value[i] = bson.E{Key: x.Keys[i].Key, Value: v}
	}
	err := refuse(codeDuplicateKey,
		"E11000 duplicate key error collection: %s index: %s dup key: %s }", c.namespace(), x.Name, text)
	err.KeyPattern, err.KeyValue = x.Keys, value
	return err
}

// build adds an index over the documents that are there. A unique index over duplicates fails and leaves none.
func (c *collection) build(definition store.Index) error {
	x := newIndex(definition)
	keys := make([]keySet, 0, c.size)
	for r := c.first; r != nil; r = r.next {
		k, err := x.keysOf(r.document)
		if err != nil {
			return err
		}
		if err := c.checkUnique(x, k, r, r.document); err != nil {
			return err
		}
		x.add(r, k)
		keys = append(keys, k)
	}
	c.indexes = append(c.indexes, x)
	i := 0
	for r := c.first; r != nil; r = r.next {
		r.keys = append(r.keys, keys[i])
		i++
	}
	return nil
}
