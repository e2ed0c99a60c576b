-- +goose Up
-- A decision and an approval are of a run of their own session: the check of it
-- is not to be seen in the time of an append.
ALTER TABLE agentd.approvals
    DROP CONSTRAINT approvals_run_id_fkey,
    ADD CONSTRAINT approvals_run_fkey FOREIGN KEY (run_id, session_id, tenant_id) REFERENCES agentd.runs (id, session_id, tenant_id);
ALTER TABLE agentd.hook_decisions
    ADD CONSTRAINT hook_decisions_run_fkey FOREIGN KEY (run_id, session_id, tenant_id) REFERENCES agentd.runs (id, session_id, tenant_id);
