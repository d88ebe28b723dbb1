package mongosim

import (
	"go.mongodb.org/mongo-driver/v2/bson"
)

// Limits and versions that a server announces. Source: MongoDB manual, "hello"; wire version 25 is MongoDB 8.0's
// (src/mongo/db/wire_version.h).
const (
	maxWireVersion      = 25
	maxMessageSizeBytes = 48000000
	maxWriteBatchSize   = 100000
)

const (
	replicaSetName = "rs0"
	address        = "127.0.0.1:27017"
)

// hello describes the server. It has no topologyVersion, since the model does not answer awaitable hellos.
func (s *Server) hello() bson.D {
	d := bson.D{{Key: "isWritablePrimary", Value: s.role == primary}}
	if !s.options.Standalone {
		last := bson.D{{Key: "ts", Value: s.clusterTime}, {Key: "t", Value: s.term}}
		date := bson.DateTime(int64(s.clusterTime.T) * 1000)
		d = append(d,
			bson.E{Key: "setName", Value: s.set.name},
			bson.E{Key: "setVersion", Value: int32(1)},
			bson.E{Key: "secondary", Value: s.role == secondary},
			bson.E{Key: "hosts", Value: bson.A{address}},
			bson.E{Key: "primary", Value: address},
			bson.E{Key: "me", Value: address},
			bson.E{Key: "lastWrite", Value: bson.D{
				{Key: "opTime", Value: last}, {Key: "lastWriteDate", Value: date},
				{Key: "majorityOpTime", Value: last}, {Key: "majorityWriteDate", Value: date},
			}},
		)
	}
	return append(d,
		bson.E{Key: "maxBsonObjectSize", Value: int32(maxDocumentSize)},
		bson.E{Key: "maxMessageSizeBytes", Value: int32(maxMessageSizeBytes)},
		bson.E{Key: "maxWriteBatchSize", Value: int32(maxWriteBatchSize)},
		bson.E{Key: "localTime", Value: bson.NewDateTimeFromTime(s.now)},
		bson.E{Key: "logicalSessionTimeoutMinutes", Value: int32(30)},
		bson.E{Key: "connectionId", Value: int32(1)},
		bson.E{Key: "minWireVersion", Value: int32(0)},
		bson.E{Key: "maxWireVersion", Value: int32(maxWireVersion)},
		bson.E{Key: "readOnly", Value: false},
		bson.E{Key: "ok", Value: float64(1)},
	)
}
