package mutants

import (
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/fencepost-sim/fencepost/engine/store"
	"github.com/fencepost-sim/fencepost/internal/document"
)

// at limits a change to commands of some steps.
func at(change func(store.Command) store.Command, points ...store.Point) func(store.Command) store.Command {
	return func(c store.Command) store.Command {
		if slices.Contains(points, c.Point) {
			return change(c)
		}
		return c
	}
}

// withoutFilter drops conditions from the filter.
func withoutFilter(keys ...string) func(store.Command) store.Command {
	return func(c store.Command) store.Command {
		c.Filter = without(c.Filter, keys...)
		return c
	}
}

func without(document bson.D, keys ...string) bson.D {
	return slices.DeleteFunc(slices.Clone(document), func(e bson.E) bool { return slices.Contains(keys, e.Key) })
}

// notUnique builds an index without its uniqueness, and hides that when it is looked at.
func notUnique(m Mutant, index string) Mutant {
	also := m.Command
	m.Command = func(c store.Command) store.Command {
		if also != nil {
			c = also(c)
		}
		c.Indexes = slices.Clone(c.Indexes)
		for i := range c.Indexes {
			if c.Indexes[i].Name == index {
				c.Indexes[i].Unique = false
			}
		}
		return c
	}
	m.Reply = func(c store.Command, r store.Reply) store.Reply {
		if c.Kind != store.ListIndexes {
			return r
		}
		r.Documents = slices.Clone(r.Documents)
		for i, specification := range r.Documents {
			if document.Get(specification, "name") == index {
				r.Documents[i] = append(without(specification), bson.E{Key: "unique", Value: true})
			}
		}
		return r
	}
	return m
}

// unfenced lets a delivery be created after the discovery lease is over.
func unfenced(s store.Statement) store.Statement {
	set, _ := document.Get(s.Pipeline[0], "$set").(bson.D)
	pending := bson.D{{Key: "$ifNull", Value: bson.A{"$status", "pending"}}}
	s.Pipeline = []bson.D{{{Key: "$set", Value: replaced(set, "status", pending)}}}
	return s
}

// statements changes each statement of a command.
func statements(change func(store.Statement) store.Statement) func(store.Command) store.Command {
	return func(c store.Command) store.Command {
		c.Statements = slices.Clone(c.Statements)
		for i := range c.Statements {
			c.Statements[i] = change(c.Statements[i])
		}
		return c
	}
}

func withPipeline(c store.Command, stages ...bson.D) store.Command {
	c.Pipeline = stages
	return c
}

// replaced changes a field in its place.
func replaced(document bson.D, key string, value any) bson.D {
	document = slices.Clone(document)
	for i := range document {
		if document[i].Key == key {
			document[i].Value = value
		}
	}
	return document
}

func set(document bson.D, key string, value any) bson.D {
	return append(without(document, key), bson.E{Key: key, Value: value})
}

// replies limits a change of replies to some steps.
func replies(change func(store.Reply) store.Reply, points ...store.Point) func(store.Command, store.Reply) store.Reply {
	return func(c store.Command, r store.Reply) store.Reply {
		if slices.Contains(points, c.Point) {
			return change(r)
		}
		return r
	}
}

// hiding drops documents with the status from a reply.
func hiding(status string) func(store.Reply) store.Reply {
	return func(r store.Reply) store.Reply {
		r.Documents = slices.DeleteFunc(slices.Clone(r.Documents), func(d bson.D) bool { return document.Get(d, "status") == status })
		return r
	}
}
