package wire

import (
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// Read and write concerns. Source: manual, "Read Concern" and "Write Concern".

// writeConcern is how many members must have a write before it is acknowledged.
type writeConcern struct {
	given    bool
	members  int64 // with majority false
	majority bool
	unknown  string // a name that is no mode of the set
	timeout  time.Duration
}

// readConcern is what a read may see.
type readConcern struct {
	level    string
	snapshot bool
	at       bson.Timestamp // of a snapshot
	after    bson.Timestamp // the clock must have come to here
}

func (r *request) readConcerns() {
	r.readWriteConcern()
	r.readReadConcern()
}

func (r *request) readWriteConcern() {
	r.write = writeConcern{majority: true} // the default since MongoDB 5.0
	if !has(r.document, "writeConcern") {
		return
	}
	a := arguments{document: r.embedded("writeConcern")}
	if err := a.only("writeConcern", fieldSet{known: []string{"w", "j", "wtimeout", "wtimeoutMS", "fsync", "provenance"}}); err != nil {
		r.fail(err)
	}
	r.write.given = true
	switch w := a.value("w").(type) {
	case nil:
	case string:
		if r.write.majority = w == "majority"; !r.write.majority {
			r.write.unknown = w
		}
	case bson.D:
		r.fail(notImplemented("write concerns by tags"))
	default:
		r.write.members, r.write.majority = a.number64("w"), false
		if n := r.write.members; a.err == nil && (n < 0 || n > 50) {
			a.fail(refuse(codeFailedToParse, "w has to be a non-negative number and not greater than 50; found: %d", n))
		}
	}
	r.write.timeout = time.Duration(max(a.number64("wtimeout"), a.number64("wtimeoutMS"))) * time.Millisecond
	a.flag("j")
	r.fail(a.err)
	if r.model.Standalone() && (r.write.members > 1 || r.write.unknown != "") {
		r.fail(refuse(codeBadValue, "cannot use 'w' > 1 when a host is not replicated"))
	}
	if r.transaction && r.name != "commitTransaction" && r.name != "abortTransaction" {
		r.fail(refuse(codeInvalidOptions, "writeConcern is not allowed within a multi-statement transaction"))
	}
}

func (r *request) readReadConcern() {
	r.read.level = "local"
	if !has(r.document, "readConcern") {
		return
	}
	a := arguments{document: r.embedded("readConcern")}
	if err := a.only("readConcern", fieldSet{known: []string{"level", "afterClusterTime", "atClusterTime", "provenance"}}); err != nil {
		r.fail(err)
	}
	if level := a.text("level"); level != "" {
		r.read.level = level
	}
	if !slices.Contains([]string{"local", "available", "majority", "linearizable", "snapshot"}, r.read.level) {
		r.fail(refuse(codeBadValue, "Enumeration value '%s' for field 'readConcern.level' is not a valid value.", r.read.level))
	}
	at, isAt := a.value("atClusterTime").(bson.Timestamp)
	after, isAfter := a.value("afterClusterTime").(bson.Timestamp)
	r.fail(a.err)
	r.read.after = after
	if r.read.snapshot = r.read.level == "snapshot" && !r.transaction; r.read.snapshot {
		r.startSnapshot(at, isAt)
	}
	switch {
	case isAt && r.read.level != "snapshot":
		r.fail(refuse(codeInvalidOptions, "readConcern level 'snapshot' is required when specifying atClusterTime"))
	case isAt && isAfter:
		r.fail(refuse(codeInvalidOptions, "Specifying both atClusterTime and afterClusterTime is not allowed"))
	case isAfter && r.model.Standalone():
		r.fail(refuse(codeIllegalOperation, "Cannot specify afterClusterTime readConcern without majority or local readConcern level"))
	case r.transaction && has(r.document, "readConcern") && !has(r.document, "startTransaction") && !isAfter:
		r.fail(refuse(codeInvalidOptions, "Only the first command in a transaction may specify a readConcern"))
	}
}

// startSnapshot says which time a read outside of a transaction sees.
func (r *request) startSnapshot(at bson.Timestamp, given bool) {
	if !slices.Contains([]string{"find", "aggregate", "distinct"}, r.name) {
		r.fail(refuse(codeInvalidOptions, "Command %s does not support { readConcern: { level: \"snapshot\" } }", r.name))
	}
	if r.model.Standalone() {
		r.fail(refuse(123, "node needs to be a replica set member to use readConcern: snapshot"))
	}
	r.read.at = at
	if !given {
		r.mu.Lock()
		r.read.at = r.model.LastWrite()
		r.mu.Unlock()
	}
}

// awaitClusterTime waits until the server has what the client has seen elsewhere.
func (r *request) awaitClusterTime() error {
	if r.read.after.IsZero() {
		return nil
	}
	for {
		r.mu.Lock()
		last, now, changed := r.model.LastWrite(), r.model.ClusterTime(), r.changed
		alone := r.model.IsPrimary()
		r.mu.Unlock()
		switch {
		case r.read.after.After(now):
			return refuse(codeInvalidOptions, "readConcern afterClusterTime value must not be greater than the current clusterTime. "+
				"Requested clusterTime: %v; current clusterTime: %v", r.read.after, now)
		case alone || !r.read.after.After(last):
			return nil
		}
		if err := r.wait(changed); err != nil {
			return err
		}
	}
}

// concernError waits until as many members as the client wants have the write, and says what is wrong if that does not come to be. A
// fail point can say it instead.
func (r *request) concernError(reply bson.D, struck *failPoint) bson.D {
	if struck != nil && struck.concern != nil {
		return struck.concern
	}
	if r.command == nil || !r.command.writes || r.model.Standalone() || r.transaction && r.name != "commitTransaction" && r.name != "abortTransaction" {
		return nil
	}
	if r.write.unknown != "" {
		return concernProblem(codeUnknownWriteConcern, "No write concern mode named '"+r.write.unknown+"' found in replica set configuration")
	}
	members := 1
	if set := r.model.Set(); set != nil {
		members = len(set.Members())
	}
	if r.write.members > int64(members) {
		return concernProblem(codeUnsatisfiable, "Not enough data-bearing nodes")
	}
	if has(reply, "code") && !r.wrote {
		return nil
	}
	until := r.clock().Add(r.write.timeout)
	for {
		r.mu.Lock()
		if !r.located {
			r.length, r.changes, r.located = r.model.OplogLen(), r.model.StateChanges(), true
		}
		done := r.model.MajorityCommitted(r.length)
		if !r.write.majority {
			done = r.model.Replicated(r.length) >= int(r.write.members)
		}
		// After a change of role the entry may have been rolled back, and others may stand in its place.
		still, changed := r.model.IsPrimary() && r.model.StateChanges() == r.changes, r.changed
		r.mu.Unlock()
		if !still {
			return concernProblem(189, "Primary stepped down while waiting for replication")
		}
		if done {
			return nil
		}
		patience := time.Duration(-1)
		if r.write.timeout > 0 {
			patience = max(0, until.Sub(r.clock()))
		}
		timedOut, err := r.await(changed, patience, nil)
		switch {
		case err != nil:
			return concernProblem(codeInterruptedAtShutdown, "interrupted at shutdown")
		case timedOut:
			problem := concernProblem(codeWriteConcernFailed, "waiting for replication timed out")
			return append(problem, bson.E{Key: "errInfo", Value: bson.D{{Key: "wtimeout", Value: true}}})
		}
	}
}

func concernProblem(code int32, message string) bson.D {
	answer := refuse(code, "%s", message)
	return bson.D{
		{Key: "code", Value: code}, {Key: "codeName", Value: answer.CodeName}, {Key: "errmsg", Value: message},
	}
}

// secondaryOK reports whether the client lets a member answer that is not primary.
func (r *request) secondaryOK() bool {
	mode, _ := find(r.embedded("$readPreference"), "mode")
	return mode != nil && mode != "primary"
}
