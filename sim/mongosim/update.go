package mongosim

import (
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
	apply(before bson.D, q *query, inserting bool) (after bson.D, changed bool, err error)
}

// modifiers is an update made of operators.
type modifiers struct {
	changes    []change
	components []string // the parts of all paths
	filters    []arrayFilter
	before     bson.D                // the version that is being changed
	stamp      func() bson.Timestamp // takes the next time of the logical clock
}

// change is one operator on one path.
type change struct {
	operator *modifier
	path     string
	parts    []string
	operand  any
	// positional: some part stands for elements of an array.
	positional bool
	push       *pushOptions
	pull       *node
}

// parse compiles a canonical update document: operators, into m, or a whole new document.
func (m *modifiers) parse(update bson.D, request *Request) (updater, error) {
	if len(update) == 0 || !strings.HasPrefix(update[0].Key, "$") {
		if len(request.ArrayFilters) > 0 {
			return nil, refuse(codeFailedToParse, "arrayFilters may not be specified for replacement updates")
		}
		if request.Multi {
			return nil, refuse(codeFailedToParse, "multi update is not supported for replacement-style update")
		}
		return parseReplacement(update, m.stamp)
	}
	m.changes, m.components = m.changes[:0], m.components[:0]
	var err error
	if m.filters, err = parseArrayFilters(request.ArrayFilters); err != nil {
		return nil, err
	}
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
	if err := m.checkFiltersUsed(update); err != nil {
		return nil, err
	}
	return m, m.order()
}

func (m *modifiers) add(operator *modifier, path string, operand any) error {
	if path == "" {
		return refuse(codeEmptyFieldName, "An empty update path is not valid.")
	}
	c := change{operator: operator, path: path, parts: m.split(path), operand: operand}
	for i, part := range c.parts {
		if part != "" && part[0] == '$' {
			positional, err := m.positionalPart(&c, i)
			if err != nil {
				return err
			}
			if positional {
				c.positional = true
				continue
			}
		}
		switch {
		case part == "":
			return refuse(codeEmptyFieldName,
				"The update path '%s' contains an empty field name, which is not allowed.", path)
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
