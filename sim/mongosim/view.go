package mongosim

import "go.mongodb.org/mongo-driver/v2/bson"

// view is the data as it was at a point of the oplog, for snapshot reads, transactions, and majority reads: copies of
// collections, each made when it is first touched, from which everything later has been taken back.
type view struct {
	server   *Server
	position int // entries of the oplog before this one are seen
	copies   catalog
	// failure is why the view could not be made. Whoever uses the view asks for it afterwards.
	failure error
}

func (s *Server) viewAt(position int) *view { return &view{server: s, position: position} }

// lookup returns the copy of a collection, or nil where there was none.
func (v *view) lookup(database, name string) *collection {
	if c := v.copies.lookup(database, name); c != nil {
		return c
	}
	later := v.server.oplog[v.position:]
	for i := range later {
		e := &later[i]
		if e.Database != database || e.Collection != name && (e.Operation != Rename || e.Detail.Collection != name) {
			continue
		}
		switch e.Operation {
		case Create:
			return nil
		case Insert, Update, Replace, Delete, Noop, DropDatabase:
		default:
			v.failure = refuse(codeSnapshotUnavailable,
				"Unable to read from a snapshot due to pending collection catalog changes to %s.%s; please retry the operation.", database, name)
			return nil
		}
	}
	live := v.server.catalog.lookup(database, name)
	if live == nil {
		return nil
	}
	c := live.clone()
	v.copies.add(c)
	for i := len(later) - 1; i >= 0; i-- {
		if e := &later[i]; e.Database == database && e.Collection == name {
			if err := v.copies.undo(e); err != nil {
				v.failure = err
			}
		}
	}
	return c
}

// ReadAt is the point of time that a snapshot read sees.
type ReadAt struct{ Time bson.Timestamp }

// snapshot returns the view of a read outside of transactions, or nil for the newest data.
func (s *Server) snapshot(caller *Caller) (*view, error) {
	switch {
	case caller.At != nil:
		if s.options.Standalone {
			return nil, refuse(codeIllegalOperation, "node needs to be a replica set member to use readConcern: snapshot")
		}
		if caller.At.Time.After(s.clusterTime) {
			return nil, refuse(codeInvalidOptions, "readConcern atClusterTime value must not be greater than the current clusterTime.")
		}
		position := s.after(caller.At.Time, ^uint32(0))
		if position < s.history {
			return nil, refuse(codeSnapshotTooOld, "Read timestamp %s is older than the oldest available timestamp.", format(caller.At.Time))
		}
		return s.viewAt(position), nil
	case caller.Majority && s.CommittedLen() < len(s.oplog):
		if s.majority == nil || s.majority.position != s.CommittedLen() {
			s.majority = s.viewAt(s.CommittedLen())
		}
		return s.majority, nil
	}
	return nil, nil
}
