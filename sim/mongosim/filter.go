package mongosim

import (
	"regexp"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// A filter is compiled once for each command into a tree of nodes, and evaluated for each document. Compiling checks
// it, so that a malformed filter fails also where there are no documents.

type operator uint8

const (
	opAnd operator = iota
	opOr
	opNor
	opNot // of its children, joined by and
	opTrue
	opFalse
	opExpr
	opEq
	opGt
	opGte
	opLt
	opLte
	opIn
	opExists
	opType
	opSize
	opMod
	opRegex
	opElemMatchValue  // children apply to the element itself
	opElemMatchObject // children apply to the element's fields
)

// node is one condition.
type node struct {
	op       operator
	field    string   // first component of the path
	rest     []string // the other components
	path     string
	value    any    // the operand; of opIn a bson.A
	children []node // opAnd, opOr, opNor, opNot, opElemMatch…
	expr     *expression
	*details
}

// details are what only some operators need.
type details struct {
	patterns []*regexp.Regexp // opRegex: one; opIn: nil, or for each value nil or its pattern
	types    []string
	divisor  int64
	modulus  int64
}

// parseFilter compiles a canonical filter. The root is always opAnd.
func parseFilter(filter bson.D) (node, error) {
	if len(filter) == 0 {
		return node{op: opAnd}, nil
	}
	children, err := parseConditions(make([]node, 0, len(filter)), filter)
	return node{op: opAnd, children: children}, err
}

func parseConditions(nodes []node, filter bson.D) ([]node, error) {
	for i := range filter {
		var err error
		if name := filter[i].Key; strings.HasPrefix(name, "$") {
			nodes, err = parseTopLevel(nodes, name, filter[i].Value)
		} else {
			nodes, err = parseField(nodes, name, filter[i].Value)
		}
		if err != nil {
			return nil, err
		}
	}
	return nodes, nil
}

func parseTopLevel(nodes []node, name string, value any) ([]node, error) {
	switch name {
	case "$and", "$or", "$nor":
		branches, err := parseBranches(name, value)
		if err != nil {
			return nil, err
		}
		op := map[string]operator{"$and": opAnd, "$or": opOr, "$nor": opNor}[name]
		return append(nodes, node{op: op, children: branches}), nil
	case "$expr":
		expr, err := parseExpression(value)
		return append(nodes, node{op: opExpr, expr: expr}), err
	case "$comment":
		return nodes, nil
	case "$alwaysTrue", "$alwaysFalse":
		if n, ok := integer(value); !ok || n != 1 {
			return nil, refuse(codeFailedToParse, "%s must be an integer value of 1", name)
		}
		return append(nodes, node{op: map[string]operator{"$alwaysTrue": opTrue, "$alwaysFalse": opFalse}[name]}), nil
	case "$where", "$text", "$jsonSchema", "$sampleRate":
		return nil, unmodelled(name)
	}
	return nil, refuse(codeBadValue,
		"unknown top level operator: %s. If you have a field name that starts with a '$' "+
			"symbol, consider using $getField or $setField.", name)
}

func parseBranches(name string, value any) ([]node, error) {
	array, ok := value.(bson.A)
	if !ok {
		return nil, refuse(codeBadValue, "%s must be an array", name)
	}
	if len(array) == 0 {
		return nil, refuse(codeBadValue, "$and/$or/$nor must be a nonempty array")
	}
	branches := make([]node, len(array))
	for i, branch := range array {
		conditions, ok := branch.(bson.D)
		if !ok {
			return nil, refuse(codeBadValue, "$or/$and/$nor entries need to be full objects")
		}
		var err error
		if branches[i], err = parseFilter(conditions); err != nil {
			return nil, err
		}
	}
	return branches, nil
}

// isOperators reports whether a value in a filter is a set of operators rather than a document to compare with. References
// ($ref, $id, $db) are documents.
func isOperators(value any) (bson.D, bool) {
	d, ok := value.(bson.D)
	if !ok || len(d) == 0 || !strings.HasPrefix(d[0].Key, "$") {
		return nil, false
	}
	switch d[0].Key {
	case "$ref", "$id", "$db":
		return nil, false
	}
	return d, true
}

// on makes a condition on the path.
func on(path string, op operator, value any) node {
	n := node{op: op, path: path, field: path, value: value}
	if i := strings.IndexByte(path, '.'); i >= 0 {
		n.field, n.rest = path[:i], strings.Split(path[i+1:], ".")
	}
	return n
}

func parseField(nodes []node, path string, value any) ([]node, error) {
	operators, ok := isOperators(value)
	if !ok {
		return parseEquality(nodes, path, value)
	}
	for i := range operators {
		n, err := parseOperator(path, operators[i].Key, operators[i].Value, operators)
		if err != nil {
			return nil, err
		}
		nodes = append(nodes, n...)
	}
	return nodes, nil
}

func parseEquality(nodes []node, path string, value any) ([]node, error) {
	if pattern, ok := value.(bson.Regex); ok {
		n, err := regexNode(path, pattern.Pattern, pattern.Options, value)
		return append(nodes, n), err
	}
	if _, ok := value.(bson.Undefined); ok {
		return nil, refuse(codeBadValue, "cannot compare to undefined")
	}
	return append(nodes, on(path, opEq, value)), nil
}
