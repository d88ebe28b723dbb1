package mongosim

import (
	"regexp"

	"go.mongodb.org/mongo-driver/v2/bson"
)

func parseRegex(path string, value any, siblings bson.D) ([]node, error) {
	var pattern, options string
	switch v := value.(type) {
	case string:
		pattern = v
	case bson.Regex:
		pattern, options = v.Pattern, v.Options
	default:
		return nil, refuse(codeBadValue, "$regex has to be a string")
	}
	if given := get(siblings, "$options"); !isMissing(given) {
		s, ok := given.(string)
		if !ok {
			return nil, refuse(codeBadValue, "$options has to be a string")
		}
		if options != "" {
			return nil, refuse(51075, "options set in both $regex and $options")
		}
		options = s
	}
	return one(regexNode(path, pattern, options, bson.Regex{Pattern: pattern, Options: options}))
}

func regexNode(path, pattern, options string, value any) (node, error) {
	n := on(path, opRegex, value)
	compiled, err := compileRegex(pattern, options)
	n.details = &details{patterns: []*regexp.Regexp{compiled}}
	return n, err
}

// compileRegex translates to Go's syntax, which has no look-around or back references.
func compileRegex(pattern, options string) (*regexp.Regexp, error) {
	flags := ""
	for _, o := range options {
		switch o {
		case 'i', 'm', 's':
			flags += string(o)
		case 'u':
		case 'x':
			return nil, unmodelled("the regular expression option x")
		default:
			return nil, refuse(51108, "invalid flag in regex options: %c", o)
		}
	}
	if flags != "" {
		pattern = "(?" + flags + ")" + pattern
	}
	compiled, err := regexp.Compile(pattern)
	if err != nil {
		return nil, refuse(51091, "Regular expression is invalid: %v", err)
	}
	return compiled, nil
}

// matchesPattern: a regular expression matches strings, and a stored regular expression that is the same.
func matchesPattern(match func(string) bool, v, pattern any) bool {
	switch v := v.(type) {
	case string:
		return match(v)
	case bson.Symbol:
		return match(string(v))
	case bson.Regex:
		return v == pattern
	}
	return false
}
