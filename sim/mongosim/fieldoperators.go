package mongosim

import (
	"math"

	"go.mongodb.org/mongo-driver/v2/bson"
)

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
