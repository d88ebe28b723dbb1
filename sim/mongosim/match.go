package mongosim

import (
	"math"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// moment is what one command sees of time: the same for all its documents.
type moment struct {
	now         bson.DateTime  // $$NOW
	clusterTime bson.Timestamp // $$CLUSTER_TIME
	replicated  bool           // standalones have no $$CLUSTER_TIME

	draws     uint64 // numbers that $rand has given, from the server's seed and time on
	variables *scope // of the command's let; nil without

	scope scope // of the expression that is being evaluated
	stack []any // of the values of its arguments
}

// matches evaluates the condition. Evaluation of $expr may fail, as on a server.
func (n *node) matches(d bson.D, at *moment) (bool, error) {
	switch n.op {
	case opAnd:
		return all(n.children, d, at)
	case opOr, opNor:
		for i := range n.children {
			ok, err := n.children[i].matches(d, at)
			if ok || err != nil {
				return n.op == opOr, err
			}
		}
		return n.op == opNor, nil
	case opNot:
		ok, err := all(n.children, d, at)
		return !ok, err
	case opTrue, opFalse:
		return n.op == opTrue, nil
	case opExpr:
		v, err := n.expr.evaluate(d, at)
		return truth(v), err
	}
	if n.rest == nil {
		return n.leaf(get(d, n.field), at)
	}
	return n.walk(get(d, n.field), n.rest, at)
}

func all(nodes []node, d bson.D, at *moment) (bool, error) {
	for i := range nodes {
		if ok, err := nodes[i].matches(d, at); !ok || err != nil {
			return false, err
		}
	}
	return true, nil
}

// walk follows the rest of a dotted path. An array on the way stands for each of its documents, and, if the
// next component is a number, for its element at that place. Source: manual, "Query an Array of Embedded Documents".
func (n *node) walk(v any, rest []string, at *moment) (bool, error) {
	switch v := v.(type) {
	case bson.D:
		next := get(v, rest[0])
		if len(rest) == 1 {
			return n.leaf(next, at)
		}
		return n.walk(next, rest[1:], at)
	case bson.A:
		return n.walkArray(v, rest, at)
	}
	return n.test(missing{}, at)
}

func (n *node) walkArray(a bson.A, rest []string, at *moment) (bool, error) {
	for _, e := range a {
		if d, ok := e.(bson.D); ok {
			if ok, err := n.walk(d, rest, at); ok || err != nil {
				return ok, err
			}
		}
	}
	i, numeric := arrayIndex(rest[0])
	if !numeric || i >= len(a) {
		return false, nil
	}
	if len(rest) == 1 {
		return n.leaf(a[i], at)
	}
	switch a[i].(type) {
	case bson.D, bson.A:
		return n.walk(a[i], rest[1:], at)
	}
	return false, nil
}

// leaf tests the value at the end of the path. An array there stands for each element and for itself; to
// $size and $elemMatch only for itself.
func (n *node) leaf(v any, at *moment) (bool, error) {
	if a, ok := v.(bson.A); ok && n.op != opSize && n.op != opElemMatchObject && n.op != opElemMatchValue {
		for _, e := range a {
			if ok, err := n.test(e, at); ok || err != nil {
				return ok, err
			}
		}
	}
	return n.test(v, at)
}

// test applies the operator to one value.
func (n *node) test(v any, at *moment) (bool, error) {
	switch n.op {
	case opEq:
		return matchesEqual(v, n.value), nil
	case opGt, opGte, opLt, opLte:
		return matchesRange(n.op, v, n.value), nil
	case opIn:
		return n.matchesIn(v), nil
	case opExists:
		return !isMissing(v), nil
	case opType:
		name := typeName(v)
		return slices.ContainsFunc(n.types, func(t string) bool {
			return t == name || t == "number" && classOf(v) == classNumber
		}), nil
	case opSize:
		a, ok := v.(bson.A)
		return ok && int64(len(a)) == n.value.(int64), nil
	case opMod:
		whole, ok := int64(0), classOf(v) == classNumber
		if ok {
			whole, ok = truncated(v)
		}
		return ok && whole%n.divisor == n.modulus, nil
	case opRegex:
		return matchesPattern(n.patterns[0].MatchString, v, n.value), nil
	case opElemMatchValue, opElemMatchObject:
		return n.matchesElement(v, at)
	}
	panic("mongosim: a filter has a condition without a meaning")
}

// matchesEqual: null also means missing. Source: manual, "Query for Null or Missing Fields".
func matchesEqual(v, wanted any) bool {
	if wanted == nil {
		return v == nil || isMissing(v)
	}
	return equal(v, wanted)
}

// matchesRange compares within one type only, with two exceptions: missing is like null, and everything can be
// compared to the two ends. NaN is in a range only with NaN, and only if the range includes its bound.
// Source: manual, "Comparison Query Operators", "Type Bracketing".
func matchesRange(op operator, v, bound any) bool {
	cv, cb := classOf(v), classOf(bound)
	if cv != cb {
		if cb == classNull {
			return isMissing(v) && (op == opGte || op == opLte)
		}
		if cb != classMinKey && cb != classMaxKey {
			return false
		}
	}
	c := compare(v, bound)
	if cv == classNumber && (isNaN(v) || isNaN(bound)) {
		return c == 0 && (op == opGte || op == opLte)
	}
	switch op {
	case opGt:
		return c > 0
	case opGte:
		return c >= 0
	case opLt:
		return c < 0
	}
	return c <= 0
}

func isNaN(v any) bool {
	switch v := v.(type) {
	case float64:
		return math.IsNaN(v)
	case bson.Decimal128:
		return v.IsNaN()
	}
	return false
}

func (n *node) matchesIn(v any) bool {
	for i, wanted := range n.value.(bson.A) {
		if n.details != nil && n.patterns[i] != nil {
			if matchesPattern(n.patterns[i].MatchString, v, wanted) {
				return true
			}
		} else if matchesEqual(v, wanted) {
			return true
		}
	}
	return false
}

func (n *node) matchesElement(v any, at *moment) (bool, error) {
	a, ok := v.(bson.A)
	if !ok {
		return false, nil
	}
	for _, e := range a {
		if n.op == opElemMatchValue {
			// The conditions were compiled on the path "".
			if ok, err := all(n.children, bson.D{{Key: "", Value: e}}, at); ok || err != nil {
				return ok, err
			}
			continue
		}
		d, ok := e.(bson.D)
		if nested, isArray := e.(bson.A); isArray {
			d, ok = arrayAsDocument(nested), true
		}
		if !ok {
			continue
		}
		if ok, err := all(n.children, d, at); ok || err != nil {
			return ok, err
		}
	}
	return false, nil
}
