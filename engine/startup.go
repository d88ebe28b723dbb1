package engine

import (
	"context"
	"fmt"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/fencepost-sim/fencepost/engine/store"
	"github.com/fencepost-sim/fencepost/internal/document"
)

// prepare makes the database ready: crash windows of startup leave nothing that the next start does not
// complete, since every step first looks at what is there.
func (e *Engine) prepare(ctx context.Context) error {
	if err := e.createCollections(ctx); err != nil {
		return err
	}
	for _, collection := range e.indexes() {
		if err := e.prepareIndexes(ctx, collection.name, collection.indexes); err != nil {
			return err
		}
	}
	return e.checkChangeStreams(ctx)
}

func (e *Engine) createCollections(ctx context.Context) error {
	reply, err := e.run(ctx, store.Command{Point: PointListCollections, Kind: store.ListCollections})
	if err != nil {
		return err
	}
	for _, collection := range e.indexes() {
		exists := slices.ContainsFunc(reply.Documents, func(d bson.D) bool {
			return document.Text(d, "name") == collection.name
		})
		if exists {
			continue
		}
		create := store.Command{Point: PointCreateColl, Kind: store.CreateCollection, Collection: collection.name}
		if _, err := e.run(ctx, create); err != nil && !store.HasCode(err, store.CodeNamespaceExists) {
			return err
		}
	}
	return nil
}

func (e *Engine) prepareIndexes(ctx context.Context, collection string, wanted []store.Index) error {
	existing, err := e.listIndexes(ctx, collection)
	if err != nil {
		return err
	}
	missing, err := checkIndexes(collection, wanted, existing)
	if err != nil || len(missing) == 0 {
		return err
	}
	create := store.Command{Point: PointCreateIndexes, Kind: store.CreateIndexes, Collection: collection, Indexes: missing}
	_, cause := e.run(ctx, create)
	// Another replica may have built them meanwhile: what counts is what is there now.
	if existing, err = e.listIndexes(ctx, collection); err != nil {
		return err
	}
	missing, err = checkIndexes(collection, wanted, existing)
	if err != nil {
		return err
	}
	if len(missing) > 0 {
		return &IndexError{Collection: collection, Index: indexNames(missing), Expected: describeIndexes(missing), Actual: "no such index", Cause: cause}
	}
	return nil
}

func (e *Engine) listIndexes(ctx context.Context, collection string) ([]bson.D, error) {
	reply, err := e.run(ctx, store.Command{Point: PointListIndexes, Kind: store.ListIndexes, Collection: collection})
	if store.HasCode(err, store.CodeNamespaceNotFound) {
		return nil, nil
	}
	return reply.Documents, err
}

func (e *Engine) checkChangeStreams(ctx context.Context) error {
	if e.options.ChangeStreams == ChangeStreamsDisabled {
		return nil
	}
	reply, err := e.run(ctx, store.Command{Point: PointHello, Kind: store.Hello})
	if err != nil {
		return err
	}
	e.streamsOkay = document.Text(reply.Document, "setName") != "" || document.Text(reply.Document, "msg") == "isdbgrid"
	if !e.streamsOkay && e.options.ChangeStreams == ChangeStreamsRequired {
		return fmt.Errorf("this server is a standalone: %w", &ConfigurationError{"Options.ChangeStreams", e.options.ChangeStreams,
			`"auto" or "disabled" on a standalone; "required" needs a replica set or a sharded cluster`})
	}
	return nil
}
