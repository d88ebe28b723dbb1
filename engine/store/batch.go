package store

import (
	"errors"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// Parts returns the commands that a server applies one after the other when it gets this one, each as atomic as the next, with other
// clients' commands between them: one for each document to insert, or for each statement. A command without either has no parts.
func (c Command) Parts() []Command {
	whole := c
	whole.Documents, whole.Statements = nil, nil
	var parts []Command
	for _, document := range c.Documents {
		part := whole
		part.Documents = []bson.D{document}
		parts = append(parts, part)
	}
	for _, s := range c.Statements {
		part := whole
		part.Filter, part.Update, part.Pipeline, part.Upsert, part.Multi = s.Filter, s.Update, s.Pipeline, s.Upsert, s.Multi
		parts = append(parts, part)
	}
	return parts
}

// Gather runs the parts of a command and makes one reply of theirs, and one error of theirs, as a server does. It stops at the first
// part that fails, unless the command is unordered, and at any error that is not an *Error. A command without parts is run as it is.
func (c Command) Gather(run func(part Command) (Reply, error)) (Reply, error) {
	if len(c.Documents) == 0 && len(c.Statements) == 0 {
		return run(c)
	}
	var sum Reply
	if len(c.Statements) > 0 {
		sum.Upserts = make([]any, len(c.Statements))
	}
	var failures []*Error
	for i, part := range c.Parts() {
		reply, err := run(part)
		sum.Inserted += reply.Inserted
		sum.Matched += reply.Matched
		sum.Modified += reply.Modified
		if sum.Upserts != nil {
			sum.Upserts[i] = reply.Upserted
		}
		var failure *Error
		switch {
		case err == nil:
			continue
		case !errors.As(err, &failure):
			return sum, err
		}
		failure.Index = i
		failures = append(failures, failure)
		if !c.Unordered {
			break
		}
	}
	if len(failures) == 0 {
		return sum, nil
	}
	return sum, Join(failures)
}

// Join makes one error of those of a command's parts, of which there is at least one: the first leads.
func Join(failures []*Error) *Error {
	leading := failures[0]
	leading.Others = failures[1:]
	return leading
}
