package wire

import (
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// command is what the server does for one command name.
type command struct {
	run func(*request) (bson.D, error)
	// fields are those that run understands, or that change nothing here, apart from those that every command may have. unserved
	// are those that MongoDB has beside them.
	fields, unserved []string
	retryable        bool // may carry a transaction number by itself
	transaction      bool // may belong to a transaction
	writes           bool // has a write concern
	admin            bool // on the database admin only
}

// generic are the fields that every command may have.
var generic = []string{
	"$db", "lsid", "txnNumber", "autocommit", "startTransaction", "$clusterTime", "$readPreference", "readConcern", "writeConcern",
	"comment", "maxTimeMS", "apiVersion", "apiStrict", "apiDeprecationErrors",
}

func (c *command) fieldSet(name string) fieldSet {
	return fieldSet{known: slices.Concat([]string{name}, generic, c.fields), unserved: c.unserved}
}

var (
	helloCommand = command{run: (*request).hello, fields: []string{
		"helloOk", "client", "compression", "loadBalanced", "backpressure", "saslSupportedMechs", "speculativeAuthenticate",
		"topologyVersion", "maxAwaitTimeMS",
	}}
	buildInfoCommand     = command{run: (*request).buildInfo}
	findAndModifyCommand = command{run: (*request).findAndModify, retryable: true, transaction: true, writes: true, fields: []string{
		"query", "sort", "update", "remove", "new", "upsert", "fields", "hint", "arrayFilters", "let", "bypassDocumentValidation", "stmtId",
	}, unserved: []string{"collation"}}
	killSessionsCommand = command{run: (*request).killAllSessions, fields: []string{}}
)

// commands are all commands there are, by the names that clients use.
var commands map[string]command

func init() { // the table refers to functions that refer to it
	commands = map[string]command{
		"hello": helloCommand, "isMaster": helloCommand, "ismaster": helloCommand,
		"buildInfo": buildInfoCommand, "buildinfo": buildInfoCommand,
		"ping":               {run: (*request).nothing},
		"connectionStatus":   {run: (*request).connectionStatus, fields: []string{"showPrivileges"}},
		"whatsmyuri":         {run: (*request).whatsMyURI},
		"serverStatus":       {run: (*request).serverStatus, fields: []string{"repl", "metrics", "locks"}},
		"getParameter":       {run: (*request).getParameter, admin: true, fields: parameterNames},
		"getCmdLineOpts":     {run: (*request).getCommandLine, admin: true},
		"replSetGetStatus":   {run: (*request).replicaSetStatus, admin: true},
		"replSetStepDown":    {run: (*request).replicaSetStepDown, admin: true, fields: []string{"force", "secondaryCatchUpPeriodSecs"}},
		"replSetFreeze":      {run: (*request).nothing, admin: true},
		"configureFailPoint": {run: (*request).configureFailPoint, admin: true, fields: []string{"mode", "data"}},
		"currentOp":          {run: (*request).currentOp, admin: true, fields: []string{"$all", "$ownOps"}},
		"killOp":             {run: (*request).killOp, admin: true, fields: []string{"op"}},

		"startSession": {run: (*request).startSession}, "refreshSessions": {run: (*request).nothing},
		"endSessions": {run: (*request).endSessions}, "killSessions": {run: (*request).endSessions},
		"killAllSessions": killSessionsCommand, "killAllSessionsByPattern": killSessionsCommand,
		"commitTransaction": {run: (*request).commitTransaction, admin: true, retryable: true, transaction: true, writes: true, fields: []string{"recoveryToken"}},
		"abortTransaction":  {run: (*request).abortTransaction, admin: true, retryable: true, transaction: true, writes: true, fields: []string{"recoveryToken"}},

		"insert": {run: (*request).insert, retryable: true, transaction: true, writes: true,
			fields: []string{"documents", "ordered", "bypassDocumentValidation", "stmtId", "bypassEmptyTsReplacement"}},
		"update": {run: (*request).update, retryable: true, transaction: true, writes: true,
			fields: []string{"updates", "ordered", "let", "bypassDocumentValidation", "stmtId", "bypassEmptyTsReplacement"}},
		"delete": {run: (*request).delete, retryable: true, transaction: true, writes: true,
			fields: []string{"deletes", "ordered", "let", "stmtId"}},
		"findAndModify": findAndModifyCommand, "findandmodify": findAndModifyCommand,
		"bulkWrite": {run: (*request).bulkWrite, admin: true, retryable: true, transaction: true, writes: true, fields: []string{
			"ops", "nsInfo", "ordered", "errorsOnly", "let", "cursor", "bypassDocumentValidation"}},

		"find": {run: (*request).find, transaction: true, fields: []string{
			"filter", "sort", "limit", "skip", "projection", "hint", "batchSize", "singleBatch", "let",
			"allowDiskUse", "noCursorTimeout", "allowPartialResults", "oplogReplay",
		}, unserved: []string{"collation", "min", "max", "returnKey", "showRecordId", "tailable", "awaitData"}},
		"aggregate": {run: (*request).aggregate, transaction: true, writes: true, fields: []string{
			"pipeline", "cursor", "let", "hint", "allowDiskUse", "bypassDocumentValidation",
		}, unserved: []string{"collation", "explain"}},
		"count":       {run: (*request).count, fields: []string{"query", "limit", "skip", "hint", "fields"}, unserved: []string{"collation"}},
		"distinct":    {run: (*request).distinct, transaction: true, fields: []string{"key", "query", "hint"}, unserved: []string{"collation"}},
		"explain":     {run: (*request).explain, fields: []string{"verbosity"}},
		"getMore":     {run: (*request).getMore, transaction: true, fields: []string{"collection", "batchSize"}},
		"killCursors": {run: (*request).killCursors, transaction: true, fields: []string{"cursors"}},

		"create": {run: (*request).create, transaction: true, writes: true, fields: []string{"changeStreamPreAndPostImages"}, unserved: []string{
			"capped", "size", "max", "timeseries", "expireAfterSeconds", "clusteredIndex", "validator", "validationLevel", "validationAction",
			"viewOn", "pipeline", "collation", "storageEngine", "indexOptionDefaults", "encryptedFields", "autoIndexId", "idIndex",
		}},
		"drop":             {run: (*request).drop, writes: true, fields: []string{"encryptedFields"}},
		"dropDatabase":     {run: (*request).dropDatabase, writes: true},
		"renameCollection": {run: (*request).renameCollection, admin: true, writes: true, fields: []string{"to", "dropTarget"}},
		"collMod": {run: (*request).collMod, writes: true, fields: []string{"index", "changeStreamPreAndPostImages"}, unserved: []string{
			"validator", "validationLevel", "validationAction", "viewOn", "pipeline", "cappedSize", "cappedMax", "expireAfterSeconds", "timeseries",
		}},
		"listCollections": {run: (*request).listCollections, fields: []string{"filter", "nameOnly", "cursor", "authorizedCollections"}},
		"listDatabases":   {run: (*request).listDatabases, admin: true, fields: []string{"filter", "nameOnly", "authorizedDatabases"}},
		"createIndexes":   {run: (*request).createIndexes, transaction: true, writes: true, fields: []string{"indexes", "commitQuorum"}},
		"dropIndexes":     {run: (*request).dropIndexes, writes: true, fields: []string{"index"}},
		"listIndexes":     {run: (*request).listIndexes, fields: []string{"cursor"}},

		"createSearchIndexes": {run: (*request).searchIndex, fields: []string{"indexes"}},
		"dropSearchIndex":     {run: (*request).searchIndex, fields: []string{"name", "id"}},
		"updateSearchIndex":   {run: (*request).searchIndex, fields: []string{"name", "id", "definition"}},
	}
}
