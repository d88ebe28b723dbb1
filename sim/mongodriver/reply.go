package mongodriver

import (
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/fencepost-sim/fencepost/engine/store"
	"github.com/fencepost-sim/fencepost/sim/mongosim"
)

// errorIn returns the error that a reply carries: that of the command, those of its statements, or that of the write concern, which leaves open
// whether the write will last.
func errorIn(reply bson.D) error {
	if code, failed := asInt64(field(reply, "code")); failed {
		message, _ := field(reply, "errmsg").(string)
		return mongosim.Refuse(int32(code), "%s", message)
	}
	if concern, failed := field(reply, "writeConcernError").(bson.D); failed {
		return errorIn(concern)
	}
	failures, _ := field(reply, "writeErrors").(bson.A)
	if len(failures) == 0 {
		return nil
	}
	var all []*store.Error
	for _, failure := range failures {
		single, _ := failure.(bson.D)
		code, _ := asInt64(field(single, "code"))
		message, _ := field(single, "errmsg").(string)
		all = append(all, mongosim.Refuse(int32(code), "%s", message))
	}
	return store.Join(all)
}

// concerned is how many documents a reply is about, counted as the shortest way does.
func (e *exchange) concerned(reply bson.D) int64 {
	if e.changeStream {
		return 0
	}
	if cursor, ok := field(reply, "cursor").(bson.D); ok {
		first, _ := field(cursor, "firstBatch").(bson.A)
		next, _ := field(cursor, "nextBatch").(bson.A)
		return int64(len(first) + len(next))
	}
	if e.name == "findAndModify" || e.name == "hello" {
		if e.name == "hello" || field(reply, "value") != nil {
			return 1
		}
		return 0
	}
	n, _ := asInt64(field(reply, "n"))
	if upserted, ok := field(reply, "upserted").(bson.A); ok && e.step != nil && e.step.statements {
		n -= int64(len(upserted))
	}
	return n
}

func field(d bson.D, key string) any {
	for _, e := range d {
		if e.Key == key {
			return e.Value
		}
	}
	return nil
}

func asInt64(value any) (n int64, ok bool) {
	switch v := value.(type) {
	case int32:
		return int64(v), true
	case int64:
		return v, true
	}
	return 0, false
}
