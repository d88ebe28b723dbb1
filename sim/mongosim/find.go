package mongosim

import (
	"bytes"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// find returns the records that match, in order and up to the limit. plan, if not nil, learns how.
func (c *collection) find(q *query, plan *Plan) ([]*record, error) {
	if plan == nil {
		if id, ok := q.exactID(); ok && q.natural == 0 && len(q.hintKeys) == 0 && (q.hint == "" || q.hint == "_id_") {
			return c.findByID(q, id)
		}
		if c.size <= smallCollection && !q.hinted() && q.natural == 0 {
			return c.collect(q, access{ordered: len(q.sort) == 0}, &Plan{})
		}
		plan = &Plan{}
	}
	a, err := c.choose(q)
	if err != nil {
		return nil, err
	}
	if a.index != nil {
		plan.Index = a.index.Name
	}
	plan.SortInMemory = !a.ordered && !a.merged
	found, err := c.collect(q, a, plan)
	plan.Returned = len(found)
	return found, err
}

// exactID returns the _id that the filter demands.
func (q *query) exactID() (id any, ok bool) {
	for i := range q.filter.children {
		n := &q.filter.children[i]
		if n.op == opEq && n.path == "_id" && classOf(n.value) != classArray && n.value != nil {
			return n.value, true
		}
	}
	return nil, false
}

func (c *collection) findByID(q *query, id any) ([]*record, error) {
	r := c.byID(id)
	if r == nil {
		return nil, nil
	}
	ok, err := q.filter.matches(r.document, q.at)
	if !ok || err != nil {
		return nil, err
	}
	return []*record{r}, nil
}

func (c *collection) byID(id any) *record {
	x := c.indexes[0]
	key, entries := appendValue(x.buffer[:0], id), &x.entries
	x.buffer = key
	e, ok := entries.at(entries.search(func(e entry) bool { return e.key < string(key) }))
	if !ok || e.key != string(key) {
		return nil
	}
	return e.record
}

// collect scans, matches, and brings into order.
func (c *collection) collect(q *query, a access, plan *Plan) ([]*record, error) {
	w := &winners{q: q, sorted: !a.ordered || a.index == nil && q.natural == 0 && c.seed != 0}
	err := c.visit(a, plan, func(r *record) (more bool, err error) {
		plan.DocsExamined++
		ok, err := q.filter.matches(r.document, q.at)
		if !ok || err != nil {
			return true, err
		}
		return w.add(r)
	})
	if err != nil {
		return nil, err
	}
	return w.result(), nil
}

// winners gathers the records that match.
type winners struct {
	q       *query
	sorted  bool // they have to be sorted; otherwise they come in the right order
	records []*record
	keys    []string
	best    *record // with limit 1 only the best is kept
	bestKey []byte
	key     []byte
}

func (w *winners) add(r *record) (more bool, err error) {
	if !w.sorted {
		w.records = append(w.records, r)
		return w.q.limit == 0 || len(w.records) < w.q.limit, nil
	}
	if w.key, err = sortKey(w.key[:0], r.document, w.q.sort); err != nil {
		return false, err
	}
	if w.q.limit != 1 {
		w.records, w.keys = append(w.records, r), append(w.keys, string(w.key))
		return true, nil
	}
	if w.best != nil {
		if c := bytes.Compare(w.key, w.bestKey); c > 0 || c == 0 && w.best.before(r) {
			return true, nil
		}
	}
	w.best, w.bestKey, w.key = r, w.key, w.bestKey
	return true, nil
}

func (w *winners) result() []*record {
	if w.best != nil {
		return []*record{w.best}
	}
	if !w.sorted {
		return w.records
	}
	order := make([]int, len(w.records))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(i, j int) int {
		if c := strings.Compare(w.keys[i], w.keys[j]); c != 0 {
			return c
		}
		if w.records[i].before(w.records[j]) {
			return -1
		}
		return 1
	})
	if w.q.limit > 0 && len(order) > w.q.limit {
		order = order[:w.q.limit]
	}
	out := make([]*record, len(order))
	for i, j := range order {
		out[i] = w.records[j]
	}
	return out
}

// sortKey encodes what a document is sorted by: of an array its smallest element, descending its largest.
// Source: manual, "Comparison/Sort Order", "Arrays".
func sortKey(b []byte, d bson.D, fields []indexField) ([]byte, error) {
	if key, single := appendPlainKey(b, d, fields); single {
		return key, nil
	}
	rows, err := expand(d, fields)
	if err != nil {
		return b, refuse(codeBadValue, "cannot sort with keys that are parallel arrays")
	}
	var least []byte
	for i, row := range rows {
		if key := encodeRow(nil, row, fields); i == 0 || bytes.Compare(key, least) < 0 {
			least = key
		}
	}
	return append(b, least...), nil
}

// visit calls a function for each record, at most once, until it wants no more.
func (c *collection) visit(a access, plan *Plan, each func(r *record) (more bool, err error)) error {
	if a.index == nil {
		r := c.first
		if a.backward {
			r = c.last
		}
		for r != nil {
			more, err := each(r)
			if !more || err != nil {
				return err
			}
			if a.backward {
				r = r.previous
			} else {
				r = r.next
			}
		}
		return nil
	}
	c.scan++
	intervals := a.intervals
	if a.backward {
		intervals = slices.Clone(intervals)
		slices.Reverse(intervals)
	}
	for _, in := range intervals {
		more, err := c.visitInterval(a, in, plan, each)
		if !more || err != nil {
			return err
		}
	}
	return nil
}

func (c *collection) visitInterval(a access, in interval, plan *Plan, each func(r *record) (bool, error)) (bool, error) {
	entries := &a.index.entries
	p, step := entries.seek(in.start), entries.next
	if a.backward {
		p, step = entries.previous(entries.seek(in.end)), entries.previous
	}
	for {
		e, ok := entries.at(p)
		if !ok || !a.backward && e.key >= in.end || a.backward && e.key < in.start {
			return true, nil
		}
		plan.KeysExamined++
		if e.record.visited != c.scan {
			e.record.visited = c.scan
			more, err := each(e.record)
			if !more || err != nil {
				return more, err
			}
		}
		p = step(p)
	}
}
