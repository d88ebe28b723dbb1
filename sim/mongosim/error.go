package mongosim

import (
	"fmt"

	"github.com/fencepost-sim/fencepost/engine/store"
)

// Codes of MongoDB's error table (src/mongo/base/error_codes.yml, in the manual as "Error Codes") that
// the model answers with. Codes without a name in that table are shown by servers as "LocationNNNNN".
const (
	codeBadValue                  = 2
	codeFailedToParse             = 9
	codeTypeMismatch              = 14
	codeOverflow                  = 15
	codeInvalidLength             = 16
	codeIllegalOperation          = 20
	codeNamespaceNotFound         = 26
	codePathNotViable             = 28
	codeConflictingUpdate         = 40
	codeDollarPrefixedFieldName   = 52
	codeInvalidIDField            = 53
	codeNotSingleValueField       = 54
	codeEmptyFieldName            = 56
	codeCommandNotFound           = 59
	codeImmutableField            = 66
	codeCannotCreateIndex         = 67
	codeInvalidOptions            = 72
	codeInvalidNamespace          = 73
	codeIndexOptionsConflict      = 85
	codeIndexKeySpecsConflict     = 86
	codeInvalidPipelineOperator   = 168
	codeCannotIndexParallelArrays = 171
	codeInvalidIndexOption        = 197
	codeNotImplemented            = 238
	codeInvalidResumeToken        = 260
	codeHistoryLost               = 286
	codeDuplicateKey              = 11000
	codeIndexNotFound             = 27
	codeNamespaceExists           = 48
	codeNoMatchingDocument        = 47
	codeChangeStreamFatal         = 280
	codeWriteConflict             = 112
	codeTransactionTooOld         = 225
	codeSnapshotTooOld            = 239
	codeSnapshotUnavailable       = 246
	codeNoSuchTransaction         = 251
	codeTransactionCommitted      = 256
	codeNotWritablePrimary        = 10107
	codeNotPrimaryNoSecondaryOk   = 13435
)

// codeNames are the names in MongoDB's error table, also of errors that only a fail point makes.
var codeNames = map[int32]string{
	1:     "InternalError",
	2:     "BadValue",
	6:     "HostUnreachable",
	7:     "HostNotFound",
	9:     "FailedToParse",
	13:    "Unauthorized",
	14:    "TypeMismatch",
	15:    "Overflow",
	16:    "InvalidLength",
	20:    "IllegalOperation",
	24:    "LockTimeout",
	26:    "NamespaceNotFound",
	27:    "IndexNotFound",
	28:    "PathNotViable",
	40:    "ConflictingUpdateOperators",
	43:    "CursorNotFound",
	47:    "NoMatchingDocument",
	48:    "NamespaceExists",
	50:    "MaxTimeMSExpired",
	52:    "DollarPrefixedFieldName",
	53:    "InvalidIdField",
	54:    "NotSingleValueField",
	56:    "EmptyFieldName",
	59:    "CommandNotFound",
	64:    "WriteConcernFailed",
	66:    "ImmutableField",
	67:    "CannotCreateIndex",
	72:    "InvalidOptions",
	73:    "InvalidNamespace",
	76:    "NoReplicationEnabled",
	79:    "UnknownReplWriteConcern",
	85:    "IndexOptionsConflict",
	86:    "IndexKeySpecsConflict",
	89:    "NetworkTimeout",
	91:    "ShutdownInProgress",
	100:   "UnsatisfiableWriteConcern",
	112:   "WriteConflict",
	115:   "CommandNotSupported",
	121:   "DocumentValidationFailure",
	133:   "FailedToSatisfyReadPreference",
	134:   "ReadConcernMajorityNotAvailableYet",
	148:   "ReadConcernMajorityNotEnabled",
	150:   "StaleEpoch",
	168:   "InvalidPipelineOperator",
	171:   "CannotIndexParallelArrays",
	189:   "PrimarySteppedDown",
	197:   "InvalidIndexSpecificationOption",
	206:   "NoSuchSession",
	225:   "TransactionTooOld",
	234:   "RetryChangeStream",
	237:   "CursorKilled",
	238:   "NotImplemented",
	239:   "SnapshotTooOld",
	241:   "ConversionFailure",
	246:   "SnapshotUnavailable",
	249:   "StaleDbVersion",
	251:   "NoSuchTransaction",
	256:   "TransactionCommitted",
	260:   "InvalidResumeToken",
	262:   "ExceededTimeLimit",
	263:   "OperationNotSupportedInTransaction",
	266:   "FailPointSetFailed",
	280:   "ChangeStreamFatalError",
	286:   "ChangeStreamHistoryLost",
	290:   "TransactionExceededLifetimeLimitSeconds",
	322:   "APIVersionError",
	323:   "APIStrictError",
	324:   "APIDeprecationError",
	352:   "UnsupportedOpQueryCommand",
	355:   "InterruptedDueToStorageChange",
	9001:  "SocketException",
	10107: "NotWritablePrimary",
	11000: "DuplicateKey",
	11600: "InterruptedAtShutdown",
	11601: "Interrupted",
	11602: "InterruptedDueToReplStateChange",
	13388: "StaleConfig",
	13435: "NotPrimaryNoSecondaryOk",
	13436: "NotPrimaryOrSecondary",
	46841: "ClientMarkedKilled",
	50768: "NotARetryableWriteCommand",
}

func codeName(code int32) string {
	if name, known := codeNames[code]; known {
		return name
	}
	return fmt.Sprintf("Location%d", code)
}

// refuse makes the error that a server answers with.
func refuse(code int32, format string, args ...any) *store.Error {
	return &store.Error{Code: code, CodeName: codeName(code), Message: fmt.Sprintf(format, args...)}
}

// Refuse makes the error that a server answers with under the code, with MongoDB's name for it.
func Refuse(code int32, format string, args ...any) *store.Error {
	return refuse(code, format, args...)
}

// unmodelled refuses what MongoDB would do and the model does not.
func unmodelled(what string) *store.Error {
	return refuse(codeNotImplemented, "mongosim does not model %s", what)
}
