package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/seed-2ca4966b/agentd/loop/event"
)

// Notices are what plugins are told, and how far each has been told it: one process of
// the cluster at a time holds a plugin and moves its cursor. It is safe for concurrent
// use, a plugin by one goroutine at a time.
type Notices struct {
	pool   *pgxpool.Pool
	self   Process
	stirs  *stirs
	logger *slog.Logger
}

// NewNotices are those in the database of s, which need not be started, for a process
// that is so named.
func NewNotices(s *Store, self Process) *Notices {
	return &Notices{pool: s.pool, self: self, stirs: &s.delivery.hub.stirs, logger: s.logger}
}

// Watch returns a channel with room for one on which something is when there may be
// news, and what ends the watch. Some signals are missing: look now and then.
func (n *Notices) Watch() (signals <-chan struct{}, stop func()) { return n.stirs.watch() }

// cursorText is how a cursor is written.
const cursorText = `%[1]s.xid || ':' || %[1]s.session_id || ':' || %[1]s.seq`

var (
	// keepPlugin: a row that a dump has brought has a cursor of another cluster, where
	// transactions were counted further. Nobody knows what was told since.
	keepPlugin = `
UPDATE agentd.plugin_cursors AS c SET
	xid = CASE WHEN b.brought THEN pg_catalog.pg_current_xact_id() ELSE c.xid END,
	session_id = CASE WHEN b.brought THEN '` + zeroUUID + `' ELSE c.session_id END,
	seq = CASE WHEN b.brought THEN 0 ELSE c.seq END,
	process_id = $2, host = $3, pid = $4,
	held_since = CASE WHEN c.process_id = $2 AND c.held_until > t.now THEN c.held_since ELSE t.now END,
	held_until = t.now + $5::interval
FROM (SELECT agentd.clock() AS now) AS t, (
	SELECT plugin_id, xmin <> written_by::xid OR xid >= pg_catalog.pg_snapshot_xmax(pg_catalog.pg_current_snapshot()) AS brought
	FROM agentd.plugin_cursors
) AS b
WHERE c.plugin_id = $1 AND b.plugin_id = $1 AND (c.process_id = $2 OR c.held_until <= t.now)
RETURNING ` + fmt.Sprintf(cursorText, "c") + `, c.purged, b.brought`

	// beginPlugin: what is stored from now on is behind its own transaction.
	beginPlugin = `
INSERT INTO agentd.plugin_cursors AS c (plugin_id, began_at, xid, session_id, seq, process_id, host, pid, held_since, held_until)
SELECT $1, t.now, pg_catalog.pg_current_xact_id(), '` + zeroUUID + `', 0, $2, $3, $4, t.now, t.now + $5::interval
FROM (SELECT agentd.clock() AS now) AS t
WHERE NOT EXISTS (SELECT FROM agentd.plugin_cursors WHERE plugin_id = $1)
ON CONFLICT DO NOTHING
RETURNING ` + fmt.Sprintf(cursorText, "c") + `, c.purged, false`
)

// Hold takes the plugin for a while, or keeps it, and returns how far it has been told
// what happened. held is false if another process has it. A plugin of which nothing is
// known begins at the present. purged is how many events it will not be told, since
// their sessions were purged before: so many at most.
func (n *Notices) Hold(ctx context.Context, plugin string, lease time.Duration) (cursor string, purged int64, held bool, err error) {
	var brought bool
	found := func(row pgx.Row) error {
		err := row.Scan(&cursor, &purged, &brought)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		held = err == nil
		return err
	}
	args := []any{plugin, n.self.ID, n.self.Host, n.self.PID, interval(lease)}
	b := &pgx.Batch{}
	b.Queue(keepPlugin, args...).QueryRow(found)
	b.Queue(beginPlugin, args...).QueryRow(found)
	if err := n.pool.SendBatch(ctx, b).Close(); err != nil {
		return "", 0, false, failed("hold a plugin's cursor", err)
	}
	if brought {
		n.logger.WarnContext(ctx, "the database was restored from a dump: the plugin is told what happens from now on", "plugin", plugin, "cursor", cursor)
	}
	return cursor, purged, held, nil
}

const movePlugin = `
UPDATE agentd.plugin_cursors AS c SET
	xid = $6::text::xid8, session_id = $7, seq = $8,
	moved_at = t.now, held_until = t.now + $9::interval, failures = 0, failing_since = NULL
FROM (SELECT agentd.clock() AS now) AS t
WHERE c.plugin_id = $1 AND c.process_id = $2 AND (c.xid, c.session_id, c.seq) = ($3::text::xid8, $4, $5)`

// Told moves the cursor of a plugin that this process holds, and keeps it for another
// while. It returns false if it does not hold it any more, or the cursor is not there.
// A database that crashes may forget the move.
func (n *Notices) Told(ctx context.Context, plugin, from, to string, lease time.Duration) (moved bool, err error) {
	f, err := parseCursor(from)
	if err != nil {
		return false, err
	}
	t, err := parseCursor(to)
	if err != nil {
		return false, err
	}
	b := &pgx.Batch{}
	b.Queue(lazyCommit) // what comes again does no harm, and nobody waits for the disk
	b.Queue(movePlugin, plugin, n.self.ID, f.xid, f.session, f.seq, t.xid, t.session, t.seq, interval(lease)).Exec(func(tag pgconn.CommandTag) error {
		moved = tag.RowsAffected() == 1
		return nil
	})
	if err := n.pool.SendBatch(ctx, b).Close(); err != nil {
		return false, failed("move a plugin's cursor", err)
	}
	return moved, nil
}

// Failed says that a plugin that this process holds could not be told, and lets go of
// it: in another process it may be well.
func (n *Notices) Failed(ctx context.Context, plugin, said string) error {
	said, _ = event.CleanText(said)
	_, err := n.pool.Exec(ctx, `
		UPDATE agentd.plugin_cursors AS c SET
			failures = c.failures + 1, failing_since = coalesce(c.failing_since, t.now), last_error = $3, last_error_at = t.now,
			held_until = least(c.held_until, t.now)
		FROM (SELECT agentd.clock() AS now) AS t
		WHERE c.plugin_id = $1 AND c.process_id = $2`, plugin, n.self.ID, said)
	if err != nil {
		return failed("note that a plugin was not told", err)
	}
	return nil
}

// Release lets go of a plugin, if this process holds it.
func (n *Notices) Release(ctx context.Context, plugin string) error {
	_, err := n.pool.Exec(ctx, `
		UPDATE agentd.plugin_cursors AS c SET held_until = t.now
		FROM (SELECT agentd.clock() AS now) AS t
		WHERE c.plugin_id = $1 AND c.process_id = $2 AND c.held_until > t.now`, plugin, n.self.ID)
	if err != nil {
		return failed("let go of a plugin's cursor", err)
	}
	return nil
}

func interval(d time.Duration) pgtype.Interval {
	return pgtype.Interval{Microseconds: d.Microseconds(), Valid: true}
}

// place is a cursor in its parts.
type place struct {
	xid, session string
	seq          string
}

var cursorForm = regexp.MustCompile(`^([0-9]{1,19}):([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}):([0-9]{1,18})$`)

func parseCursor(text string) (place, error) {
	m := cursorForm.FindStringSubmatch(text)
	if m == nil {
		return place{}, fmt.Errorf("%q is no cursor of what plugins are told", event.Shorten(text, 80))
	}
	return place{m[1], m[2], m[3]}, nil
}
