package mongosim

import (
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// pipeline is an update made of aggregation stages. Source: manual, "Updates with Aggregation Pipeline".
type pipeline []stage

// stage turns a document into another.
type stage func(d bson.D, at *moment) (bson.D, error)

func parsePipeline(stages []bson.D) (updater, error) {
	p := make(pipeline, len(stages))
	for i, d := range stages {
		if len(d) != 1 {
			return nil, refuse(40323, "A pipeline stage specification object must contain exactly one field.")
		}
		var err error
		if p[i], err = parseStage(d[0].Key, d[0].Value); err != nil {
			return nil, err
		}
	}
	return p, nil
}

func parseStage(name string, value any) (stage, error) {
	switch name {
	case "$set", "$addFields":
		return parseAddFields(name, value)
	case "$unset":
		return parseUnsetStage(value)
	case "$project":
		d, ok := value.(bson.D)
		if !ok {
			return nil, refuse(15969, "$project specification must be an object")
		}
		if len(d) == 0 {
			return nil, refuse(51272,
				"Invalid $project :: caused by :: projection specification must have at least one field")
		}
		p, err := parseProjection(d)
		return p.apply, err
	case "$replaceWith":
		return parseReplaceRoot(value)
	case "$replaceRoot":
		d, _ := value.(bson.D)
		root := get(d, "newRoot")
		if isMissing(root) {
			return nil, refuse(40231, "no newRoot specified for the $replaceRoot stage")
		}
		return parseReplaceRoot(root)
	}
	if slices.Contains(strings.Fields(otherStages), name) {
		return nil, refuse(codeInvalidOptions, "%s is not allowed to be used within an update", name)
	}
	return nil, refuse(40324, "Unrecognized pipeline stage name: '%s'", name)
}

// otherStages exist, but not in updates.
const otherStages = "$match $sort $limit $skip $group $unwind $lookup $facet $count $out $merge $bucket $bucketAuto $sample " +
	"$redact $geoNear $graphLookup $unionWith $setWindowFields $densify $fill $documents $changeStream $collStats $indexStats " +
	"$sortByCount $currentOp $listSessions $planCacheStats $search $vectorSearch"

func (p pipeline) apply(before bson.D, q *query, _ bool) (bson.D, bool, error) {
	after := before
	var err error
	for _, run := range p {
		if after, err = run(after, q.at); err != nil {
			return nil, false, err
		}
	}
	if id := get(before, "_id"); !isMissing(id) {
		if isMissing(get(after, "_id")) {
			// A pipeline that loses the _id keeps it: src/mongo/db/update/pipeline_executor.cpp.
			after = append(bson.D{{Key: "_id", Value: id}}, after...)
		}
		after = withIDFirst(after)
	}
	return after, !identicalDocuments(before, after), nil
}

// addition is one field of $set: an expression, or fields to set inside.
type addition struct {
	name  string
	value *expression
	inner []addition
}

func parseAddFields(name string, value any) (stage, error) {
	d, ok := value.(bson.D)
	if !ok {
		return nil, refuse(40272, "%s specification stage must be an object, got %s", name, typeName(value))
	}
	if len(d) == 0 {
		return nil, refuse(51272, "Invalid %s :: caused by :: specification must have at least one field", name)
	}
	additions, err := parseAdditions(nil, d)
	if err != nil {
		return nil, err
	}
	return func(d bson.D, at *moment) (bson.D, error) {
		s := at.on(d)
		return addFields(d, additions, &s)
	}, nil
}

// parseAdditions turns dotted paths and nested documents into a tree. All expressions see the document as it came in.
func parseAdditions(tree []addition, d bson.D) ([]addition, error) {
	for _, field := range d {
		var err error
		if tree, err = parseAddition(tree, field.Key, splitPath(field.Key), field.Value); err != nil {
			return nil, err
		}
	}
	return tree, nil
}

func parseAddition(tree []addition, path string, parts []string, value any) ([]addition, error) {
	if parts[0] == "" {
		return nil, refuse(15998, "FieldPath field names may not be empty strings.")
	}
	if strings.HasPrefix(parts[0], "$") {
		return nil, refuse(16410,
			"FieldPath field names may not start with '$'. Consider using $getField or $setField.")
	}
	i := slices.IndexFunc(tree, func(a addition) bool { return a.name == parts[0] })
	nested, isDocument := value.(bson.D)
	isDocument = isDocument && len(nested) > 0 && !strings.HasPrefix(nested[0].Key, "$")
	if len(parts) == 1 && !isDocument {
		if i >= 0 {
			return nil, refuse(31250, "Path collision at %s", path)
		}
		e, err := parseExpression(value)
		return append(tree, addition{name: parts[0], value: e}), err
	}
	if i < 0 {
		i, tree = len(tree), append(tree, addition{name: parts[0]})
	} else if tree[i].value != nil {
		return nil, refuse(31249, "Path collision at %s remaining portion %s", path, strings.Join(parts[1:], "."))
	}
	var err error
	if len(parts) > 1 {
		tree[i].inner, err = parseAddition(tree[i].inner, path, parts[1:], value)
	} else {
		tree[i].inner, err = parseAdditions(tree[i].inner, nested)
	}
	return tree, err
}

func addFields(d bson.D, additions []addition, s *scope) (bson.D, error) {
	out := append(make(bson.D, 0, len(d)+len(additions)), d...)
	for i := range additions {
		a := &additions[i]
		at := position(out, a.name)
		var v any
		var err error
		if a.value != nil {
			v, err = a.value.in(s)
		} else {
			v, err = addInside(get(out, a.name), a.inner, s)
		}
		switch {
		case err != nil:
			return nil, err
		case isMissing(v) && at >= 0:
			out = slices.Delete(out, at, at+1)
		case isMissing(v):
		case at >= 0:
			out[at].Value = v
		default:
			out = append(out, bson.E{Key: a.name, Value: v})
		}
	}
	return out, nil
}

// addInside sets fields in a document, in each element of an array, or in a new document in the place of anything else.
func addInside(v any, additions []addition, s *scope) (any, error) {
	switch v := v.(type) {
	case bson.D:
		return addFields(v, additions, s)
	case bson.A:
		out := make(bson.A, len(v))
		for i := range v {
			var err error
			if out[i], err = addInside(v[i], additions, s); err != nil {
				return nil, err
			}
		}
		return out, nil
	}
	return addFields(nil, additions, s)
}

func parseUnsetStage(value any) (stage, error) {
	paths, ok := value.(bson.A)
	if !ok {
		paths = bson.A{value}
	}
	if len(paths) == 0 {
		return nil, refuse(31119, "$unset specification must be a string or an array with at least one field")
	}
	specification := make(bson.D, len(paths))
	for i, path := range paths {
		name, ok := path.(string)
		if !ok {
			return nil, refuse(31120,
				"$unset specification must be a string or an array containing only string values")
		}
		specification[i] = bson.E{Key: name, Value: int32(0)}
	}
	p, err := parseProjection(specification)
	return p.apply, err
}

func parseReplaceRoot(value any) (stage, error) {
	e, err := parseExpression(value)
	if err != nil {
		return nil, err
	}
	return func(d bson.D, at *moment) (bson.D, error) {
		v, err := e.evaluate(d, at)
		if err != nil {
			return nil, err
		}
		root, ok := v.(bson.D)
		if !ok {
			return nil, refuse(40228,
				"'replacement document' must evaluate to an object, but resulting value was: %s. Type of resulting value: '%s'", format(v), typeName(v))
		}
		return root, nil
	}, nil
}
