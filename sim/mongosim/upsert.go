package mongosim

import (
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// upsert builds a document from the filter's equalities and the update, and inserts it.
// Source: manual, "db.collection.update()", "Upsert with Operator Expressions".
func (s *Server) upsert(database, name string, q *query, u updater) (bson.D, error) {
	seed, err := seedDocument(&q.filter, u)
	if err != nil {
		return nil, err
	}
	d, _, err := u.apply(seed, q, true)
	if err != nil {
		return nil, err
	}
	if id := get(seed, "_id"); !isMissing(id) && !equal(get(d, "_id"), id) {
		return nil, immutableID()
	}
	if isMissing(get(d, "_id")) {
		d = append(bson.D{{Key: "_id", Value: s.newID()}}, d...)
	}
	d = withIDFirst(d)
	if size(d) > maxDocumentSize {
		return nil, refuse(17420, "Document to upsert is larger than %d", maxDocumentSize)
	}
	if tooDeep(d, maxDepth) {
		return nil, refuse(codeOverflow, "The document to upsert exceeds %d levels of nesting", maxDepth)
	}
	if err := s.store(s.create(database, name), d); err != nil {
		return nil, err
	}
	return d, nil
}

// seedDocument sets the fields that the filter demands to equal a value, in the order of their paths
// (src/mongo/db/update/update_driver.cpp keeps them in a sorted map). A whole new document takes only the _id.
func seedDocument(filter *node, u updater) (bson.D, error) {
	equalities, err := appendEqualities(nil, filter)
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(equalities, func(a, b bson.E) int { return strings.Compare(a.Key, b.Key) })
	for i := 1; i < len(equalities); i++ {
		a, b := equalities[i-1].Key, equalities[i].Key
		if a == b || strings.HasPrefix(b, a+".") {
			return nil, refuse(codeNotSingleValueField,
				"cannot infer query fields to set, path '%s' is matched twice", a)
		}
	}
	_, whole := u.(*replacement)
	seed := make(bson.D, 0, len(equalities)+8)
	for _, e := range equalities {
		if whole && e.Key != "_id" {
			continue
		}
		if seed, err = plant(seed, e.Key, splitPath(e.Key), e.Value); err != nil {
			return nil, err
		}
	}
	return seed, nil
}

// appendEqualities finds the equalities that must hold: not under $or with several branches, nor under a negation.
func appendEqualities(out bson.D, n *node) (bson.D, error) {
	for i := range n.children {
		child := &n.children[i]
		var err error
		switch child.op {
		case opAnd:
			out, err = appendEqualities(out, child)
		case opOr:
			if len(child.children) == 1 {
				out, err = appendEqualities(out, &child.children[0])
			}
		case opEq:
			out = append(out, bson.E{Key: child.path, Value: child.value})
		case opIn:
			if values := child.value.(bson.A); len(values) == 1 && child.details == nil {
				out = append(out, bson.E{Key: child.path, Value: values[0]})
			}
		}
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// plant sets a value in a document under construction, making the documents on the way.
func plant(d bson.D, path string, parts []string, value any) (bson.D, error) {
	i := position(d, parts[0])
	if len(parts) == 1 {
		return append(d, bson.E{Key: parts[0], Value: value}), nil
	}
	if i < 0 {
		i, d = len(d), append(d, bson.E{Key: parts[0], Value: bson.D{}})
	}
	inner, ok := d[i].Value.(bson.D)
	if !ok {
		return nil, refuse(codeNotSingleValueField,
			"cannot infer query fields to set, path '%s' is matched twice", path)
	}
	inner, err := plant(inner, path, parts[1:], value)
	d[i].Value = inner
	return d, err
}
