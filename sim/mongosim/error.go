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
)

var codeNames = map[int32]string{
	codeBadValue:                  "BadValue",
	codeFailedToParse:             "FailedToParse",
	codeTypeMismatch:              "TypeMismatch",
	codeOverflow:                  "Overflow",
	codeInvalidLength:             "InvalidLength",
	codeIllegalOperation:          "IllegalOperation",
	codeNamespaceNotFound:         "NamespaceNotFound",
	codePathNotViable:             "PathNotViable",
	codeConflictingUpdate:         "ConflictingUpdateOperators",
	codeDollarPrefixedFieldName:   "DollarPrefixedFieldName",
	codeInvalidIDField:            "InvalidIdField",
	codeNotSingleValueField:       "NotSingleValueField",
	codeEmptyFieldName:            "EmptyFieldName",
	codeCommandNotFound:           "CommandNotFound",
	codeImmutableField:            "ImmutableField",
	codeCannotCreateIndex:         "CannotCreateIndex",
	codeInvalidOptions:            "InvalidOptions",
	codeInvalidNamespace:          "InvalidNamespace",
	codeIndexOptionsConflict:      "IndexOptionsConflict",
	codeIndexKeySpecsConflict:     "IndexKeySpecsConflict",
	codeInvalidPipelineOperator:   "InvalidPipelineOperator",
	codeCannotIndexParallelArrays: "CannotIndexParallelArrays",
	codeInvalidIndexOption:        "InvalidIndexSpecificationOption",
	codeNotImplemented:            "NotImplemented",
	codeInvalidResumeToken:        "InvalidResumeToken",
	codeHistoryLost:               "ChangeStreamHistoryLost",
	codeDuplicateKey:              "DuplicateKey",
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

// unmodelled refuses what MongoDB would do and the model does not.
func unmodelled(what string) *store.Error {
	return refuse(codeNotImplemented, "mongosim does not model %s", what)
}
