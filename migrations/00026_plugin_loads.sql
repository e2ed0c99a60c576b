-- +goose Up
-- Hooks are put in force, too, when plugins are loaded again.
ALTER TABLE agentd.hook_set_loads DROP CONSTRAINT hook_set_loads_cause;
ALTER TABLE agentd.hook_set_loads ADD CONSTRAINT hook_set_loads_cause CHECK (cause IN ('start', 'signal', 'file', 'plugin'));
COMMENT ON COLUMN agentd.hook_set_loads.cause IS 'start, signal (somebody told it to read its configuration again), file (it saw that a file had changed), plugin (plugins were loaded again, or one came up for the first time).';
