package mongosim

import (
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// Plan says how a command finds its documents.
type Plan struct {
	Index        string // the index, or "" for a scan of the collection
	KeysExamined int    // index keys that were looked at
	DocsExamined int
	Returned     int
	SortInMemory bool // the index, if any, does not give the order that was asked for
}

// query is what a command looks for.
type query struct {
	filter  node
	sort    []indexField
	natural int // 1 or -1: {$natural: …}
	limit   int // 0 is no limit
	hint    string
	at      *moment
}

// access is one way to find the documents of a query.
type access struct {
	index     *index // nil for a scan of the collection
	intervals []interval
	backward  bool
	ordered   bool // the documents come in the order that was asked for
	merged    bool // a server would get the order by merging the intervals
	score     int
}

// interval is a range of index keys, from the first to before the end.
type interval struct{ start, end string }

// smallCollection is the number of documents up to which a scan is quicker than choosing an index. What is found
// does not depend on it.
const smallCollection = 8

// choose picks the index. A server lets its candidates race and remembers the winner (manual, "Query Plans"); the
// model ranks them: an exact unique key first, then by the number of leading fields with equality, then whether the
// index gives the order, then whether the next field has a range, then by age.
func (c *collection) choose(q *query) (access, error) {
	scan := access{ordered: len(q.sort) == 0}
	if q.natural != 0 {
		return access{backward: q.natural < 0, ordered: true}, nil
	}
	demands := predicates(nil, q.filter.children, q.at)
	if q.hint != "" {
		i := slices.IndexFunc(c.indexes, func(x *index) bool { return x.Name == q.hint })
		if i < 0 {
			return scan, hintError(q.hint)
		}
		a, _ := c.indexes[i].consider(q, demands)
		return a, nil
	}
	best := scan
	for _, x := range c.indexes {
		if x.Hidden || !x.complete(q, demands) {
			continue
		}
		if a, useful := x.consider(q, demands); useful && a.score > best.score {
			best = a
		}
	}
	return best, nil
}

func hintError(hint string) error {
	return refuse(codeBadValue, "error processing query: planner returned error :: caused by :: hint provided does not correspond "+
		"to an existing index (%s)", hint)
}

// complete reports whether the index holds every document that the query can match.
func (x *index) complete(q *query, demands []predicate) bool {
	if x.partial != nil && !implies(q.filter.children, demands, x.partial) {
		return false
	}
	return !x.Sparse || slices.ContainsFunc(demands, func(p predicate) bool {
		return !p.missing && !p.aggregation && slices.ContainsFunc(x.fields, func(f indexField) bool { return f.path == p.path })
	})
}

// maxIntervals bounds the combinations of $in values. Source: the server's internalQueryMaxScansToExplode.
const maxIntervals = 200

// consider works out how the index would serve the query, and whether it is of use.
func (x *index) consider(q *query, demands []predicate) (access, bool) {
	a := access{index: x}
	prefixes := []string{""}
	var single []bool // of the leading fields: bound to one value
	for len(single) < len(x.fields) {
		f := x.fields[len(single)]
		p, ok := x.equality(demands, f.path)
		if !ok || len(prefixes)*len(p.spans) > maxIntervals {
			break
		}
		prefixes = extend(prefixes, p.spans, f.descending)
		single = append(single, len(p.spans) == 1)
		a.score += 10
	}
	ranged := false
	if len(single) < len(x.fields) {
		f := x.fields[len(single)]
		if s, ok := x.rangeOn(demands, f.path); ok {
			ranged = true
			a.score += 5
			for _, prefix := range prefixes {
				a.intervals = append(a.intervals, s.interval(prefix, f.descending))
			}
		}
	} else if x.unique() && len(prefixes) == 1 {
		a.score += 1000
	}
	if !ranged {
		for _, prefix := range prefixes {
			a.intervals = append(a.intervals, interval{prefix, prefix + above})
		}
	}
	slices.SortFunc(a.intervals, func(i, j interval) int { return compare(i.start, j.start) })
	x.order(&a, q, single)
	return a, a.score > 0
}

// order finds out whether the scan gives the order that was asked for.
func (x *index) order(a *access, q *query, single []bool) {
	if len(q.sort) == 0 {
		a.ordered = true
		return
	}
	gives, backward := x.gives(q.sort, single, false)
	switch {
	case x.multikey:
		// Several keys of one document: the first that is met need not be the one to sort by.
	case gives && len(a.intervals) > 1 && slices.Contains(single, false):
		if merges, _ := x.gives(q.sort, single, true); merges {
			a.merged = true
			a.score += 6
		}
	case gives:
		a.ordered, a.backward = true, backward
		a.score += 6
	default:
		if merges, _ := x.gives(q.sort, single, true); merges {
			a.merged = true
			a.score += 6
		}
	}
}

// gives walks the sort order along the index's fields. Fields bound to a single value do not matter; with merging
// neither do fields bound to a few.
func (x *index) gives(sort []indexField, single []bool, merging bool) (gives, backward bool) {
	fixed := func(i int) bool { return i < len(single) && (single[i] || merging) }
	constant := func(path string) bool {
		i := slices.IndexFunc(x.fields, func(f indexField) bool { return f.path == path })
		return i >= 0 && i < len(single) && single[i]
	}
	i, decided := 0, false
	for _, s := range sort {
		if constant(s.path) {
			continue
		}
		for i < len(x.fields) && x.fields[i].path != s.path && fixed(i) {
			i++
		}
		if i == len(x.fields) || x.fields[i].path != s.path {
			return false, false
		}
		against := x.fields[i].descending != s.descending
		if decided && against != backward {
			return false, false
		}
		backward, decided = against, true
		i++
	}
	return true, backward
}

// equality returns the demand that binds the path to the fewest values.
func (x *index) equality(demands []predicate, path string) (best predicate, found bool) {
	for _, p := range demands {
		if p.path == path && p.points && x.takes(p) && (!found || len(p.spans) < len(best.spans)) {
			best, found = p, true
		}
	}
	return best, found
}

// takes: an index with arrays in it cannot serve $expr, which compares whole arrays.
func (x *index) takes(p predicate) bool { return !p.aggregation || !x.multikey }

// rangeOn intersects the ranges on a path. With arrays in the index, two ranges may be met by two elements, so that only
// one can be used.
func (x *index) rangeOn(demands []predicate, path string) (s span, found bool) {
	for _, p := range demands {
		if p.path != path || !x.takes(p) {
			continue
		}
		t := p.hull().spans[0]
		switch {
		case !found:
			s, found = t, true
		case !x.multikey:
			s = s.intersect(t)
		}
	}
	return s, found
}

func (s span) intersect(t span) span {
	if t.low > s.low || t.low == s.low && t.lowOpen {
		s.low, s.lowOpen = t.low, t.lowOpen
	}
	if t.high < s.high || t.high == s.high && t.highOpen {
		s.high, s.highOpen = t.high, t.highOpen
	}
	return s
}

func extend(prefixes []string, points []span, descending bool) []string {
	out := make([]string, 0, len(prefixes)*len(points))
	for _, prefix := range prefixes {
		for _, p := range points {
			out = append(out, prefix+directed(p.low, descending))
		}
	}
	return out
}

func directed(key string, descending bool) string {
	if !descending {
		return key
	}
	b := []byte(key)
	invert(b)
	return string(b)
}

func (s span) interval(prefix string, descending bool) interval {
	low, high, lowOpen, highOpen := s.low, s.high, s.lowOpen, s.highOpen
	if descending {
		low, high, lowOpen, highOpen = directed(s.high, true), directed(s.low, true), s.highOpen, s.lowOpen
	}
	i := interval{prefix + low, prefix + high}
	if lowOpen {
		i.start += above
	}
	if !highOpen {
		i.end += above
	}
	return i
}

// parseSort compiles a canonical sort order.
func parseSort(q *query, sort bson.D) error {
	if len(sort) == 0 {
		return nil
	}
	for _, field := range sort {
		if _, meta := field.Value.(bson.D); meta {
			return unmodelled("sorting by " + format(field.Value))
		}
		n, ok := wholeNumber(field.Value)
		switch {
		case !ok || n != 1 && n != -1:
			return refuse(15975, "$sort key ordering must be 1 (for ascending) or -1 (for descending)")
		case field.Key == "":
			return refuse(15998, "FieldPath field names may not be empty strings.")
		case field.Key == "$natural" && len(sort) == 1:
			q.natural = int(n)
			return nil
		}
	}
	q.sort = fieldsOf(sort)
	return nil
}
