-- +goose Up
-- The schema itself is made before goose runs, which keeps its versions in it.
COMMENT ON SCHEMA agentd IS 'Everything that agentd and its queue store.';

-- All SQL reads the time here, so that a test database can replace it.
CREATE FUNCTION agentd.clock() RETURNS timestamptz
    LANGUAGE sql VOLATILE PARALLEL SAFE
    AS 'SELECT pg_catalog.clock_timestamp()';
COMMENT ON FUNCTION agentd.clock() IS 'The only source of time for leases, deadlines and expiry.';

CREATE TABLE agentd.tenants (
    id         text        NOT NULL PRIMARY KEY,
    name       text        NOT NULL,
    created_at timestamptz NOT NULL DEFAULT agentd.clock(),
    CONSTRAINT tenants_id_is_a_slug CHECK (id ~ '^[a-z0-9]([a-z0-9._-]{0,61}[a-z0-9])?$')
);
COMMENT ON TABLE agentd.tenants IS 'Who the data belongs to. A tenant never sees what another one owns.';
COMMENT ON COLUMN agentd.tenants.id IS 'Slug: lower case letters, digits, dot, underscore and dash, at most 63.';
COMMENT ON COLUMN agentd.tenants.name IS 'Name for people.';
COMMENT ON COLUMN agentd.tenants.created_at IS 'When the tenant was made.';
INSERT INTO agentd.tenants (id, name) VALUES ('default', 'Default');

-- Every append updates its session row, so the pages keep room for HOT updates
-- and no index is on a column that changes.
CREATE TABLE agentd.sessions (
    id          uuid        NOT NULL PRIMARY KEY,
    tenant_id   text        NOT NULL REFERENCES agentd.tenants (id),
    external_id text,
    created_at  timestamptz NOT NULL,
    updated_at  timestamptz NOT NULL,
    deleted_at  timestamptz,
    last_seq    bigint      NOT NULL,
    run_epoch   bigint      NOT NULL DEFAULT 0,
    append_id   uuid        NOT NULL,
    CONSTRAINT sessions_owner UNIQUE (id, tenant_id),
    CONSTRAINT sessions_last_seq_from_1 CHECK (last_seq >= 1),
    CONSTRAINT sessions_run_epoch_from_0 CHECK (run_epoch >= 0),
    CONSTRAINT sessions_external_id_not_empty CHECK (external_id <> '')
) WITH (fillfactor = 70);
CREATE UNIQUE INDEX sessions_external_id_key ON agentd.sessions (tenant_id, external_id)
    WHERE external_id IS NOT NULL AND deleted_at IS NULL;
CREATE INDEX sessions_tenant_created_idx ON agentd.sessions (tenant_id, created_at, id);
COMMENT ON TABLE agentd.sessions IS 'Conversations. The row is the fence of the session''s log: an append is a compare-and-set on last_seq and run_epoch.';
COMMENT ON COLUMN agentd.sessions.id IS 'agentd''s own id (UUIDv7).';
COMMENT ON COLUMN agentd.sessions.tenant_id IS 'The owner.';
COMMENT ON COLUMN agentd.sessions.external_id IS 'The client''s own name for the session, unique among the tenant''s visible sessions; NULL if it gave none.';
COMMENT ON COLUMN agentd.sessions.created_at IS 'Time of the first event.';
COMMENT ON COLUMN agentd.sessions.updated_at IS 'Time of the last event.';
COMMENT ON COLUMN agentd.sessions.deleted_at IS 'When the session was hidden; NULL while it is visible.';
COMMENT ON COLUMN agentd.sessions.last_seq IS 'The seq of the last event.';
COMMENT ON COLUMN agentd.sessions.run_epoch IS 'The epoch of the last claim or release; a writer with a lower one is refused.';
COMMENT ON COLUMN agentd.sessions.append_id IS 'The append that wrote last.';

CREATE TABLE agentd.events (
    session_id uuid        NOT NULL,
    seq        bigint      NOT NULL,
    tenant_id  text        NOT NULL,
    run_id     uuid,
    turn_no    integer,
    type       text        NOT NULL,
    payload    json        NOT NULL,
    actor_kind text        NOT NULL,
    actor_id   text        NOT NULL,
    at         timestamptz NOT NULL,
    append_id  uuid        NOT NULL,
    PRIMARY KEY (session_id, seq),
    CONSTRAINT events_seq_from_1 CHECK (seq >= 1),
    CONSTRAINT events_turn_no_from_1 CHECK (turn_no >= 1),
    CONSTRAINT events_turn_has_a_run CHECK (turn_no IS NULL OR run_id IS NOT NULL)
);
CREATE INDEX events_run_idx ON agentd.events (run_id, seq)
    WHERE run_id IS NOT NULL AND type <> 'assistant.delta';
-- No foreign key: events are only ever inserted by a join with their session's
-- locked row, and checking each of them again doubled the time of the insert.
COMMENT ON TABLE agentd.events IS 'The log: immutable facts, in order within a session. Everything else can be folded from it.';
COMMENT ON COLUMN agentd.events.session_id IS 'The session whose log it is.';
COMMENT ON COLUMN agentd.events.seq IS 'Counts from 1 within the session; no holes, except deltas that retention removed.';
COMMENT ON COLUMN agentd.events.tenant_id IS 'The owner of the session.';
COMMENT ON COLUMN agentd.events.run_id IS 'The run that the event belongs to; NULL if it belongs to none.';
COMMENT ON COLUMN agentd.events.turn_no IS 'The turn within the run; NULL outside a turn.';
COMMENT ON COLUMN agentd.events.type IS 'What happened. Readers skip the types that they do not know.';
COMMENT ON COLUMN agentd.events.payload IS 'The bytes as encoded once: live push, replay and SELECT give the same.';
COMMENT ON COLUMN agentd.events.actor_kind IS 'What kind of party caused the event: principal, key, system.';
COMMENT ON COLUMN agentd.events.actor_id IS 'Who caused the event.';
COMMENT ON COLUMN agentd.events.at IS 'The writer''s clock, in microseconds.';
COMMENT ON COLUMN agentd.events.append_id IS 'The append that wrote the event; a writer finds out by it whether its commit went through.';

-- +goose StatementBegin
CREATE FUNCTION agentd.events_refuse_change() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    IF TG_OP = 'DELETE' AND OLD.type = 'assistant.delta' THEN
        RETURN OLD;
    END IF;
    RAISE EXCEPTION 'agentd.events is append-only: % refused', TG_OP
        USING ERRCODE = 'restrict_violation';
END
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION agentd.events_refuse_change() IS 'Lets nothing but deltas leave the log.';
CREATE TRIGGER events_append_only BEFORE UPDATE OR DELETE ON agentd.events
    FOR EACH ROW EXECUTE FUNCTION agentd.events_refuse_change();
CREATE TRIGGER events_no_truncate BEFORE TRUNCATE ON agentd.events
    FOR EACH STATEMENT EXECUTE FUNCTION agentd.events_refuse_change();
