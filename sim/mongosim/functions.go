package mongosim

import (
	"math"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// The operators of the expression language. Source for each: MongoDB manual, "Aggregation Operators".
var functions map[string]*function

// namedArguments are the operators whose arguments have names.
var namedArguments map[string]func(name string, value any) (expression, error)

func strict(minimum, maximum int, f func(name string, values []any) (any, error)) *function {
	return &function{min: minimum, max: maximum, strict: f}
}

func lazy(minimum, maximum int, f func(args []expression, s *scope) (any, error)) *function {
	return &function{min: minimum, max: maximum, lazy: f}
}

func init() { // the table refers to functions that refer to it
	functions = map[string]*function{
		"$eq":  comparison(func(c int) any { return c == 0 }),
		"$ne":  comparison(func(c int) any { return c != 0 }),
		"$gt":  comparison(func(c int) any { return c > 0 }),
		"$gte": comparison(func(c int) any { return c >= 0 }),
		"$lt":  comparison(func(c int) any { return c < 0 }),
		"$lte": comparison(func(c int) any { return c <= 0 }),
		"$cmp": comparison(func(c int) any { return int32(c) }),

		"$and":    lazy(0, -1, evaluateAnd),
		"$or":     lazy(0, -1, evaluateOr),
		"$not":    strict(1, 1, func(_ string, v []any) (any, error) { return !truth(v[0]), nil }),
		"$cond":   lazy(3, 3, evaluateCond),
		"$ifNull": lazy(2, -1, evaluateIfNull),

		"$add":      strict(0, -1, evaluateAdd),
		"$subtract": strict(2, 2, evaluateSubtract),
		"$multiply": strict(0, -1, evaluateMultiply),
		"$divide":   strict(2, 2, evaluateDivide),
		"$mod":      strict(2, 2, evaluateMod),
		"$abs":      strict(1, 1, evaluateAbs),
		"$floor":    strict(1, 1, rounding(math.Floor)),
		"$ceil":     strict(1, 1, rounding(math.Ceil)),
		"$trunc":    strict(1, 1, rounding(math.Trunc)),
		"$max":      strict(1, -1, extreme(1)),
		"$min":      strict(1, -1, extreme(-1)),

		"$type":     strict(1, 1, func(_ string, v []any) (any, error) { return typeName(v[0]), nil }),
		"$isNumber": strict(1, 1, func(_ string, v []any) (any, error) { return classOf(v[0]) == classNumber, nil }),
		"$toLong":   strict(1, 1, evaluateToLong),
		"$toInt":    strict(1, 1, evaluateToInt),
		"$toDouble": strict(1, 1, evaluateToDouble),
		"$toDate":   strict(1, 1, evaluateToDate),
		"$toBool":   strict(1, 1, evaluateToBool),
		"$toString": strict(1, 1, evaluateToString),

		"$concat":       strict(0, -1, evaluateConcat),
		"$toLower":      strict(1, 1, changeCase(strings.ToLower)),
		"$toUpper":      strict(1, 1, changeCase(strings.ToUpper)),
		"$mergeObjects": strict(0, -1, evaluateMergeObjects),
		"$in":           strict(2, 2, evaluateIn),
		"$size":         strict(1, 1, evaluateSize),
		"$isArray":      strict(1, 1, func(_ string, v []any) (any, error) { return classOf(v[0]) == classArray, nil }),
		"$arrayElemAt":  strict(2, 2, evaluateArrayElemAt),
		"$first":        strict(1, 1, elementAt(0)),
		"$last":         strict(1, 1, elementAt(-1)),
		"$concatArrays": strict(0, -1, evaluateConcatArrays),
	}
	for name, f := range functions {
		f.name = name
	}
	namedArguments = map[string]func(string, any) (expression, error){
		"$cond":     parseCond,
		"$switch":   parseSwitch,
		"$let":      parseLet,
		"$map":      parseMap,
		"$filter":   parseFilterExpression,
		"$getField": parseGetField, "$setField": parseSetField, "$unsetField": parseSetField,
		"$rand": parseRand,
	}
}

// refusedExpressions exist in MongoDB and not in the model.
var refusedExpressions = func() map[string]bool {
	names := "$accumulator $acos $acosh $allElementsTrue $anyElementTrue $arrayToObject $asin $asinh $atan $atan2 $atanh $avg " +
		"$binarySize $bitAnd $bitNot $bitOr $bitXor $bsonSize $convert $cos $cosh $dateAdd $dateDiff $dateFromParts $dateFromString " +
		"$dateSubtract $dateToParts $dateToString $dateTrunc $dayOfMonth $dayOfWeek $dayOfYear $degreesToRadians $exp $firstN " +
		"$function $hour $indexOfArray $indexOfBytes $indexOfCP $isoDayOfWeek $isoWeek $isoWeekYear $lastN $ln $log " +
		"$log10 $ltrim $maxN $median $meta $millisecond $minN $minute $month $objectToArray $percentile $pow $radiansToDegrees " +
		"$range $reduce $regexFind $regexFindAll $regexMatch $replaceAll $replaceOne $reverseArray $round $rtrim $sampleRate $second " +
		"$setDifference $setEquals $setIntersection $setIsSubset $setUnion $sin $sinh $slice $sortArray $split $sqrt " +
		"$stdDevPop $stdDevSamp $strLenBytes $strLenCP $strcasecmp $substr $substrBytes $substrCP $sum $tan $tanh $toDecimal " +
		"$toHashedIndexKey $toObjectId $toUUID $trim $tsIncrement $tsSecond $week $year $zip"
	table := map[string]bool{}
	for _, name := range strings.Fields(names) {
		table[name] = true
	}
	return table
}()

// comparison orders values of all types; missing is below everything but MinKey. Source: manual, "Comparison/Sort Order".
func comparison(result func(c int) any) *function {
	return strict(2, 2, func(_ string, v []any) (any, error) { return result(compare(v[0], v[1])), nil })
}

func absent(v any) bool {
	c := classOf(v)
	return c == classNull || c == classUndefined
}

func evaluateAnd(args []expression, s *scope) (any, error) {
	for i := range args {
		v, err := args[i].in(s)
		if err != nil || !truth(v) {
			return false, err
		}
	}
	return true, nil
}

func evaluateOr(args []expression, s *scope) (any, error) {
	for i := range args {
		v, err := args[i].in(s)
		if err != nil {
			return nil, err
		}
		if truth(v) {
			return true, nil
		}
	}
	return false, nil
}

func evaluateCond(args []expression, s *scope) (any, error) {
	condition, err := args[0].in(s)
	if err != nil {
		return nil, err
	}
	if truth(condition) {
		return args[1].in(s)
	}
	return args[2].in(s)
}

func parseCond(name string, value any) (expression, error) {
	f := functions[name]
	d, ok := value.(bson.D)
	if !ok || len(d) > 0 && strings.HasPrefix(d[0].Key, "$") {
		a, _ := value.(bson.A)
		if len(a) != 3 {
			return expression{}, wrongCount(name, f, max(len(a), 1))
		}
		return parseArguments(f, a)
	}
	for _, field := range d {
		if !slices.Contains([]string{"if", "then", "else"}, field.Key) {
			return expression{}, refuse(17083, "Unrecognized parameter to $cond: %s", field.Key)
		}
	}
	arguments := make(bson.A, 3)
	for i, part := range []string{"if", "then", "else"} {
		if arguments[i] = get(d, part); isMissing(arguments[i]) {
			return expression{}, refuse(int32(17080+i), "Missing '%s' parameter to $cond", part)
		}
	}
	return parseArguments(f, arguments)
}

func parseArguments(f *function, arguments bson.A) (expression, error) {
	e := expression{kind: kindCall, function: f, args: make([]expression, len(arguments))}
	for i := range arguments {
		var err error
		if e.args[i], err = parseValue(arguments[i]); err != nil {
			return e, err
		}
	}
	return e, nil
}

func evaluateIfNull(args []expression, s *scope) (v any, err error) {
	for i := range args {
		if v, err = args[i].in(s); err != nil || !absent(v) {
			return v, err
		}
	}
	return v, nil
}

// parseSwitch makes a call whose arguments are case, then, case, then, …, and the default, if any.
func parseSwitch(name string, value any) (expression, error) {
	d, ok := value.(bson.D)
	if !ok {
		return expression{}, refuse(40060, "$switch requires an object as an argument, found: %s", typeName(value))
	}
	branches, ok := get(d, "branches").(bson.A)
	if !ok || len(branches) == 0 {
		return expression{}, refuse(40068, "$switch requires at least one branch.")
	}
	var arguments bson.A
	for _, b := range branches {
		branch, _ := b.(bson.D)
		when, then := get(branch, "case"), get(branch, "then")
		if isMissing(when) {
			return expression{}, refuse(40064, "$switch requires each branch have a 'case' expression")
		}
		if isMissing(then) {
			return expression{}, refuse(40065, "$switch requires each branch have a 'then' expression.")
		}
		arguments = append(arguments, when, then)
	}
	if otherwise := get(d, "default"); !isMissing(otherwise) {
		arguments = append(arguments, otherwise)
	}
	return parseArguments(&function{name: name, lazy: evaluateSwitch}, arguments)
}

func evaluateSwitch(args []expression, s *scope) (any, error) {
	for ; len(args) >= 2; args = args[2:] {
		v, err := args[0].in(s)
		if err != nil {
			return nil, err
		}
		if truth(v) {
			return args[1].in(s)
		}
	}
	if len(args) == 0 {
		return nil, refuse(40066,
			"$switch could not find a matching branch for an input, and no default was specified.")
	}
	return args[0].in(s)
}

func parseLet(_ string, value any) (expression, error) {
	d, _ := value.(bson.D)
	vars, ok := get(d, "vars").(bson.D)
	if !ok {
		return expression{}, refuse(16876, "Missing 'vars' parameter to $let")
	}
	body := get(d, "in")
	if isMissing(body) {
		return expression{}, refuse(16877, "Missing 'in' parameter to $let")
	}
	var arguments bson.A
	var names []string
	for _, v := range vars {
		names, arguments = append(names, v.Key), append(arguments, v.Value)
	}
	return parseArguments(&function{name: "$let", lazy: func(args []expression, s *scope) (any, error) {
		inner := s
		for i, name := range names {
			v, err := args[i].in(s)
			if err != nil {
				return nil, err
			}
			inner = &scope{root: s.root, at: s.at, name: name, value: v, outer: inner}
		}
		return args[len(names)].in(inner)
	}}, append(arguments, body))
}

func parseMap(name string, value any) (expression, error) {
	return parseEach(name, value, "in", func(out bson.A, _, result any) bson.A {
		if isMissing(result) {
			result = nil
		}
		return append(out, result)
	})
}

func parseFilterExpression(name string, value any) (expression, error) {
	return parseEach(name, value, "cond", func(out bson.A, element, result any) bson.A {
		if truth(result) {
			out = append(out, element)
		}
		return out
	})
}

// parseEach compiles an operator that evaluates its body for each element of an array.
func parseEach(name string, value any, body string, collect func(out bson.A, element, result any) bson.A) (expression, error) {
	d, _ := value.(bson.D)
	input, each := get(d, "input"), get(d, body)
	if isMissing(input) {
		return expression{}, refuse(16880, "Missing 'input' parameter to %s", name)
	}
	if isMissing(each) {
		return expression{}, refuse(16882, "Missing '%s' parameter to %s", body, name)
	}
	if !isMissing(get(d, "limit")) {
		return expression{}, unmodelled("the limit of $filter")
	}
	as, named := get(d, "as").(string)
	if !named {
		as = "this"
	}
	return parseArguments(&function{name: name, lazy: func(args []expression, s *scope) (any, error) {
		v, err := args[0].in(s)
		if err != nil || absent(v) {
			return nil, err
		}
		elements, ok := v.(bson.A)
		if !ok {
			return nil, refuse(16883, "input to %s must be an array not %s", name, typeName(v))
		}
		out := bson.A{}
		for _, element := range elements {
			result, err := args[1].in(&scope{root: s.root, at: s.at, name: as, value: element, outer: s})
			if err != nil {
				return nil, err
			}
			out = collect(out, element, result)
		}
		return out, nil
	}}, bson.A{input, each})
}

func extreme(sign int) func(string, []any) (any, error) {
	return func(_ string, values []any) (any, error) {
		if len(values) == 1 {
			if a, ok := values[0].(bson.A); ok {
				values = a
			}
		}
		var best any
		for _, v := range values {
			if !absent(v) && (best == nil || compare(v, best)*sign > 0) {
				best = v
			}
		}
		return best, nil
	}
}

func evaluateConcat(_ string, values []any) (any, error) {
	var b strings.Builder
	for _, v := range values {
		if absent(v) {
			return nil, nil
		}
		s, ok := v.(string)
		if !ok {
			return nil, refuse(16702, "$concat only supports strings, not %s", typeName(v))
		}
		b.WriteString(s)
	}
	return b.String(), nil
}

func changeCase(change func(string) string) func(string, []any) (any, error) {
	return func(name string, values []any) (any, error) {
		if absent(values[0]) {
			return "", nil
		}
		s, ok := values[0].(string)
		if !ok {
			return nil, unmodelled(name + " of " + typeName(values[0]))
		}
		return change(s), nil
	}
}

func evaluateMergeObjects(_ string, values []any) (any, error) {
	if len(values) == 1 {
		if a, ok := values[0].(bson.A); ok {
			values = a
		}
	}
	merged := bson.D{}
	for _, v := range values {
		if absent(v) {
			continue
		}
		d, ok := v.(bson.D)
		if !ok {
			return nil, refuse(40400,
				"$mergeObjects requires object inputs, but input %s is of type %s", format(v), typeName(v))
		}
		for _, field := range d {
			if i := position(merged, field.Key); i >= 0 {
				merged[i].Value = field.Value
			} else {
				merged = append(merged, field)
			}
		}
	}
	return merged, nil
}

func evaluateIn(_ string, values []any) (any, error) {
	a, ok := values[1].(bson.A)
	if !ok {
		return nil, refuse(40081, "$in requires an array as a second argument, found: %s", typeName(values[1]))
	}
	return slices.ContainsFunc(a, func(e any) bool { return equal(e, values[0]) }), nil
}

func evaluateSize(_ string, values []any) (any, error) {
	a, ok := values[0].(bson.A)
	if !ok {
		return nil, refuse(17124, "The argument to $size must be an array, but was of type: %s", typeName(values[0]))
	}
	return int32(len(a)), nil
}

func evaluateArrayElemAt(name string, values []any) (any, error) {
	if absent(values[0]) || absent(values[1]) {
		return nil, nil
	}
	a, ok := values[0].(bson.A)
	if !ok {
		return nil, refuse(28689, "%s's first argument must be an array, but is %s", name, typeName(values[0]))
	}
	i, ok := wholeNumber(values[1])
	if !ok {
		return nil, refuse(28690,
			"%s's second argument must be a numeric value, but is %s", name, typeName(values[1]))
	}
	if i < 0 {
		i += int64(len(a))
	}
	if i < 0 || i >= int64(len(a)) {
		return missing{}, nil
	}
	return a[i], nil
}

func elementAt(i int32) func(string, []any) (any, error) {
	return func(name string, values []any) (any, error) { return evaluateArrayElemAt(name, []any{values[0], i}) }
}

func evaluateConcatArrays(_ string, values []any) (any, error) {
	out := bson.A{}
	for _, v := range values {
		if absent(v) {
			return nil, nil
		}
		a, ok := v.(bson.A)
		if !ok {
			return nil, refuse(28664, "$concatArrays only supports arrays, not %s", typeName(v))
		}
		out = append(out, a...)
	}
	return out, nil
}
