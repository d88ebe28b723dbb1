package mongodriver

// This file is all that depends on the driver's x/ packages, which are outside of its compatibility promise.

import (
	"context"
	"encoding/binary"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/address"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/description"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/mnet"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/xoptions"
)

const serverAddress = address.Address("model:27017")

// deployment is the one server of a world, as the driver of one client sees it. There is no monitoring: nothing runs beside the
// commands.
type deployment struct {
	client      *client
	description description.Server
	kind        description.TopologyKind
	updates     chan description.Topology
}

var (
	_ driver.Deployment = (*deployment)(nil)
	_ driver.Server     = (*deployment)(nil)
	_ driver.Subscriber = (*deployment)(nil)
)

// newDeployment describes the server to the driver as its own hello does.
func newDeployment(c *client, hello bson.D) *deployment {
	d := &deployment{client: c, kind: description.TopologyKindSingle}
	number := func(key string) int64 { n, _ := asInt64(field(hello, key)); return n }
	d.description = description.Server{
		Addr: serverAddress, CanonicalAddr: serverAddress, HelloOK: true,
		MaxBatchCount:   uint32(number("maxWriteBatchSize")),
		MaxDocumentSize: uint32(number("maxBsonObjectSize")),
		MaxMessageSize:  uint32(number("maxMessageSizeBytes")),
		Kind:            description.ServerKindStandalone,
		WireVersion:     &description.VersionRange{Min: int32(number("minWireVersion")), Max: int32(number("maxWireVersion"))},
	}
	if minutes := number("logicalSessionTimeoutMinutes"); minutes > 0 {
		d.description.SessionTimeoutMinutes = &minutes
	}
	if name, ok := field(hello, "setName").(string); ok {
		d.description.SetName, d.description.Kind = name, description.ServerKindRSPrimary
		d.kind = description.TopologyKindReplicaSetWithPrimary
	}
	d.updates = make(chan description.Topology, 1)
	d.updates <- description.Topology{Kind: d.kind, SetName: d.description.SetName, SessionTimeoutMinutes: d.description.SessionTimeoutMinutes}
	return d
}

// install makes the client of the options talk to the deployment.
func (d *deployment) install(o *options.ClientOptions) error {
	return xoptions.SetInternalClientOptions(o, "deployment", d)
}

func (d *deployment) SelectServer(context.Context, description.ServerSelector) (driver.Server, error) {
	return d, nil
}

func (d *deployment) Kind() description.TopologyKind { return d.kind }

// GetServerSelectionTimeout is zero, for none: it would be taken by the machine's clock.
func (d *deployment) GetServerSelectionTimeout() time.Duration { return 0 }

// Subscribe tells the driver how long sessions last.
func (d *deployment) Subscribe() (*driver.Subscription, error) {
	return &driver.Subscription{Updates: d.updates}, nil
}

func (d *deployment) Unsubscribe(*driver.Subscription) error { return nil }

func (d *deployment) Connection(context.Context) (*mnet.Connection, error) {
	return mnet.NewConnection(&connection{deployment: d}), nil
}

func (d *deployment) RTTMonitor() driver.RTTMonitor { return noMonitor{} }

// noMonitor says that round trips take no time.
type noMonitor struct{}

func (noMonitor) EWMA() time.Duration { return 0 }
func (noMonitor) Min() time.Duration  { return 0 }
func (noMonitor) Stats() string       { return "" }

// connection carries one command at a time. The exchange takes place when the driver wants to read the reply.
type connection struct {
	deployment *deployment
	request    []byte
}

var (
	_ mnet.ReadWriteCloser = (*connection)(nil)
	_ mnet.Describer       = (*connection)(nil)
)

// The layout of an OP_MSG. Source: MongoDB's manual, "MongoDB Wire Protocol".
const (
	headerSize     = 16
	flagMoreToCome = 1 << 1
	bodyAt         = headerSize + 4 + 1 // after the flags and the kind of the first section, which is the body
)

// Write takes a request. The driver uses its memory again, and the server may look at it after the process has died: it is copied.
func (c *connection) Write(ctx context.Context, request []byte) error {
	c.request = slices.Clone(request)
	if len(request) > bodyAt && binary.LittleEndian.Uint32(request[headerSize:])&flagMoreToCome != 0 {
		_, err := c.Read(ctx)
		return err
	}
	return nil
}

func (c *connection) Read(ctx context.Context) ([]byte, error) {
	request := c.request
	c.request = nil
	return c.deployment.client.exchange(ctx, request)
}

func (c *connection) Close() error                    { return nil }
func (c *connection) Description() description.Server { return c.deployment.description }
func (c *connection) ID() string                      { return "simulated" }
func (c *connection) ServerConnectionID() *int64      { return nil }
func (c *connection) DriverConnectionID() int64       { return 0 }
func (c *connection) Address() address.Address        { return serverAddress }
func (c *connection) Stale() bool                     { return false }
func (c *connection) OIDCTokenGenID() uint64          { return 0 }
func (c *connection) SetOIDCTokenGenID(uint64)        {}
