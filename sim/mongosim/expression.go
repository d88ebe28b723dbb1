package mongosim

import (
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// expression is a compiled aggregation expression, as in $expr and update pipelines.
type expression struct {
	kind     expressionKind
	value    any      // constant
	path     []string // variable: the path under it; document: the names of args
	variable string
	args     []expression
	function *function
}

type expressionKind uint8

const (
	kindConstant expressionKind = iota
	kindVariable                // with a path; the document itself is the variable ROOT
	kindDocument
	kindArray
	kindCall
)

// function is an operator of the expression language. Exactly one of strict and lazy is set: strict gets the values of
// its arguments, lazy the arguments.
type function struct {
	name     string
	min, max int // numbers of arguments; max < 0 is any number
	strict   func(name string, values []any) (any, error)
	lazy     func(args []expression, scope *scope) (any, error)
}

// scope is what an expression sees.
type scope struct {
	root bson.D
	at   *moment
	// The innermost user variable, of $let, $map and $filter.
	name  string
	value any
	outer *scope
}

func (e *expression) evaluate(d bson.D, at *moment) (any, error) {
	at.scope = at.on(d)
	return e.in(&at.scope)
}

// on is the scope of expressions on a document.
func (at *moment) on(d bson.D) scope {
	s := scope{root: d, at: at}
	if at.variables != nil {
		s.outer = at.variables
	}
	return s
}

// bind evaluates variables within a scope, which may be nil, and puts them into a new one.
func bind(variables bson.D, outer *scope, at *moment) (*scope, error) {
	within := outer
	if within == nil {
		within = &scope{at: at}
	}
	bound := outer
	for _, v := range variables {
		if c := v.Key; c == "" || (c[0] < 'a' || c[0] > 'z') && c[0] < 0x80 {
			return nil, refuse(codeFailedToParse, "'%s' starts with an invalid character for a user variable name", c)
		}
		e, err := parseExpression(v.Value)
		if err != nil {
			return nil, err
		}
		value, err := e.in(within)
		if err != nil {
			return nil, err
		}
		bound = &scope{root: within.root, at: at, name: v.Key, value: value, outer: bound}
	}
	return bound, nil
}

// parseExpression compiles a canonical value.
func parseExpression(v any) (*expression, error) {
	e, err := parseValue(v)
	return &e, err
}

func parseValue(v any) (expression, error) {
	switch v := v.(type) {
	case string:
		if strings.HasPrefix(v, "$") {
			return parsePath(v)
		}
	case bson.D:
		if len(v) > 0 && strings.HasPrefix(v[0].Key, "$") {
			return parseCall(v)
		}
		return parseDocument(v)
	case bson.A:
		e := expression{kind: kindArray, args: make([]expression, len(v))}
		for i := range v {
			var err error
			if e.args[i], err = parseValue(v[i]); err != nil {
				return e, err
			}
		}
		return e, nil
	}
	return expression{kind: kindConstant, value: v}, nil
}

func parsePath(text string) (expression, error) {
	e := expression{kind: kindVariable, variable: "ROOT"}
	path := text[1:]
	if strings.HasPrefix(path, "$") {
		e.variable, path, _ = strings.Cut(path[1:], ".")
		switch e.variable {
		case "CURRENT":
			e.variable = "ROOT"
		case "ROOT", "NOW", "CLUSTER_TIME", "REMOVE":
		case "":
			return e, refuse(codeFailedToParse, "empty variable names are not allowed")
		case "USER_ROLES", "SEARCH_META":
			return e, unmodelled("$$" + e.variable)
		default:
			if c := e.variable[0]; c >= 'A' && c <= 'Z' {
				return e, refuse(17276, "Use of undefined variable: %s", e.variable)
			}
		}
		if path == "" {
			return e, nil
		}
	}
	if path == "" {
		return e, refuse(16872, "'$' by itself is not a valid FieldPath")
	}
	e.path = splitPath(path)
	for _, component := range e.path {
		if component == "" {
			return e, refuse(15998, "FieldPath field names may not be empty strings.")
		}
		if strings.HasPrefix(component, "$") {
			return e, refuse(16410,
				"FieldPath field names may not start with '$'. Consider using $getField or $setField.")
		}
	}
	return e, nil
}

func parseDocument(d bson.D) (expression, error) {
	e := expression{kind: kindDocument, path: make([]string, len(d)), args: make([]expression, len(d))}
	for i := range d {
		if strings.HasPrefix(d[i].Key, "$") {
			return e, refuse(15983, "An object representing an expression must have exactly one field: %s", format(d))
		}
		if strings.Contains(d[i].Key, ".") {
			return e, refuse(16412,
				"FieldPath field names may not contain '.'. Consider using $getField or $setField.")
		}
		var err error
		e.path[i] = d[i].Key
		if e.args[i], err = parseValue(d[i].Value); err != nil {
			return e, err
		}
	}
	return e, nil
}

func parseCall(d bson.D) (expression, error) {
	name, value := d[0].Key, d[0].Value
	if len(d) != 1 {
		return expression{}, refuse(15983,
			"An object representing an expression must have exactly one field: %s", format(d))
	}
	switch name {
	case "$literal", "$const":
		return expression{kind: kindConstant, value: value}, nil
	}
	if parse, special := namedArguments[name]; special {
		return parse(name, value)
	}
	f, known := functions[name]
	if !known {
		if refusedExpressions[name] {
			return expression{}, unmodelled(name)
		}
		return expression{}, refuse(codeInvalidPipelineOperator, "Unrecognized expression '%s'", name)
	}
	e := expression{kind: kindCall, function: f}
	arguments, several := value.(bson.A)
	if !several {
		arguments = bson.A{value}
	}
	if len(arguments) < f.min || f.max >= 0 && len(arguments) > f.max {
		return e, wrongCount(name, f, len(arguments))
	}
	e.args = make([]expression, len(arguments))
	for i := range arguments {
		var err error
		if e.args[i], err = parseValue(arguments[i]); err != nil {
			return e, err
		}
	}
	return e, nil
}

func wrongCount(name string, f *function, given int) error {
	switch {
	case f.min == f.max:
		return refuse(16020, "Expression %s takes exactly %d arguments. %d were passed in.", name, f.min, given)
	case f.max < 0:
		return refuse(28667, "Expression %s takes at least %d arguments. %d were passed in.", name, f.min, given)
	}
	return refuse(28667,
		"Expression %s takes at least %d arguments, and at most %d, but %d were passed in.", name, f.min, f.max, given)
}

// in evaluates the expression.
func (e *expression) in(s *scope) (any, error) {
	switch e.kind {
	case kindConstant:
		return e.value, nil
	case kindVariable:
		return e.inVariable(s)
	case kindDocument:
		return e.inDocument(s)
	case kindArray:
		return e.inArray(s)
	}
	if e.function.lazy != nil {
		return e.function.lazy(e.args, s)
	}
	// The values lie on a stack that the whole command uses: evaluating an argument leaves it as it was.
	base := len(s.at.stack)
	for i := range e.args {
		v, err := e.args[i].in(s)
		if err != nil {
			s.at.stack = s.at.stack[:base]
			return nil, err
		}
		s.at.stack = append(s.at.stack, v)
	}
	v, err := e.function.strict(e.function.name, s.at.stack[base:])
	s.at.stack = s.at.stack[:base]
	return v, err
}

func (e *expression) inVariable(s *scope) (any, error) {
	var v any
	switch e.variable {
	case "ROOT":
		if len(e.path) == 1 {
			return get(s.root, e.path[0]), nil
		}
		v = s.root
	case "NOW":
		v = s.at.now
	case "REMOVE":
		return missing{}, nil
	case "CLUSTER_TIME":
		if !s.at.replicated {
			return nil, refuse(51144, "Builtin variable '$$CLUSTER_TIME' is not available")
		}
		v = s.at.clusterTime
	default:
		for s.name != e.variable {
			if s = s.outer; s == nil {
				return nil, refuse(17276, "Use of undefined variable: %s", e.variable)
			}
		}
		v = s.value
	}
	return follow(v, e.path), nil
}

// follow goes down a path. Through an array it collects what each of its documents has there.
// Source: manual, "Field Paths" and "Aggregation Expressions".
func follow(v any, path []string) any {
	for i, component := range path {
		switch x := v.(type) {
		case bson.D:
			v = get(x, component)
		case bson.A:
			collected := bson.A{}
			for _, e := range x {
				if d, ok := e.(bson.D); ok {
					if found := follow(d, path[i:]); !isMissing(found) {
						collected = append(collected, found)
					}
				}
			}
			return collected
		default:
			return missing{}
		}
	}
	return v
}

func (e *expression) inDocument(s *scope) (any, error) {
	d := make(bson.D, 0, len(e.args))
	for i := range e.args {
		v, err := e.args[i].in(s)
		if err != nil {
			return nil, err
		}
		if !isMissing(v) {
			d = append(d, bson.E{Key: e.path[i], Value: v})
		}
	}
	return d, nil
}

func (e *expression) inArray(s *scope) (any, error) {
	a := make(bson.A, len(e.args))
	for i := range e.args {
		v, err := e.args[i].in(s)
		if err != nil {
			return nil, err
		}
		if isMissing(v) {
			v = nil
		}
		a[i] = v
	}
	return a, nil
}
