package mongosim

import (
	"strconv"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// The positional parts of update paths: $ is the element that the filter matched, $[] is every element, and $[name] every
// element that the array filter of that name matches. Source: manual, "Array Update Operators".

// arrayFilter is one of the command's arrayFilters.
type arrayFilter struct {
	name      string
	condition node
	used      bool
}

func parseArrayFilters(filters []bson.D) ([]arrayFilter, error) {
	var out []arrayFilter
	for _, d := range filters {
		canonical, err := normalizeDocument(d)
		if err != nil {
			return nil, err
		}
		condition, err := parseFilter(canonical)
		if err != nil {
			return nil, err
		}
		name, err := filterName(canonical, "")
		if err != nil {
			return nil, err
		}
		if name == "" {
			return nil, refuse(codeFailedToParse, "Cannot use an expression without a top-level field name in arrayFilters")
		}
		for _, other := range out {
			if other.name == name {
				return nil, refuse(codeFailedToParse, "Found multiple array filters with the same top-level field name %s", name)
			}
		}
		out = append(out, arrayFilter{name: name, condition: condition})
	}
	return out, nil
}

// filterName finds the one top-level field that an array filter is about.
func filterName(d bson.D, name string) (string, error) {
	for _, field := range d {
		found, _, _ := strings.Cut(field.Key, ".")
		if strings.HasPrefix(field.Key, "$") {
			branches, _ := field.Value.(bson.A)
			for _, branch := range branches {
				inner, _ := branch.(bson.D)
				var err error
				if name, err = filterName(inner, name); err != nil {
					return "", err
				}
			}
			continue
		}
		if c := found; c == "" || c[0] < 'a' || c[0] > 'z' || strings.ContainsFunc(c, notAlphanumeric) {
			return "", refuse(codeBadValue, "Error parsing array filter: The top-level field name must be an alphanumeric string "+
				"beginning with a lowercase letter, found '%s'", found)
		}
		if name != "" && name != found {
			return "", refuse(codeFailedToParse, "Error parsing array filter: Expected a single top-level field name, found '%s' and '%s'", name, found)
		}
		name = found
	}
	return name, nil
}

func notAlphanumeric(r rune) bool {
	return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9')
}

// positionalPart checks a component of an update path, and reports whether it is positional.
func (m *modifiers) positionalPart(c *change, i int) (bool, error) {
	part := c.parts[i]
	switch {
	case part == "$":
		if i == 0 {
			return false, refuse(codeBadValue, "Cannot have positional (i.e. '$') element in the first position in path '%s'", c.path)
		}
		for _, other := range c.parts[i+1:] {
			if other == "$" {
				return false, refuse(codeBadValue, "Too many positional (i.e. '$') elements found in path '%s'", c.path)
			}
		}
		return true, nil
	case !strings.HasPrefix(part, "$[") || !strings.HasSuffix(part, "]"):
		return false, nil
	case i == 0:
		return false, refuse(codeBadValue, "Cannot have array filter identifier (i.e. '$[<id>]') element in the first position in path '%s'", c.path)
	}
	if name := part[2 : len(part)-1]; name != "" {
		filter := m.arrayFilter(name)
		if filter == nil {
			return false, refuse(codeBadValue, "No array filter found for identifier '%s' in path '%s'", name, c.path)
		}
		filter.used = true
	}
	return true, nil
}

func (m *modifiers) arrayFilter(name string) *arrayFilter {
	for i := range m.filters {
		if m.filters[i].name == name {
			return &m.filters[i]
		}
	}
	return nil
}

func (m *modifiers) checkFiltersUsed(update bson.D) error {
	for i := range m.filters {
		if !m.filters[i].used {
			return refuse(codeFailedToParse, "The array filter for identifier '%s' was not used in the update %s", m.filters[i].name, format(update))
		}
	}
	return nil
}

// resolve puts the matched position in the place of $.
func (m *modifiers) resolve(c *change, q *query, inserting bool) ([]string, error) {
	if !c.positional {
		return c.parts, nil
	}
	parts := c.parts
	for i, part := range c.parts {
		if part != "$" {
			continue
		}
		at, found := -1, false
		if !inserting {
			at, found = matchedElement(q.filter.children, m.before, q.at)
		}
		if !found {
			return nil, refuse(codeBadValue, "The positional operator did not find the match needed from the query.")
		}
		parts = append(append(append([]string{}, parts[:i]...), strconv.Itoa(at)), parts[i+1:]...)
	}
	return parts, nil
}

// matchedElement returns the position of the array element by which the filter matches. If several conditions are about arrays, the
// last of them counts (src/mongo/db/matcher/match_details.h).
func matchedElement(nodes []node, d bson.D, at *moment) (position int, found bool) {
	for i := range nodes {
		n := &nodes[i]
		switch n.op {
		case opAnd:
			if p, ok := matchedElement(n.children, d, at); ok {
				position, found = p, true
			}
		case opOr:
			for j := range n.children {
				if ok, _ := n.children[j].matches(d, at); ok {
					if p, ok := matchedElement(n.children[j:j+1], d, at); ok {
						position, found = p, true
					}
					break
				}
			}
		case opNor, opNot, opTrue, opFalse, opExpr:
		default:
			if p, ok := n.element(get(d, n.field), n.rest, at); ok {
				position, found = p, true
			}
		}
	}
	return position, found
}

// element follows the rest of a path to the first array, and finds the first of its elements that matches.
func (n *node) element(v any, rest []string, at *moment) (int, bool) {
	switch v := v.(type) {
	case bson.D:
		if len(rest) > 0 {
			return n.element(get(v, rest[0]), rest[1:], at)
		}
	case bson.A:
		if len(rest) > 0 {
			if i, numeric := arrayIndex(rest[0]); numeric && i < len(v) {
				if p, ok := n.element(v[i], rest[1:], at); ok {
					return p, true
				}
			}
		}
		for i, e := range v {
			if n.matchesAt(e, rest, at) {
				return i, true
			}
		}
	}
	return 0, false
}

// matchesAt tests one element of an array.
func (n *node) matchesAt(e any, rest []string, at *moment) bool {
	var ok bool
	switch {
	case n.op == opElemMatchObject || n.op == opElemMatchValue:
		ok, _ = n.matchesElement(bson.A{e}, at)
	case n.op == opSize:
	case len(rest) > 0:
		if d, isDocument := e.(bson.D); isDocument {
			ok, _ = n.walk(d, rest, at)
		}
	default:
		ok, _ = n.test(e, at)
	}
	return ok
}

// applyToElements changes the elements of an array that a positional part names.
func (m *modifiers) applyToElements(v any, c *change, name string, parts []string, q *query) (any, bool, error) {
	a, ok := v.(bson.A)
	if !ok {
		return nil, false, refuse(codeBadValue, "Cannot apply array updates to non-array element %s: %s", name, format(v))
	}
	filter := m.arrayFilter(parts[0][2 : len(parts[0])-1])
	out, did := a, false
	for i, e := range a {
		if filter != nil {
			ok, err := filter.condition.matches(bson.D{{Key: filter.name, Value: e}}, q.at)
			if err != nil {
				return nil, false, err
			}
			if !ok {
				continue
			}
		}
		changed, one, err := m.applyInArray(out, c, name, append([]string{strconv.Itoa(i)}, parts[1:]...), q)
		if err != nil {
			return nil, false, err
		}
		if one {
			out, did = changed.(bson.A), true
		}
	}
	return out, did, nil
}
