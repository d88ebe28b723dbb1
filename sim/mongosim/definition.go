package mongosim

import (
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/fencepost-sim/fencepost/engine/store"
)

// createIndexes adds the indexes that do not exist yet: all of them, or none. It creates the collection.
func (s *Server) createIndexes(database string, command *Request) error {
	if len(command.Indexes) == 0 {
		return refuse(codeBadValue, "Must specify at least one index to create")
	}
	c := s.lookup(database, command.Collection)
	var existing []*index
	if c != nil {
		existing = c.indexes
	} else {
		existing = newCollection(database, command.Collection, 0).indexes
	}
	var missing []store.Index
	for _, definition := range command.Indexes {
		definition, err := checkDefinition(definition)
		if err != nil {
			return err
		}
		exists, err := conflict(existing, definition)
		if err != nil {
			return err
		}
		if !exists {
			missing = append(missing, definition)
			existing = append(existing[:len(existing):len(existing)], newIndex(definition))
		}
	}
	c = s.create(database, command.Collection)
	had := len(c.indexes)
	for _, definition := range missing {
		if err := c.build(definition); err != nil {
			c.forget(had)
			return err
		}
	}
	if len(missing) > 0 {
		s.log(Entry{Operation: CreateIndexes, Database: database, Collection: command.Collection, Detail: &Detail{Indexes: missing}})
	}
	return nil
}

// forget drops the indexes from number n on.
func (c *collection) forget(n int) {
	c.indexes = c.indexes[:n]
	for r := c.first; r != nil; r = r.next {
		r.keys = r.keys[:n]
	}
}

// conflict compares a definition with the indexes that exist. exists means that there is nothing to do. The key pattern,
// uniqueness, sparseness and the partial filter identify an index. Source: manual, "createIndexes"; the order of
// the tests and their codes follow src/mongo/db/catalog/index_catalog_impl.cpp.
func conflict(existing []*index, wanted store.Index) (exists bool, err error) {
	for _, x := range existing {
		if x.Name != wanted.Name {
			continue
		}
		if !sameIdentity(x.Index, wanted) {
			return false, refuse(codeIndexKeySpecsConflict,
				"An existing index has the same name as the requested index. When index names are "+
					"not specified, they are auto generated and can cause conflicts. Please refer to our documentation. Requested index: %s, "+
					"existing index: %s", format(describe(wanted)), format(describe(x.Index)))
		}
		if !sameOptions(x.Index, wanted) {
			return false, refuse(codeIndexOptionsConflict,
				"An equivalent index already exists with the same name but different options. "+
					"Requested index: %s, existing index: %s", format(describe(wanted)), format(describe(x.Index)))
		}
		return true, nil
	}
	for _, x := range existing {
		if !sameIdentity(x.Index, wanted) {
			continue
		}
		if !sameOptions(x.Index, wanted) {
			return false, refuse(codeIndexOptionsConflict,
				"An equivalent index already exists with a different name and options. "+
					"Requested index: %s, existing index: %s", format(describe(wanted)), format(describe(x.Index)))
		}
		return false, refuse(codeIndexOptionsConflict, "Index already exists with a different name: %s", x.Name)
	}
	return false, nil
}

func sameIdentity(a, b store.Index) bool {
	return compareDocuments(a.Keys, b.Keys) == 0 && a.Unique == b.Unique && a.Sparse == b.Sparse &&
		(a.Partial == nil) == (b.Partial == nil) && compareDocuments(a.Partial, b.Partial) == 0
}

// sameOptions compares the options that do not identify an index. Whether it is hidden does not count.
func sameOptions(a, b store.Index) bool {
	if a.ExpireAfterSeconds == nil || b.ExpireAfterSeconds == nil {
		return a.ExpireAfterSeconds == b.ExpireAfterSeconds
	}
	return *a.ExpireAfterSeconds == *b.ExpireAfterSeconds
}

// checkDefinition returns the canonical form of a valid index definition. Source: manual, "Index Properties" and
// "createIndexes"; codes from src/mongo/db/index/index_key_validate.cpp.
func checkDefinition(x store.Index) (store.Index, error) {
	var err error
	if x.Keys, err = normalizeDocument(x.Keys); err != nil {
		return x, err
	}
	if err := checkKeys(x.Keys); err != nil {
		return x, err
	}
	if x.Name == "" {
		x.Name = defaultName(x.Keys)
	}
	if len(x.Keys) == 1 && x.Keys[0].Key == "_id" && !isDescending(x.Keys[0].Value) {
		const notForID = "The field '%s' is not valid for an _id index specification"
		if x.Unique {
			return x, refuse(codeInvalidIndexOption, notForID, "unique")
		}
		if x.Sparse {
			return x, refuse(codeInvalidIndexOption, notForID, "sparse")
		}
		if x.ExpireAfterSeconds != nil || x.Partial != nil {
			return x, refuse(codeInvalidIndexOption, "An _id index cannot be partial or expire documents")
		}
		x.Name = "_id_"
		return x, nil
	}
	if x.Name == "_id_" {
		return x, refuse(codeBadValue,
			"The index name '_id_' is reserved for the _id index, which must have key pattern {_id: 1}, found key: %s", format(x.Keys))
	}
	if x.ExpireAfterSeconds != nil {
		if len(x.Keys) > 1 {
			return x, refuse(codeCannotCreateIndex,
				"TTL indexes are single-field indexes, compound indexes do not support TTL. Index spec: %s", format(describe(x)))
		}
		if *x.ExpireAfterSeconds < 0 {
			return x, refuse(codeCannotCreateIndex,
				"TTL index 'expireAfterSeconds' option must be within an acceptable range, but was: %d", *x.ExpireAfterSeconds)
		}
	}
	if x.Partial == nil {
		return x, nil
	}
	if x.Sparse {
		return x, refuse(codeCannotCreateIndex, "cannot mix \"partialFilterExpression\" and \"sparse\" options")
	}
	if x.Partial, err = normalizeDocument(x.Partial); err != nil {
		return x, err
	}
	n, err := parseFilter(x.Partial)
	if err != nil {
		return x, err
	}
	return x, checkPartial(&n)
}

func checkKeys(keys bson.D) error {
	if len(keys) == 0 {
		return refuse(codeCannotCreateIndex, "Index keys cannot be an empty object")
	}
	if len(keys) > 32 {
		return refuse(13103, "too many compound keys")
	}
	for i, key := range keys {
		switch v := key.Value.(type) {
		case string:
			switch v {
			case "text", "hashed", "2d", "2dsphere", "wildcard":
				return unmodelled("an index of type " + v)
			}
			return refuse(codeCannotCreateIndex, "Unknown index plugin '%s'", v)
		case int32, int64, float64:
			if compareNumbers(v, int32(0)) == 0 || isNaN(v) {
				return refuse(codeCannotCreateIndex, "Values in the index key pattern cannot be 0.")
			}
		default:
			return refuse(codeCannotCreateIndex,
				"Values in v:2 index key pattern cannot be of type %s. Only numbers > 0, numbers < 0, "+
					"and strings are allowed.", typeName(v))
		}
		for _, component := range splitPath(key.Key) {
			switch {
			case component == "":
				return refuse(codeCannotCreateIndex, "Index keys cannot contain an empty field.")
			case component == "$**":
				return unmodelled("a wildcard index")
			case strings.HasPrefix(component, "$"):
				return refuse(codeCannotCreateIndex,
					"Index key contains an illegal field name: field name starts with '$'.")
			}
		}
		if position(keys, key.Key) != i {
			return refuse(codeBadValue, "Field name duplicated in index key pattern: %s", key.Key)
		}
	}
	return nil
}

func defaultName(keys bson.D) string {
	parts := make([]string, 0, 2*len(keys))
	for _, key := range keys {
		parts = append(parts, key.Key, format(key.Value))
	}
	return strings.Join(parts, "_")
}

// checkPartial refuses conditions that a partial index does not support. Source: manual, "Partial Indexes".
func checkPartial(n *node) error {
	switch n.op {
	case opAnd, opOr:
		for i := range n.children {
			if err := checkPartial(&n.children[i]); err != nil {
				return err
			}
		}
		return nil
	case opEq, opGt, opGte, opLt, opLte, opIn, opExists, opType:
		if n.op != opIn || n.details == nil {
			return nil
		}
	}
	return refuse(codeCannotCreateIndex,
		"Expression not supported in partial index: only $eq, $in, $exists: true, $gt, $gte, $lt, $lte, "+
			"$type, $and and $or are")
}

func (s *Server) listIndexes(database string, command *Request) (store.Reply, error) {
	c := s.lookup(database, command.Collection)
	if c == nil {
		return store.Reply{}, refuse(codeNamespaceNotFound, "ns does not exist: %s.%s", database, command.Collection)
	}
	reply := store.Reply{Documents: make([]bson.D, len(c.indexes))}
	for i, x := range c.indexes {
		reply.Documents[i] = describe(x.Index)
	}
	return reply, nil
}

// describe writes a definition the way listIndexes shows it: only options that were given.
func describe(x store.Index) bson.D {
	d := bson.D{{Key: "v", Value: int32(2)}, {Key: "key", Value: x.Keys}, {Key: "name", Value: x.Name}}
	if x.Unique {
		d = append(d, bson.E{Key: "unique", Value: true})
	}
	if x.Sparse {
		d = append(d, bson.E{Key: "sparse", Value: true})
	}
	if x.Hidden {
		d = append(d, bson.E{Key: "hidden", Value: true})
	}
	if x.ExpireAfterSeconds != nil {
		d = append(d, bson.E{Key: "expireAfterSeconds", Value: *x.ExpireAfterSeconds})
	}
	if x.Partial != nil {
		d = append(d, bson.E{Key: "partialFilterExpression", Value: x.Partial})
	}
	return d
}
