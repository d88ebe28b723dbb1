// Package mongostore is the Store of production: a thin adapter on MongoDB's official Go driver.
//
// It adds three things to the driver, and nothing else:
//
//   - The concerns are pinned. Every read goes to the primary with read concern majority, and every write waits for the
//     journals of a majority, whatever the connection string says. The protocol's leases and fencing tokens
//     mean nothing if a claim can be rolled back or an old value read after a new one.
//   - The protocol step travels as the command's comment. The driver has no comment for
//     listCollections and listIndexes, which run at startup only.
//   - Errors become those of the port; see translate for which ones leave the outcome open.
//
// Single-document writes and reads go through the driver's typed methods, since those are the ones that the driver
// retries once, with a transaction number that lets the server recognise the second sending of a write. Its
// RunCommand is never retried; it serves for what is not retryable in the first place.
//
// The client's own settings for retrying stay as they are: with retryWrites=false in the connection
// string, a lost reply is an unknown outcome at once.
package mongostore

import (
	"context"
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/fencepost-sim/fencepost/engine/store"
)

// Store runs commands on one database. It is safe for concurrent use. It owns nothing: the client belongs to the
// caller, who disconnects it.
type Store struct {
	database *mongo.Database
	pinned   *options.CollectionOptionsBuilder
}

var _ store.Store = (*Store)(nil)

// New returns a Store on the database. It does not connect.
func New(database *mongo.Database) *Store {
	majority := writeconcern.Majority()
	journal := true
	majority.Journal = &journal
	return &Store{
		database: database,
		pinned: options.Collection().
			SetReadPreference(readpref.Primary()).
			SetReadConcern(readconcern.Majority()).
			SetWriteConcern(majority).
			// Filters and updates mean the same whatever encoding the client was configured with.
			SetBSONOptions(&options.BSONOptions{}).
			SetRegistry(bson.NewRegistry()),
	}
}

// pinnedWriteConcern is what RunCommand does not take from a collection.
var pinnedWriteConcern = bson.E{Key: "writeConcern", Value: bson.D{{Key: "w", Value: "majority"}, {Key: "j", Value: true}}}

// operations says how each kind of command is run.
var operations = map[store.Kind]func(*Store, context.Context, store.Command) (store.Reply, error){
	store.Find:             (*Store).find,
	store.Insert:           (*Store).insert,
	store.Update:           (*Store).update,
	store.FindAndModify:    (*Store).findAndModify,
	store.Delete:           (*Store).delete,
	store.CreateCollection: (*Store).createCollection,
	store.ListCollections:  (*Store).listCollections,
	store.CreateIndexes:    (*Store).createIndexes,
	store.ListIndexes:      (*Store).listIndexes,
	store.Hello:            (*Store).hello,
}

// Run runs one command. An error that the server answered with is a *store.Error, whose Cause is the driver's. An
// error that wraps store.ErrUnknownOutcome leaves open whether the command was applied; it can be a *store.Error as
// well, for instance when the server was deposed between applying and acknowledging. Some documents of an
// insert may have been inserted although Run returns an error; the reply then says how many.
func (s *Store) Run(ctx context.Context, command store.Command) (store.Reply, error) {
	run, known := operations[command.Kind]
	if !known {
		return store.Reply{}, fmt.Errorf("mongostore: unknown kind of command %q", command.Kind)
	}
	reply, err := run(s, ctx, command)
	return reply, translate(err)
}

func (s *Store) collection(name string) *mongo.Collection {
	return s.database.Collection(name, s.pinned)
}

func (s *Store) find(ctx context.Context, c store.Command) (store.Reply, error) {
	how := options.Find().SetComment(comment(c.Point)).SetLimit(c.Limit)
	if c.Sort != nil {
		how.SetSort(c.Sort)
	}
	if c.Projection != nil {
		how.SetProjection(c.Projection)
	}
	if c.Hint != "" {
		how.SetHint(c.Hint)
	}
	cursor, err := s.collection(c.Collection).Find(ctx, document(c.Filter), how)
	return allOf(ctx, cursor, err)
}

func (s *Store) insert(ctx context.Context, c store.Command) (store.Reply, error) {
	how := options.InsertMany().SetComment(comment(c.Point)).SetOrdered(!c.Unordered)
	result, err := s.collection(c.Collection).InsertMany(ctx, c.Documents, how)
	if result == nil {
		return store.Reply{}, err
	}
	return store.Reply{Inserted: int64(len(result.InsertedIDs))}, err
}

func (s *Store) update(ctx context.Context, c store.Command) (store.Reply, error) {
	if len(c.Statements) > 0 {
		return s.updateSeveral(ctx, c)
	}
	var result *mongo.UpdateResult
	var err error
	if c.Multi {
		how := options.UpdateMany().SetComment(comment(c.Point)).SetUpsert(c.Upsert)
		if c.Hint != "" {
			how.SetHint(c.Hint)
		}
		result, err = s.collection(c.Collection).UpdateMany(ctx, document(c.Filter), updateOf(c), how)
	} else {
		how := options.UpdateOne().SetComment(comment(c.Point)).SetUpsert(c.Upsert)
		if c.Hint != "" {
			how.SetHint(c.Hint)
		}
		result, err = s.collection(c.Collection).UpdateOne(ctx, document(c.Filter), updateOf(c), how)
	}
	if result == nil {
		return store.Reply{}, err
	}
	return store.Reply{
		Matched: result.MatchedCount, Modified: result.ModifiedCount, Upserted: result.UpsertedID,
	}, err
}

// updateSeveral sends one update command, as long as the statements fit into one (100,000 statements, 48 MB).
func (s *Store) updateSeveral(ctx context.Context, c store.Command) (store.Reply, error) {
	models := make([]mongo.WriteModel, len(c.Statements))
	for i, statement := range c.Statements {
		update := updateOf(store.Command{Update: statement.Update, Pipeline: statement.Pipeline})
		if statement.Multi {
			models[i] = mongo.NewUpdateManyModel().SetFilter(document(statement.Filter)).SetUpdate(update).SetUpsert(statement.Upsert)
		} else {
			models[i] = mongo.NewUpdateOneModel().SetFilter(document(statement.Filter)).SetUpdate(update).SetUpsert(statement.Upsert)
		}
	}
	how := options.BulkWrite().SetComment(comment(c.Point)).SetOrdered(!c.Unordered)
	result, err := s.collection(c.Collection).BulkWrite(ctx, models, how)
	if result == nil {
		return store.Reply{}, err
	}
	reply := store.Reply{Matched: result.MatchedCount, Modified: result.ModifiedCount, Upserts: make([]any, len(models))}
	for i, id := range result.UpsertedIDs {
		reply.Upserts[i] = id
	}
	return reply, err
}

func (s *Store) findAndModify(ctx context.Context, c store.Command) (store.Reply, error) {
	how := options.FindOneAndUpdate().SetComment(comment(c.Point)).SetUpsert(c.Upsert)
	if !c.ReturnBefore {
		how.SetReturnDocument(options.After)
	}
	if c.Sort != nil {
		how.SetSort(c.Sort)
	}
	if c.Projection != nil {
		how.SetProjection(c.Projection)
	}
	if c.Hint != "" {
		how.SetHint(c.Hint)
	}
	raw, err := s.collection(c.Collection).FindOneAndUpdate(ctx, document(c.Filter), updateOf(c), how).Raw()
	if errors.Is(err, mongo.ErrNoDocuments) {
		return store.Reply{}, nil
	}
	return documentReply(raw, err)
}

func (s *Store) delete(ctx context.Context, c store.Command) (store.Reply, error) {
	var result *mongo.DeleteResult
	var err error
	if c.Multi {
		how := options.DeleteMany().SetComment(comment(c.Point))
		if c.Hint != "" {
			how.SetHint(c.Hint)
		}
		result, err = s.collection(c.Collection).DeleteMany(ctx, document(c.Filter), how)
	} else {
		how := options.DeleteOne().SetComment(comment(c.Point))
		if c.Hint != "" {
			how.SetHint(c.Hint)
		}
		result, err = s.collection(c.Collection).DeleteOne(ctx, document(c.Filter), how)
	}
	if result == nil {
		return store.Reply{}, err
	}
	return store.Reply{Matched: result.DeletedCount}, err
}

func (s *Store) createCollection(ctx context.Context, c store.Command) (store.Reply, error) {
	return store.Reply{}, s.administer(ctx, c.Point, bson.D{{Key: "create", Value: c.Collection}})
}

func (s *Store) createIndexes(ctx context.Context, c store.Command) (store.Reply, error) {
	specifications := make(bson.A, len(c.Indexes))
	for i, index := range c.Indexes {
		specifications[i] = specification(index)
	}
	return store.Reply{}, s.administer(ctx, c.Point, bson.D{
		{Key: "createIndexes", Value: c.Collection},
		{Key: "indexes", Value: specifications},
	})
}

// administer runs a command that no driver retries, so that RunCommand loses nothing.
func (s *Store) administer(ctx context.Context, point store.Point, command bson.D) error {
	command = append(command, pinnedWriteConcern, bson.E{Key: "comment", Value: comment(point)})
	return s.database.RunCommand(ctx, command, options.RunCmd().SetReadPreference(readpref.Primary())).Err()
}

// specification spells an index as createIndexes wants it. Options that were not asked for are left out, since
// the server compares and lists them as they were given.
func specification(index store.Index) bson.D {
	spec := bson.D{{Key: "key", Value: document(index.Keys)}, {Key: "name", Value: index.Name}}
	if index.Unique {
		spec = append(spec, bson.E{Key: "unique", Value: true})
	}
	if index.Partial != nil {
		spec = append(spec, bson.E{Key: "partialFilterExpression", Value: index.Partial})
	}
	if index.Sparse {
		spec = append(spec, bson.E{Key: "sparse", Value: true})
	}
	if index.ExpireAfterSeconds != nil {
		spec = append(spec, bson.E{Key: "expireAfterSeconds", Value: *index.ExpireAfterSeconds})
	}
	if index.Hidden {
		spec = append(spec, bson.E{Key: "hidden", Value: true})
	}
	return spec
}

func (s *Store) listCollections(ctx context.Context, _ store.Command) (store.Reply, error) {
	cursor, err := s.database.ListCollections(ctx, bson.D{}, options.ListCollections().SetNameOnly(true))
	return allOf(ctx, cursor, err)
}

// listIndexes answers the specifications as the server sends them. For a missing collection the driver turns the server's
// NamespaceNotFound into an empty list.
func (s *Store) listIndexes(ctx context.Context, c store.Command) (store.Reply, error) {
	cursor, err := s.collection(c.Collection).Indexes().List(ctx)
	return allOf(ctx, cursor, err)
}

func (s *Store) hello(ctx context.Context, c store.Command) (store.Reply, error) {
	command := bson.D{{Key: "hello", Value: int32(1)}, {Key: "comment", Value: comment(c.Point)}}
	primary := options.RunCmd().SetReadPreference(readpref.Primary())
	raw, err := s.database.Client().Database("admin").RunCommand(ctx, command, primary).Raw()
	return documentReply(raw, err)
}

// comment is what the server sees of a point. An empty one is sent as an empty string.
func comment(point store.Point) string { return string(point) }

// document turns nil, which the driver refuses, into the empty document that it stands for.
func document(d bson.D) bson.D {
	if d == nil {
		return bson.D{}
	}
	return d
}

func updateOf(c store.Command) any {
	if c.Pipeline != nil {
		return c.Pipeline
	}
	return c.Update
}

// allOf reads a cursor to its end and closes it.
func allOf(ctx context.Context, cursor *mongo.Cursor, err error) (store.Reply, error) {
	if err != nil {
		return store.Reply{}, err
	}
	var documents []bson.D
	for cursor.Next(ctx) {
		d, err := decode(cursor.Current)
		if err != nil {
			return store.Reply{}, errors.Join(err, cursor.Close(ctx))
		}
		documents = append(documents, d)
	}
	if err := errors.Join(cursor.Err(), cursor.Close(ctx)); err != nil {
		return store.Reply{}, err
	}
	return store.Reply{Documents: documents}, nil
}

func documentReply(raw bson.Raw, err error) (store.Reply, error) {
	if err != nil {
		return store.Reply{}, err
	}
	d, err := decode(raw)
	return store.Reply{Document: d}, err
}

// decode uses the bson package's own defaults (embedded documents bson.D, arrays bson.A, dates bson.DateTime),
// not those that the client may have been configured with.
func decode(raw bson.Raw) (bson.D, error) {
	var d bson.D
	if err := bson.Unmarshal(raw, &d); err != nil {
		return nil, fmt.Errorf("decode the reply: %w", err)
	}
	return d, nil
}
