package mongosim

import "go.mongodb.org/mongo-driver/v2/bson"

// bsonTypes are the BSON type numbers and aliases. Source: manual, "BSON Types".
var bsonTypes = []struct {
	number int64
	alias  string
}{
	{1, "double"}, {2, "string"}, {3, "object"}, {4, "array"}, {5, "binData"}, {6, "undefined"}, {7, "objectId"}, {8, "bool"},
	{9, "date"}, {10, "null"}, {11, "regex"}, {12, "dbPointer"}, {13, "javascript"}, {14, "symbol"}, {15, "javascriptWithScope"},
	{16, "int"}, {17, "timestamp"}, {18, "long"}, {19, "decimal"}, {-1, "minKey"}, {127, "maxKey"},
}

func parseType(path string, value any) ([]node, error) {
	wanted, ok := value.(bson.A)
	if !ok {
		wanted = bson.A{value}
	}
	if len(wanted) == 0 {
		return nil, refuse(codeFailedToParse, "%s must match at least one type", path)
	}
	n := on(path, opType, nil)
	n.details = &details{}
	for _, w := range wanted {
		name, err := typeWanted(w)
		if err != nil {
			return nil, err
		}
		n.types = append(n.types, name)
	}
	return []node{n}, nil
}

func typeWanted(w any) (string, error) {
	if alias, ok := w.(string); ok {
		if alias == "number" {
			return alias, nil
		}
		for _, t := range bsonTypes {
			if t.alias == alias {
				return alias, nil
			}
		}
		return "", refuse(codeBadValue, "Unknown type name alias: %s", alias)
	}
	number, ok := wholeNumber(w)
	if !ok {
		return "", refuse(codeTypeMismatch, "type must be represented as a number or a string")
	}
	for _, t := range bsonTypes {
		if t.number == number {
			return t.alias, nil
		}
	}
	return "", refuse(codeBadValue, "Invalid numerical type code: %d", number)
}

// typeName is a BSON type's alias. Source: MongoDB manual, "BSON Types".
func typeName(v any) string {
	switch v.(type) {
	case missing:
		return "missing"
	case nil:
		return "null"
	case float64:
		return "double"
	case string:
		return "string"
	case bson.D:
		return "object"
	case bson.A:
		return "array"
	case bson.Binary:
		return "binData"
	case bson.Undefined:
		return "undefined"
	case bson.ObjectID:
		return "objectId"
	case bool:
		return "bool"
	case bson.DateTime:
		return "date"
	case bson.Regex:
		return "regex"
	case bson.DBPointer:
		return "dbPointer"
	case bson.JavaScript:
		return "javascript"
	case bson.Symbol:
		return "symbol"
	case bson.CodeWithScope:
		return "javascriptWithScope"
	case int32:
		return "int"
	case bson.Timestamp:
		return "timestamp"
	case int64:
		return "long"
	case bson.Decimal128:
		return "decimal"
	case bson.MinKey:
		return "minKey"
	}
	return "maxKey"
}
