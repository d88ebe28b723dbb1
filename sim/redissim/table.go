package redissim

import (
	"math/bits"
	"slices"
)

// table is the hash table of a keyspace, kept only for what SCAN can see of it: in which bucket a key lies, and how buckets split
// and merge. It grows and shrinks by moving one bucket at each access, so that for a while there are two (Redis, dict.c: dictRehash).
type table struct {
	seed    uint64
	buckets [2][][]string
	moved   int // buckets of the first table that were moved to the second; -1 when there is only one
	used    int
}

// initialSize is that of a new table (DICT_HT_INITIAL_SIZE).
const initialSize = 4

// minimalFill is the percentage below which a table shrinks (HASHTABLE_MIN_FILL).
const minimalFill = 10

func newTable(seed uint64) *table {
	return &table{seed: seed, moved: -1, buckets: [2][][]string{make([][]string, initialSize)}}
}

// hash is FNV-1a with a seed and a finalizer. Redis uses SipHash; nobody may rely on either.
func (t *table) hash(key string) uint64 {
	h := 14695981039346656037 ^ t.seed
	for i := range len(key) {
		h = (h ^ uint64(key[i])) * 1099511628211
	}
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	return h ^ h>>33
}

func slot(buckets [][]string, hash uint64) *[]string { return &buckets[hash&uint64(len(buckets)-1)] }

// add puts a key into the table that is not there.
func (t *table) add(key string) {
	t.moveOne()
	if t.moved < 0 && t.used >= len(t.buckets[0]) {
		t.resize(t.used + 1)
	}
	into := 0
	if t.moved >= 0 {
		into = 1 // new keys go into the second table only
	}
	b := slot(t.buckets[into], t.hash(key))
	*b = slices.Insert(*b, 0, key)
	t.used++
}

// remove takes a key out that is there.
func (t *table) remove(key string) {
	t.moveOne()
	for i := range t.buckets {
		if len(t.buckets[i]) == 0 {
			continue
		}
		b := slot(t.buckets[i], t.hash(key))
		if j := slices.Index(*b, key); j >= 0 {
			*b = slices.Delete(*b, j, j+1)
			t.used--
			break
		}
	}
	if size := len(t.buckets[0]); t.moved < 0 && size > initialSize && t.used*100/size < minimalFill {
		t.resize(max(t.used, initialSize))
	}
}

func (t *table) resize(least int) {
	size := initialSize
	for size < least {
		size *= 2
	}
	if size != len(t.buckets[0]) {
		t.buckets[1], t.moved = make([][]string, size), 0
	}
}

// moveOne moves one bucket that is not empty, or passes over ten that are.
func (t *table) moveOne() {
	for range 10 {
		if t.moved < 0 {
			return
		}
		if t.moved == len(t.buckets[0]) {
			t.buckets[0], t.buckets[1], t.moved = t.buckets[1], nil, -1
			return
		}
		bucket := t.buckets[0][t.moved]
		t.buckets[0][t.moved] = nil
		t.moved++
		for _, key := range bucket {
			b := slot(t.buckets[1], t.hash(key))
			*b = slices.Insert(*b, 0, key)
		}
		if len(bucket) > 0 {
			return
		}
	}
}

// scan visits the keys at the cursor and returns the next one; zero is the end. The cursor counts in the order of reversed bits, so
// that what was visited stays visited when buckets split or merge: a key that is there throughout is visited, perhaps more than
// once (Redis, dict.c: the comment of dictScan).
func (t *table) scan(cursor uint64, visit func(key string)) uint64 {
	t.moveOne()
	small, large := t.buckets[0], t.buckets[0]
	if t.moved >= 0 {
		large = t.buckets[1]
		if len(small) > len(large) {
			small, large = large, small
		}
	}
	low, high := uint64(len(small)-1), uint64(len(large)-1)
	each(*slot(small, cursor), visit)
	if t.moved < 0 {
		return advance(cursor, low)
	}
	for { // all expansions of the small table's bucket in the large one
		each(*slot(large, cursor), visit)
		cursor = advance(cursor, high)
		if cursor&(low^high) == 0 {
			return cursor
		}
	}
}

func each(keys []string, visit func(string)) {
	for _, key := range keys {
		visit(key)
	}
}

func advance(cursor, mask uint64) uint64 {
	return bits.Reverse64(bits.Reverse64(cursor|^mask) + 1)
}
