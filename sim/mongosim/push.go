package mongosim

import (
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// The update operators on arrays. Source: MongoDB manual, "Array Update Operators".

// pushOptions are the modifiers of $push.
type pushOptions struct {
	each     bson.A
	slice    *int64
	position *int64
	sort     any // nil, a direction, or a sort document
}

func checkPush(c *change) error {
	d, ok := c.operand.(bson.D)
	if !ok || isMissing(get(d, "$each")) {
		if ok && len(d) > 0 && strings.HasPrefix(d[0].Key, "$") {
			return refuse(codeDollarPrefixedFieldName,
				"The dollar ($) prefixed field '%s' in '%s' is not allowed in the context of an "+
					"update's replacement document. Consider using an aggregation pipeline with $replaceWith.", d[0].Key, d[0].Key)
		}
		c.push = &pushOptions{each: bson.A{c.operand}}
		return nil
	}
	options := &pushOptions{}
	for _, field := range d {
		if err := options.read(field); err != nil {
			return err
		}
	}
	c.push = options
	return nil
}

func (p *pushOptions) read(field bson.E) error {
	switch field.Key {
	case "$each":
		a, ok := field.Value.(bson.A)
		if !ok {
			return refuse(codeBadValue,
				"The argument to $each in $push must be an array but it was of type: %s", typeName(field.Value))
		}
		p.each = a
	case "$slice", "$position":
		n, ok := wholeNumber(field.Value)
		if !ok {
			return refuse(codeBadValue,
				"The value for %s must be an integer value but was given type: %s", field.Key, typeName(field.Value))
		}
		if field.Key == "$slice" {
			p.slice = &n
		} else {
			p.position = &n
		}
	case "$sort":
		switch v := field.Value.(type) {
		case bson.D:
			if len(v) == 0 {
				return refuse(codeBadValue, "The $sort pattern is empty when it should be a set of fields.")
			}
			for _, f := range v {
				if n, ok := wholeNumber(f.Value); !ok || n != 1 && n != -1 {
					return refuse(codeBadValue, "The $sort element value must be either 1 or -1")
				}
			}
		default:
			if n, ok := wholeNumber(v); !ok || n != 1 && n != -1 {
				return refuse(codeBadValue, "The $sort element value must be either 1 or -1")
			}
		}
		p.sort = field.Value
	default:
		return refuse(codeBadValue, "Unrecognized clause in $push: %s", field.Key)
	}
	return nil
}

func computePush(_ *modifiers, c *change, old any, _ *moment) (any, error) {
	a, err := arrayOf(c, old)
	if err != nil {
		return nil, err
	}
	p := c.push
	at := len(a)
	if p.position != nil {
		at = int(min(*p.position, int64(len(a))))
		if at < 0 {
			at = max(0, len(a)+at)
		}
	}
	out := make(bson.A, 0, len(a)+len(p.each))
	out = append(append(append(out, a[:at]...), p.each...), a[at:]...)
	sortElements(out, p.sort)
	if p.slice != nil {
		switch n := *p.slice; {
		case n >= 0:
			out = out[:min(n, int64(len(out)))]
		case -n < int64(len(out)):
			out = out[int64(len(out))+n:]
		}
	}
	return out, nil
}

func sortElements(a bson.A, by any) {
	switch by := by.(type) {
	case nil:
	case bson.D:
		fields := fieldsOf(by)
		slices.SortStableFunc(a, func(x, y any) int { return strings.Compare(elementKey(x, fields), elementKey(y, fields)) })
	default:
		sign := 1
		if isDescending(by) {
			sign = -1
		}
		slices.SortStableFunc(a, func(x, y any) int { return sign * compare(x, y) })
	}
}

func elementKey(v any, fields []indexField) string {
	d, _ := v.(bson.D)
	var b []byte
	for i := range fields {
		found := follow(d, fields[i].components)
		if isMissing(found) {
			found = nil
		}
		b = appendKey(b, found, fields[i].descending)
	}
	return string(b)
}

// arrayOf returns the array that is there; a missing field is an empty one.
func arrayOf(c *change, old any) (bson.A, error) {
	switch old := old.(type) {
	case missing:
		return nil, nil
	case bson.A:
		return old, nil
	}
	switch c.operator.name {
	case "$push":
		return nil, refuse(codeBadValue,
			"The field '%s' must be an array but is of type %s in document", c.path, typeName(old))
	case "$pop":
		return nil, refuse(codeTypeMismatch,
			"Path '%s' contains an element of non-array type '%s'", c.path, typeName(old))
	}
	return nil, refuse(codeBadValue, "Cannot apply %s to a non-array value", c.operator.name)
}

func checkAddToSet(c *change) error {
	d, ok := c.operand.(bson.D)
	if !ok || len(d) == 0 || d[0].Key != "$each" {
		c.push = &pushOptions{each: bson.A{c.operand}}
		return nil
	}
	if len(d) > 1 {
		return refuse(codeBadValue, "Found unexpected fields after $each in $addToSet: %s", format(d))
	}
	each, ok := d[0].Value.(bson.A)
	if !ok {
		return refuse(codeTypeMismatch,
			"The argument to $each in $addToSet must be an array but it was of type %s", typeName(d[0].Value))
	}
	c.push = &pushOptions{each: each}
	return nil
}

func computeAddToSet(_ *modifiers, c *change, old any, _ *moment) (any, error) {
	a, err := arrayOf(c, old)
	if err != nil {
		return nil, err
	}
	out := append(make(bson.A, 0, len(a)+len(c.push.each)), a...)
	for _, v := range c.push.each {
		if !slices.ContainsFunc(out, func(e any) bool { return equal(e, v) }) {
			out = append(out, v)
		}
	}
	return out, nil
}

func checkPop(c *change) error {
	n, ok := wholeNumber(c.operand)
	if !ok || n != 1 && n != -1 {
		return refuse(codeFailedToParse, "$pop expects 1 or -1, found: %s", format(c.operand))
	}
	c.operand = n
	return nil
}

func computePop(_ *modifiers, c *change, old any, _ *moment) (any, error) {
	a, err := arrayOf(c, old)
	if err != nil || len(a) == 0 {
		return old, err
	}
	if c.operand == int64(1) {
		return a[:len(a)-1], nil
	}
	return a[1:], nil
}

// checkPull compiles the condition on elements: a filter on documents, operators on values, or a value.
func checkPull(c *change) error {
	n := node{op: opAnd}
	var err error
	if d, ok := c.operand.(bson.D); !ok {
		n.children, err = parseField(nil, "", c.operand)
	} else if _, operators := isOperators(d); operators {
		n.children, err = parseField(nil, "", d)
	} else {
		n.children, err = parseConditions(nil, d)
		n.op = opElemMatchObject // marks a filter on the fields of elements
	}
	c.pull = &n
	return err
}

func checkPullAll(c *change) error {
	values, ok := c.operand.(bson.A)
	if !ok {
		return refuse(codeBadValue, "$pullAll requires an array argument but was given a %s", typeName(c.operand))
	}
	c.pull = &node{op: opAnd, children: []node{on("", opIn, values)}}
	return nil
}

func computePull(_ *modifiers, c *change, old any, at *moment) (any, error) {
	if isMissing(old) {
		return old, nil
	}
	a, err := arrayOf(c, old)
	if err != nil {
		return nil, err
	}
	out := bson.A{}
	for _, e := range a {
		d, ok := e.(bson.D)
		if c.pull.op == opAnd {
			d, ok = bson.D{{Key: "", Value: e}}, true
		}
		drop := false
		if ok {
			if drop, err = all(c.pull.children, d, at); err != nil {
				return nil, err
			}
		}
		if !drop {
			out = append(out, e)
		}
	}
	if len(out) == len(a) {
		return old, nil
	}
	return out, nil
}
