package mongosim

import (
	"math"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// An update is compiled once for each command. The compiled form is checked for conflicts between its paths
// and is sorted by them, since servers apply operators in the order of their paths (manual, "Update
// Operators", "Update Operators Behavior").

// updater turns one version of a document into the next.
type updater interface {
	// apply returns the new version, and whether it is a change. inserting is true for a document that an upsert
	// builds. The old version stays as it is.
	apply(before bson.D, at *moment, inserting bool) (after bson.D, changed bool, err error)
}

// modifiers is an update made of operators.
type modifiers struct {
	changes    []change
	components []string              // the parts of all paths
	before     bson.D                // the version that is being changed
	stamp      func() bson.Timestamp // takes the next time of the logical clock
}

// change is one operator on one path.
type change struct {
	operator *modifier
	path     string
	parts    []string
	operand  any
	push     *pushOptions
	pull     *node
}

// modifier is an update operator. Its function gets the value that is there, or missing{}, and returns
// the value to put there, or missing{} to leave nothing.
type modifier struct {
	name string
	// creates says whether the operator makes the documents on the way to its path.
	creates bool
	check   func(c *change) error
	compute func(m *modifiers, c *change, old any, at *moment) (value any, err error)
	// always: it counts as a change even if the value is the same.
	always bool
}

var modifierTable map[string]*modifier

// renameOperator puts a value at the new path; an $unset takes it from the old.
var renameOperator = &modifier{name: "$rename", creates: true, compute: computeRename}

func init() { // the table refers to functions that refer to it
	table := []*modifier{
		{name: "$set", creates: true, compute: computeSet},
		{name: "$setOnInsert", creates: true, compute: computeSet},
		{name: "$unset", compute: func(*modifiers, *change, any, *moment) (any, error) { return missing{}, nil }},
		renameOperator,
		{name: "$inc", creates: true, check: checkNumber("increment"), compute: computeInc},
		{name: "$mul", creates: true, check: checkNumber("multiply"), compute: computeMul},
		{name: "$min", creates: true, compute: computeExtreme(-1)},
		{name: "$max", creates: true, compute: computeExtreme(1)},
		{name: "$currentDate", creates: true, check: checkCurrentDate, compute: computeCurrentDate, always: true},
		{name: "$push", creates: true, check: checkPush, compute: computePush},
		{name: "$addToSet", creates: true, check: checkAddToSet, compute: computeAddToSet},
		{name: "$pop", check: checkPop, compute: computePop},
		{name: "$pull", check: checkPull, compute: computePull},
		{name: "$pullAll", check: checkPullAll, compute: computePull},
		{name: "$bit", creates: true, check: checkBit, compute: computeBit},
	}
	modifierTable = map[string]*modifier{}
	for _, m := range table {
		modifierTable[m.name] = m
	}
}

// parse compiles a canonical update document: operators, into m, or a whole new document.
func (m *modifiers) parse(update bson.D, multi bool) (updater, error) {
	if len(update) == 0 || !strings.HasPrefix(update[0].Key, "$") {
		if multi {
			return nil, refuse(codeFailedToParse, "multi update is not supported for replacement-style update")
		}
		return parseReplacement(update, m.stamp)
	}
	m.changes, m.components = m.changes[:0], m.components[:0]
	for i := range update {
		fields, ok := update[i].Value.(bson.D)
		operator, known := modifierTable[update[i].Key]
		switch {
		case !known:
			return nil, refuse(codeFailedToParse,
				"Unknown modifier: %s. Expected a valid update modifier or pipeline-style update "+
					"specified as an array", update[i].Key)
		case !ok:
			return nil, refuse(codeFailedToParse,
				"Modifiers operate on fields but we found type %s instead. For example: {$mod: "+
					"{<field>: ...}} not {%s: %s}", typeName(update[i].Value), update[i].Key, format(update[i].Value))
		}
		for j := range fields {
			var err error
			if operator == renameOperator {
				err = m.addRename(fields[j].Key, fields[j].Value)
			} else {
				err = m.add(operator, fields[j].Key, fields[j].Value)
			}
			if err != nil {
				return nil, err
			}
		}
	}
	return m, m.order()
}

func (m *modifiers) add(operator *modifier, path string, operand any) error {
	if path == "" {
		return refuse(codeEmptyFieldName, "An empty update path is not valid.")
	}
	c := change{operator: operator, path: path, parts: m.split(path), operand: operand}
	for i, part := range c.parts {
		switch {
		case part == "":
			return refuse(codeEmptyFieldName,
				"The update path '%s' contains an empty field name, which is not allowed.", path)
		case part == "$" || strings.HasPrefix(part, "$["):
			return unmodelled("positional updates (" + path + ")")
		case strings.HasPrefix(part, "$") && i == 0:
			return refuse(codeDollarPrefixedFieldName,
				"The dollar ($) prefixed field '%s' in '%s' is not allowed in the context of an "+
					"update's replacement document. Consider using an aggregation pipeline with $replaceWith.", part, path)
		}
	}
	if operator.check != nil {
		if err := operator.check(&c); err != nil {
			return err
		}
	}
	m.changes = append(m.changes, c)
	return nil
}

func (m *modifiers) addRename(from string, to any) error {
	target, ok := to.(string)
	switch {
	case !ok:
		return refuse(codeBadValue, "The 'to' field for $rename must be a string: %s: %s", from, format(to))
	case target == from:
		return refuse(codeBadValue, "The source and target field for $rename must differ: %s: %s", from, format(to))
	}
	if err := m.add(modifierTable["$unset"], from, ""); err != nil {
		return err
	}
	return m.add(renameOperator, target, splitPath(from))
}

func computeRename(m *modifiers, c *change, old any, _ *moment) (any, error) {
	var v any = m.before
	for _, component := range c.operand.([]string) {
		switch inner := v.(type) {
		case bson.D:
			v = get(inner, component)
		case bson.A:
			return nil, refuse(codeBadValue, "The source field cannot be an array element")
		default:
			return old, nil
		}
	}
	if isMissing(v) {
		return old, nil
	}
	return v, nil
}

// split is splitPath, but for a path of one component without a new slice.
func (m *modifiers) split(path string) []string {
	if strings.IndexByte(path, '.') >= 0 {
		return splitPath(path)
	}
	m.components = append(m.components, path)
	n := len(m.components)
	return m.components[n-1 : n : n]
}

// order sorts the changes by path, numeric components as numbers, and refuses two that touch each other.
func (m *modifiers) order() error {
	slices.SortStableFunc(m.changes, func(a, b change) int { return slices.CompareFunc(a.parts, b.parts, compareComponents) })
	for i := 1; i < len(m.changes); i++ {
		a, b := m.changes[i-1].parts, m.changes[i].parts
		if len(a) <= len(b) && slices.Equal(a, b[:len(a)]) {
			return refuse(codeConflictingUpdate,
				"Updating the path '%s' would create a conflict at '%s'", m.changes[i].path, m.changes[i-1].path)
		}
	}
	return nil
}

func compareComponents(a, b string) int {
	x, numericX := arrayIndex(a)
	y, numericY := arrayIndex(b)
	if numericX && numericY {
		return x - y
	}
	return strings.Compare(a, b)
}

func (m *modifiers) apply(before bson.D, at *moment, inserting bool) (bson.D, bool, error) {
	m.before = before
	var after bson.D
	changed := false
	for i := range m.changes {
		c := &m.changes[i]
		if c.operator.name == "$setOnInsert" && !inserting {
			continue
		}
		if after == nil {
			after = make(bson.D, len(before), len(before)+len(m.changes)-i)
			copy(after, before)
		}
		var did bool
		var err error
		if len(c.parts) == 1 {
			after, did, err = m.applyHere(after, c, c.parts[0], at)
		} else {
			after, did, err = m.applyBelow(after, c, c.parts, at)
		}
		if err != nil {
			return nil, false, err
		}
		changed = changed || did
	}
	if !changed {
		return before, false, nil
	}
	return after, true, nil
}

// applyHere changes one field of a document that it may write to.
func (m *modifiers) applyHere(d bson.D, c *change, field string, at *moment) (bson.D, bool, error) {
	i := position(d, field)
	var old any = missing{}
	if i >= 0 {
		old = d[i].Value
	}
	value, err := c.operator.compute(m, c, old, at)
	if err != nil {
		return nil, false, err
	}
	switch {
	case isMissing(value) && i < 0:
		return d, false, nil
	case isMissing(value):
		return slices.Delete(d, i, i+1), true, nil
	case i < 0:
		return append(d, bson.E{Key: field, Value: value}), true, nil
	}
	did := c.operator.always || !identical(old, value)
	d[i].Value = value
	return d, did, nil
}

// applyBelow changes a field of a document inside a document that it may write to; the inner one is copied.
func (m *modifiers) applyBelow(d bson.D, c *change, parts []string, at *moment) (bson.D, bool, error) {
	i := position(d, parts[0])
	if i < 0 {
		if !c.operator.creates {
			return d, false, nil
		}
		value, did, err := m.applyInside(bson.D{}, c, parts[0], parts[1:], at)
		if err != nil || !did {
			return d, false, err
		}
		return append(d, bson.E{Key: parts[0], Value: value}), true, nil
	}
	value, did, err := m.applyInside(d[i].Value, c, parts[0], parts[1:], at)
	if err != nil || !did {
		return d, false, err
	}
	d[i].Value = value
	return d, true, nil
}

// applyInside returns a changed copy of a value that lies on the way.
func (m *modifiers) applyInside(v any, c *change, name string, parts []string, at *moment) (any, bool, error) {
	switch v := v.(type) {
	case bson.D:
		inner := append(make(bson.D, 0, len(v)+1), v...)
		if len(parts) == 1 {
			return asAny(m.applyHere(inner, c, parts[0], at))
		}
		return asAny(m.applyBelow(inner, c, parts, at))
	case bson.A:
		return m.applyInArray(v, c, name, parts, at)
	}
	if !c.operator.creates {
		return v, false, nil
	}
	return nil, false, refuse(codePathNotViable,
		"Cannot create field '%s' in element {%s: %s}", parts[0], name, format(v))
}

func asAny(d bson.D, did bool, err error) (any, bool, error) { return d, did, err }

// maxPadding is how far beyond its end an array may be written. Source: the server's kMaxPaddingAllowed.
const maxPadding = 1500000

func (m *modifiers) applyInArray(a bson.A, c *change, name string, parts []string, at *moment) (any, bool, error) {
	i, numeric := arrayIndex(parts[0])
	if !numeric {
		if !c.operator.creates {
			return a, false, nil
		}
		return nil, false, refuse(codePathNotViable,
			"Cannot create field '%s' in element {%s: %s}", parts[0], name, format(a))
	}
	if i >= len(a) && !c.operator.creates {
		return a, false, nil
	}
	if i-len(a) > maxPadding {
		return nil, false, refuse(codeBadValue,
			"cannot apply the update because it would pad an array by more than %d elements", maxPadding)
	}
	copied := append(make(bson.A, 0, max(len(a), i+1)), a...)
	var old any = missing{}
	if i < len(a) {
		old = a[i]
	}
	var value any
	var did bool
	var err error
	if len(parts) == 1 {
		if value, err = c.operator.compute(m, c, old, at); isMissing(value) {
			value = nil // $unset of an array's element leaves null in its place
		}
		did = c.operator.always || !identical(old, value)
	} else {
		if isMissing(old) {
			old = bson.D{}
		}
		value, did, err = m.applyInside(old, c, parts[0], parts[1:], at)
	}
	if err != nil || !did {
		return a, false, err
	}
	for len(copied) <= i {
		copied = append(copied, nil)
	}
	copied[i] = value
	return copied, true, nil
}

// replacement is an update that names the whole new document. The _id stays.
type replacement struct {
	document bson.D
	stamp    func() bson.Timestamp
}

func parseReplacement(d bson.D, stamp func() bson.Timestamp) (updater, error) {
	for _, field := range d {
		if strings.HasPrefix(field.Key, "$") {
			return nil, refuse(codeDollarPrefixedFieldName,
				"The dollar ($) prefixed field '%s' in '%s' is not allowed in the context of an "+
					"update's replacement document. Consider using an aggregation pipeline with $replaceWith.", field.Key, field.Key)
		}
	}
	return &replacement{d, stamp}, nil
}

func (r *replacement) apply(before bson.D, _ *moment, inserting bool) (bson.D, bool, error) {
	after := r.document
	if id := get(before, "_id"); !isMissing(id) {
		if given := get(after, "_id"); isMissing(given) {
			after = append(bson.D{{Key: "_id", Value: id}}, after...)
		} else if !inserting || !equal(given, id) {
			after = withIDFirst(after) // a changed _id is refused by the caller
		}
	}
	after = stampZeros(after, r.stamp)
	return after, !identicalDocuments(before, after), nil
}

// stampZeros puts the server's time in the place of an empty timestamp at the top level, except in _id.
// Source: manual, "BSON Types", "Timestamps".
func stampZeros(d bson.D, stamp func() bson.Timestamp) bson.D {
	copied := false
	for i := range d {
		if t, ok := d[i].Value.(bson.Timestamp); ok && t.IsZero() && d[i].Key != "_id" {
			if !copied {
				d, copied = slices.Clone(d), true
			}
			d[i].Value = stamp()
		}
	}
	return d
}

func computeSet(_ *modifiers, c *change, _ any, _ *moment) (any, error) { return c.operand, nil }

func checkNumber(what string) func(*change) error {
	return func(c *change) error {
		if classOf(c.operand) != classNumber {
			return refuse(codeTypeMismatch,
				"Cannot %s with non-numeric argument: {%s: %s}", what, c.path, format(c.operand))
		}
		if _, decimal := c.operand.(bson.Decimal128); decimal {
			return unmodelled("decimal arithmetic (" + c.operator.name + ")")
		}
		return nil
	}
}

func computeInc(_ *modifiers, c *change, old any, _ *moment) (any, error) {
	if isMissing(old) {
		return c.operand, nil
	}
	return arithmetic(c, old, addInts, func(x, y float64) float64 { return x + y })
}

func computeMul(_ *modifiers, c *change, old any, _ *moment) (any, error) {
	if isMissing(old) {
		old = sameWidth(0, c.operand, c.operand)
		if _, floating := c.operand.(float64); floating {
			old = float64(0)
		}
	}
	return arithmetic(c, old, multiplyInts, func(x, y float64) float64 { return x * y })
}

// arithmetic is like that of expressions, but an int64 that overflows is an error.
// Source: manual, "$inc"; the message of arithmetic_node.cpp.
func arithmetic(c *change, old any, ints func(x, y int64) (int64, bool), floats func(x, y float64) float64) (any, error) {
	if classOf(old) != classNumber {
		return nil, refuse(codeTypeMismatch,
			"Cannot apply %s to a value of non-numeric type. The field '%s' has non-numeric type %s",
			c.operator.name, last(c.path), typeName(old))
	}
	x, intX := integer(old)
	y, intY := integer(c.operand)
	if intX && intY {
		z, ok := ints(x, y)
		if !ok {
			return nil, refuse(codeBadValue,
				"Failed to apply %s operations to current value (%s) for document", c.operator.name, format(old))
		}
		return sameWidth(z, old, c.operand), nil
	}
	return widened(c.operator.name, old, c.operand, ints, floats)
}

func computeExtreme(sign int) func(*modifiers, *change, any, *moment) (any, error) {
	return func(_ *modifiers, c *change, old any, _ *moment) (any, error) {
		if isMissing(old) || compare(c.operand, old)*sign > 0 {
			return c.operand, nil
		}
		return old, nil
	}
}

// checkCurrentDate reads the operand into the name of the wanted type. Source: manual, "$currentDate".
func checkCurrentDate(c *change) error {
	switch v := c.operand.(type) {
	case bool:
		c.operand = "date" // also for false
		return nil
	case bson.D:
		for _, field := range v {
			if field.Key != "$type" {
				return refuse(codeBadValue, "Unrecognized $currentDate option: %s", field.Key)
			}
		}
		if kind := get(v, "$type"); kind == "date" || kind == "timestamp" {
			c.operand = kind
			return nil
		}
		return refuse(codeBadValue,
			"The '$type' string field is required to be 'date' or 'timestamp': {$currentDate: {field : {$type: 'date'}}}")
	}
	return refuse(codeBadValue,
		"%s is not valid type for $currentDate. Please use a boolean ('true') or a $type expression "+
			"({$type: 'timestamp/date'}).", typeName(c.operand))
}

func computeCurrentDate(m *modifiers, c *change, _ any, at *moment) (any, error) {
	if c.operand == "timestamp" {
		return m.stamp(), nil
	}
	return at.now, nil
}

func checkBit(c *change) error {
	d, ok := c.operand.(bson.D)
	if !ok || len(d) == 0 {
		return refuse(codeBadValue,
			"The $bit modifier is not compatible with a %s. You must pass in an embedded document: "+
				"{$bit: {field: {and/or/xor: #}}", typeName(c.operand))
	}
	for _, field := range d {
		switch field.Key {
		case "and", "or", "xor":
		default:
			return refuse(codeBadValue,
				"The $bit modifier only supports 'and', 'or', and 'xor', not '%s' which is an unknown operator", field.Key)
		}
		if _, ok := integer(field.Value); !ok {
			return refuse(codeBadValue,
				"The $bit modifier field must be an Integer(32/64 bit); a '%s' is not supported here", typeName(field.Value))
		}
	}
	return nil
}

func computeBit(_ *modifiers, c *change, old any, _ *moment) (any, error) {
	if isMissing(old) {
		old = int32(0)
	}
	for _, field := range c.operand.(bson.D) {
		x, ok := integer(old)
		if !ok {
			return nil, refuse(codeBadValue,
				"Cannot apply $bit to a value of non-integral type. The field '%s' has type %s", last(c.path), typeName(old))
		}
		y, _ := integer(field.Value)
		z := x
		switch field.Key {
		case "and":
			z &= y
		case "or":
			z |= y
		case "xor":
			z ^= y
		}
		if _, wide := old.(int64); !wide {
			if _, wide := field.Value.(int64); !wide && z >= math.MinInt32 && z <= math.MaxInt32 {
				old = int32(z)
				continue
			}
		}
		old = z
	}
	return old, nil
}
