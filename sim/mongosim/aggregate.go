package mongosim

import (
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/fencepost-sim/fencepost/engine/store"
)

// Aggregation is an aggregate command. Source: manual, "Aggregation Pipeline".
type Aggregation struct {
	Collection string // empty for an aggregation on the database: its first stage brings the documents
	Pipeline   []bson.D
	Let        bson.D
	Hint       string
	HintKeys   bson.D
	Session    string // for $listLocalSessions
}

// step is a stage of an aggregation: it turns all documents into others.
type step func(r *aggregation, in []bson.D) ([]bson.D, error)

// aggregation is one that runs.
type aggregation struct {
	server   *Server
	database string
	session  string
	at       *moment
}

// Aggregate runs a pipeline and returns its documents. The stages $out and $merge write, and return none.
func (s *Server) Aggregate(caller Caller, database string, a Aggregation) (documents []bson.D, err error) {
	stages := make([]bson.D, len(a.Pipeline))
	for i, d := range a.Pipeline {
		if stages[i], err = normalizeDocument(d); err != nil {
			return nil, err
		}
	}
	err = s.within(caller, Writes(stages), func() error {
		if err := checkDatabase(database); err != nil {
			return err
		}
		documents, err = s.aggregate(database, a, stages)
		return err
	})
	return documents, err
}

// Writes reports whether the last stage of a pipeline writes.
func Writes(pipeline []bson.D) bool {
	if len(pipeline) == 0 || len(pipeline[len(pipeline)-1]) == 0 {
		return false
	}
	name := pipeline[len(pipeline)-1][0].Key
	return name == "$out" || name == "$merge"
}

func (s *Server) aggregate(database string, a Aggregation, stages []bson.D) ([]bson.D, error) {
	q, rest, err := s.leading(a, stages)
	if err != nil {
		return nil, err
	}
	at := *q.at // $lookup runs queries of its own
	r := &aggregation{server: s, database: database, session: a.Session, at: &at}
	steps, err := parseSteps(rest, a.Collection == "")
	if err != nil {
		return nil, err
	}
	documents := []bson.D{}
	if a.Collection != "" {
		if err := checkCollection(database, a.Collection); err != nil {
			return nil, err
		}
		if c := s.lookup(database, a.Collection); c != nil {
			found, err := c.find(q, nil)
			if err != nil {
				return nil, err
			}
			for _, r := range found {
				documents = append(documents, r.document)
			}
		}
	}
	return r.run(steps, documents)
}

func (r *aggregation) run(steps []step, documents []bson.D) (out []bson.D, err error) {
	for _, next := range steps {
		if documents, err = next(r, documents); err != nil {
			return nil, err
		}
	}
	return documents, nil
}

// leading makes a query of the stages with which a pipeline begins, as far as an index can help with them.
func (s *Server) leading(a Aggregation, stages []bson.D) (*query, []bson.D, error) {
	request := &Request{Command: store.Command{Hint: a.Hint}, HintKeys: a.HintKeys, Let: a.Let}
	filters := bson.A{}
	for a.Collection != "" && len(stages) > 0 && len(stages[0]) == 1 && stages[0][0].Key == "$match" {
		filter, ok := stages[0][0].Value.(bson.D)
		if !ok {
			return nil, nil, refuse(15959, "the match filter must be an expression in an object")
		}
		filters, stages = append(filters, filter), stages[1:]
	}
	if len(filters) > 0 {
		request.Filter = bson.D{{Key: "$and", Value: filters}}
	}
	if a.Collection != "" && len(stages) > 0 && len(stages[0]) == 1 && stages[0][0].Key == "$sort" {
		if sort, ok := stages[0][0].Value.(bson.D); ok && len(sort) > 0 && sort[0].Key != "$natural" {
			request.Sort, stages = sort, stages[1:]
		}
	}
	q, err := s.compile(request)
	return q, stages, err
}

// parseSteps compiles a pipeline. sourced: its first stage must bring the documents.
func parseSteps(stages []bson.D, sourced bool) ([]step, error) {
	steps := make([]step, len(stages))
	for i, d := range stages {
		if len(d) != 1 {
			return nil, refuse(40323, "A pipeline stage specification object must contain exactly one field.")
		}
		name := d[0].Key
		source := slices.Contains(sources, name)
		switch {
		case source && i > 0:
			return nil, refuse(40602, "%s is only valid as the first stage in a pipeline.", name)
		case sourced && !source && i == 0:
			return nil, refuse(codeInvalidNamespace, "{aggregate: 1} is not valid for '%s'; a collection is required.", name)
		case (name == "$out" || name == "$merge") && i < len(stages)-1:
			return nil, refuse(40601, "%s can only be the final stage in the pipeline", name)
		}
		var err error
		if steps[i], err = parseStep(name, d[0].Value); err != nil {
			return nil, err
		}
	}
	if sourced && len(stages) == 0 {
		return nil, refuse(codeInvalidNamespace, "{aggregate: 1} is not valid for an empty pipeline.")
	}
	return steps, nil
}

// sources are the stages that bring documents of their own.
var sources = []string{"$documents", "$currentOp", "$listLocalSessions", "$changeStream", "$indexStats", "$collStats"}

var stepTable map[string]func(name string, value any) (step, error)

func init() { // the table refers to functions that refer to it
	stepTable = map[string]func(string, any) (step, error){
		"$match": parseMatch, "$sort": parseSortStep, "$limit": parseLimit, "$skip": parseSkip,
		"$count": parseCount, "$group": parseGroup, "$sortByCount": parseSortByCount, "$unwind": parseUnwind,
		"$lookup": parseLookup, "$facet": parseFacet, "$out": parseOut, "$merge": parseMerge,
		"$documents": parseDocuments, "$currentOp": parseNothing, "$listLocalSessions": parseSessions,
	}
}

func parseStep(name string, value any) (step, error) {
	if parse, known := stepTable[name]; known {
		return parse(name, value)
	}
	if slices.Contains(documentStages, name) {
		run, err := parseStage(name, value)
		return each(run), err
	}
	if slices.Contains(strings.Fields(otherStages), name) {
		return nil, unmodelled("the stage " + name)
	}
	return nil, refuse(40324, "Unrecognized pipeline stage name: '%s'", name)
}

// documentStages turn one document into one.
var documentStages = []string{"$set", "$addFields", "$unset", "$project", "$replaceWith", "$replaceRoot"}

func each(run stage) step {
	return func(r *aggregation, in []bson.D) ([]bson.D, error) {
		out := make([]bson.D, len(in))
		for i, d := range in {
			var err error
			if out[i], err = run(d, r.at); err != nil {
				return nil, err
			}
		}
		return out, nil
	}
}

func parseMatch(_ string, value any) (step, error) {
	filter, ok := value.(bson.D)
	if !ok {
		return nil, refuse(15959, "the match filter must be an expression in an object")
	}
	n, err := parseFilter(filter)
	return func(r *aggregation, in []bson.D) ([]bson.D, error) {
		out := []bson.D{}
		for _, d := range in {
			ok, err := n.matches(d, r.at)
			if err != nil {
				return nil, err
			}
			if ok {
				out = append(out, d)
			}
		}
		return out, nil
	}, err
}

func parseSortStep(_ string, value any) (step, error) {
	order, ok := value.(bson.D)
	if !ok {
		return nil, refuse(15973, "the $sort key specification must be an object")
	}
	if len(order) == 0 {
		return nil, refuse(15976, "$sort stage must have at least one sort key")
	}
	var q query
	if err := parseSort(&q, order); err != nil {
		return nil, err
	}
	return func(_ *aggregation, in []bson.D) ([]bson.D, error) {
		w := winners{q: &q, sorted: true}
		for i, d := range in {
			if _, err := w.add(&record{document: d, sequence: uint64(i)}); err != nil {
				return nil, err
			}
		}
		out := make([]bson.D, len(in))
		for i, r := range w.result() {
			out[i] = r.document
		}
		return out, nil
	}, nil
}

func parseLimit(_ string, value any) (step, error) {
	n, ok := wholeNumber(value)
	if !ok {
		return nil, refuse(2107201, "invalid argument to $limit stage: Expected a number in: $limit: %s", format(value))
	}
	if n <= 0 {
		return nil, refuse(15958, "the limit must be positive")
	}
	return func(_ *aggregation, in []bson.D) ([]bson.D, error) { return in[:min(int64(len(in)), n)], nil }, nil
}

func parseSkip(_ string, value any) (step, error) {
	n, ok := wholeNumber(value)
	if !ok || n < 0 {
		return nil, refuse(5107200, "invalid argument to $skip stage: Expected a non-negative number in: $skip: %s", format(value))
	}
	return func(_ *aggregation, in []bson.D) ([]bson.D, error) { return in[min(int64(len(in)), n):], nil }, nil
}

func parseCount(_ string, value any) (step, error) {
	name, ok := value.(string)
	switch {
	case !ok || name == "":
		return nil, refuse(40156, "the count field must be a non-empty string")
	case strings.HasPrefix(name, "$"):
		return nil, refuse(40158, "the count field cannot be a $-prefixed path")
	case strings.Contains(name, "."):
		return nil, refuse(40160, "the count field cannot contain '.'")
	}
	return func(_ *aggregation, in []bson.D) ([]bson.D, error) {
		if len(in) == 0 {
			return []bson.D{}, nil
		}
		return []bson.D{{{Key: name, Value: narrow(int64(len(in)))}}}, nil
	}, nil
}

func parseFacet(_ string, value any) (step, error) {
	d, ok := value.(bson.D)
	if !ok || len(d) == 0 {
		return nil, refuse(40169, "the $facet specification must be a non-empty object")
	}
	facets := make([][]step, len(d))
	for i, field := range d {
		pipeline, err := documentsOf(field.Value, "arguments to $facet must be arrays")
		if err != nil {
			return nil, err
		}
		if facets[i], err = parseSteps(pipeline, false); err != nil {
			return nil, err
		}
	}
	return func(r *aggregation, in []bson.D) ([]bson.D, error) {
		out := make(bson.D, len(d))
		for i := range d {
			found, err := r.run(facets[i], in)
			if err != nil {
				return nil, err
			}
			out[i] = bson.E{Key: d[i].Key, Value: arrayOfDocuments(found)}
		}
		return []bson.D{out}, nil
	}, nil
}

func arrayOfDocuments(documents []bson.D) bson.A {
	a := make(bson.A, len(documents))
	for i, d := range documents {
		a[i] = d
	}
	return a
}

func documentsOf(value any, otherwise string) ([]bson.D, error) {
	a, ok := value.(bson.A)
	if !ok {
		return nil, refuse(40170, "%s, found: %s", otherwise, typeName(value))
	}
	documents := make([]bson.D, len(a))
	for i, e := range a {
		if documents[i], ok = e.(bson.D); !ok {
			return nil, refuse(codeTypeMismatch, "Each element of the 'pipeline' array must be an object")
		}
	}
	return documents, nil
}

func parseDocuments(_ string, value any) (step, error) {
	e, err := parseExpression(value)
	if err != nil {
		return nil, err
	}
	return func(r *aggregation, _ []bson.D) ([]bson.D, error) {
		v, err := e.evaluate(bson.D{}, r.at)
		if err != nil {
			return nil, err
		}
		return documentsOf(v, "$documents must be an array of objects")
	}, nil
}

// parseNothing is for stages about what a server is busy with: the model runs one command at a time, and is never busy.
func parseNothing(string, any) (step, error) {
	return func(*aggregation, []bson.D) ([]bson.D, error) { return []bson.D{}, nil }, nil
}

// parseSessions is for $listLocalSessions, of which the model knows the caller's.
func parseSessions(string, any) (step, error) {
	return func(r *aggregation, _ []bson.D) ([]bson.D, error) {
		if r.session == "" {
			return []bson.D{}, nil
		}
		return []bson.D{{
			{Key: "_id", Value: bson.D{{Key: "id", Value: bson.Binary{Subtype: bson.TypeBinaryUUID, Data: []byte(r.session)}}}},
			{Key: "lastUse", Value: r.at.now},
		}}, nil
	}, nil
}
