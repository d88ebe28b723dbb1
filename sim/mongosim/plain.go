package mongosim

import "go.mongodb.org/mongo-driver/v2/bson"

// What a server in front of the model needs of BSON.

// Matches reports whether a document matches a filter.
func Matches(filter, document bson.D) (bool, error) {
	canonical, err := normalizeDocument(filter)
	if err != nil {
		return false, err
	}
	n, err := parseFilter(canonical)
	if err != nil {
		return false, err
	}
	return n.matches(document, &moment{})
}

// SizeOf is the number of bytes of a document's encoding. Its values are of the types that the driver decodes into.
func SizeOf(d bson.D) int { return size(d) }

// Format writes a document the way servers write it into error messages.
func Format(d bson.D) string { return format(d) }

// TypeName is the alias of a value's BSON type, as servers write it into error messages.
func TypeName(v any) string { return typeName(v) }
