package mongosim

import (
	"encoding/binary"
	"strconv"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// describe makes the document of a change event. Source: manual, "Change Events".
func (st *Stream) describe(e *Entry, token bson.D) (bson.D, error) {
	event := bson.D{
		{Key: "_id", Value: token},
		{Key: "operationType", Value: string(e.Operation)},
		{Key: "clusterTime", Value: e.Time},
	}
	if st.request.Expanded && e.Operation != DropDatabase {
		event = append(event, bson.E{Key: "collectionUUID", Value: st.server.uuid(e)})
	}
	event = append(event, bson.E{Key: "wallTime", Value: e.Wall})
	if t := e.Origin; t != nil && t.InTransaction {
		event = append(event, bson.E{Key: "txnNumber", Value: t.Number}, bson.E{Key: "lsid", Value: bson.D{
			{Key: "id", Value: bson.Binary{Subtype: bson.TypeBinaryUUID, Data: []byte(t.Session)}}}})
	}
	full, err := st.fullDocument(e)
	if err != nil {
		return nil, err
	}
	if !isMissing(full) {
		event = append(event, bson.E{Key: "fullDocument", Value: full})
	}
	event = append(event, bson.E{Key: "ns", Value: namespace(e.Database, e.Collection)})
	switch e.Operation {
	case Insert, Update, Replace, Delete:
		event = append(event, bson.E{Key: "documentKey", Value: bson.D{{Key: "_id", Value: e.ID}}})
	case Rename:
		event = append(event, bson.E{Key: "to", Value: namespace(e.Detail.Database, e.Detail.Collection)})
	}
	if e.Operation == Update {
		event = append(event, bson.E{Key: "updateDescription", Value: describeUpdate(e.Before, e.After, st.request.Expanded)})
	}
	if description := st.operation(e); st.request.Expanded && description != nil {
		event = append(event, bson.E{Key: "operationDescription", Value: description})
	}
	before, err := st.beforeChange(e)
	if !isMissing(before) {
		event = append(event, bson.E{Key: "fullDocumentBeforeChange", Value: before})
	}
	return event, err
}

func namespace(database, collection string) bson.D {
	d := bson.D{{Key: "db", Value: database}}
	if collection != "" {
		d = append(d, bson.E{Key: "coll", Value: collection})
	}
	return d
}

// fullDocument is the document after the change, as far as the stream wants it.
func (st *Stream) fullDocument(e *Entry) (any, error) {
	switch e.Operation {
	case Insert, Replace:
		return e.After, nil
	case Update:
	default:
		return missing{}, nil
	}
	switch st.request.FullDocument {
	case "updateLookup":
		if c := st.server.catalog.lookup(e.Database, e.Collection); c != nil {
			if r := c.byID(e.ID); r != nil {
				return r.document, nil
			}
		}
		return nil, nil
	case "whenAvailable", "required":
		if e.Images {
			return e.After, nil
		}
		if st.request.FullDocument == "required" {
			return nil, noImage("post", e)
		}
		return nil, nil
	}
	return missing{}, nil
}

// beforeChange is the document before the change, as far as the stream wants it.
func (st *Stream) beforeChange(e *Entry) (any, error) {
	if e.Operation != Update && e.Operation != Replace && e.Operation != Delete {
		return missing{}, nil
	}
	switch st.request.BeforeChange {
	case "whenAvailable", "required":
		if e.Images && !e.Expired {
			return e.Before, nil
		}
		if st.request.BeforeChange == "required" {
			return missing{}, noImage("pre", e)
		}
		return nil, nil
	}
	return missing{}, nil
}

func noImage(which string, e *Entry) error {
	return refuse(codeNoMatchingDocument, "Change stream was configured to require a %s-image for all update, delete and replace events, "+
		"but the %s-image was not found for event: { ns: %s.%s, documentKey: { _id: %s } }", which, which, e.Database, e.Collection, format(e.ID))
}

// operation is what an event says of an operation on a collection or its indexes.
func (st *Stream) operation(e *Entry) any {
	switch e.Operation {
	case Create:
		description := bson.D{{Key: "idIndex", Value: describe(newCollection("", "", 0).indexes[0].Index)}}
		if e.Detail != nil {
			description = append(description, e.Detail.Settings.document...)
		}
		return description
	case CreateIndexes, DropIndexes:
		list := bson.A{}
		for _, x := range e.Detail.Indexes {
			list = append(list, describe(x))
		}
		return bson.D{{Key: "indexes", Value: list}}
	case Rename:
		description := bson.D{{Key: "to", Value: namespace(e.Detail.Database, e.Detail.Collection)}}
		if e.Detail.Replaced {
			target := Entry{Time: e.Time, Database: e.Detail.Database, Collection: e.Detail.Collection}
			description = append(description, bson.E{Key: "dropTarget", Value: st.server.uuid(&target)})
		}
		return description
	case Modify:
		if len(e.Detail.Indexes) > 0 {
			return bson.D{{Key: "index", Value: describe(e.Detail.Indexes[0])}}
		}
		return e.Detail.Settings.document
	}
	return nil
}

// uuid tells apart the collections that had the same name at different times: by when each was created.
func (s *Server) uuid(e *Entry) bson.Binary {
	var created bson.Timestamp
	for i := range s.oplog {
		o := &s.oplog[i]
		if o.Time.After(e.Time) {
			break
		}
		if o.Operation == Create && o.Database == e.Database && o.Collection == e.Collection {
			created = o.Time
		}
	}
	name := e.Database + "." + e.Collection
	data := binary.BigEndian.AppendUint64(nil, scramble(uint64(created.T)<<32|uint64(created.I), name))
	data = binary.BigEndian.AppendUint64(data, scramble(s.options.Seed, name))
	return bson.Binary{Subtype: bson.TypeBinaryUUID, Data: data}
}

// describeUpdate lists the fields that differ. Fields inside documents have dotted names; of an array that only lost elements at
// its end that is told, and elements that changed are named by their places.
func describeUpdate(before, after bson.D, expanded bool) bson.D {
	d := difference{updated: bson.D{}, removed: bson.A{}, truncated: bson.A{}, paths: bson.D{}}
	d.documents(nil, before, after)
	out := bson.D{
		{Key: "updatedFields", Value: d.updated}, {Key: "removedFields", Value: d.removed}, {Key: "truncatedArrays", Value: d.truncated},
	}
	if expanded {
		out = append(out, bson.E{Key: "disambiguatedPaths", Value: d.paths})
	}
	return out
}

type difference struct {
	updated   bson.D
	removed   bson.A
	truncated bson.A
	// paths spells out the paths that dots or numbers in names make ambiguous.
	paths bson.D
}

// below returns a path with one component more. The components are strings, or int32 for places in arrays.
func below(path []any, component any) []any { return append(path[:len(path):len(path)], component) }

// name joins a path, and remembers it if it can be misread. Source: manual, "update Event", disambiguatedPaths.
func (d *difference) name(path []any) string {
	parts, ambiguous := make([]string, len(path)), false
	for i, component := range path {
		switch c := component.(type) {
		case string:
			parts[i] = c
			_, numeric := arrayIndex(c)
			ambiguous = ambiguous || numeric && i > 0 || strings.Contains(c, ".")
		case int32:
			parts[i] = strconv.Itoa(int(c))
		}
	}
	joined := strings.Join(parts, ".")
	if ambiguous {
		d.paths = append(d.paths, bson.E{Key: joined, Value: bson.A(path)})
	}
	return joined
}

func (d *difference) documents(path []any, before, after bson.D) {
	for _, field := range before {
		if position(after, field.Key) < 0 {
			d.removed = append(d.removed, d.name(below(path, field.Key)))
		}
	}
	for _, field := range after {
		d.values(below(path, field.Key), get(before, field.Key), field.Value)
	}
}

func (d *difference) values(path []any, before, after any) {
	if identical(before, after) {
		return
	}
	switch y := after.(type) {
	case bson.D:
		if x, ok := before.(bson.D); ok {
			d.documents(path, x, y)
			return
		}
	case bson.A:
		if x, ok := before.(bson.A); ok && d.arrays(path, x, y) {
			return
		}
	}
	d.updated = append(d.updated, bson.E{Key: d.name(path), Value: after})
}

// arrays compares arrays element by element, unless so much differs that the new one says it better.
func (d *difference) arrays(path []any, before, after bson.A) bool {
	same := 0
	for i := range min(len(before), len(after)) {
		if identical(before[i], after[i]) || classOf(before[i]) == classObject && classOf(after[i]) == classObject {
			same++
		}
	}
	if same == 0 || len(after) == 0 {
		return false
	}
	if len(after) < len(before) {
		d.truncated = append(d.truncated, bson.D{{Key: "field", Value: d.name(path)}, {Key: "newSize", Value: int32(len(after))}})
	}
	for i := range after {
		var old any = missing{}
		if i < len(before) {
			old = before[i]
		}
		d.values(below(path, int32(i)), old, after[i])
	}
	return true
}
