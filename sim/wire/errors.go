package wire

import (
	"errors"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/fencepost-sim/fencepost/engine/store"
	"github.com/fencepost-sim/fencepost/sim/mongosim"
)

// Codes of src/mongo/base/error_codes.yml.
const (
	codeInternalError         = 1
	codeBadValue              = 2
	codeFailedToParse         = 9
	codeUnauthorized          = 13
	codeTypeMismatch          = 14
	codeInvalidLength         = 16
	codeIllegalOperation      = 20
	codeCursorNotFound        = 43
	codeMaxTimeMSExpired      = 50
	codeCommandNotFound       = 59
	codeWriteConcernFailed    = 64
	codeInvalidOptions        = 72
	codeInvalidNamespace      = 73
	codeUnknownWriteConcern   = 79
	codeUnsatisfiable         = 100
	codeInvalidIndexOption    = 197
	codeNotImplemented        = 238
	codeTransactionTooOld     = 225
	codeNoSuchTransaction     = 251
	codeNotInTransaction      = 263
	codeFailPointSetFailed    = 266
	codeUnsupportedOpQuery    = 352
	codeInterruptedAtShutdown = 11600
	codeSearchNotEnabled      = 31082
	codeUnknownField          = 40415
	codeMissingField          = 40414
	codeNotARetryableWrite    = 50768
)

func refuse(code int32, format string, args ...any) *store.Error {
	return mongosim.Refuse(code, format, args...)
}

// notImplemented refuses what MongoDB would do and this server does not.
func notImplemented(format string, args ...any) *store.Error {
	return refuse(codeNotImplemented, "sim/wire does not serve "+format, args...)
}

func asServerError(err error) *store.Error {
	var answer *store.Error
	if !errors.As(err, &answer) {
		answer = refuse(codeInternalError, "%v", err)
	}
	return answer
}

// errorReply is the reply to a command that failed as a whole.
func errorReply(err error) bson.D {
	answer := asServerError(err)
	reply := append(bson.D{{Key: "ok", Value: 0.0}}, errorFields(answer)...)
	return append(reply, bson.E{Key: "codeName", Value: answer.CodeName})
}

// errorFields are what the error of a command and that of a single document have in common.
func errorFields(answer *store.Error) bson.D {
	fields := bson.D{{Key: "errmsg", Value: answer.Message}, {Key: "code", Value: answer.Code}}
	if answer.KeyPattern != nil {
		fields = append(fields, bson.E{Key: "keyPattern", Value: answer.KeyPattern}, bson.E{Key: "keyValue", Value: answer.KeyValue})
	}
	return fields
}

// Labels that servers put on errors.
const (
	labelRetryable   = store.LabelRetryableWrite
	labelResumable   = store.LabelResumableChangeStream
	labelTransient   = store.LabelTransientTransaction
	labelUnresumable = "NonResumableChangeStreamError"
	labelNothingDone = "NoWritesPerformed"
)

// Classes of codes. Source: the categories in src/mongo/base/error_codes.yml.
var (
	retriable = []int32{6, 7, 89, 91, 134, 189, 262, 358, 384, 402, 406, 407, 412, 9001, 10107, 11600, 11602, 13435, 13436}
	// conflicts are the errors that another try of the whole transaction can be without.
	conflicts = []int32{24, 112, 150, 239, 246, 249, 250, 267, 272, 13388}
	resumable = []int32{
		6, 7, 63, 89, 91, 133, 134, 150, 189, 234, 262, 9001, 10107, 11600, 11602, 13388, 13435, 13436,
	}
	unresumable = []int32{280, 286}
	// roles are the errors of a server that is not what the client takes it for.
	roles = []int32{91, 189, 10107, 11600, 11602, 13435, 13436}
)

// labels are what a server would put on an error with the code. Source: src/mongo/db/error_labels.cpp.
func (r *request) labels(code int32) (labels []string) {
	ends := r.name == "commitTransaction" || r.name == "abortTransaction"
	if r.transaction && (slices.Contains(conflicts, code) || code == codeNoSuchTransaction || !ends && slices.Contains(retriable, code)) {
		labels = append(labels, labelTransient)
	}
	if r.retries() && slices.Contains(retriable, code) {
		labels = append(labels, labelRetryable)
		if !r.wrote {
			labels = append(labels, labelNothingDone)
		}
	}
	switch {
	case r.stream && slices.Contains(resumable, code):
		labels = append(labels, labelResumable)
	case r.stream && slices.Contains(unresumable, code):
		labels = append(labels, labelUnresumable)
	}
	return labels
}

// retries reports whether the client may send the command a second time.
func (r *request) retries() bool {
	return r.numbered && (!r.transaction || r.name == "commitTransaction" || r.name == "abortTransaction")
}

// complete adds to a reply, or to an error, what all replies have.
func (r *request) complete(reply bson.D, err error, struck *failPoint) bson.D {
	var labels []string
	if err != nil {
		answer := asServerError(err)
		reply = errorReply(answer)
		if struck != nil && struck.name == "failCommand" {
			r.stream = false // it strikes before the server knows what the command is about
		}
		for _, label := range slices.Concat(answer.Labels, r.labels(answer.Code)) {
			if !slices.Contains(labels, label) {
				labels = append(labels, label)
			}
		}
		if slices.Contains(roles, answer.Code) && struck == nil {
			reply = append(reply, bson.E{Key: "topologyVersion", Value: r.topologyVersion()})
		}
	} else {
		reply = append(reply, bson.E{Key: "ok", Value: 1.0})
	}
	if concern := r.concernError(reply, struck); concern != nil {
		reply = append(slices.DeleteFunc(slices.Clone(reply), func(e bson.E) bool { return e.Key == "writeConcernError" }),
			bson.E{Key: "writeConcernError", Value: concern})
		if code, ok := find(concern, "code"); ok && err == nil {
			if n, ok := code.(int32); ok && slices.Contains(retriable, n) && r.retries() {
				labels = append(labels, labelRetryable)
			}
		}
	}
	if struck != nil && struck.labels != nil {
		labels = struck.labels
	}
	if len(labels) > 0 {
		list := bson.A{}
		for _, label := range labels {
			list = append(list, label)
		}
		reply = append(reply, bson.E{Key: "errorLabels", Value: list})
	}
	return append(reply, r.gossip()...)
}

// gossip are the times that replies of a replica set's members carry. Source: the drivers' specification "Causal Consistency" and
// the manual's "hello".
func (r *request) gossip() bson.D {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.model.ClusterTime()
	if r.model.Standalone() || now.IsZero() {
		return nil
	}
	last := r.model.LastWrite()
	if last.IsZero() {
		last = now
	}
	return bson.D{
		{Key: "$clusterTime", Value: bson.D{
			{Key: "clusterTime", Value: now},
			{Key: "signature", Value: bson.D{ // of a server without keys, as one that was started without authentication sends it
				{Key: "hash", Value: bson.Binary{Data: make([]byte, 20)}}, {Key: "keyId", Value: int64(0)},
			}},
		}},
		{Key: "operationTime", Value: last},
	}
}
