package mongosim

import (
	"regexp"

	"go.mongodb.org/mongo-driver/v2/bson"
)

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

func one(n node, err error) ([]node, error) { return []node{n}, err }

var comparisons = map[string]operator{"$gt": opGt, "$gte": opGte, "$lt": opLt, "$lte": opLte}

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
