package crashes

import (
	"context"
	"fmt"
	"time"

	"github.com/fencepost-sim/fencepost/engine/idempotency"
	"github.com/fencepost-sim/fencepost/engine/idempotency/record"
	"github.com/fencepost-sim/fencepost/engine/idempotency/redisport"
)

// execution is one run of the handler.
type execution struct {
	number    int
	token     string
	process   *process
	returned  bool
	effected  bool
	completed bool // its COMPLETE was applied
}

// watcher checks the invariants while the world runs.
//
//	U1   nobody but the owner writes a claim's record
//	U2   a replay is the result of one completed execution
//	U4   no client waits for ever
//	U5   a claim is released only after its handler has returned
//	U6   no handler runs without a confirmed claim
//	C-I   no two handlers run at once (unless a process was paused beyond its lease, or data was lost)
//	C-II  whoever saw a success that is stored has it replayed (unless data was lost, or a pause excused C-I)
//	C-III one effect at the most (unless C-I was excused, or a process died between effect and COMPLETE)
//
// U3, that replays do not cross scopes, is about keys: see the tests of package httpidem.
type watcher struct {
	world      *world
	executions []*execution
	claimed    map[string]bool // tokens whose claim was applied
	answers    []int           // of clients
	seen       bool            // a client has seen a stored success
	effects    int

	paused, lostData, crashedBehindEffect bool
	violations                            []string
}

func (w *watcher) fail(format string, values ...any) { w.world.violate(format, values...) }

// begin is the start of a handler.
func (w *watcher) begin(ctx context.Context, p *process) *execution {
	claim, held := idempotency.ClaimFromContext(ctx)
	x := &execution{number: len(w.executions) + 1, token: claim.Token.String(), process: p}
	if !held || !w.claimed[x.token] {
		w.fail("U6: execution %d has no confirmed claim", x.number)
	}
	for _, other := range w.executions {
		if !other.returned && !other.process.dead && !w.paused && !w.lostData {
			w.fail("C-I: execution %d begins while %d runs", x.number, other.number)
		}
	}
	if w.seen && !w.paused && !w.lostData {
		w.fail("C-II: execution %d begins after a client has seen a success", x.number)
	}
	w.executions = append(w.executions, x)
	return x
}

func (w *watcher) effect(x *execution) {
	x.effected = true
	w.effects++
	if w.effects > 1 && !w.paused && !w.lostData && !w.crashedBehindEffect {
		w.fail("C-III: execution %d makes effect number %d", x.number, w.effects)
	}
	if w.world.config.Mutant == ReplyBeforeComplete {
		w.seen = true
	}
}

func (w *watcher) end(x *execution) { x.returned = true }

// answered is a client that got a success.
func (w *watcher) answered(client, answer int, outcome idempotency.Outcome) {
	w.answers = append(w.answers, client)
	if outcome.Replayed && (answer < 1 || answer > len(w.executions) || !w.executions[answer-1].completed) {
		w.fail("U2: client %d got a replay of %d, which was not completed", client, answer)
	}
	w.seen = w.seen || outcome.Stored
}

func (w *watcher) crashed(p *process) {
	for _, x := range w.executions {
		if x.process == p && x.effected && !x.completed {
			w.crashedBehindEffect = true
		}
	}
}

// applied is a script that the server has run.
func (w *watcher) applied(call redisport.Call, before, after record.Record, reply redisport.Reply) {
	changed := fmt.Sprint(before) != fmt.Sprint(after)
	token := ""
	if len(call.Args) > 0 {
		token = call.Args[0]
	}
	switch call.Script {
	case redisport.Claim:
		if len(reply) > 0 && (reply[0] == "claimed" || reply[0] == "takeover") {
			if w.claimed == nil {
				w.claimed = map[string]bool{}
			}
			w.claimed[token] = true
		}
	case redisport.Extend, redisport.Complete, redisport.Release:
		w.ownerStep(call.Script, token, before, changed)
	case redisport.Sweep:
		if lapsed := before.LeaseUntil <= start.Add(w.world.now).UnixMilli(); changed && (before.State != record.Claimed || !lapsed) {
			w.fail("U1: the sweeper released a record in state %c with %v of its lease left", before.State,
				time.Duration(before.LeaseUntil-start.Add(w.world.now).UnixMilli())*time.Millisecond)
		}
	}
}

func (w *watcher) ownerStep(script *redisport.Script, token string, before record.Record, changed bool) {
	if changed && before.Token.String() != token {
		w.fail("U1: %s by %.8s changed a record of %.8s", script.Name, token, before.Token)
	}
	for _, x := range w.executions {
		switch {
		case x.token != token || !changed:
		case script == redisport.Release && !x.returned:
			w.fail("U5: execution %d was released while it runs", x.number)
		case script == redisport.Complete:
			x.completed = true
		}
	}
}

// summary is what the watcher remembers, for the digest of a state.
func (w *watcher) summary() string {
	text := fmt.Sprint(w.answers, w.seen, w.effects, w.paused, w.lostData, w.crashedBehindEffect, len(w.claimed))
	for _, x := range w.executions {
		text += fmt.Sprint(" ", x.number, x.token, x.process.dead, x.returned, x.effected, x.completed)
	}
	return text
}
