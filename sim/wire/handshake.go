package wire

import (
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/fencepost-sim/fencepost/engine/store"
)

// What clients ask of a server before, and beside, their work with data.

// serverVersion is the version that the model is of.
const serverVersion = "8.0.4"

func (r *request) buildInfo() (bson.D, error) {
	return bson.D{
		{Key: "version", Value: serverVersion},
		{Key: "versionArray", Value: bson.A{int32(8), int32(0), int32(4), int32(0)}},
		{Key: "gitVersion", Value: "none: this is sim/wire, a model"},
		{Key: "modules", Value: bson.A{}},
		{Key: "bits", Value: int32(64)},
		{Key: "debug", Value: false},
		{Key: "maxBsonObjectSize", Value: int32(maxDocumentSize)},
		{Key: "storageEngines", Value: bson.A{"mongosim"}},
	}, nil
}

// hello is the model's own hello with what a connection adds. A client that names the topology version that it knows gets its answer when
// there is another, or after the time that it is willing to wait. Source: the drivers' specification "Server Discovery and Monitoring",
// "Streaming protocol".
func (r *request) hello() (bson.D, error) {
	if client := r.embedded("client"); client != nil {
		application, _ := find(client, "application")
		if d, ok := application.(bson.D); ok {
			name, _ := find(d, "name")
			r.connection.appName, _ = name.(string)
		}
	}
	wait := time.Duration(r.notNegative("maxAwaitTimeMS")) * time.Millisecond
	known := r.embedded("topologyVersion")
	if r.err != nil {
		return nil, r.err
	}
	if known == nil {
		r.exhaust = false
	} else if err := r.awaitTopology(known, wait); err != nil {
		return nil, err
	}
	hello := r.describe()
	if r.exhaust { // the next reply of the stream is about what this one says
		version, _ := find(hello, "topologyVersion")
		r.document = replaced(r.document, "topologyVersion", version)
	}
	return hello, nil
}

func replaced(d bson.D, key string, value any) bson.D {
	d = slices.Clone(d)
	for i := range d {
		if d[i].Key == key {
			d[i].Value = value
		}
	}
	return d
}

// awaitTopology waits for another topology version.
func (r *request) awaitTopology(known bson.D, wait time.Duration) error {
	until := r.clock().Add(wait)
	for {
		r.mu.Lock()
		current, changed := r.version(), r.changed
		r.mu.Unlock()
		if !sameVersion(known, current) {
			return nil
		}
		if timedOut, err := r.await(changed, max(0, until.Sub(r.clock())), nil); timedOut || err != nil {
			return err
		}
	}
}

func (r *request) topologyVersion() bson.D {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.version()
}

// version changes whenever clients should look at the server anew. The caller holds the lock.
func (r *request) version() bson.D {
	return bson.D{{Key: "processId", Value: r.process}, {Key: "counter", Value: r.model.StateChanges()}}
}

func sameVersion(a, b bson.D) bool {
	processA, _ := find(a, "processId")
	processB, _ := find(b, "processId")
	known, current := arguments{document: a}, arguments{document: b}
	return processA == processB && known.number64("counter") >= current.number64("counter")
}

// describe makes the hello document.
func (r *request) describe() bson.D {
	r.mu.Lock()
	defer r.mu.Unlock()
	reply, err := r.model.Run(r.now(), "admin", store.Command{Kind: store.Hello})
	if err != nil {
		return nil
	}
	own := bson.D{{Key: "helloOk", Value: true}, {Key: "connectionId", Value: r.connection.id}}
	primary, _ := find(reply.Document, "isWritablePrimary")
	if r.name != "hello" {
		own = append(own, bson.E{Key: "ismaster", Value: primary})
	}
	if has(reply.Document, "setName") {
		me := r.connection.address
		hosts := bson.A{me} // a set of one, under the name by which the client knows it
		leader := me
		if len(r.nodes) > 1 {
			hosts, leader = r.hosts()
		}
		own = append(own, bson.E{Key: "hosts", Value: hosts}, bson.E{Key: "me", Value: me})
		if r.connection.streaming {
			own = append(own, bson.E{Key: "topologyVersion", Value: r.version()})
		}
		if primary == true {
			leader = me
		}
		if leader != "" && (primary == true || len(r.nodes) > 1) {
			own = append(own, bson.E{Key: "primary", Value: leader})
		}
	}
	known := append(slices.Clone(own), bson.D{{Key: "hosts"}, {Key: "me"}, {Key: "primary"}, {Key: "ok"}}...)
	hello := slices.DeleteFunc(slices.Clone(reply.Document), func(e bson.E) bool { return has(known, e.Key) })
	return append(hello, own...)
}

// hosts are the addresses of all members, and of the primary.
func (r *request) hosts() (all bson.A, leader string) {
	set := r.nodes[0].model.Set()
	for _, n := range r.nodes {
		if n.address != "" {
			all = append(all, n.address)
		}
		if n.model == set.Primary() {
			leader = n.address
		}
	}
	return all, leader
}

func (r *request) connectionStatus() (bson.D, error) {
	return bson.D{{Key: "authInfo", Value: bson.D{
		{Key: "authenticatedUsers", Value: bson.A{}}, {Key: "authenticatedUserRoles", Value: bson.A{}},
	}}}, nil
}

func (r *request) whatsMyURI() (bson.D, error) {
	return bson.D{{Key: "you", Value: r.connection.remote()}}, nil
}

func (r *request) serverStatus() (bson.D, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return bson.D{
		{Key: "host", Value: r.connection.address}, {Key: "version", Value: serverVersion}, {Key: "process", Value: "mongod"},
		{Key: "connections", Value: bson.D{
			{Key: "current", Value: int32(len(r.open))}, {Key: "available", Value: int32(1 << 15)}, {Key: "totalCreated", Value: r.lastID.Load()},
		}},
		{Key: "storageEngine", Value: bson.D{{Key: "name", Value: "mongosim"}}},
		{Key: "localTime", Value: bson.NewDateTimeFromTime(r.now())},
	}, nil
}

// parameters are the server parameters that there are, with what they say.
var parameters = bson.D{
	{Key: "authenticationMechanisms", Value: bson.A{}},
	{Key: "enableTestCommands", Value: true},
	{Key: "featureCompatibilityVersion", Value: bson.D{{Key: "version", Value: "8.0"}}},
	{Key: "requireApiVersion", Value: false},
	{Key: "transactionLifetimeLimitSeconds", Value: int32(60)},
	{Key: "ttlMonitorEnabled", Value: true},
	{Key: "ttlMonitorSleepSecs", Value: int32(60)},
}

var parameterNames = func() []string {
	names := []string{"allParameters"}
	for _, p := range parameters {
		names = append(names, p.Key)
	}
	return names
}()

func (r *request) getParameter() (bson.D, error) {
	if r.value(r.name) == "*" {
		return slices.Clone(parameters), nil
	}
	var reply bson.D
	for _, p := range parameters {
		if has(r.document, p.Key) {
			reply = append(reply, p)
		}
	}
	if len(reply) == 0 {
		return nil, refuse(codeInvalidOptions, "no option found to get")
	}
	return reply, nil
}

func (r *request) getCommandLine() (bson.D, error) {
	return bson.D{{Key: "argv", Value: bson.A{"simrun", "serve"}}, {Key: "parsed", Value: bson.D{}}}, nil
}

func (r *request) currentOp() (bson.D, error) { return bson.D{{Key: "inprog", Value: bson.A{}}}, nil }

func (r *request) killOp() (bson.D, error) {
	return bson.D{{Key: "info", Value: "attempting to kill op"}}, nil
}

func (r *request) replicaSetStatus() (bson.D, error) {
	if r.model.Standalone() {
		return nil, refuse(76, "not running with --replSet")
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	members := bson.A{}
	for i, n := range r.nodes {
		state, text := int32(2), "SECONDARY"
		if n.model.IsPrimary() {
			state, text = 1, "PRIMARY"
		}
		members = append(members, bson.D{
			{Key: "_id", Value: int32(i)}, {Key: "name", Value: n.address}, {Key: "health", Value: 1.0}, {Key: "state", Value: state},
			{Key: "stateStr", Value: text}, {Key: "self", Value: n == r.connection.node},
		})
	}
	return bson.D{{Key: "set", Value: r.model.SetName()}, {Key: "date", Value: bson.NewDateTimeFromTime(r.now())}, {Key: "members", Value: members}}, nil
}

// replicaSetStepDown makes the primary a secondary for so many seconds. In a set of one it is then elected again, since there is nobody
// else. Source: manual, "replSetStepDown".
func (r *request) replicaSetStepDown() (bson.D, error) {
	seconds := r.notNegative(r.name)
	if r.err != nil {
		return nil, r.err
	}
	if r.connection.around != nil {
		return nil, notImplemented("replSetStepDown in a simulated world")
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.model.Standalone():
		return nil, refuse(76, "not running with --replSet")
	case !r.model.IsPrimary():
		return nil, refuse(10107, "not primary so can't step down")
	case len(r.nodes) == 1 && !r.flag("force"):
		return nil, refuse(262, "No electable secondaries caught up as of %s. Please use the replSetStepDown command with the argument {force: true} "+
			"to force node to step down.", r.now().Format(time.RFC3339))
	}
	r.stepDown(r.model.Member(), time.Duration(seconds)*time.Second)
	return bson.D{}, nil
}

// stepDown makes the member, which is the primary, a secondary, and has another elected. In a set of one the member is elected again when the time is
// over. The caller holds the lock.
func (s *Server) stepDown(member int, span time.Duration) {
	set := s.nodes[0].model.Set()
	set.StepDown(s.now(), member)
	for i := range s.nodes {
		if i != member && set.Elect(s.now(), i) == nil {
			s.spread()
			return
		}
	}
	s.wake()
	s.later(span, func() {
		if set.Primary() == nil {
			_ = set.Elect(s.now(), member) // somebody cut it off meanwhile: then there is no primary
		}
	})
}

// checkVersionedAPI refuses versions of the stable API that there are not. Source: manual, "Stable API".
func (r *request) checkVersionedAPI() error {
	version, given := find(r.document, "apiVersion")
	switch {
	case !given && (has(r.document, "apiStrict") || has(r.document, "apiDeprecationErrors")):
		return refuse(322, "Provided apiStrict and/or apiDeprecationErrors without passing apiVersion")
	case given && version != "1":
		return refuse(322, "API version must be \"1\"")
	}
	return nil
}
