-- +goose Up
CREATE TABLE agentd.workers (
    id              uuid        NOT NULL PRIMARY KEY,
    started_at      timestamptz NOT NULL DEFAULT agentd.clock(),
    connected_since timestamptz NOT NULL DEFAULT agentd.clock(),
    heartbeat_at    timestamptz NOT NULL DEFAULT agentd.clock(),
    alive_until     timestamptz NOT NULL,
    dead_at         timestamptz,
    stopped_at      timestamptz,
    declared_by     uuid,
    version         text        NOT NULL DEFAULT '',
    CONSTRAINT workers_dead_was_declared CHECK ((dead_at IS NULL) = (declared_by IS NULL))
) WITH (fillfactor = 50);
COMMENT ON TABLE agentd.workers IS 'Worker processes, one row per start. The lease of all runs that a worker holds is its alive_until.';
COMMENT ON COLUMN agentd.workers.id IS 'Fresh per process start; also the id of its River client.';
COMMENT ON COLUMN agentd.workers.started_at IS 'When the process began to work.';
COMMENT ON COLUMN agentd.workers.connected_since IS 'Since when the heartbeat''s connection has been up without a break.';
COMMENT ON COLUMN agentd.workers.heartbeat_at IS 'The last heartbeat.';
COMMENT ON COLUMN agentd.workers.alive_until IS 'Until then nobody may declare the worker dead.';
COMMENT ON COLUMN agentd.workers.dead_at IS 'When it was declared dead; it never revives. NULL if it was not.';
COMMENT ON COLUMN agentd.workers.stopped_at IS 'When it stopped by itself; NULL if it did not.';
COMMENT ON COLUMN agentd.workers.declared_by IS 'The worker that declared it dead.';
COMMENT ON COLUMN agentd.workers.version IS 'The version of the binary.';
