package mongosim

import (
	"slices"
	"strings"

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
	demands []predicate // what the filter demands of paths
	sort    []indexField
	natural int // 1 or -1: {$natural: …}
	limit   int // 0 is no limit
	hint    string
	// hintKeys is a hint by key pattern.
	hintKeys bson.D
	at       *moment
}

// access is one way to find the documents of a query.
type access struct {
	index     *index // nil for a scan of the collection
	intervals []interval
	backward  bool
	ordered   bool // the documents come in the order that was asked for
	merged    bool // a server would get the order by merging the intervals
	score     int

	lead    [maxLead]*predicate // equalities on the leading fields
	leading int                 // how many
	next    span                // range on the field after them
	ranged  bool                // whether there is one
}

// maxLead is the number of leading fields whose equalities are used.
const maxLead = 8

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
	if d := q.hintKeys; len(d) == 1 && d[0].Key == "$natural" {
		return access{backward: isDescending(d[0].Value), ordered: len(q.sort) == 0}, nil
	}
	if q.natural != 0 {
		return access{backward: q.natural < 0, ordered: true}, nil
	}
	q.demands = predicates(q.demands, q.filter.children, q.at)
	if q.hinted() {
		i := slices.IndexFunc(c.indexes, func(x *index) bool {
			return !x.Hidden && (x.Name == q.hint || q.hint == "" && compareDocuments(x.Keys, q.hintKeys) == 0)
		})
		if i < 0 {
			return scan, hintError(q.hint + format(q.hintKeys))
		}
		a := c.indexes[i].consider(q)
		a.build()
		return a, nil
	}
	best := scan
	for _, x := range c.indexes {
		if x.Hidden || !x.complete(q) {
			continue
		}
		if a := x.consider(q); a.score > best.score {
			best = a
		}
	}
	best.build()
	return best, nil
}

func (q *query) hinted() bool { return q.hint != "" || len(q.hintKeys) > 0 }

func hintError(hint string) error {
	return refuse(codeBadValue,
		"error processing query: planner returned error :: caused by :: hint provided does not correspond "+
			"to an existing index (%s)", hint)
}

// complete reports whether the index holds every document that the query can match.
func (x *index) complete(q *query) bool {
	if x.partial != nil && !implies(q.filter.children, q.demands, x.partial) {
		return false
	}
	return !x.Sparse || slices.ContainsFunc(q.demands, func(p predicate) bool {
		return !p.missing && !p.aggregation && slices.ContainsFunc(x.fields, func(f indexField) bool { return f.path == p.path })
	})
}

// maxIntervals bounds the combinations of $in values. Source: the server's internalQueryMaxScansToExplode.
const maxIntervals = 200

// consider works out how the index would serve the query. A score of zero means that it is of no use.
func (x *index) consider(q *query) access {
	a := access{index: x}
	combinations := 1
	for a.leading < min(len(x.fields), maxLead) {
		p := x.equality(q.demands, x.fields[a.leading].path)
		if p == nil || combinations*len(p.spans) > maxIntervals {
			break
		}
		combinations *= len(p.spans)
		a.lead[a.leading] = p
		a.leading++
		a.score += 10
	}
	if a.leading < len(x.fields) {
		if a.next, a.ranged = x.rangeOn(q.demands, x.fields[a.leading].path); a.ranged {
			a.score += 5
		}
	} else if x.unique() && combinations == 1 {
		a.score += 1000
	}
	a.order(q, combinations)
	return a
}

// order finds out whether the scan gives the order that was asked for.
func (a *access) order(q *query, combinations int) {
	if len(q.sort) == 0 {
		a.ordered = true
		return
	}
	if a.index.multikey {
		return // a document has several keys: the first that is met need not be the one to sort by
	}
	if combinations == 1 {
		a.ordered, a.backward = a.gives(q.sort, false)
	} else {
		a.merged, _ = a.gives(q.sort, true)
	}
	if a.ordered || a.merged {
		a.score += 6
	}
}

// build makes the intervals.
func (a *access) build() {
	if a.index == nil {
		return
	}
	fields := a.index.fields
	prefixes := []string{""}
	for i := range a.leading {
		prefixes = extend(prefixes, a.lead[i].spans, fields[i].descending)
	}
	a.intervals = make([]interval, len(prefixes))
	for i, prefix := range prefixes {
		if a.ranged {
			a.intervals[i] = a.next.interval(prefix, fields[a.leading].descending)
		} else {
			a.intervals[i] = interval{prefix, prefix + above}
		}
	}
	slices.SortFunc(a.intervals, func(x, y interval) int { return strings.Compare(x.start, y.start) })
}

// single reports whether the field is bound to one value.
func (a *access) single(i int) bool { return i < a.leading && len(a.lead[i].spans) == 1 }

// gives walks the sort order along the index's fields. Fields bound to a single value do not matter; with merging
// neither do fields bound to a few.
func (a *access) gives(sort []indexField, merging bool) (gives, backward bool) {
	fields := a.index.fields
	i, decided := 0, false
	for _, s := range sort {
		at := slices.IndexFunc(fields, func(f indexField) bool { return f.path == s.path })
		if at < 0 {
			return false, false
		}
		if a.single(at) {
			continue
		}
		for i < at && (a.single(i) || merging && i < a.leading) {
			i++
		}
		if i != at {
			return false, false
		}
		against := fields[i].descending != s.descending
		if decided && against != backward {
			return false, false
		}
		backward, decided = against, true
		i++
	}
	return true, backward
}

// equality returns the demand that binds the path to the fewest values.
func (x *index) equality(demands []predicate, path string) (best *predicate) {
	for i := range demands {
		if p := &demands[i]; p.path == path && p.points && x.takes(p) && (best == nil || len(p.spans) < len(best.spans)) {
			best = p
		}
	}
	return best
}

// takes: an index with arrays in it cannot serve $expr, which compares whole arrays.
func (x *index) takes(p *predicate) bool { return !p.aggregation || !x.multikey }

// rangeOn intersects the ranges on a path. With arrays in the index, two ranges may be met by two elements, so that only
// one can be used.
func (x *index) rangeOn(demands []predicate, path string) (s span, found bool) {
	for i := range demands {
		p := &demands[i]
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
	if len(prefixes) == 1 && len(points) == 1 {
		prefixes[0] += directed(points[0].low, descending)
		return prefixes
	}
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
