package mongosim

import (
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// projection says which fields to keep, which to drop, and which to compute. Source: manual, "$project" and "Project Fields
// to Return from Query".
type projection struct {
	inclusion bool
	keepID    bool
	fields    []projected
	computed  []addition
}

// projected is a field that is kept or dropped: whole, or only some fields of it.
type projected struct {
	name  string
	inner []projected
}

// compileProjection reads the projection of a command; an empty one is nil.
func compileProjection(specification bson.D) (*projection, error) {
	if len(specification) == 0 {
		return nil, nil
	}
	canonical, err := normalizeDocument(specification)
	if err != nil {
		return nil, err
	}
	return parseProjection(canonical)
}

func parseProjection(d bson.D) (*projection, error) {
	p := &projection{keepID: true}
	decided := false
	for _, field := range d {
		if nested, ok := field.Value.(bson.D); ok && len(nested) > 0 && strings.HasPrefix(nested[0].Key, "$") {
			switch nested[0].Key {
			case "$slice", "$elemMatch", "$meta":
				return nil, unmodelled(nested[0].Key + " in a projection")
			}
		}
		if strings.HasSuffix(field.Key, ".$") {
			return nil, unmodelled("positional projections")
		}
		include, plain := flag(field.Value)
		if plain && field.Key == "_id" {
			p.keepID = include
			if len(d) == 1 {
				p.inclusion = include
			}
			continue
		}
		if !plain {
			include = true
		}
		if decided && include != p.inclusion {
			if include {
				return nil, refuse(31253, "Cannot do inclusion on field %s in exclusion projection", field.Key)
			}
			return nil, refuse(31254, "Cannot do exclusion on field %s in inclusion projection", field.Key)
		}
		p.inclusion, decided = include, true
		var err error
		if plain {
			p.fields, err = parseProjected(p.fields, field.Key, splitPath(field.Key))
		} else {
			p.computed, err = parseAddition(p.computed, field.Key, splitPath(field.Key), field.Value)
		}
		if err != nil {
			return nil, err
		}
	}
	return p, nil
}

// flag reads a projection's yes or no.
func flag(v any) (include, plain bool) {
	switch v.(type) {
	case bool, int32, int64, float64, bson.Decimal128:
		return truth(v), true
	}
	return false, false
}

func parseProjected(tree []projected, path string, parts []string) ([]projected, error) {
	if parts[0] == "" {
		return nil, refuse(15998, "FieldPath field names may not be empty strings.")
	}
	i := slices.IndexFunc(tree, func(p projected) bool { return p.name == parts[0] })
	if i >= 0 && (len(parts) == 1 || tree[i].inner == nil) {
		return nil, refuse(31250, "Path collision at %s", path)
	}
	if i < 0 {
		i, tree = len(tree), append(tree, projected{name: parts[0]})
	}
	var err error
	if len(parts) > 1 {
		tree[i].inner, err = parseProjected(tree[i].inner, path, parts[1:])
	}
	return tree, err
}

func (p *projection) apply(d bson.D, at *moment) (bson.D, error) {
	out := make(bson.D, 0, len(d))
	for i := range d {
		if d[i].Key == "_id" && !slices.ContainsFunc(p.fields, func(f projected) bool { return f.name == "_id" }) {
			if p.keepID {
				out = append(out, d[i])
			}
			continue
		}
		if v := project(d[i], p.fields, p.inclusion); !isMissing(v) {
			out = append(out, bson.E{Key: d[i].Key, Value: v})
		}
	}
	if p.computed == nil {
		return out, nil
	}
	s := at.on(d)
	return addFields(out, p.computed, &s)
}

// project returns what is left of a field.
func project(field bson.E, fields []projected, inclusion bool) any {
	i := slices.IndexFunc(fields, func(f projected) bool { return f.name == field.Key })
	if i < 0 {
		if inclusion {
			return missing{}
		}
		return field.Value
	}
	if fields[i].inner == nil {
		if inclusion {
			return field.Value
		}
		return missing{}
	}
	return projectInside(field.Value, fields[i].inner, inclusion)
}

func projectInside(v any, fields []projected, inclusion bool) any {
	switch v := v.(type) {
	case bson.D:
		out := make(bson.D, 0, len(v))
		for i := range v {
			if inner := project(v[i], fields, inclusion); !isMissing(inner) {
				out = append(out, bson.E{Key: v[i].Key, Value: inner})
			}
		}
		return out
	case bson.A:
		out := make(bson.A, 0, len(v))
		for _, e := range v {
			if inner := projectInside(e, fields, inclusion); !isMissing(inner) {
				out = append(out, inner)
			}
		}
		return out
	}
	if inclusion {
		return missing{}
	}
	return v
}
