package mongosim

import (
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// span is a range of one component of index keys, in their ascending encoding. An end may be a class
// byte alone, which stands below all values of the class.
type span struct {
	low, high         string
	lowOpen, highOpen bool
}

const (
	lowest  = "\x00" // below every encoding
	highest = "\x80" // above every ascending encoding
)

func (s span) isPoint() bool { return s.low == s.high && !s.lowOpen && !s.highOpen }

// predicate is what a filter demands of one path: every document that the filter matches has a key there in one of the spans.
type predicate struct {
	path  string
	spans []span // sorted
	// points: all spans are single values.
	points bool
	// aggregation: it comes from $expr, which does not look into arrays.
	aggregation bool
	// missing: it can match a document without the field, which a sparse index does not hold.
	missing bool
}

// predicates collects what the filter demands. at gives $$NOW its value.
func predicates(out []predicate, nodes []node, at *moment) []predicate {
	for i := range nodes {
		n := &nodes[i]
		switch n.op {
		case opAnd:
			out = predicates(out, n.children, at)
		case opOr:
			out = appendHulls(out, n, at)
		case opExpr:
			out = appendAggregation(out, n.expr, at)
		case opEq, opGt, opGte, opLt, opLte, opIn:
			if p, ok := n.predicate(); ok {
				out = append(out, p)
			}
		}
	}
	return out
}

func pointAt(v any) span {
	key := keyOf(v)
	return span{low: key, high: key}
}

func (n *node) predicate() (predicate, bool) {
	p := predicate{path: n.path}
	switch n.op {
	case opEq:
		if classOf(n.value) == classArray {
			return p, false // the index holds the elements, not the array
		}
		p.spans, p.points, p.missing = []span{pointAt(n.value)}, true, n.value == nil
	case opIn:
		if n.details != nil {
			return p, false
		}
		for _, v := range n.value.(bson.A) {
			if classOf(v) == classArray {
				return p, false
			}
			p.spans = append(p.spans, pointAt(v))
			p.missing = p.missing || v == nil
		}
		slices.SortFunc(p.spans, func(a, b span) int { return strings.Compare(a.low, b.low) })
		p.spans, p.points = slices.Compact(p.spans), true
	default:
		switch c := classOf(n.value); c {
		case classArray:
			return p, false
		case classNull:
			if n.op == opGte || n.op == opLte { // the same as equality
				p.spans, p.points, p.missing = []span{pointAt(nil)}, true, true
				return p, true
			}
			return p, false
		case classMinKey, classMaxKey:
			p.spans, p.missing = []span{rangeOf(n.op, n.value, lowest, highest)}, true
		default:
			p.spans = []span{rangeOf(n.op, n.value, string([]byte{byte(c)}), string([]byte{byte(c) + 1}))}
		}
	}
	return p, true
}

// rangeOf makes the span of a comparison inside a bracket.
func rangeOf(op operator, v any, low, high string) span {
	s := span{low: low, high: high, highOpen: true}
	switch op {
	case opGt:
		s.low, s.lowOpen = keyOf(v), true
	case opGte:
		s.low = keyOf(v)
	case opLt:
		s.high = keyOf(v)
	case opLte:
		s.high, s.highOpen = keyOf(v), false
	}
	return s
}

// appendHulls: what every branch of an $or demands of the same path, widened to one range.
func appendHulls(out []predicate, or *node, at *moment) []predicate {
	var common []predicate
	for i := range or.children {
		branch := predicates(nil, or.children[i].children, at)
		for j := range branch {
			branch[j] = branch[j].hull()
		}
		if i == 0 {
			common = branch
			continue
		}
		common = joinHulls(common, branch)
	}
	return append(out, common...)
}

func joinHulls(common, branch []predicate) []predicate {
	var joined []predicate
	for _, p := range common {
		i := slices.IndexFunc(branch, func(q predicate) bool { return q.path == p.path })
		if i < 0 {
			continue
		}
		a, b := p.spans[0], branch[i].spans[0]
		s := a
		if b.low < a.low || b.low == a.low && a.lowOpen {
			s.low, s.lowOpen = b.low, b.lowOpen
		}
		if b.high > a.high || b.high == a.high && a.highOpen {
			s.high, s.highOpen = b.high, b.highOpen
		}
		joined = append(joined, predicate{path: p.path, spans: []span{s}, points: s.isPoint(),
			aggregation: p.aggregation || branch[i].aggregation, missing: p.missing || branch[i].missing})
	}
	return joined
}

func (p predicate) hull() predicate {
	if len(p.spans) > 1 {
		first, end := p.spans[0], p.spans[len(p.spans)-1]
		p.spans = []span{{low: first.low, lowOpen: first.lowOpen, high: end.high, highOpen: end.highOpen}}
		p.points = false
	}
	if len(p.spans) == 0 { // $in: [] matches nothing
		p.spans = []span{{low: highest, high: lowest}}
		p.points = false
	}
	return p
}

var flipped = map[string]string{"$eq": "$eq", "$gt": "$lt", "$gte": "$lte", "$lt": "$gt", "$lte": "$gte"}

// appendAggregation: since MongoDB 5.0 a comparison in $expr between a field and a constant may use an index.
// It compares across types, and missing is below all. Source: manual, "$expr", "Behavior".
func appendAggregation(out []predicate, e *expression, at *moment) []predicate {
	if e.kind != kindCall {
		return out
	}
	if e.function.name == "$and" {
		for i := range e.args {
			out = appendAggregation(out, &e.args[i], at)
		}
		return out
	}
	name := e.function.name
	if flipped[name] == "" {
		return out
	}
	field, bound := &e.args[0], &e.args[1]
	if !field.isField() {
		field, bound, name = bound, field, flipped[name]
	}
	if !field.isField() || !bound.isFixed() {
		return out
	}
	v, err := bound.evaluate(nil, at)
	if err != nil || classOf(v) == classArray || classOf(v) == classUndefined || classOf(v) == classNull {
		return out
	}
	p := predicate{path: strings.Join(field.path, "."), aggregation: true, missing: name == "$lt" || name == "$lte"}
	if name == "$eq" {
		p.spans, p.points = []span{pointAt(v)}, true
	} else {
		p.spans = []span{rangeOf(comparisons[name], v, lowest, highest)}
	}
	return append(out, p)
}

func (e *expression) isField() bool {
	return e.kind == kindVariable && e.variable == "ROOT" && len(e.path) > 0
}

// isFixed reports whether the expression has the same value for every document.
func (e *expression) isFixed() bool {
	switch e.kind {
	case kindConstant:
		return true
	case kindVariable:
		return (e.variable == "NOW" || e.variable == "CLUSTER_TIME") && len(e.path) == 0
	case kindCall:
		if e.function.strict == nil {
			return false
		}
		for i := range e.args {
			if !e.args[i].isFixed() {
				return false
			}
		}
		return true
	}
	return false
}

// implies reports whether every document that has the demands also matches the partial filter. It may
// say no where the answer is yes. Source: manual, "Partial Indexes", "Query Coverage".
func implies(filter []node, demands []predicate, partial *node) bool {
	switch partial.op {
	case opAnd:
		for i := range partial.children {
			if !implies(filter, demands, &partial.children[i]) {
				return false
			}
		}
		return true
	case opOr:
		for i := range partial.children {
			if implies(filter, demands, &partial.children[i]) {
				return true
			}
		}
		return false
	case opExists:
		return hasCondition(filter, partial) || slices.ContainsFunc(demands, func(p predicate) bool {
			return p.path == partial.path && !p.missing && !p.aggregation
		})
	case opType:
		return hasCondition(filter, partial)
	}
	wanted, ok := partial.predicate()
	if !ok {
		return hasCondition(filter, partial)
	}
	return slices.ContainsFunc(demands, func(p predicate) bool {
		return p.path == partial.path && !p.aggregation && p.within(wanted)
	})
}

// within reports whether each span lies in one of the other's.
func (p predicate) within(o predicate) bool {
	for _, s := range p.spans {
		if !slices.ContainsFunc(o.spans, func(t span) bool {
			low := t.low < s.low || t.low == s.low && (!t.lowOpen || s.lowOpen)
			high := t.high > s.high || t.high == s.high && (!t.highOpen || s.highOpen)
			return low && high
		}) {
			return false
		}
	}
	return true
}

// hasCondition reports whether the filter contains the very condition.
func hasCondition(filter []node, wanted *node) bool {
	return slices.ContainsFunc(filter, func(n node) bool {
		if n.op == opAnd {
			return hasCondition(n.children, wanted)
		}
		return n.op == wanted.op && n.path == wanted.path && identical(n.value, wanted.value) &&
			(n.op != opType || slices.Equal(n.types, wanted.types))
	})
}
