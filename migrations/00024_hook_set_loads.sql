-- +goose Up
-- Who has put which hooks in force, where and when. A process adds a row when it
-- starts and whenever it reads its configuration again.
CREATE TABLE agentd.hook_set_loads (
    load_id    bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at         timestamptz NOT NULL DEFAULT agentd.clock(),
    digest     text        NOT NULL REFERENCES agentd.hook_sets (digest),
    previous   text        REFERENCES agentd.hook_sets (digest),
    cause      text        NOT NULL,
    process_id uuid        NOT NULL,
    host       text        NOT NULL,
    os_user    text        NOT NULL,
    pid        bigint      NOT NULL,
    version    text        NOT NULL,
    db_user    text        NOT NULL DEFAULT session_user,
    files      json        NOT NULL,
    CONSTRAINT hook_set_loads_cause CHECK (cause IN ('start', 'signal', 'file')),
    CONSTRAINT hook_set_loads_start_follows_nothing CHECK ((cause = 'start') = (previous IS NULL)),
    CONSTRAINT hook_set_loads_files_is_a_list CHECK (json_typeof(files) = 'array')
);
CREATE INDEX hook_set_loads_host_idx ON agentd.hook_set_loads (host, load_id);
CREATE TRIGGER hook_set_loads_append_only BEFORE UPDATE OR DELETE ON agentd.hook_set_loads
    FOR EACH ROW EXECUTE FUNCTION agentd.ledger_refuse_change();
CREATE TRIGGER hook_set_loads_no_truncate BEFORE TRUNCATE ON agentd.hook_set_loads
    FOR EACH STATEMENT EXECUTE FUNCTION agentd.ledger_refuse_change();
COMMENT ON TABLE agentd.hook_set_loads IS 'Each time a process put hooks in force: when it started, and when it read its configuration again. Append-only.';
COMMENT ON COLUMN agentd.hook_set_loads.load_id IS 'Grows; there may be holes.';
COMMENT ON COLUMN agentd.hook_set_loads.at IS 'When, by the database''s clock.';
COMMENT ON COLUMN agentd.hook_set_loads.digest IS 'The hook set that it has from then on.';
COMMENT ON COLUMN agentd.hook_set_loads.previous IS 'The one that it had before; NULL at its start. The same as digest if nothing changed.';
COMMENT ON COLUMN agentd.hook_set_loads.cause IS 'start, signal (somebody told it to read its configuration again), file (it saw that a file had changed).';
COMMENT ON COLUMN agentd.hook_set_loads.process_id IS 'Fresh per process start.';
COMMENT ON COLUMN agentd.hook_set_loads.host IS 'Where the process runs, as it says.';
COMMENT ON COLUMN agentd.hook_set_loads.os_user IS 'As whom it runs there, as it says.';
COMMENT ON COLUMN agentd.hook_set_loads.pid IS 'Its process id there, as it says.';
COMMENT ON COLUMN agentd.hook_set_loads.version IS 'The version of its binary.';
COMMENT ON COLUMN agentd.hook_set_loads.db_user IS 'As whom it was connected to the database.';
COMMENT ON COLUMN agentd.hook_set_loads.files IS 'The files that it read: path, sha256 of the content and when it was modified.';

CREATE VIEW agentd.hooks AS
SELECT s.digest AS hook_set_digest, s.first_seen_at, r.place,
    r.hook ->> 'gate' AS gate,
    row_number() OVER (PARTITION BY s.digest, r.hook ->> 'gate' ORDER BY r.place) AS position,
    r.hook ->> 'phase' AS phase,
    r.hook ->> 'id' AS hook_id,
    r.hook ->> 'kind' AS hook_kind,
    r.hook ->> 'version' AS hook_version,
    r.hook ->> 'digest' AS hook_digest,
    r.hook ->> 'config' AS text,
    coalesce((r.hook ->> 'shadow')::boolean, false) AS shadow,
    r.hook ->> 'on_failure' AS on_failure,
    (r.hook ->> 'time_limit')::numeric / 1000000 AS time_limit_ms,
    (r.hook ->> 'reply_limit')::bigint AS reply_limit,
    r.hook -> 'only' -> 'tools' AS tools,
    r.hook -> 'only' -> 'agents' AS agents,
    r.hook -> 'only' -> 'tenants' AS tenants,
    coalesce((r.hook ->> 'pure')::boolean, false) AS pure,
    coalesce((r.hook ->> 'redacting')::boolean, false) AS redacting,
    r.hook AS registration
FROM agentd.hook_sets AS s
CROSS JOIN LATERAL json_array_elements(s.hooks) WITH ORDINALITY AS r (hook, place);
COMMENT ON VIEW agentd.hooks IS 'What is in each hook set, a line per hook, in the order of asking: join decisions by hook_set_digest, gate and hook_id.';
COMMENT ON COLUMN agentd.hooks.hook_set_digest IS 'The set.';
COMMENT ON COLUMN agentd.hooks.first_seen_at IS 'When a process first had the set.';
COMMENT ON COLUMN agentd.hooks.place IS 'The hook''s place in the set, from 1.';
COMMENT ON COLUMN agentd.hooks.gate IS 'Where it is asked.';
COMMENT ON COLUMN agentd.hooks.position IS 'Its place at the gate, from 1. Of a decision it is less where hooks before it are about something else.';
COMMENT ON COLUMN agentd.hooks.phase IS 'mutate (may change the value), validate (may only judge it).';
COMMENT ON COLUMN agentd.hooks.hook_id IS 'The hook.';
COMMENT ON COLUMN agentd.hooks.hook_kind IS 'go, rule, plugin, webhook, host.';
COMMENT ON COLUMN agentd.hooks.hook_version IS 'Its version; NULL if it has none.';
COMMENT ON COLUMN agentd.hooks.hook_digest IS 'Digest (hex) of its code: of a rule, the SHA-256 of text. NULL where nobody computes it.';
COMMENT ON COLUMN agentd.hooks.text IS 'Of a rule its text, as JSON; of another hook what it was configured with. NULL for nothing. No secrets.';
COMMENT ON COLUMN agentd.hooks.shadow IS 'It is asked and recorded, and has no effect.';
COMMENT ON COLUMN agentd.hooks.on_failure IS 'What a failure comes to: closed (refuse), open (go on).';
COMMENT ON COLUMN agentd.hooks.time_limit_ms IS 'Milliseconds that one call may take.';
COMMENT ON COLUMN agentd.hooks.reply_limit IS 'Bytes that an answer may have.';
COMMENT ON COLUMN agentd.hooks.tools IS 'Globs of the tools that it is about; NULL for all.';
COMMENT ON COLUMN agentd.hooks.agents IS 'Globs of the agents that it is about; NULL for all.';
COMMENT ON COLUMN agentd.hooks.tenants IS 'Globs of the tenants that it is about; NULL for all.';
COMMENT ON COLUMN agentd.hooks.pure IS 'It is declared to do nothing but answer.';
COMMENT ON COLUMN agentd.hooks.redacting IS 'It takes secrets out: what it changed is stored as digests.';
COMMENT ON COLUMN agentd.hooks.registration IS 'All of it, as it stands in hook_sets.';

-- A process that starts is compared with the one before it on its host, or if
-- there was none with the one before it anywhere.
CREATE VIEW agentd.hook_changes AS
WITH loads AS (
    SELECT l.*, coalesce(l.previous, here.digest, anywhere.digest) AS old_digest
    FROM agentd.hook_set_loads AS l
    LEFT JOIN LATERAL (
        SELECT b.digest FROM agentd.hook_set_loads AS b WHERE b.host = l.host AND b.load_id < l.load_id ORDER BY b.load_id DESC LIMIT 1
    ) AS here ON l.previous IS NULL
    LEFT JOIN LATERAL (
        SELECT b.digest FROM agentd.hook_set_loads AS b WHERE b.load_id < l.load_id ORDER BY b.load_id DESC LIMIT 1
    ) AS anywhere ON l.previous IS NULL AND here.digest IS NULL
), changed AS (
    SELECT * FROM loads WHERE old_digest IS DISTINCT FROM digest
), sets AS (
    -- Of hooks of one name at one gate, the first is compared with the first.
    SELECT h.*, row_number() OVER (PARTITION BY h.hook_set_digest, h.gate, h.hook_id ORDER BY h.place) AS namesake
    FROM agentd.hooks AS h
), pairs AS (
    SELECT c.load_id, coalesce(o.gate, n.gate) AS gate, coalesce(o.hook_id, n.hook_id) AS hook_id,
        o.place AS old_place, n.place AS new_place, o.position AS old_position, n.position AS new_position,
        o.text AS old_text, n.text AS new_text, o.registration AS old_registration, n.registration AS new_registration,
        row_number() OVER (PARTITION BY c.load_id, coalesce(o.gate, n.gate), o.place IS NULL OR n.place IS NULL ORDER BY o.place) AS old_rank,
        row_number() OVER (PARTITION BY c.load_id, coalesce(o.gate, n.gate), o.place IS NULL OR n.place IS NULL ORDER BY n.place) AS new_rank
    FROM changed AS c
    CROSS JOIN LATERAL (
        SELECT gate, hook_id, namesake FROM sets WHERE hook_set_digest = c.old_digest
        UNION
        SELECT gate, hook_id, namesake FROM sets WHERE hook_set_digest = c.digest
    ) AS named
    LEFT JOIN sets AS o ON o.hook_set_digest = c.old_digest AND o.gate = named.gate AND o.hook_id = named.hook_id AND o.namesake = named.namesake
    LEFT JOIN sets AS n ON n.hook_set_digest = c.digest AND n.gate = named.gate AND n.hook_id = named.hook_id AND n.namesake = named.namesake
)
SELECT c.load_id, c.at, c.os_user, c.db_user, c.host, c.pid, c.process_id, c.version, c.cause, c.files,
    c.old_digest AS old_set_digest, c.digest AS new_set_digest, p.gate, p.hook_id,
    CASE
        WHEN p.old_place IS NULL THEN 'added'
        WHEN p.new_place IS NULL THEN 'removed'
        WHEN fields.changed IS NOT NULL THEN 'changed'
        ELSE 'moved'
    END AS change,
    CASE WHEN p.old_place IS NOT NULL AND p.new_place IS NOT NULL THEN fields.changed END AS fields,
    p.old_position, p.new_position, p.old_text, p.new_text, p.old_registration, p.new_registration
FROM changed AS c
JOIN pairs AS p ON p.load_id = c.load_id
CROSS JOIN LATERAL (
    SELECT array_agg(k.name ORDER BY k.name) AS changed
    FROM (
        SELECT jsonb_object_keys(p.old_registration::jsonb) UNION SELECT jsonb_object_keys(p.new_registration::jsonb)
    ) AS k (name)
    WHERE p.old_registration::jsonb -> k.name IS DISTINCT FROM p.new_registration::jsonb -> k.name
) AS fields
WHERE p.old_place IS NULL OR p.new_place IS NULL OR fields.changed IS NOT NULL OR p.old_rank <> p.new_rank;
COMMENT ON VIEW agentd.hook_changes IS 'What changed whenever hooks were put in force, a line per hook. A process that starts is compared with the one before it on its host, or if there was none with the one before it anywhere; the first ever has added all of its hooks.';
COMMENT ON COLUMN agentd.hook_changes.load_id IS 'The row of hook_set_loads.';
COMMENT ON COLUMN agentd.hook_changes.at IS 'When, by the database''s clock.';
COMMENT ON COLUMN agentd.hook_changes.os_user IS 'As whom the process runs, as it says.';
COMMENT ON COLUMN agentd.hook_changes.db_user IS 'As whom it was connected to the database.';
COMMENT ON COLUMN agentd.hook_changes.host IS 'Where it runs, as it says.';
COMMENT ON COLUMN agentd.hook_changes.pid IS 'Its process id there, as it says.';
COMMENT ON COLUMN agentd.hook_changes.process_id IS 'Fresh per process start.';
COMMENT ON COLUMN agentd.hook_changes.version IS 'The version of its binary.';
COMMENT ON COLUMN agentd.hook_changes.cause IS 'start, signal, file.';
COMMENT ON COLUMN agentd.hook_changes.files IS 'The files that it read: path, sha256 of the content and when it was modified.';
COMMENT ON COLUMN agentd.hook_changes.old_set_digest IS 'The hook set before; NULL if there was none.';
COMMENT ON COLUMN agentd.hook_changes.new_set_digest IS 'The hook set since.';
COMMENT ON COLUMN agentd.hook_changes.gate IS 'Where the hook is asked.';
COMMENT ON COLUMN agentd.hook_changes.hook_id IS 'The hook.';
COMMENT ON COLUMN agentd.hook_changes.change IS 'added, removed, changed, moved (it stands at another place among those that were there before).';
COMMENT ON COLUMN agentd.hook_changes.fields IS 'What of its registration was changed, such as config, on_failure or shadow; NULL if it was not.';
COMMENT ON COLUMN agentd.hook_changes.old_position IS 'Its place at the gate before; NULL if it had none.';
COMMENT ON COLUMN agentd.hook_changes.new_position IS 'Its place at the gate since; NULL if it has none.';
COMMENT ON COLUMN agentd.hook_changes.old_text IS 'The text of the rule before, or what the hook was configured with.';
COMMENT ON COLUMN agentd.hook_changes.new_text IS 'The text of the rule since, or what the hook is configured with.';
COMMENT ON COLUMN agentd.hook_changes.old_registration IS 'All of it before, as it stands in hook_sets.';
COMMENT ON COLUMN agentd.hook_changes.new_registration IS 'All of it since.';
