package scenarios

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

// String writes the workload as one line that ParseWorkload reads: JSON without the fields that have their default. Durations are in
// nanoseconds.
func (w Workload) String() string {
	text, err := json.Marshal(w)
	if err != nil {
		panic(err) // it is plain data
	}
	var fields any
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	if err := decoder.Decode(&fields); err != nil {
		panic(err)
	}
	short, err := json.Marshal(withoutZeros(fields))
	if err != nil {
		panic(err)
	}
	return string(short)
}

// withoutZeros drops what is zero, false or empty from objects. Elements of lists stay.
func withoutZeros(value any) any {
	switch value := value.(type) {
	case map[string]any:
		kept := map[string]any{}
		for key, field := range value {
			if field = withoutZeros(field); !isZero(field) {
				kept[key] = field
			}
		}
		return kept
	case []any:
		for i := range value {
			value[i] = withoutZeros(value[i])
		}
	}
	return value
}

func isZero(value any) bool {
	switch value := value.(type) {
	case nil:
		return true
	case bool:
		return !value
	case string:
		return value == ""
	case json.Number:
		return value.String() == "0"
	case map[string]any:
		return len(value) == 0
	case []any:
		return len(value) == 0
	}
	return false
}

// ParseWorkload reads what String wrote. The error names a field that there is not.
func ParseWorkload(text string) (w Workload, err error) {
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&w); err != nil {
		return Workload{}, fmt.Errorf("scenarios: workload: %w", err)
	}
	if _, err := decoder.Token(); err != io.EOF {
		return Workload{}, fmt.Errorf("scenarios: workload: something follows the object; allowed: nothing")
	}
	return w, nil
}
