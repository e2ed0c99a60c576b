-- +goose Up
-- Behind a pooler in transaction mode no session, and so no lock, belongs to a
-- worker: only its lease says whether it is alive.
ALTER TABLE agentd.workers ADD COLUMN pooled boolean NOT NULL DEFAULT false;
COMMENT ON COLUMN agentd.workers.pooled IS 'Its heartbeats go through a pooler in transaction mode: it holds no lock, and only its lease says whether it is alive.';
