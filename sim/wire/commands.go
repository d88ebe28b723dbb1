package wire

import (
	"errors"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/fencepost-sim/fencepost/engine/store"
	"github.com/fencepost-sim/fencepost/sim/mongosim"
)

// command is what the server does for one command name.
type command struct {
	run func(*request) (bson.D, error)
	// fields are the fields that run understands, apart from those that every command may have. A
	// command with another one is refused.
	fields []string
	// retryable commands may carry a transaction number.
	retryable bool
}

var (
	helloCommand = command{run: (*request).hello, fields: []string{
		// What a client says of itself changes nothing here.
		"helloOk", "client", "compression", "loadBalanced", "backpressure", "saslSupportedMechs", "speculativeAuthenticate",
	}}
	buildInfoCommand = command{run: (*request).buildInfo}
)

// commands are all commands there are, by the names that clients use.
var commands = map[string]command{
	"hello":     helloCommand,
	"isMaster":  helloCommand,
	"ismaster":  helloCommand,
	"buildInfo": buildInfoCommand,
	"buildinfo": buildInfoCommand,

	"ping":        {run: (*request).ping},
	"endSessions": {run: (*request).endSessions},

	"insert": {run: (*request).insert, retryable: true, fields: []string{"documents", "ordered"}},
	"update": {run: (*request).update, retryable: true, fields: []string{"updates", "ordered"}},
	"delete": {run: (*request).delete, retryable: true, fields: []string{"deletes", "ordered"}},
	"findAndModify": {run: (*request).findAndModify, retryable: true, fields: []string{
		"query", "sort", "update", "new", "upsert", "fields", "hint",
	}},

	"find": {run: (*request).find, fields: []string{
		"filter", "sort", "limit", "projection", "hint", "batchSize", "singleBatch",
	}},
	"aggregate":   {run: (*request).aggregate, fields: []string{"pipeline", "cursor"}},
	"getMore":     {run: (*request).getMore, fields: []string{"collection", "batchSize"}},
	"killCursors": {run: (*request).killCursors, fields: []string{"cursors"}},

	"create":          {run: (*request).create},
	"createIndexes":   {run: (*request).createIndexes, fields: []string{"indexes", "commitQuorum"}},
	"listIndexes":     {run: (*request).listIndexes, fields: []string{"cursor"}},
	"listCollections": {run: (*request).listCollections, fields: []string{"filter", "nameOnly", "cursor"}},
}

// generic are the fields that every command may have. What they ask for is either what the model does
// anyway (concerns, preferences, time limits), or is dealt with for all commands alike.
var generic = []string{
	"$db", "lsid", "txnNumber", "$clusterTime", "$readPreference", "readConcern", "writeConcern", "comment", "maxTimeMS",
	"apiVersion", "apiStrict", "apiDeprecationErrors",
}

// request is one command on its way.
type request struct {
	*Server
	arguments
	connection *connection
	database   string
	point      store.Point // what the client sent as comment
}

// answer runs the command of a message and makes its reply.
func (c *connection) answer(m message) bson.D {
	if m.opcode == opQuery && !slices.Contains([]string{"hello", "isMaster", "ismaster"}, m.body[0].Key) {
		return errorReply(refuse(codeUnsupportedOpQuery, "OP_QUERY is no longer supported, but for the first hello"))
	}
	r := &request{Server: c.server, arguments: arguments{document: m.body}, connection: c}
	r.database = r.text("$db")
	if comment, ok := r.value("comment").(string); ok {
		r.point = store.Point(comment)
	}
	reply, err := r.dispatch()
	if err != nil {
		return errorReply(err)
	}
	return append(reply, bson.E{Key: "ok", Value: 1.0})
}

func (r *request) dispatch() (bson.D, error) {
	name := r.document[0].Key
	command, known := commands[name]
	if !known {
		return nil, refuse(codeCommandNotFound, "no such command: '%s'", name)
	}
	if err := r.only(slices.Concat([]string{name}, generic, command.fields)...); err != nil {
		return nil, err
	}
	if r.err != nil {
		return nil, r.err
	}
	if !has(r.document, "txnNumber") {
		return command.run(r)
	}
	if !command.retryable {
		return nil, refuse(codeNotARetryableWrite, "txnNumber may only be provided for retryable write commands, not for %s", name)
	}
	return r.runOnce(command.run)
}

// apply runs one operation on the model, unless an argument was wrong, and wakes the change
// streams if it may have changed something. The caller does not hold the lock.
func (r *request) apply(c store.Command) (store.Reply, error) {
	if r.err != nil {
		return store.Reply{}, r.err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.applyLocked(c)
}

func (r *request) applyLocked(c store.Command) (store.Reply, error) {
	c.Point = r.point
	reply, err := r.model.Run(r.now(), r.database, c)
	switch c.Kind {
	case store.Find, store.ListCollections, store.ListIndexes, store.Hello:
	default:
		r.wakeStreams()
	}
	return reply, err
}

// collection is the name that the command's first field carries.
func (r *request) collection() string { return r.text(r.document[0].Key) }

func (r *request) ping() (bson.D, error) { return bson.D{}, nil }

func (r *request) buildInfo() (bson.D, error) {
	return bson.D{
		{Key: "version", Value: "8.0.0"},
		{Key: "versionArray", Value: bson.A{int32(8), int32(0), int32(0), int32(0)}},
		{Key: "maxBsonObjectSize", Value: int32(maxDocumentSize)},
	}, nil
}

// hello is the model's own hello with what a connection adds. There is no topologyVersion: a server that sends one
// promises to hold hello back until something changes.
func (r *request) hello() (bson.D, error) {
	reply, err := r.apply(store.Command{Kind: store.Hello})
	if err != nil {
		return nil, err
	}
	own := bson.D{{Key: "helloOk", Value: true}, {Key: "connectionId", Value: r.connection.id}}
	primary, _ := find(reply.Document, "isWritablePrimary")
	if r.document[0].Key != "hello" {
		own = append(own, bson.E{Key: "ismaster", Value: primary})
	}
	if has(reply.Document, "setName") { // a set of one, under the name by which the client knows it
		me := r.connection.address
		own = append(own, bson.E{Key: "hosts", Value: bson.A{me}}, bson.E{Key: "me", Value: me})
		if primary == true {
			own = append(own, bson.E{Key: "primary", Value: me})
		}
	}
	replaced := append(slices.Clone(own), bson.D{{Key: "hosts"}, {Key: "me"}, {Key: "primary"}, {Key: "topologyVersion"}, {Key: "ok"}}...)
	hello := slices.Clone(reply.Document)
	hello = slices.DeleteFunc(hello, func(e bson.E) bool { return has(replaced, e.Key) })
	return append(hello, own...), nil
}

func (r *request) create() (bson.D, error) {
	_, err := r.apply(store.Command{Kind: store.CreateCollection, Collection: r.collection()})
	return bson.D{}, err
}

func (r *request) listCollections() (bson.D, error) {
	reply, err := r.apply(store.Command{Kind: store.ListCollections, Filter: r.embedded("filter")})
	if err != nil {
		return nil, err
	}
	return wholeCursor(r.database+".$cmd.listCollections", reply.Documents), nil
}

func (r *request) listIndexes() (bson.D, error) {
	collection := r.collection()
	reply, err := r.apply(store.Command{Kind: store.ListIndexes, Collection: collection})
	if err != nil {
		return nil, err
	}
	return wholeCursor(r.database+"."+collection, reply.Documents), nil
}

// wholeCursor is a cursor that is exhausted with its first batch.
func wholeCursor(namespace string, documents []bson.D) bson.D {
	return bson.D{{Key: "cursor", Value: bson.D{
		{Key: "id", Value: int64(0)}, {Key: "ns", Value: namespace}, {Key: "firstBatch", Value: documents},
	}}}
}

func (r *request) createIndexes() (bson.D, error) {
	var indexes []store.Index
	for _, specification := range r.documents("indexes") {
		index, err := parseIndex(specification)
		if err != nil {
			return nil, err
		}
		indexes = append(indexes, index)
	}
	_, err := r.apply(store.Command{Kind: store.CreateIndexes, Collection: r.collection(), Indexes: indexes})
	return bson.D{}, err
}

func parseIndex(specification bson.D) (store.Index, error) {
	a := arguments{document: specification}
	if err := a.only("key", "name", "unique", "sparse", "hidden", "expireAfterSeconds", "partialFilterExpression", "v", "background"); err != nil {
		return store.Index{}, err
	}
	index := store.Index{
		Name: a.text("name"), Keys: a.embedded("key"), Unique: a.flag("unique"), Sparse: a.flag("sparse"),
		Hidden: a.flag("hidden"), Partial: a.embedded("partialFilterExpression"),
	}
	if has(specification, "expireAfterSeconds") {
		seconds := int32(a.number("expireAfterSeconds"))
		index.ExpireAfterSeconds = &seconds
	}
	return index, a.err
}

// Codes of src/mongo/base/error_codes.yml.
const (
	codeInternalError         = 1
	codeBadValue              = 2
	codeUnauthorized          = 13
	codeTypeMismatch          = 14
	codeIllegalOperation      = 20
	codeCursorNotFound        = 43
	codeCommandNotFound       = 59
	codeInvalidOptions        = 72
	codeTransactionTooOld     = 225
	codeNotImplemented        = 238
	codeUnsupportedOpQuery    = 352
	codeInterruptedAtShutdown = 11600
	codeNotARetryableWrite    = 50768
)

func refuse(code int32, format string, args ...any) *store.Error {
	return mongosim.Refuse(code, format, args...)
}

// notImplemented refuses what MongoDB would do and this server does not.
func notImplemented(format string, args ...any) *store.Error {
	return refuse(codeNotImplemented, "sim/wire does not serve "+format, args...)
}

// errorReply is the reply to a command that failed as a whole.
func errorReply(err error) bson.D {
	var answer *store.Error
	if !errors.As(err, &answer) {
		answer = refuse(codeInternalError, "%v", err)
	}
	reply := append(bson.D{{Key: "ok", Value: 0.0}}, errorFields(answer)...)
	reply = append(reply, bson.E{Key: "codeName", Value: answer.CodeName})
	if len(answer.Labels) > 0 {
		labels := bson.A{}
		for _, label := range answer.Labels {
			labels = append(labels, label)
		}
		reply = append(reply, bson.E{Key: "errorLabels", Value: labels})
	}
	return reply
}

// errorFields are what the error of a command and that of a single document have in common.
func errorFields(answer *store.Error) bson.D {
	fields := bson.D{{Key: "errmsg", Value: answer.Message}, {Key: "code", Value: answer.Code}}
	if answer.KeyPattern != nil {
		fields = append(fields, bson.E{Key: "keyPattern", Value: answer.KeyPattern}, bson.E{Key: "keyValue", Value: answer.KeyValue})
	}
	return fields
}
