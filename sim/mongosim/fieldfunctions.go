package mongosim

import (
	"math"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// The operators on fields whose names hold dots and dollars. Source: manual, "$getField", "$setField", "$unsetField".

func parseGetField(name string, value any) (expression, error) {
	field, input := value, any("$$CURRENT")
	if d, ok := value.(bson.D); ok && (len(d) == 0 || !strings.HasPrefix(d[0].Key, "$")) {
		if field, input = get(d, "field"), get(d, "input"); isMissing(field) {
			return expression{}, refuse(3041702, "%s requires 'field' to be specified", name)
		}
		if isMissing(input) {
			return expression{}, refuse(3041703, "%s requires 'input' to be specified", name)
		}
	}
	return parseArguments(&function{name: name, strict: evaluateGetField}, bson.A{literal(field), input})
}

// literal keeps a name that begins with a dollar from being read as a path.
func literal(field any) any {
	if text, ok := field.(string); ok {
		return bson.D{{Key: "$literal", Value: text}}
	}
	return field
}

func evaluateGetField(name string, values []any) (any, error) {
	field, ok := values[0].(string)
	if !ok {
		return nil, refuse(5654602, "%s requires 'field' to evaluate to type String, found %s", name, typeName(values[0]))
	}
	if d, ok := values[1].(bson.D); ok {
		return get(d, field), nil
	}
	if absent(values[1]) {
		return values[1], nil
	}
	return missing{}, nil
}

// parseSetField is also for $unsetField, which sets to nothing.
func parseSetField(name string, value any) (expression, error) {
	d, ok := value.(bson.D)
	if !ok {
		return expression{}, refuse(4161100, "%s only supports an object as its argument", name)
	}
	field, input, to := get(d, "field"), get(d, "input"), get(d, "value")
	if name == "$unsetField" {
		to = "$$REMOVE"
	}
	for i, part := range []any{field, input, to} {
		if isMissing(part) {
			return expression{}, refuse(4161102, "%s requires '%s' to be specified", name, []string{"field", "input", "value"}[i])
		}
	}
	if _, ok := field.(string); !ok {
		if call, ok := field.(bson.D); !ok || len(call) != 1 || call[0].Key != "$literal" && call[0].Key != "$const" {
			return expression{}, refuse(4161106, "%s requires 'field' to evaluate to a constant", name)
		}
	}
	return parseArguments(&function{name: name, strict: evaluateSetField}, bson.A{literal(field), input, to})
}

func evaluateSetField(name string, values []any) (any, error) {
	field, ok := values[0].(string)
	if !ok {
		return nil, refuse(4161107, "%s requires 'field' to evaluate to type String", name)
	}
	if absent(values[1]) {
		return nil, nil
	}
	d, ok := values[1].(bson.D)
	if !ok {
		return nil, refuse(4161105, "%s requires 'input' to evaluate to type Object", name)
	}
	return replaceAt(d, []string{field}, values[2]), nil
}

// parseRand is for $rand: a number from 0 to below 1, which the server's seed decides. Source: manual, "$rand".
func parseRand(name string, value any) (expression, error) {
	if d, ok := value.(bson.D); !ok || len(d) > 0 {
		if a, ok := value.(bson.A); !ok || len(a) > 0 {
			return expression{}, refuse(3040501, "%s does not currently accept arguments", name)
		}
	}
	return expression{kind: kindCall, function: &function{name: name, lazy: func(_ []expression, s *scope) (any, error) {
		s.at.draws++
		return float64(scramble(s.at.draws, name)>>11) / math.Exp2(53), nil
	}}}, nil
}
