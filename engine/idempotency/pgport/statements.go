package pgport

// Table is where claims of events are kept. Libraries in other languages share it, and whoever migrates first makes it: so its
// definition never changes, and has no column for the consumer.
const Table = "consumed_events"

// The statements of the protocol.
var (
	// MigrationLock serialises migrations: two CREATE … IF NOT EXISTS at once can collide in the catalog.
	MigrationLock = &Statement{"migration lock", `SELECT pg_advisory_xact_lock(hashtext('fencepost.consumed_events'))`}
	CreateTable   = &Statement{"create table", `CREATE TABLE IF NOT EXISTS consumed_events (
  event_id text NOT NULL,
  topic text NOT NULL,
  consumed_at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (event_id, topic)
)`}
	CreateIndex = &Statement{"create index", `CREATE INDEX IF NOT EXISTS consumed_events_consumed_at_idx ON consumed_events (consumed_at)`}
	// Shape returns the columns and the primary key as one text; ExpectedShape is what it must be.
	Shape = &Statement{"shape", `SELECT coalesce((
  SELECT string_agg(format('%s %s%s', a.attname, format_type(a.atttypid, a.atttypmod), CASE WHEN a.attnotnull THEN ' not null' ELSE '' END), ', ' ORDER BY a.attname)
  FROM pg_attribute a WHERE a.attrelid = to_regclass('consumed_events') AND a.attnum > 0 AND NOT a.attisdropped), 'no table')
|| '; key ' || coalesce((
  SELECT string_agg(a.attname, ', ' ORDER BY k.position)
  FROM pg_index i, unnest(i.indkey) WITH ORDINALITY AS k(number, position), pg_attribute a
  WHERE i.indrelid = to_regclass('consumed_events') AND i.indisprimary AND a.attrelid = i.indrelid AND a.attnum = k.number), 'none')`}

	// LockTimeout bounds the waits of the transaction, in milliseconds. set_config, since SET takes no parameter.
	LockTimeout = &Statement{"lock timeout", `SELECT set_config('lock_timeout', $1, true)`}
	// Claim inserts (event_id, topic); no row means that somebody else has. It waits while the other's transaction is open.
	Claim = &Statement{"claim", `INSERT INTO consumed_events (event_id, topic) VALUES ($1, $2) ON CONFLICT (event_id, topic) DO NOTHING`}
	// Sweep deletes up to $2 claims that are older than $1 microseconds, and leaves alone what others are sweeping.
	Sweep = &Statement{"sweep", `DELETE FROM consumed_events WHERE ctid IN (
  SELECT ctid FROM consumed_events WHERE consumed_at < now() - $1 * interval '1 microsecond'
  ORDER BY consumed_at LIMIT $2 FOR UPDATE SKIP LOCKED)`}
)

// ExpectedShape is what Shape returns for the table that CreateTable makes.
const ExpectedShape = "consumed_at timestamp with time zone not null, event_id text not null, topic text not null; key event_id, topic"
