package journal

import (
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// Database is the fold of the journal's writes: what every collection holds after some step.
type Database struct {
	collections map[string]*collection
}

type collection struct {
	keys      []string // in the order of insertion
	documents map[string]bson.D
}

// At returns the documents as they were after the step; a negative step means the end.
func (j *Journal) At(step int) *Database {
	database := &Database{}
	for i := range j.Events {
		if event := &j.Events[i]; step < 0 || event.Step <= step {
			database.Apply(event)
		}
	}
	return database
}

// Apply folds one more event in.
func (d *Database) Apply(event *Event) {
	switch event.Kind {
	case Wrote:
		c := d.collection(event.Collection)
		if _, exists := c.documents[event.Key]; !exists {
			c.keys = append(c.keys, event.Key)
		}
		c.documents[event.Key] = event.Document
	case Deleted, Expired:
		c := d.collection(event.Collection)
		delete(c.documents, event.Key)
		c.keys = slices.DeleteFunc(c.keys, func(key string) bool { return key == event.Key })
	}
}

func (d *Database) collection(name string) *collection {
	if d.collections == nil {
		d.collections = map[string]*collection{}
	}
	c := d.collections[name]
	if c == nil {
		c = &collection{documents: map[string]bson.D{}}
		d.collections[name] = c
	}
	return c
}

// Get returns one document, or nil.
func (d *Database) Get(collection, key string) bson.D {
	return d.collection(collection).documents[key]
}

// Documents returns a collection in the order of insertion.
func (d *Database) Documents(collection string) []bson.D {
	c := d.collection(collection)
	documents := make([]bson.D, 0, len(c.keys))
	for _, key := range c.keys {
		documents = append(documents, c.documents[key])
	}
	return documents
}

// Collections returns the names of the collections, sorted.
func (d *Database) Collections() []string {
	names := make([]string, 0, len(d.collections))
	for name := range d.collections {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
