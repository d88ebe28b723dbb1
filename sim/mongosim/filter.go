package mongosim

import (
	"math"
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

func one(n node, err error) ([]node, error) { return []node{n}, err }

var comparisons = map[string]operator{"$gt": opGt, "$gte": opGte, "$lt": opLt, "$lte": opLte}

func parseOperator(path, name string, value any, siblings bson.D) ([]node, error) {
	switch name {
	case "$eq":
		if _, ok := value.(bson.Regex); ok {
			return one(on(path, opEq, value), nil)
		}
		return parseEquality(nil, path, value)
	case "$gt", "$gte", "$lt", "$lte":
		switch value.(type) {
		case bson.Regex:
			return nil, refuse(codeBadValue, "Can't have RegEx as arg to predicate over field '%s'.", path)
		case bson.Undefined:
			return nil, refuse(codeBadValue, "cannot compare to undefined")
		}
		return one(on(path, comparisons[name], value), nil)
	case "$ne":
		if _, ok := value.(bson.Regex); ok {
			return nil, refuse(codeBadValue, "Can't have regex as arg to $ne.")
		}
		return one(negation(on(path, opEq, value)), nil)
	case "$in", "$nin":
		return parseIn(path, name, value)
	case "$exists":
		n := on(path, opExists, nil)
		if !truth(value) {
			n = negation(n)
		}
		return one(n, nil)
	case "$not":
		return parseNot(path, value)
	case "$type":
		return parseType(path, value)
	case "$size":
		return parseSize(path, value)
	case "$mod":
		return parseMod(path, value)
	case "$regex":
		return parseRegex(path, value, siblings)
	case "$options":
		if position(siblings, "$regex") < 0 {
			return nil, refuse(codeBadValue, "$options needs a $regex")
		}
		return nil, nil
	case "$elemMatch":
		return parseElemMatch(path, value)
	case "$all":
		return parseAll(path, value)
	case "$comment":
		return nil, nil
	case "$bitsAllSet", "$bitsAllClear", "$bitsAnySet", "$bitsAnyClear", "$geoIntersects", "$geoWithin", "$near", "$nearSphere":
		return nil, unmodelled(name)
	}
	return nil, refuse(codeBadValue, "unknown operator: %s", name)
}

func negation(n ...node) node { return node{op: opNot, children: n} }

func parseIn(path, name string, value any) ([]node, error) {
	array, ok := value.(bson.A)
	if !ok {
		return nil, refuse(codeBadValue, "%s needs an array", name)
	}
	n := on(path, opIn, array)
	for i, v := range array {
		if _, ok := isOperators(v); ok {
			return nil, refuse(codeBadValue, "cannot nest $ under $in")
		}
		pattern, ok := v.(bson.Regex)
		if !ok {
			continue
		}
		compiled, err := compileRegex(pattern.Pattern, pattern.Options)
		if err != nil {
			return nil, err
		}
		if n.details == nil {
			n.details = &details{patterns: make([]*regexp.Regexp, len(array))}
		}
		n.patterns[i] = compiled
	}
	if name == "$nin" {
		n = negation(n)
	}
	return []node{n}, nil
}

func parseNot(path string, value any) ([]node, error) {
	if pattern, ok := value.(bson.Regex); ok {
		n, err := regexNode(path, pattern.Pattern, pattern.Options, value)
		return one(negation(n), err)
	}
	operators, ok := isOperators(value)
	if !ok {
		if d, isDocument := value.(bson.D); isDocument && len(d) == 0 {
			return nil, refuse(codeBadValue, "$not cannot be empty")
		}
		return nil, refuse(codeBadValue, "$not needs a regex or a document")
	}
	children, err := parseField(nil, path, operators)
	return one(negation(children...), err)
}

// typeNumbers is the table of BSON type numbers and aliases. Source: manual, "BSON Types".
var typeNumbers = map[int64]string{
	1: "double", 2: "string", 3: "object", 4: "array", 5: "binData", 6: "undefined", 7: "objectId", 8: "bool",
	9: "date", 10: "null", 11: "regex", 12: "dbPointer", 13: "javascript", 14: "symbol", 15: "javascriptWithScope",
	16: "int", 17: "timestamp", 18: "long", 19: "decimal", -1: "minKey", 127: "maxKey",
}

func parseType(path string, value any) ([]node, error) {
	wanted, ok := value.(bson.A)
	if !ok {
		wanted = bson.A{value}
	}
	if len(wanted) == 0 {
		return nil, refuse(codeFailedToParse, "%s must match at least one type", path)
	}
	n := on(path, opType, nil)
	n.details = &details{}
	for _, w := range wanted {
		name, err := typeWanted(w)
		if err != nil {
			return nil, err
		}
		n.types = append(n.types, name)
	}
	return []node{n}, nil
}

func typeWanted(w any) (string, error) {
	if alias, ok := w.(string); ok {
		if alias == "number" {
			return alias, nil
		}
		for _, name := range typeNumbers {
			if name == alias {
				return alias, nil
			}
		}
		return "", refuse(codeBadValue, "Unknown type name alias: %s", alias)
	}
	number, ok := wholeNumber(w)
	if !ok {
		return "", refuse(codeTypeMismatch, "type must be represented as a number or a string")
	}
	name, known := typeNumbers[number]
	if !known {
		return "", refuse(codeBadValue, "Invalid numerical type code: %d", number)
	}
	return name, nil
}

// wholeNumber reads an integer of any numeric type.
func wholeNumber(v any) (int64, bool) {
	if n, ok := integer(v); ok {
		return n, true
	}
	if f, ok := v.(float64); ok && f == math.Trunc(f) && math.Abs(f) < 1<<62 {
		return int64(f), true
	}
	if d, ok := v.(bson.Decimal128); ok && !d.IsNaN() && d.IsInf() == 0 {
		if r := decimalRational(d); r.IsInt() && r.Num().IsInt64() {
			return r.Num().Int64(), true
		}
	}
	return 0, false
}

func parseSize(path string, value any) ([]node, error) {
	n, ok := wholeNumber(value)
	if !ok {
		return nil, refuse(codeFailedToParse,
			"Failed to parse $size. Expected an integer in: $size: %s", format(value))
	}
	if n < 0 {
		return nil, refuse(codeFailedToParse,
			"Failed to parse $size. Expected a non-negative number in: $size: %s", format(value))
	}
	return []node{on(path, opSize, n)}, nil
}

func parseMod(path string, value any) ([]node, error) {
	array, ok := value.(bson.A)
	if !ok {
		return nil, refuse(codeBadValue, "malformed mod, needs to be an array")
	}
	if len(array) != 2 {
		return nil, refuse(codeBadValue,
			"malformed mod, %s elements", map[bool]string{true: "not enough", false: "too many"}[len(array) < 2])
	}
	n := on(path, opMod, nil)
	n.details = &details{}
	for i, to := range []*int64{&n.divisor, &n.modulus} {
		whole, ok := truncated(array[i])
		if !ok {
			return nil, refuse(codeBadValue, "malformed mod, %s not a number", []string{"divisor", "remainder"}[i])
		}
		*to = whole
	}
	if n.divisor == 0 {
		return nil, refuse(codeBadValue, "divisor cannot be 0")
	}
	return []node{n}, nil
}

// truncated returns the whole part of a number.
func truncated(v any) (int64, bool) {
	if n, ok := integer(v); ok {
		return n, true
	}
	exact, special := rational(v)
	if special != 0 || exact == nil {
		return 0, false
	}
	whole := exact.Num().Quo(exact.Num(), exact.Denom())
	return whole.Int64(), whole.IsInt64()
}

func parseRegex(path string, value any, siblings bson.D) ([]node, error) {
	var pattern, options string
	switch v := value.(type) {
	case string:
		pattern = v
	case bson.Regex:
		pattern, options = v.Pattern, v.Options
	default:
		return nil, refuse(codeBadValue, "$regex has to be a string")
	}
	if given := get(siblings, "$options"); !isMissing(given) {
		s, ok := given.(string)
		if !ok {
			return nil, refuse(codeBadValue, "$options has to be a string")
		}
		if options != "" {
			return nil, refuse(51075, "options set in both $regex and $options")
		}
		options = s
	}
	return one(regexNode(path, pattern, options, bson.Regex{Pattern: pattern, Options: options}))
}

func regexNode(path, pattern, options string, value any) (node, error) {
	n := on(path, opRegex, value)
	compiled, err := compileRegex(pattern, options)
	n.details = &details{patterns: []*regexp.Regexp{compiled}}
	return n, err
}

// compileRegex translates to Go's syntax, which has no look-around or back references.
func compileRegex(pattern, options string) (*regexp.Regexp, error) {
	flags := ""
	for _, o := range options {
		switch o {
		case 'i', 'm', 's':
			flags += string(o)
		case 'u':
		case 'x':
			return nil, unmodelled("the regular expression option x")
		default:
			return nil, refuse(51108, "invalid flag in regex options: %c", o)
		}
	}
	if flags != "" {
		pattern = "(?" + flags + ")" + pattern
	}
	compiled, err := regexp.Compile(pattern)
	if err != nil {
		return nil, refuse(51091, "Regular expression is invalid: %v", err)
	}
	return compiled, nil
}

func parseElemMatch(path string, value any) ([]node, error) {
	conditions, ok := value.(bson.D)
	if !ok {
		return nil, refuse(codeBadValue, "$elemMatch needs an Object")
	}
	operators, onValue := isOperators(conditions)
	if onValue {
		switch operators[0].Key {
		case "$and", "$or", "$nor", "$expr", "$where":
			onValue = false
		}
	}
	n := on(path, opElemMatchObject, nil)
	var err error
	if onValue {
		n.op = opElemMatchValue
		n.children, err = parseField(nil, "", conditions)
	} else {
		n.children, err = parseConditions(nil, conditions)
	}
	return []node{n}, err
}

func parseAll(path string, value any) ([]node, error) {
	array, ok := value.(bson.A)
	if !ok {
		return nil, refuse(codeBadValue, "$all needs an array")
	}
	if len(array) == 0 {
		return []node{{op: opFalse}}, nil
	}
	var nodes []node
	for _, v := range array {
		var err error
		if operators, ok := isOperators(v); ok {
			if operators[0].Key != "$elemMatch" || len(operators) != 1 {
				return nil, refuse(codeBadValue, "no $ expressions in $all")
			}
			nodes, err = parseField(nodes, path, operators)
		} else {
			nodes, err = parseEquality(nodes, path, v)
		}
		if err != nil {
			return nil, err
		}
	}
	return nodes, nil
}

// truth is how MongoDB reads a value as yes or no: everything but false, zero, null, and missing is yes.
func truth(v any) bool {
	switch v := v.(type) {
	case bool:
		return v
	case nil, missing, bson.Undefined:
		return false
	case int32, int64, float64, bson.Decimal128:
		return compareNumbers(v, int32(0)) != 0
	}
	return true
}
