package mongosim

import (
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// The stage $group and its accumulators. Source: manual, "$group". Groups come in the order in which they were first met; MongoDB
// promises none.

// accumulator gathers the values of a group.
type accumulator interface {
	add(v any) error
	result() any
}

var accumulators = map[string]func() accumulator{
	"$sum":          func() accumulator { return &sum{total: int32(0)} },
	"$avg":          func() accumulator { return &average{} },
	"$min":          func() accumulator { return &best{sign: -1} },
	"$max":          func() accumulator { return &best{sign: 1} },
	"$first":        func() accumulator { return &end{} },
	"$last":         func() accumulator { return &end{last: true} },
	"$push":         func() accumulator { return &list{} },
	"$addToSet":     func() accumulator { return &list{distinct: true} },
	"$mergeObjects": func() accumulator { return &merger{} },
	"$count":        func() accumulator { return &sum{total: int32(0)} },
}

// grouped is one field of $group.
type grouped struct {
	name  string
	make  func() accumulator
	value *expression
}

func parseGroup(_ string, value any) (step, error) {
	d, ok := value.(bson.D)
	if !ok {
		return nil, refuse(15947, "a group's fields must be specified in an object")
	}
	key := get(d, "_id")
	if isMissing(key) {
		return nil, refuse(15955, "a group specification must include an _id")
	}
	id, err := parseExpression(key)
	if err != nil {
		return nil, err
	}
	var fields []grouped
	for _, field := range d {
		if field.Key == "_id" {
			continue
		}
		f, err := parseGrouped(field)
		if err != nil {
			return nil, err
		}
		fields = append(fields, f)
	}
	return func(r *aggregation, in []bson.D) ([]bson.D, error) { return r.group(in, id, fields) }, nil
}

func parseGrouped(field bson.E) (grouped, error) {
	f := grouped{name: field.Key}
	if strings.Contains(field.Key, ".") {
		return f, refuse(40235, "The field name '%s' cannot contain '.'", field.Key)
	}
	if strings.HasPrefix(field.Key, "$") {
		return f, refuse(40236, "The field name '%s' cannot be an operator name", field.Key)
	}
	call, ok := field.Value.(bson.D)
	if !ok || len(call) == 0 {
		return f, refuse(40234, "The field '%s' must be an accumulator object", field.Key)
	}
	if len(call) != 1 {
		return f, refuse(40238, "The field '%s' must specify one accumulator", field.Key)
	}
	name, operand := call[0].Key, call[0].Value
	if f.make = accumulators[name]; f.make == nil {
		if slices.Contains(otherAccumulators, name) {
			return f, unmodelled("the accumulator " + name)
		}
		return f, refuse(15952, "unknown group operator '%s'", name)
	}
	if name == "$count" {
		if empty, ok := operand.(bson.D); !ok || len(empty) > 0 {
			return f, refuse(codeTypeMismatch, "$count takes no arguments, i.e. $count:{}")
		}
		operand = int32(1)
	}
	if a, several := operand.(bson.A); several {
		return f, refuse(40237, "The %s accumulator is a unary operator, but got %d arguments", name, len(a))
	}
	var err error
	f.value, err = parseExpression(operand)
	return f, err
}

var otherAccumulators = []string{
	"$accumulator", "$bottom", "$bottomN", "$firstN", "$lastN", "$maxN", "$median", "$minN", "$percentile", "$stdDevPop", "$stdDevSamp", "$top", "$topN",
}

func (r *aggregation) group(in []bson.D, id *expression, fields []grouped) ([]bson.D, error) {
	type group struct {
		id   any
		sums []accumulator
	}
	var groups []*group
	byKey := map[string]*group{}
	for _, d := range in {
		v, err := id.evaluate(d, r.at)
		if err != nil {
			return nil, err
		}
		if isMissing(v) {
			v = nil
		}
		key := keyOf(v)
		g := byKey[key]
		if g == nil {
			g = &group{id: v}
			for _, f := range fields {
				g.sums = append(g.sums, f.make())
			}
			byKey[key], groups = g, append(groups, g)
		}
		for i, f := range fields {
			v, err := f.value.evaluate(d, r.at)
			if err == nil {
				err = g.sums[i].add(v)
			}
			if err != nil {
				return nil, err
			}
		}
	}
	out := make([]bson.D, len(groups))
	for i, g := range groups {
		out[i] = bson.D{{Key: "_id", Value: g.id}}
		for j, f := range fields {
			out[i] = append(out[i], bson.E{Key: f.name, Value: g.sums[j].result()})
		}
	}
	return out, nil
}

func parseSortByCount(name string, value any) (step, error) {
	if s, ok := value.(string); !ok || !strings.HasPrefix(s, "$") {
		if d, ok := value.(bson.D); !ok || len(d) == 0 {
			return nil, refuse(40147, "the sortByCount field must be defined as a $-prefixed path or an expression inside an object")
		}
	}
	group, err := parseGroup(name, bson.D{
		{Key: "_id", Value: value}, {Key: "count", Value: bson.D{{Key: "$sum", Value: int32(1)}}},
	})
	if err != nil {
		return nil, err
	}
	order, err := parseSortStep(name, bson.D{{Key: "count", Value: int32(-1)}})
	return func(r *aggregation, in []bson.D) ([]bson.D, error) { return r.run([]step{group, order}, in) }, err
}

// sum ignores what is not a number.
type sum struct{ total any }

func (s *sum) add(v any) (err error) {
	if classOf(v) == classNumber {
		s.total, err = widened("$sum", s.total, v, addInts, func(x, y float64) float64 { return x + y })
	}
	return err
}

func (s *sum) result() any { return s.total }

type average struct {
	total float64
	count int
}

func (a *average) add(v any) error {
	if classOf(v) != classNumber {
		return nil
	}
	f, ok := float(v)
	if !ok {
		return unmodelled("decimal arithmetic ($avg)")
	}
	a.total, a.count = a.total+f, a.count+1
	return nil
}

func (a *average) result() any {
	if a.count == 0 {
		return nil
	}
	return a.total / float64(a.count)
}

// best keeps the smallest or the largest.
type best struct {
	sign  int
	value any
}

func (b *best) add(v any) error {
	if !absent(v) && (b.value == nil || compare(v, b.value)*b.sign > 0) {
		b.value = v
	}
	return nil
}

func (b *best) result() any { return b.value }

// end keeps the first or the last.
type end struct {
	last, any bool
	value     any
}

func (e *end) add(v any) error {
	if isMissing(v) {
		v = nil
	}
	if e.last || !e.any {
		e.value, e.any = v, true
	}
	return nil
}

func (e *end) result() any { return e.value }

type list struct {
	distinct bool
	values   bson.A
}

func (l *list) add(v any) error {
	if isMissing(v) || l.distinct && slices.ContainsFunc(l.values, func(o any) bool { return equal(o, v) }) {
		return nil
	}
	l.values = append(l.values, v)
	return nil
}

func (l *list) result() any { return append(bson.A{}, l.values...) }

type merger struct{ merged bson.D }

func (m *merger) add(v any) error {
	merged, err := evaluateMergeObjects("$mergeObjects", []any{m.merged, v})
	if err == nil {
		m.merged = merged.(bson.D)
	}
	return err
}

func (m *merger) result() any { return append(bson.D{}, m.merged...) }
