package mongosim

import (
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// replacement is an update that names the whole new document. The _id stays.
type replacement struct {
	document bson.D
	stamp    func() bson.Timestamp
}

func parseReplacement(d bson.D, stamp func() bson.Timestamp) (updater, error) {
	for _, field := range d {
		if strings.HasPrefix(field.Key, "$") {
			return nil, refuse(codeDollarPrefixedFieldName,
				"The dollar ($) prefixed field '%s' in '%s' is not allowed in the context of an "+
					"update's replacement document. Consider using an aggregation pipeline with $replaceWith.", field.Key, field.Key)
		}
	}
	return &replacement{d, stamp}, nil
}

func (r *replacement) apply(before bson.D, _ *query, inserting bool) (bson.D, bool, error) {
	after := r.document
	if id := get(before, "_id"); !isMissing(id) {
		if given := get(after, "_id"); isMissing(given) {
			after = append(bson.D{{Key: "_id", Value: id}}, after...)
		} else if !inserting || !equal(given, id) {
			after = withIDFirst(after) // a changed _id is refused by the caller
		}
	}
	after = stampZeros(after, r.stamp)
	return after, !identicalDocuments(before, after), nil
}

// stampZeros puts the server's time in the place of an empty timestamp at the top level, except in _id.
// Source: manual, "BSON Types", "Timestamps".
func stampZeros(d bson.D, stamp func() bson.Timestamp) bson.D {
	copied := false
	for i := range d {
		if t, ok := d[i].Value.(bson.Timestamp); ok && t.IsZero() && d[i].Key != "_id" {
			if !copied {
				d, copied = slices.Clone(d), true
			}
			d[i].Value = stamp()
		}
	}
	return d
}
