package wire

import (
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// Fail points are how MongoDB's own tests make a server fail at a place that they name. Source: the manual of the test suite
// (mongodb/specifications, "unified-test-format") and src/mongo/db/commands/fail_command; of those that servers have there are the ones that
// tests of drivers use.

// failPoint is one that is on.
type failPoint struct {
	name      string
	skip      int64 // commands that it lets pass first
	times     int64 // how often it strikes; below zero is always
	commands  []string
	namespace string
	appName   string

	close   bool
	code    int32
	extra   bson.D
	labels  []string // nil leaves them to the server
	concern bson.D   // a write concern error
	blocks  time.Duration
}

// knownFailPoints are the fail points that can be set.
var knownFailPoints = []string{"failCommand", "onPrimaryTransactionalWrite", "failGetMoreAfterCursorCheckout", "maxTimeAlwaysTimeOut", "maxTimeNeverTimeOut"}

func (r *request) configureFailPoint() (bson.D, error) {
	f := &failPoint{name: r.text(r.name), times: -1}
	if r.err == nil && !slices.Contains(knownFailPoints, f.name) {
		return nil, refuse(codeFailPointSetFailed, "%s not found; known are %v", f.name, knownFailPoints)
	}
	off := false
	switch mode := r.value("mode").(type) {
	case string:
		if off = mode == "off"; !off && mode != "alwaysOn" {
			return nil, refuse(codeBadValue, "unknown mode: %s", mode)
		}
	case bson.D:
		if err := f.readMode(mode); err != nil {
			return nil, err
		}
	default:
		return nil, refuse(codeTypeMismatch, "'mode' must be a string or JSON object")
	}
	if err := f.readData(r.embedded("data")); err != nil || r.err != nil {
		if err == nil {
			err = r.err
		}
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failPoints = slices.DeleteFunc(r.failPoints, func(o *failPoint) bool { return o.name == f.name })
	if !off {
		r.failPoints = append(r.failPoints, f)
	}
	return bson.D{{Key: "count", Value: int32(0)}}, nil
}

func (f *failPoint) readMode(mode bson.D) error {
	a := arguments{document: mode}
	if err := a.only("mode", fieldSet{known: []string{"times", "skip"}, unserved: []string{"activationProbability"}}); err != nil {
		return err
	}
	f.skip = a.notNegative("skip")
	if has(mode, "times") {
		f.times = a.notNegative("times")
	}
	return a.err
}

func (f *failPoint) readData(data bson.D) error {
	a := arguments{document: data}
	known := []string{
		"failCommands", "closeConnection", "errorCode", "errorLabels", "errorExtraInfo", "writeConcernError", "blockConnection", "blockTimeMS",
		"appName", "namespace", "failBeforeCommitExceptionCode", "failInternalCommands", "threadName",
	}
	if err := a.only("data", fieldSet{known: known}); err != nil {
		return err
	}
	for _, name := range a.array("failCommands") {
		text, _ := name.(string)
		f.commands = append(f.commands, text)
	}
	f.namespace, f.appName = a.text("namespace"), a.text("appName")
	f.close, f.code, f.extra = a.flag("closeConnection"), int32(a.number64("errorCode")), a.embedded("errorExtraInfo")
	f.concern = a.embedded("writeConcernError")
	if f.name == "onPrimaryTransactionalWrite" {
		f.code = int32(a.number64("failBeforeCommitExceptionCode"))
		f.close = !has(data, "closeConnection") || f.close
	}
	if has(data, "errorLabels") {
		f.labels = []string{}
		for _, label := range a.array("errorLabels") {
			text, _ := label.(string)
			f.labels = append(f.labels, text)
		}
	}
	if labels, ok := find(f.concern, "errorLabels"); ok { // some tests put them here
		for _, label := range labels.(bson.A) {
			text, _ := label.(string)
			f.labels = append(f.labels, text)
		}
	}
	if a.flag("blockConnection") {
		f.blocks = time.Duration(a.notNegative("blockTimeMS")) * time.Millisecond
	}
	return a.err
}

// strike returns the fail point that concerns the command, and counts it.
func (r *request) strike() *failPoint {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.next(func(f *failPoint) bool { return f.concerns(r) })
}

// strikeWrite returns the fail point that concerns a retryable write that is about to be committed. The caller holds the lock.
func (r *request) strikeWrite() *failPoint {
	return r.next(func(f *failPoint) bool { return f.name == "onPrimaryTransactionalWrite" })
}

// next counts the first fail point that concerns something, and returns it if it strikes. The caller holds the lock.
func (s *Server) next(concerns func(*failPoint) bool) *failPoint {
	for _, f := range s.failPoints {
		if !concerns(f) {
			continue
		}
		if f.skip > 0 {
			f.skip--
			continue
		}
		if f.times == 0 {
			continue
		}
		if f.times > 0 {
			f.times--
		}
		return f
	}
	return nil
}

func (f *failPoint) concerns(r *request) bool {
	switch f.name {
	case "maxTimeAlwaysTimeOut":
		if r.deadline.IsZero() {
			return false
		}
		f.code = codeMaxTimeMSExpired
		return true
	case "failGetMoreAfterCursorCheckout":
		return r.name == "getMore"
	case "failCommand":
	default:
		return false
	}
	if f.appName != "" && f.appName != r.connection.appName {
		return false
	}
	if f.namespace != "" {
		collection, _ := r.value(r.name).(string)
		if f.namespace != r.database+"."+collection {
			return false
		}
	}
	return slices.Contains(f.commands, r.name)
}

// block holds the command back as long as the fail point says, or until its time limit.
func (r *request) block(f *failPoint) error {
	if f.blocks == 0 {
		return nil
	}
	_, err := r.await(nil, f.blocks, nil)
	return err
}

func (f *failPoint) error() error {
	return refuse(f.code, "Failing command via '%s' failpoint", f.name)
}
