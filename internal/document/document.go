// Package document reads single fields of BSON documents.
package document

import "go.mongodb.org/mongo-driver/v2/bson"

// Get returns the value of a field, or nil if there is none.
func Get(d bson.D, key string) any {
	for i := range d {
		if d[i].Key == key {
			return d[i].Value
		}
	}
	return nil
}

// Text returns the value of a field that is a string, or an empty one.
func Text(d bson.D, key string) string {
	text, _ := Get(d, key).(string)
	return text
}

// Has tells whether there is such a field.
func Has(d bson.D, key string) bool {
	for i := range d {
		if d[i].Key == key {
			return true
		}
	}
	return false
}
