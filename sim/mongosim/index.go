package mongosim

import (
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/fencepost-sim/fencepost/engine/store"
)

// index is one index of a collection.
type index struct {
	store.Index
	fields  []indexField
	partial *node
	entries ordered
	// multikey: some document has, or had, an array in an indexed field. Like servers, an index never forgets it.
	multikey bool
	buffer   []byte // for encoding keys
}

type indexField struct {
	path       string
	components []string
	descending bool
}

func newIndex(definition store.Index) *index {
	x := &index{Index: definition, fields: fieldsOf(definition.Keys)}
	if definition.Partial != nil {
		partial, err := parseFilter(definition.Partial)
		if err != nil {
			panic("mongosim: an index has a partial filter that was not checked: " + err.Error())
		}
		x.partial = &partial
	}
	return x
}

// fieldsOf reads an index's key pattern, or a sort order.
func fieldsOf(pattern bson.D) []indexField {
	fields := make([]indexField, len(pattern))
	for i := range pattern {
		fields[i] = indexField{path: pattern[i].Key, components: splitPath(pattern[i].Key), descending: isDescending(pattern[i].Value)}
	}
	return fields
}

func isDescending(direction any) bool {
	return classOf(direction) == classNumber && compareNumbers(direction, int32(0)) < 0
}

func (x *index) isID() bool { return x.Name == "_id_" }

func (x *index) unique() bool { return x.Unique || x.isID() }

// covers reports whether a partial index holds the document.
func (x *index) covers(d bson.D) bool {
	if x.partial == nil {
		return true
	}
	ok, err := x.partial.matches(d, &moment{})
	return ok && err == nil
}

// touchedBy reports whether a change of the named top-level fields can change a document's keys.
func (x *index) touchedBy(changed []string) bool {
	if x.partial != nil {
		return true
	}
	for i := range x.fields {
		if slices.Contains(changed, x.fields[i].components[0]) {
			return true
		}
	}
	return false
}

// appendChanged lists the top-level fields that may differ between two versions. It looks at them place by place,
// and so lists too many when fields were removed or moved, but never too few.
func appendChanged(names []string, before, after bson.D) []string {
	for i := range max(len(before), len(after)) {
		switch {
		case i >= len(before):
			names = append(names, after[i].Key)
		case i >= len(after):
			names = append(names, before[i].Key)
		case before[i].Key != after[i].Key:
			names = append(names, before[i].Key, after[i].Key)
		case !identical(before[i].Value, after[i].Value):
			names = append(names, before[i].Key)
		}
	}
	return names
}

func (x *index) add(r *record, keys keySet) {
	if keys.more != nil {
		x.multikey = true
	}
	keys.each(func(key string) { x.entries.insert(entry{key, r}) })
}

func (x *index) drop(r *record, keys keySet) {
	keys.each(func(key string) { x.entries.remove(entry{key, r}) })
}

// move gives a record other keys.
func (x *index) move(r *record, before, after keySet) {
	if before.single() && after.single() {
		x.entries.move(entry{before.first, r}, entry{after.first, r})
		return
	}
	x.drop(r, before)
	x.add(r, after)
}

// holds reports whether a record other than self has the key.
func (x *index) holds(key string, self *record) bool {
	for p := x.entries.seek(key); ; p = x.entries.next(p) {
		e, ok := x.entries.at(p)
		if !ok || e.key != key {
			return false
		}
		if e.record != self {
			return true
		}
	}
}

// keysOf returns the document's keys in the index, sorted and without repetition.
func (x *index) keysOf(d bson.D) (keySet, error) {
	if !x.covers(d) {
		return keySet{}, nil
	}
	key, single := appendPlainKey(x.buffer[:0], d, x.fields)
	if single {
		x.buffer = key
		if x.Sparse && !x.holdsAny(d) {
			return keySet{}, nil
		}
		return keySet{first: string(key)}, nil
	}
	x.multikey = true
	rows, err := expand(d, x.fields)
	if err != nil || x.Sparse && !x.holdsAny(d) {
		return keySet{}, err
	}
	keys := make([]string, len(rows))
	for i := range rows {
		keys[i] = string(encodeRow(nil, rows[i], x.fields))
	}
	slices.Sort(keys)
	keys = slices.Compact(keys)
	return keySet{first: keys[0], more: keys[1:]}, nil
}

// holdsAny: a sparse index skips documents that have none of its fields. Source: manual, "Sparse Indexes".
func (x *index) holdsAny(d bson.D) bool {
	for i := range x.fields {
		f := &x.fields[i]
		n := on(f.path, opExists, nil)
		if exists, _ := n.matches(d, nil); exists {
			return true
		}
	}
	return false
}

// appendPlainKey encodes the key of a document that has no array on the way of any field.
func appendPlainKey(b []byte, d bson.D, fields []indexField) (key []byte, single bool) {
	for i := range fields {
		var v any = d
		for _, component := range fields[i].components {
			inner, ok := v.(bson.D)
			if !ok {
				v = missing{}
				break
			}
			if v = get(inner, component); classOf(v) == classArray {
				return nil, false
			}
		}
		if isMissing(v) {
			v = nil // missing is indexed as null
		}
		b = appendKey(b, v, fields[i].descending)
	}
	return b, true
}

func encodeRow(b []byte, row []any, fields []indexField) []byte {
	for i, v := range row {
		b = appendKey(b, v, fields[i].descending)
	}
	return b
}

// valuesOf returns the values that make up one of the document's keys.
func (x *index) valuesOf(d bson.D, key string) []any {
	rows, _ := expand(d, x.fields)
	for _, row := range rows {
		if string(encodeRow(nil, row, x.fields)) == key {
			return row
		}
	}
	return nil
}

// expand returns the rows of values that a document has for the fields: one row, or one for each element of
// the array that lies on the way. Several fields may go through the same array, but two different arrays are
// refused. An empty array is indexed as undefined. Source: manual, "Multikey Indexes"; the elements'
// order of visits follows the server's key generator (src/mongo/db/index/btree_key_generator.h).
func expand(d bson.D, fields []indexField) ([][]any, error) {
	g := &generator{fields: fields}
	values, rests := make([]any, len(fields)), make([][]string, len(fields))
	for i := range fields {
		values[i], rests[i] = d, fields[i].components
	}
	err := g.expand(values, rests)
	return g.rows, err
}

type generator struct {
	fields []indexField
	rows   [][]any
}

// arrayAt is where a field's path runs into an array.
type arrayAt struct {
	array bson.A
	path  string
}

// expand goes on from values, each with the rest of its path. It owns neither slice.
func (g *generator) expand(values []any, rests [][]string) error {
	values, rests = slices.Clone(values), slices.Clone(rests)
	found := make([]*arrayAt, len(values))
	var shared *arrayAt
	for i := range values {
		values[i], rests[i], found[i] = g.advance(i, values[i], rests[i])
		if found[i] == nil {
			continue
		}
		if shared != nil && shared.path != found[i].path {
			return refuse(codeCannotIndexParallelArrays,
				"cannot index parallel arrays [%s] [%s]", last(found[i].path), last(shared.path))
		}
		shared = found[i]
	}
	if shared == nil {
		for i := range values {
			if isMissing(values[i]) {
				values[i] = nil
			}
		}
		g.rows = append(g.rows, values)
		return nil
	}
	elements := shared.array
	if len(elements) == 0 {
		elements = bson.A{bson.Undefined{}}
	}
	for _, element := range elements {
		inner := slices.Clone(values)
		restsInner := slices.Clone(rests)
		for i := range inner {
			if found[i] != nil {
				inner[i], restsInner[i] = g.enter(shared.array, element, rests[i])
			}
		}
		if err := g.expand(inner, restsInner); err != nil {
			return err
		}
	}
	return nil
}

// element marks a value that was taken out of an array at the end of its path: not to be opened again.
type element struct{ value any }

// advance follows the rest of a path down to its end or to an array.
func (g *generator) advance(i int, v any, rest []string) (any, []string, *arrayAt) {
	if e, ok := v.(element); ok {
		return e.value, nil, nil
	}
	for {
		switch x := v.(type) {
		case bson.A:
			done := len(g.fields[i].components) - len(rest)
			return v, rest, &arrayAt{x, strings.Join(g.fields[i].components[:done], ".")}
		case bson.D:
			if len(rest) == 0 {
				return v, rest, nil
			}
			v, rest = get(x, rest[0]), rest[1:]
		default:
			if len(rest) > 0 {
				return missing{}, nil, nil
			}
			return v, rest, nil
		}
	}
}

// enter goes from an array to one of its elements.
func (g *generator) enter(array bson.A, v any, rest []string) (any, []string) {
	if len(rest) == 0 {
		return element{v}, nil
	}
	if n, numeric := arrayIndex(rest[0]); numeric {
		if d, ok := v.(bson.D); !ok || position(d, rest[0]) < 0 {
			if n >= len(array) {
				return missing{}, nil
			}
			return array[n], rest[1:]
		}
	}
	if d, ok := v.(bson.D); ok {
		return d, rest
	}
	return missing{}, nil
}

func last(path string) string { return path[strings.LastIndexByte(path, '.')+1:] }
