package wire

import (
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/fencepost-sim/fencepost/engine/store"
	"github.com/fencepost-sim/fencepost/sim/mongosim"
)

// Commands on databases, collections and indexes. Sources: the manual's pages on the commands of the same names.

func (r *request) create() (bson.D, error) {
	collection := r.collection()
	var options bson.D
	for _, field := range r.document {
		if slices.Contains(r.command.fields, field.Key) {
			options = append(options, field)
		}
	}
	r.embedded("changeStreamPreAndPostImages")
	return bson.D{}, r.locked(func() error { return r.model.CreateWith(r.caller(), r.database, collection, options) })
}

func (r *request) drop() (bson.D, error) {
	collection := r.collection()
	indexes, existed := 0, false
	err := r.locked(func() (err error) {
		indexes, existed, err = r.model.Drop(r.caller(), r.database, collection)
		return err
	})
	if err != nil || !existed { // a success since MongoDB 7.0
		return bson.D{}, err
	}
	return bson.D{{Key: "nIndexesWas", Value: int32(indexes)}, {Key: "ns", Value: r.database + "." + collection}}, nil
}

func (r *request) dropDatabase() (bson.D, error) {
	existed := false
	err := r.locked(func() (err error) {
		existed, err = r.model.DropDatabase(r.caller(), r.database)
		return err
	})
	if err != nil || !existed {
		return bson.D{}, err
	}
	return bson.D{{Key: "dropped", Value: r.database}}, nil
}

func (r *request) renameCollection() (bson.D, error) {
	r.need("to")
	from, to, dropTarget := r.collection(), r.text("to"), r.flag("dropTarget")
	database, collection := split(from)
	toDatabase, target := split(to)
	return bson.D{}, r.locked(func() error {
		return r.model.Rename(r.caller(), database, collection, toDatabase, target, dropTarget)
	})
}

func (r *request) listCollections() (bson.D, error) {
	q := &mongosim.Request{Command: store.Command{Point: r.point, Kind: store.ListCollections, Filter: r.embedded("filter")}}
	nameOnly, size := r.flag("nameOnly"), r.cursorBatch()
	var found mongosim.Outcome
	err := r.locked(func() (err error) {
		found, err = r.model.Execute(r.caller(), r.database, q)
		return err
	})
	if err != nil {
		return nil, err
	}
	documents := make([]bson.D, len(found.Documents))
	for i, d := range found.Documents {
		documents[i] = d
		if nameOnly {
			documents[i] = d[:2:2]
			continue
		}
		if !has(d, "options") {
			documents[i] = append(d[:len(d):len(d)], bson.E{Key: "options", Value: bson.D{}})
		}
		documents[i] = append(documents[i], bson.E{Key: "info", Value: bson.D{{Key: "readOnly", Value: false}}},
			bson.E{Key: "idIndex", Value: bson.D{{Key: "v", Value: int32(2)}, {Key: "key", Value: bson.D{{Key: "_id", Value: int32(1)}}}, {Key: "name", Value: "_id_"}}})
	}
	return r.firstBatch("$cmd.listCollections", documents, size, false), nil
}

// cursorBatch is the batch size of the field cursor.
func (r *request) cursorBatch() int {
	a := arguments{document: r.embedded("cursor")}
	r.fail(a.only("cursor", fieldSet{known: []string{"batchSize"}}))
	size := a.batchSize(maxWriteBatchSize)
	r.fail(a.err)
	return size
}

func (r *request) listDatabases() (bson.D, error) {
	nameOnly, filter := r.flag("nameOnly"), r.embedded("filter")
	databases, total := []bson.D{}, int64(0)
	err := r.locked(func() error {
		for _, name := range r.model.DatabaseNames() {
			size := r.model.SizeOf(name)
			document := bson.D{{Key: "name", Value: name}}
			if !nameOnly {
				document = append(document, bson.E{Key: "sizeOnDisk", Value: size}, bson.E{Key: "empty", Value: false})
			}
			matches, err := mongosim.Matches(filter, document)
			if err != nil {
				return err
			}
			if matches {
				databases, total = append(databases, document), total+size
			}
		}
		return nil
	})
	reply := bson.D{{Key: "databases", Value: databases}}
	if !nameOnly {
		reply = append(reply, bson.E{Key: "totalSize", Value: total}, bson.E{Key: "totalSizeMb", Value: total >> 20})
	}
	return reply, err
}

func (r *request) createIndexes() (bson.D, error) {
	r.need("indexes")
	q := &mongosim.Request{Command: store.Command{Point: r.point, Kind: store.CreateIndexes, Collection: r.collection()}}
	for _, specification := range r.documents("indexes") {
		index, err := parseIndex(specification)
		if err != nil {
			return nil, err
		}
		q.Indexes = append(q.Indexes, index)
	}
	var before, after int
	var existed bool
	err := r.locked(func() error {
		before, existed = r.model.IndexCount(r.caller(), r.database, q.Collection)
		_, err := r.model.Execute(r.caller(), r.database, q)
		after, _ = r.model.IndexCount(r.caller(), r.database, q.Collection)
		return err
	})
	if err != nil {
		return nil, err
	}
	reply := bson.D{
		{Key: "numIndexesBefore", Value: int32(max(before, 1))}, {Key: "numIndexesAfter", Value: int32(after)},
		{Key: "createdCollectionAutomatically", Value: !existed}, {Key: "commitQuorum", Value: "votingMembers"},
	}
	if before == after {
		reply = append(reply, bson.E{Key: "note", Value: "all indexes already exist"})
	}
	return reply, nil
}

func parseIndex(specification bson.D) (store.Index, error) {
	a := arguments{document: specification}
	known := fieldSet{
		known: []string{"key", "name", "unique", "sparse", "hidden", "expireAfterSeconds", "partialFilterExpression", "v", "background", "ns"},
		unserved: []string{
			"collation", "wildcardProjection", "weights", "default_language", "language_override", "textIndexVersion", "2dsphereIndexVersion",
			"bits", "min", "max", "storageEngine", "prepareUnique", "clustered", "dropDups",
		},
	}
	if err := a.only("createIndexes.indexes", known); err != nil {
		if store.HasCode(err, codeUnknownField) {
			return store.Index{}, refuse(codeInvalidIndexOption, "Error in specification %s: %s", mongosim.Format(specification), err.Error())
		}
		return store.Index{}, err
	}
	if !has(specification, "key") {
		return store.Index{}, refuse(codeMissingField, "BSON field 'createIndexes.indexes.key' is missing but a required field")
	}
	if !has(specification, "name") {
		return store.Index{}, refuse(codeFailedToParse, "The 'name' field is a required property of an index specification")
	}
	if has(specification, "v") {
		if v := a.number64("v"); a.err == nil && v != 1 && v != 2 {
			return store.Index{}, refuse(67, "Invalid index specification %s; cannot create an index with v=%d", mongosim.Format(specification), v)
		}
	}
	index := store.Index{
		Name: a.text("name"), Keys: a.embedded("key"), Unique: a.flag("unique"), Sparse: a.flag("sparse"),
		Hidden: a.flag("hidden"), Partial: a.embedded("partialFilterExpression"),
	}
	if has(specification, "expireAfterSeconds") {
		seconds := int32(min(a.number64("expireAfterSeconds"), 1<<31-1))
		index.ExpireAfterSeconds = &seconds
	}
	return index, a.err
}

func (r *request) listIndexes() (bson.D, error) {
	q := &mongosim.Request{Command: store.Command{Point: r.point, Kind: store.ListIndexes, Collection: r.collection()}}
	size := r.cursorBatch()
	var found mongosim.Outcome
	err := r.locked(func() (err error) {
		found, err = r.model.Execute(r.caller(), r.database, q)
		return err
	})
	if err != nil {
		return nil, err
	}
	return r.firstBatch(q.Collection, found.Documents, size, false), nil
}

func (r *request) dropIndexes() (bson.D, error) {
	r.need("index")
	collection := r.collection()
	var names []string
	var keys bson.D
	switch index := r.value("index").(type) {
	case string:
		names = []string{index}
	case bson.D:
		keys = index
	case bson.A:
		for _, element := range index {
			name, ok := element.(string)
			if !ok || name == "*" {
				r.mismatch("dropIndexes.index", element, "string")
			}
			names = append(names, name)
		}
	default:
		r.mismatch("dropIndexes.index", index, "string")
	}
	had := 0
	err := r.locked(func() (err error) {
		had, err = r.model.DropIndexes(r.caller(), r.database, collection, names, keys)
		return err
	})
	return bson.D{{Key: "nIndexesWas", Value: int32(had)}}, err
}

func (r *request) collMod() (bson.D, error) {
	collection := r.collection()
	m, err := r.modification()
	if err != nil {
		return nil, err
	}
	var before store.Index
	err = r.locked(func() (err error) {
		before, _, err = r.model.CollMod(r.caller(), r.database, collection, m)
		return err
	})
	if err != nil {
		return nil, err
	}
	reply := bson.D{}
	if m.ExpireAfterSeconds != nil {
		if before.ExpireAfterSeconds != nil {
			reply = append(reply, bson.E{Key: "expireAfterSeconds_old", Value: int64(*before.ExpireAfterSeconds)})
		}
		reply = append(reply, bson.E{Key: "expireAfterSeconds_new", Value: int64(*m.ExpireAfterSeconds)})
	}
	if m.Hidden != nil {
		reply = append(reply, bson.E{Key: "hidden_old", Value: before.Hidden}, bson.E{Key: "hidden_new", Value: *m.Hidden})
	}
	return reply, nil
}

func (r *request) modification() (m mongosim.Modification, err error) {
	if images := r.embedded("changeStreamPreAndPostImages"); images != nil {
		a := arguments{document: images}
		enabled := a.flag("enabled")
		m.Images = &enabled
		r.fail(a.err)
	}
	if !has(r.document, "index") {
		return m, r.err
	}
	a := arguments{document: r.embedded("index")}
	r.fail(a.only("collMod.index", fieldSet{
		known: []string{"name", "keyPattern", "hidden", "expireAfterSeconds"}, unserved: []string{"unique", "prepareUnique"},
	}))
	m.IndexName, m.IndexKeys = a.text("name"), a.embedded("keyPattern")
	if (m.IndexName == "") == (m.IndexKeys == nil) {
		r.fail(refuse(codeInvalidOptions, "Must specify either index name or key pattern, and not both"))
	}
	if has(a.document, "hidden") {
		hidden := a.flag("hidden")
		m.Hidden = &hidden
	}
	if has(a.document, "expireAfterSeconds") {
		seconds := int32(a.notNegative("expireAfterSeconds"))
		m.ExpireAfterSeconds = &seconds
	}
	if m.Hidden == nil && m.ExpireAfterSeconds == nil {
		r.fail(refuse(codeInvalidOptions, "no expireAfterSeconds, hidden, unique, or prepareUnique field"))
	}
	r.fail(a.err)
	return m, r.err
}

// searchIndex refuses as a server does that is not on Atlas.
func (r *request) searchIndex() (bson.D, error) {
	return nil, refuse(codeSearchNotEnabled, "Using Atlas Search Database Commands and the $listSearchIndexes aggregation stage requires additional "+
		"configuration. Please connect to Atlas or an AtlasCLI local deployment to enable. For more information on how to connect, see the manual.")
}
