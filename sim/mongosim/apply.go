package mongosim

import (
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
)

func (m *modifiers) apply(before bson.D, q *query, inserting bool) (bson.D, bool, error) {
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
			after, did, err = m.applyHere(after, c, c.parts[0], q)
		} else if parts, failure := m.resolve(c, q, inserting); failure != nil {
			return nil, false, failure
		} else {
			after, did, err = m.applyBelow(after, c, parts, q)
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
func (m *modifiers) applyHere(d bson.D, c *change, field string, q *query) (bson.D, bool, error) {
	i := position(d, field)
	var old any = missing{}
	if i >= 0 {
		old = d[i].Value
	}
	value, err := c.operator.compute(m, c, old, q.at)
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
func (m *modifiers) applyBelow(d bson.D, c *change, parts []string, q *query) (bson.D, bool, error) {
	i := position(d, parts[0])
	if i < 0 {
		if strings.HasPrefix(parts[1], "$[") {
			return nil, false, refuse(codeBadValue, "The path '%s' must exist in the document in order to apply array updates.", parts[0])
		}
		if !c.operator.creates {
			return d, false, nil
		}
		value, did, err := m.applyInside(bson.D{}, c, parts[0], parts[1:], q)
		if err != nil || !did {
			return d, false, err
		}
		return append(d, bson.E{Key: parts[0], Value: value}), true, nil
	}
	value, did, err := m.applyInside(d[i].Value, c, parts[0], parts[1:], q)
	if err != nil || !did {
		return d, false, err
	}
	d[i].Value = value
	return d, true, nil
}

// applyInside returns a changed copy of a value that lies on the way.
func (m *modifiers) applyInside(v any, c *change, name string, parts []string, q *query) (any, bool, error) {
	if strings.HasPrefix(parts[0], "$[") {
		return m.applyToElements(v, c, name, parts, q)
	}
	switch v := v.(type) {
	case bson.D:
		inner := append(make(bson.D, 0, len(v)+1), v...)
		if len(parts) == 1 {
			return asAny(m.applyHere(inner, c, parts[0], q))
		}
		return asAny(m.applyBelow(inner, c, parts, q))
	case bson.A:
		return m.applyInArray(v, c, name, parts, q)
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

func (m *modifiers) applyInArray(a bson.A, c *change, name string, parts []string, q *query) (any, bool, error) {
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
		if value, err = c.operator.compute(m, c, old, q.at); isMissing(value) {
			value = nil // $unset of an array's element leaves null in its place
		}
		did = c.operator.always || !identical(old, value)
	} else {
		if isMissing(old) {
			old = bson.D{}
		}
		value, did, err = m.applyInside(old, c, parts[0], parts[1:], q)
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
