-- +goose NO TRANSACTION
-- +goose Up
-- What plugins are told is read from the log, in an order that misses nothing: that
-- of transactions, as far as no lower one is open. An event says which transaction
-- stored it, but only where somebody is told: without plugins that listen there is
-- nothing to write and nothing to read.
ALTER TABLE agentd.events ADD COLUMN IF NOT EXISTS xid xid8;
COMMENT ON COLUMN agentd.events.xid IS 'The transaction that stored the event, where it is one that plugins are told of and there was a row in plugin_cursors; NULL otherwise. In a cluster that a dump was restored into it differs from the row''s own xmin, and nobody is told.';
-- A build that was broken off has left an index that is none.
DROP INDEX CONCURRENTLY IF EXISTS agentd.events_told_idx;
CREATE INDEX CONCURRENTLY events_told_idx ON agentd.events (xid, session_id, seq) WHERE xid IS NOT NULL;

CREATE TABLE IF NOT EXISTS agentd.plugin_cursors (
    plugin_id     text        NOT NULL PRIMARY KEY,
    began_at      timestamptz NOT NULL,
    xid           xid8        NOT NULL,
    session_id    uuid        NOT NULL,
    seq           bigint      NOT NULL,
    moved_at      timestamptz,
    process_id    uuid        NOT NULL,
    host          text        NOT NULL,
    pid           bigint      NOT NULL,
    held_since    timestamptz NOT NULL,
    held_until    timestamptz NOT NULL,
    failures      bigint      NOT NULL DEFAULT 0,
    failing_since timestamptz,
    last_error    text,
    last_error_at timestamptz,
    purged        bigint      NOT NULL DEFAULT 0,
    written_by    xid8        NOT NULL,
    CONSTRAINT plugin_cursors_plugin_id_is_one CHECK (plugin_id ~ '^[a-z0-9._-]{1,64}$'),
    CONSTRAINT plugin_cursors_counts_from_0 CHECK (seq >= 0 AND failures >= 0 AND purged >= 0),
    CONSTRAINT plugin_cursors_failing_since_a_failure CHECK ((failures > 0) = (failing_since IS NOT NULL)),
    CONSTRAINT plugin_cursors_error_has_a_time CHECK ((last_error IS NULL) = (last_error_at IS NULL))
) WITH (fillfactor = 50);
COMMENT ON TABLE agentd.plugin_cursors IS 'How far each plugin that listens has been told what happened. A row is made when the plugin is first told something and begins there; it stays when the plugin is no longer installed, and then as much is kept for the plugin as if it were down: delete it, and the plugin begins anew at the present.';
COMMENT ON COLUMN agentd.plugin_cursors.plugin_id IS 'The id of its manifest, in whatever version.';
COMMENT ON COLUMN agentd.plugin_cursors.began_at IS 'When it began to be told: of what was before, nothing.';
COMMENT ON COLUMN agentd.plugin_cursors.xid IS 'With session_id and seq, the last event that is done with: the plugin has taken it, or did not want it. The transaction that stored it.';
COMMENT ON COLUMN agentd.plugin_cursors.session_id IS 'Its session; zeros at the beginning.';
COMMENT ON COLUMN agentd.plugin_cursors.seq IS 'Its place there.';
COMMENT ON COLUMN agentd.plugin_cursors.moved_at IS 'When the cursor last moved; NULL if it never did.';
COMMENT ON COLUMN agentd.plugin_cursors.process_id IS 'The process that tells the plugin, or was the last to.';
COMMENT ON COLUMN agentd.plugin_cursors.host IS 'Where that runs.';
COMMENT ON COLUMN agentd.plugin_cursors.pid IS 'Its number there.';
COMMENT ON COLUMN agentd.plugin_cursors.held_since IS 'Since when it does.';
COMMENT ON COLUMN agentd.plugin_cursors.held_until IS 'Until when no other process does, unless this one goes on. It is past after a failure, and when the process has ended.';
COMMENT ON COLUMN agentd.plugin_cursors.failures IS 'How often in a row the plugin could not be told, in whatever process.';
COMMENT ON COLUMN agentd.plugin_cursors.failing_since IS 'When that began; NULL if the last time succeeded.';
COMMENT ON COLUMN agentd.plugin_cursors.last_error IS 'What went wrong last, also if it has succeeded since.';
COMMENT ON COLUMN agentd.plugin_cursors.last_error_at IS 'When that was.';
COMMENT ON COLUMN agentd.plugin_cursors.purged IS 'How many events it was not told of because their sessions were purged before: so many at most, since it may have been about to take some of them.';
COMMENT ON COLUMN agentd.plugin_cursors.written_by IS 'The transaction that wrote the row. Where it differs from the row''s own xmin a dump has brought the row, whose cursor means nothing here: the plugin goes on at the present.';

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION agentd.plugin_cursors_written() RETURNS trigger
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    AS $$
BEGIN
    NEW.written_by := pg_current_xact_id();
    RETURN NEW;
END
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION agentd.plugin_cursors_written() IS 'Says of a row which transaction wrote it.';
CREATE OR REPLACE TRIGGER plugin_cursors_written BEFORE INSERT OR UPDATE ON agentd.plugin_cursors
    FOR EACH ROW EXECUTE FUNCTION agentd.plugin_cursors_written();

-- What is behind a cursor, however much that is, is counted no further than people
-- need.
CREATE OR REPLACE VIEW agentd.plugin_notifications AS
SELECT
    p.plugin_id,
    p.held_until > agentd.clock() AS held,
    p.host,
    p.pid,
    p.process_id,
    p.held_since,
    p.xid || ':' || p.session_id || ':' || p.seq AS cursor,
    p.moved_at,
    w.waiting,
    w.oldest_at,
    w.settled,
    p.failures,
    p.failing_since,
    p.last_error,
    p.last_error_at,
    p.purged,
    p.began_at
FROM agentd.plugin_cursors AS p
CROSS JOIN LATERAL (
    SELECT count(*) AS waiting, min(f.at) AS oldest_at, count(*) FILTER (WHERE f.settled) AS settled
    FROM (
        SELECT e.at, e.xid < pg_catalog.pg_snapshot_xmin(pg_catalog.pg_current_snapshot()) AS settled
        FROM agentd.events AS e
        WHERE (e.xid, e.session_id, e.seq) > (p.xid, p.session_id, p.seq) AND e.xmin = e.xid::xid
        ORDER BY e.xid, e.session_id, e.seq LIMIT 10000
    ) AS f
) AS w;
COMMENT ON VIEW agentd.plugin_notifications IS 'How far each plugin that listens is behind, who tells it, and what is in the way.';
COMMENT ON COLUMN agentd.plugin_notifications.plugin_id IS 'The plugin.';
COMMENT ON COLUMN agentd.plugin_notifications.held IS 'A process tells it now. If none does it is not installed, is not up, or has just failed.';
COMMENT ON COLUMN agentd.plugin_notifications.host IS 'Where that process runs, or the last one that did.';
COMMENT ON COLUMN agentd.plugin_notifications.pid IS 'Its number there.';
COMMENT ON COLUMN agentd.plugin_notifications.process_id IS 'The process.';
COMMENT ON COLUMN agentd.plugin_notifications.held_since IS 'Since when it does.';
COMMENT ON COLUMN agentd.plugin_notifications.cursor IS 'The last event that is done with.';
COMMENT ON COLUMN agentd.plugin_notifications.moved_at IS 'When the cursor last moved; NULL if it never did.';
COMMENT ON COLUMN agentd.plugin_notifications.waiting IS 'How many events are behind the cursor, counted up to 10,000; the plugin may want only some of them.';
COMMENT ON COLUMN agentd.plugin_notifications.oldest_at IS 'The time of the oldest of them; NULL if there is none.';
COMMENT ON COLUMN agentd.plugin_notifications.settled IS 'How many of them may be told. The others wait until transactions that were begun before theirs have ended, in whatever database of the cluster.';
COMMENT ON COLUMN agentd.plugin_notifications.failures IS 'How often in a row the plugin could not be told.';
COMMENT ON COLUMN agentd.plugin_notifications.failing_since IS 'When that began; NULL if the last time succeeded.';
COMMENT ON COLUMN agentd.plugin_notifications.last_error IS 'What went wrong last, also if it has succeeded since.';
COMMENT ON COLUMN agentd.plugin_notifications.last_error_at IS 'When that was.';
COMMENT ON COLUMN agentd.plugin_notifications.purged IS 'How many events it was not told of because their sessions were purged before: so many at most.';
COMMENT ON COLUMN agentd.plugin_notifications.began_at IS 'When it began to be told.';

-- As before, and what plugins are not told for it is counted.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION agentd.purge_session(session uuid, reason text, purged_by text DEFAULT session_user)
    RETURNS agentd.tombstones
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
    AS $$
DECLARE
    purged agentd.tombstones;
BEGIN
    -- An append that is under way is waited for; the next one finds no session.
    PERFORM FROM agentd.sessions WHERE id = session FOR UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'there is no session %', session USING ERRCODE = 'no_data_found';
    END IF;
    IF EXISTS (SELECT FROM agentd.runs AS r WHERE r.session_id = session AND r.ended_at IS NULL) THEN
        RAISE EXCEPTION 'session % has a run that has not ended', session
            USING ERRCODE = 'object_in_use', HINT = 'Cancel it first.';
    END IF;
    INSERT INTO agentd.tombstones (session_id, purged_by, reason)
        VALUES (session, purge_session.purged_by, purge_session.reason) RETURNING * INTO purged;
    UPDATE agentd.plugin_cursors AS p SET purged = p.purged + u.untold
    FROM (
        SELECT c.plugin_id, count(*) AS untold
        FROM agentd.plugin_cursors AS c
        JOIN agentd.events AS e ON e.session_id = session AND (e.xid, e.session_id, e.seq) > (c.xid, c.session_id, c.seq) AND e.xmin = e.xid::xid
        WHERE c.xmin = c.written_by::xid
        GROUP BY c.plugin_id
    ) AS u
    WHERE p.plugin_id = u.plugin_id;
    DELETE FROM agentd.hook_payloads AS p USING agentd.hook_decisions AS d WHERE d.session_id = session AND p.decision_id = d.decision_id;
    DELETE FROM agentd.hook_decisions AS d WHERE d.session_id = session;
    DELETE FROM agentd.approvals AS a WHERE a.session_id = session;
    DELETE FROM agentd.tool_calls AS k WHERE k.session_id = session;
    DELETE FROM agentd.messages AS m WHERE m.session_id = session;
    DELETE FROM agentd.turns AS t WHERE t.session_id = session;
    DELETE FROM agentd.runs AS r WHERE r.session_id = session;
    DELETE FROM agentd.events AS e WHERE e.session_id = session;
    DELETE FROM agentd.sessions AS s WHERE s.id = session;
    RETURN purged;
END
$$;
-- +goose StatementEnd
