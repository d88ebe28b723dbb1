package mongosim

import (
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/fencepost-sim/fencepost/engine/store"
)

// The stages that bring documents of other collections together, or take documents apart. Sources: manual, "$lookup" and "$unwind".

// join is a compiled $lookup.
type join struct {
	from, local, foreign, as string
	let                      bson.D
	pipeline                 []bson.D
	equality                 bool
}

func parseLookup(_ string, value any) (step, error) {
	d, ok := value.(bson.D)
	if !ok {
		return nil, refuse(codeFailedToParse, "the $lookup specification must be an Object, found %s", typeName(value))
	}
	var j join
	for _, field := range d {
		var err error
		switch field.Key {
		case "from":
			j.from, err = lookupText(field)
		case "as":
			j.as, err = lookupText(field)
		case "localField":
			j.local, err = lookupText(field)
		case "foreignField":
			j.foreign, err = lookupText(field)
		case "let":
			if j.let, ok = field.Value.(bson.D); !ok {
				err = refuse(codeFailedToParse, "$lookup argument 'let: %s' must be an object", format(field.Value))
			}
		case "pipeline":
			j.pipeline, err = documentsOf(field.Value, "'pipeline' option must be specified as an array")
		default:
			err = refuse(codeFailedToParse, "unknown argument to $lookup: %s", field.Key)
		}
		if err != nil {
			return nil, err
		}
	}
	j.equality = j.local != "" && j.foreign != ""
	switch {
	case j.as == "":
		return nil, refuse(codeFailedToParse, "must specify 'as' field for a $lookup")
	case j.from == "":
		return nil, unmodelled("$lookup without from")
	case (j.local == "") != (j.foreign == ""):
		return nil, refuse(codeFailedToParse, "$lookup requires both or neither of 'localField' and 'foreignField' to be specified")
	case !j.equality && j.pipeline == nil:
		return nil, refuse(codeFailedToParse, "$lookup requires either 'pipeline' or both 'localField' and 'foreignField' to be specified")
	}
	// What is wrong with the pipeline is wrong even without documents.
	if _, err := parseSteps(j.pipeline, false); err != nil {
		return nil, err
	}
	return j.run, nil
}

func lookupText(field bson.E) (string, error) {
	text, ok := field.Value.(string)
	if !ok {
		return "", refuse(codeFailedToParse, "$lookup argument '%s: %s' must be a string, is type %s", field.Key, format(field.Value), typeName(field.Value))
	}
	return text, nil
}

func (j *join) run(r *aggregation, in []bson.D) ([]bson.D, error) {
	out := make([]bson.D, len(in))
	for i, d := range in {
		found, err := j.joined(r, d)
		if err != nil {
			return nil, err
		}
		additions := []addition{{}}[:0]
		if additions, err = parseAddition(additions, j.as, splitPath(j.as), bson.D{{Key: "$literal", Value: arrayOfDocuments(found)}}); err != nil {
			return nil, err
		}
		s := r.at.on(d)
		if out[i], err = addFields(d, additions, &s); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// joined returns what belongs to one document.
func (j *join) joined(r *aggregation, d bson.D) ([]bson.D, error) {
	at := *r.at
	at.stack = nil
	if len(j.let) > 0 {
		s := r.at.on(d)
		s.at = &at
		bound, err := bind(j.let, &s, &at)
		if err != nil {
			return nil, err
		}
		at.variables = bound
	}
	pipeline := j.pipeline
	if j.equality {
		pipeline = append([]bson.D{{{Key: "$match", Value: bson.D{j.condition(d)}}}}, pipeline...)
	}
	request := Aggregation{Collection: j.from, Pipeline: pipeline}
	q, rest, err := r.server.leading(request, pipeline)
	if err != nil {
		return nil, err
	}
	q.at = &at
	steps, err := parseSteps(rest, false)
	if err != nil {
		return nil, err
	}
	var documents []bson.D
	if c := r.server.lookup(r.database, j.from); c != nil {
		found, err := c.find(q, nil)
		if err != nil {
			return nil, err
		}
		for _, r := range found {
			documents = append(documents, r.document)
		}
	}
	inner := &aggregation{server: r.server, database: r.database, at: &at}
	return inner.run(steps, documents)
}

// condition matches the foreign documents: any element of a local array will do; a missing field is null.
func (j *join) condition(d bson.D) bson.E {
	local := follow(d, splitPath(j.local))
	operator := "$eq"
	switch v := local.(type) {
	case missing:
		local = nil
	case bson.A:
		operator = "$in"
		local = v
	case bson.Regex:
		operator, local = "$in", bson.A{v}
	}
	return bson.E{Key: j.foreign, Value: bson.D{{Key: operator, Value: local}}}
}

func parseUnwind(_ string, value any) (step, error) {
	var path, index string
	keepEmpty := false
	switch v := value.(type) {
	case string:
		path = v
	case bson.D:
		for _, field := range v {
			var ok bool
			switch field.Key {
			case "path":
				if path, ok = field.Value.(string); !ok {
					return nil, refuse(28808, "expected a string as the path for $unwind stage, got %s", typeName(field.Value))
				}
			case "preserveNullAndEmptyArrays":
				if keepEmpty, ok = field.Value.(bool); !ok {
					return nil, refuse(28809, "expected a boolean for the preserveNullAndEmptyArrays option to $unwind stage, got %s", typeName(field.Value))
				}
			case "includeArrayIndex":
				if index, ok = field.Value.(string); !ok || index == "" {
					return nil, refuse(28810, "expected a non-empty string for the includeArrayIndex option to $unwind stage, got %s", typeName(field.Value))
				}
			default:
				return nil, refuse(28811, "unrecognized option to $unwind stage: %s", field.Key)
			}
		}
	default:
		return nil, refuse(15981, "expected either a string or an object as specification for $unwind stage, got %s", typeName(value))
	}
	if path == "" {
		return nil, refuse(28812, "no path specified to $unwind stage")
	}
	if !strings.HasPrefix(path, "$") {
		return nil, refuse(28818, "path option to $unwind stage should be prefixed with a '$': %s", path)
	}
	u := unwinding{parts: splitPath(path[1:]), index: index, keepEmpty: keepEmpty}
	return u.run, nil
}

type unwinding struct {
	parts     []string
	index     string
	keepEmpty bool
}

func (u *unwinding) run(_ *aggregation, in []bson.D) ([]bson.D, error) {
	out := []bson.D{}
	for _, d := range in {
		var v any = d
		for _, part := range u.parts {
			inner, _ := v.(bson.D)
			v = get(inner, part)
		}
		a, isArray := v.(bson.A)
		switch {
		case isArray && len(a) > 0:
			for i, e := range a {
				out = append(out, u.with(replaceAt(d, u.parts, e), int64(i)))
			}
		case isArray && u.keepEmpty:
			out = append(out, u.with(replaceAt(d, u.parts, missing{}), nil))
		case isArray:
		case !absent(v) || u.keepEmpty:
			out = append(out, u.with(d, nil))
		}
	}
	return out, nil
}

func (u *unwinding) with(d bson.D, index any) bson.D {
	if u.index == "" {
		return d
	}
	return replaceAt(d, splitPath(u.index), index)
}

// replaceAt returns a copy of a document with another value at the path, or without it.
func replaceAt(d bson.D, parts []string, value any) bson.D {
	out := append(make(bson.D, 0, len(d)+1), d...)
	i := position(out, parts[0])
	if len(parts) > 1 {
		var inner bson.D
		if i >= 0 {
			inner, _ = out[i].Value.(bson.D)
		}
		value = replaceAt(inner, parts[1:], value)
	}
	switch {
	case isMissing(value) && i >= 0:
		return append(out[:i], out[i+1:]...)
	case isMissing(value):
		return out
	case i >= 0:
		out[i].Value = value
		return out
	}
	return append(out, bson.E{Key: parts[0], Value: value})
}

// output is where $out and $merge write.
func output(name string, value any) (database, collection string, err error) {
	switch v := value.(type) {
	case string:
		return "", v, nil
	case bson.D:
		db, okDB := get(v, "db").(string)
		coll, okColl := get(v, "coll").(string)
		if okDB && okColl {
			return db, coll, nil
		}
	}
	return "", "", refuse(codeFailedToParse, "%s needs the name of a collection, or an object with db and coll", name)
}

func parseOut(name string, value any) (step, error) {
	database, collection, err := output(name, value)
	return func(r *aggregation, in []bson.D) ([]bson.D, error) {
		if database == "" {
			database = r.database
		}
		s := r.server
		if c := s.lookup(database, collection); c != nil {
			s.drop(c)
		}
		c := s.create(database, collection)
		for _, d := range in {
			if err := s.storeResult(c, d); err != nil {
				return nil, err
			}
		}
		return []bson.D{}, nil
	}, err
}

func (s *Server) storeResult(c *collection, d bson.D) error {
	if isMissing(get(d, "_id")) {
		d = append(bson.D{{Key: "_id", Value: s.newID()}}, d...)
	}
	return s.store(c, withIDFirst(d))
}

// merging is a compiled $merge on _id.
type merging struct {
	database, collection string
	matched, unmatched   string
}

func parseMerge(name string, value any) (step, error) {
	m := merging{matched: "merge", unmatched: "insert"}
	into := value
	if d, ok := value.(bson.D); ok {
		into = get(d, "into")
		for _, field := range d {
			text, isText := field.Value.(string)
			switch field.Key {
			case "into":
			case "on":
				if !isText || text != "_id" {
					return nil, unmodelled("$merge on other fields than _id")
				}
			case "whenMatched":
				if m.matched = text; !isText {
					return nil, unmodelled("$merge with a pipeline")
				}
			case "whenNotMatched":
				m.unmatched = text
			default:
				return nil, refuse(40415, "BSON field '$merge.%s' is an unknown field.", field.Key)
			}
		}
	}
	var err error
	m.database, m.collection, err = output(name, into)
	return m.run, err
}

func (m *merging) run(r *aggregation, in []bson.D) ([]bson.D, error) {
	s := r.server
	if m.database == "" {
		m.database = r.database
	}
	c := s.create(m.database, m.collection)
	for _, d := range in {
		var existing *record
		if id := get(d, "_id"); !isMissing(id) {
			existing = c.byID(id)
		}
		if err := m.one(s, c, existing, d); err != nil {
			return nil, err
		}
	}
	return []bson.D{}, nil
}

func (m *merging) one(s *Server, c *collection, existing *record, d bson.D) error {
	if existing == nil {
		switch m.unmatched {
		case "insert":
			return s.storeResult(c, d)
		case "discard":
			return nil
		}
		return refuse(13113, "$merge could not find a matching document in the target collection for at least one document in the source collection")
	}
	switch m.matched {
	case "keepExisting":
		return nil
	case "fail":
		return c.duplicate(c.indexes[0], d, keyOf(get(d, "_id")))
	case "merge":
		merged, err := evaluateMergeObjects("$merge", []any{existing.document, d})
		if err != nil {
			return err
		}
		d = merged.(bson.D)
	}
	q := &query{at: s.moment()}
	_, err := s.change(c, existing, &replacement{document: d, stamp: s.modifiers.stamp}, q)
	return err
}

// Distinct returns the values of a field among the documents that match, each once, in order. An array stands for its elements.
// Source: manual, "distinct".
func (s *Server) Distinct(caller Caller, database, field string, request *Request) (values bson.A, err error) {
	request.Kind = store.Find
	err = s.within(caller, false, func() error {
		found, err := s.find(database, request)
		if err != nil {
			return err
		}
		values = distinct(found.Documents, splitPath(field))
		return nil
	})
	return values, err
}

func distinct(documents []bson.D, path []string) bson.A {
	values, seen := bson.A{}, map[string]bool{}
	add := func(v any) {
		if key := keyOf(v); !seen[key] {
			seen[key], values = true, append(values, v)
		}
	}
	for _, d := range documents {
		v := follow(d, path)
		if a, ok := v.(bson.A); ok {
			for _, e := range a {
				add(e)
			}
		} else if !isMissing(v) {
			add(v)
		}
	}
	sortElements(values, int32(1))
	return values
}
