package wire

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// Faults that a server has planned before any client connects. They are for trying clients of any language: fail points, which drivers' own tests
// use, are set by a client.

// FaultKind names what goes wrong.
type FaultKind string

const (
	// LoseRequest ends the connection before the command is run.
	LoseRequest FaultKind = "lose-request"
	// LoseReply runs the command and ends the connection without a reply.
	LoseReply FaultKind = "lose-reply"
	// Refuse answers with an error in the place of running the command.
	Refuse FaultKind = "refuse"
	// StepDown makes the primary a secondary, before a command is run or at a time.
	StepDown FaultKind = "stepdown"
	// DropNotifications leaves events out of change streams.
	DropNotifications FaultKind = "drop-notifications"
)

var faultKinds = []FaultKind{LoseRequest, LoseReply, Refuse, StepDown, DropNotifications}

// Fault is one line of a plan. It strikes by occurrence, or by time if For (or, for StepDown, After) is given.
type Fault struct {
	Kind FaultKind
	// Command is the name of the commands that are struck, as the wire protocol has them; AnyCommand is every one but those by which drivers
	// watch a server and clean up. It is empty for DropNotifications, and for a StepDown at a time.
	Command string
	// Collection narrows it down; empty means any.
	Collection string
	// Occurrence is the how-manieth such command (or notification), from 1, and Count how many in a row: All means every one from there on.
	Occurrence, Count int
	// After is when it begins, from the start of the server, and For how long it lasts. For a StepDown, For is how long a set of one has no primary.
	After, For time.Duration
	// Code is the error of Refuse.
	Code int32
}

const (
	// AnyCommand as Fault.Command.
	AnyCommand = "any"
	// All as Fault.Count.
	All = -1
)

// ErrFault is wrapped by errors about a fault that cannot be.
var ErrFault = errors.New("wire: invalid fault")

// ParseFaults reads a plan: one fault a line, its kind and fields like command=insert. Empty lines and lines that begin with # are passed over.
// Errors name the line, the field, its value and what is allowed.
func ParseFaults(text string) (plan []Fault, err error) {
	for number, line := range strings.Split(text, "\n") {
		words := strings.Fields(line)
		if len(words) == 0 || strings.HasPrefix(words[0], "#") {
			continue
		}
		fault, err := parseFault(words)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", number+1, err)
		}
		plan = append(plan, fault)
	}
	return plan, nil
}

func parseFault(words []string) (Fault, error) {
	f := Fault{Kind: FaultKind(words[0]), Occurrence: 1, Count: 1}
	switch f.Kind {
	case Refuse:
		f.Code = codeUnauthorized
	case StepDown:
		f.For = 5 * time.Second
	}
	var given []string
	for _, word := range words[1:] {
		key, value, _ := strings.Cut(word, "=")
		if err := f.set(key, value); err != nil {
			return f, fmt.Errorf("%w: field %q: %w", ErrFault, word, err)
		}
		given = append(given, key)
	}
	return f, f.validate(given)
}

func (f *Fault) set(key, value string) (err error) {
	switch key {
	case "command":
		f.Command = value
	case "collection":
		f.Collection = value
	case "occurrence":
		f.Occurrence, err = strconv.Atoi(value)
	case "count":
		if f.Count = All; value != "all" {
			f.Count, err = strconv.Atoi(value)
		}
	case "after":
		f.After, err = time.ParseDuration(value)
	case "for":
		f.For, err = time.ParseDuration(value)
	case "code":
		var code int64
		code, err = strconv.ParseInt(value, 10, 32)
		f.Code = int32(code)
	default:
		err = errors.New("allowed: command, collection, occurrence, count, after, for, code")
	}
	return err
}

// validate checks what was given: the rest has its default.
func (f *Fault) validate(given []string) error {
	has := func(key string) bool { return slices.Contains(given, key) }
	problem := ""
	_, known := commands[f.Command]
	switch timed := has("after") || has("for"); {
	case !slices.Contains(faultKinds, f.Kind):
		problem = fmt.Sprintf("allowed: %v", faultKinds)
	case f.Kind == DropNotifications && (has("command") || timed):
		problem = "command, after and for do not go with it; allowed: collection, occurrence, count"
	case f.Kind == StepDown && has("after") == has("command"):
		problem = "it needs either command or after"
	case f.Kind != DropNotifications && f.Kind != StepDown && f.Command == "", f.Command != "" && f.Command != AnyCommand && !known:
		problem = fmt.Sprintf("command %q; allowed: any, or the name of a command, like insert", f.Command)
	case timed && (has("occurrence") || has("count")) && f.Kind != StepDown:
		problem = "occurrence and count do not go with after and for"
	case timed && f.Kind != StepDown && f.For <= 0, f.For < 0:
		problem = fmt.Sprintf("for %v; allowed: more than 0", f.For)
	case f.After < 0:
		problem = fmt.Sprintf("after %v; allowed: 0 and more", f.After)
	case f.Occurrence < 1:
		problem = fmt.Sprintf("occurrence %d; allowed: 1 and more", f.Occurrence)
	case f.Count != All && f.Count < 1:
		problem = fmt.Sprintf("count %d; allowed: all, or 1 and more", f.Count)
	case has("code") && (f.Kind != Refuse || f.Code < 1):
		problem = fmt.Sprintf("code %d; allowed: 1 and more, with refuse", f.Code)
	}
	if problem != "" {
		return fmt.Errorf("%w: %s: %s", ErrFault, f.Kind, problem)
	}
	return nil
}

// plannedFault is a fault with how often its place was come to.
type plannedFault struct {
	Fault
	seen int
}

// plan takes the faults over, and sets the clock for those that wait for a time. The caller holds the lock.
func (s *Server) plan(faults []Fault) {
	s.began = s.now()
	for _, f := range faults {
		if f.Kind == StepDown && f.Command == "" {
			s.later(f.After, func() { s.depose(f, "") })
			continue
		}
		s.faults = append(s.faults, &plannedFault{Fault: f})
	}
}

// depose makes the primary step down, if there is one. The caller holds the lock.
func (s *Server) depose(f Fault, command string) {
	set := s.nodes[0].model.Set()
	if set == nil || set.Primary() == nil {
		return
	}
	s.struck(f, command)
	s.stepDown(set.Primary().Member(), f.For)
}

// due counts that the fault's place was come to, and tells whether it strikes now.
func (f *plannedFault) due(elapsed time.Duration) bool {
	f.seen++
	if f.For > 0 && f.Kind != StepDown {
		return elapsed >= f.After && elapsed < f.After+f.For
	}
	return f.seen >= f.Occurrence && (f.Count == All || f.seen < f.Occurrence+f.Count)
}

// watching are the commands by which drivers watch a server, and clean up.
var watching = []string{"hello", "isMaster", "ismaster", "ping", "endSessions", "killCursors", "buildInfo", "buildinfo"}

// planned returns the fault that strikes the command, or nil. A primary that is to step down has done so.
func (r *request) planned() (strikes *Fault) {
	r.mu.Lock()
	defer r.mu.Unlock()
	collection, _ := r.value(r.name).(string)
	if r.name == "getMore" {
		collection, _ = r.value("collection").(string)
	}
	for _, f := range r.faults {
		matches := f.Command == r.name || f.Command == AnyCommand && !slices.Contains(watching, r.name)
		if f.Kind == DropNotifications || !matches || f.Collection != "" && f.Collection != collection || !f.due(r.now().Sub(r.began)) {
			continue
		}
		if f.Kind == StepDown {
			r.depose(f.Fault, r.name)
		} else if strikes == nil {
			r.struck(f.Fault, r.name)
			strikes = &f.Fault
		}
	}
	return strikes
}

// inflict answers a command that a fault strikes.
func (r *request) inflict(f Fault) (bson.D, error) {
	switch f.Kind {
	case LoseReply:
		reply, err := r.run()
		r.complete(reply, err, nil) // waits for replication as the write concern wants it
		return nil, ErrHangUp
	case Refuse:
		r.exhaust = false
		return r.complete(nil, refuse(f.Code, "%s is refused by a planned fault", r.name), nil), nil
	}
	return nil, ErrHangUp
}

// thinned is a change stream of which planned faults drop events.
type thinned struct {
	Events
	server *Server
}

func (t *thinned) NextEvent() (bson.D, error) {
	for {
		event, err := t.Events.NextEvent()
		if event == nil || err != nil || !t.server.drops(event) {
			return event, err
		}
	}
}

// drops tells whether a fault drops the event. The caller holds the lock.
func (s *Server) drops(event bson.D) (dropped bool) {
	namespace, _ := find(event, "ns")
	d, _ := namespace.(bson.D)
	collection, _ := find(d, "coll")
	for _, f := range s.faults {
		if f.Kind == DropNotifications && (f.Collection == "" || f.Collection == collection) && f.due(0) && !dropped {
			s.struck(f.Fault, "")
			dropped = true
		}
	}
	return dropped
}
