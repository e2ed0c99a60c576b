-- +goose Up
-- Of indexes that cost the same the planner takes the newest, and on a table
-- that was small when its connection made the plan all of them cost the same.
-- The check of a foreign key then went by the index over a tenant's rows, and
-- read all of it for each row that was written. So the index that the keys refer
-- to is made again, after it.
ALTER TABLE agentd.turns DROP CONSTRAINT turns_run_fkey;
ALTER TABLE agentd.tool_calls DROP CONSTRAINT tool_calls_run_fkey;
ALTER TABLE agentd.approvals DROP CONSTRAINT approvals_run_fkey;
ALTER TABLE agentd.hook_decisions DROP CONSTRAINT hook_decisions_run_fkey;
ALTER TABLE agentd.runs
    DROP CONSTRAINT runs_session_fkey,
    DROP CONSTRAINT runs_owner,
    ADD CONSTRAINT runs_owner UNIQUE (id, session_id, tenant_id);
ALTER TABLE agentd.messages DROP CONSTRAINT messages_session_fkey;
ALTER TABLE agentd.sessions
    DROP CONSTRAINT sessions_owner,
    ADD CONSTRAINT sessions_owner UNIQUE (id, tenant_id);

ALTER TABLE agentd.runs ADD CONSTRAINT runs_session_fkey FOREIGN KEY (session_id, tenant_id) REFERENCES agentd.sessions (id, tenant_id);
ALTER TABLE agentd.messages ADD CONSTRAINT messages_session_fkey FOREIGN KEY (session_id, tenant_id) REFERENCES agentd.sessions (id, tenant_id);
ALTER TABLE agentd.turns ADD CONSTRAINT turns_run_fkey FOREIGN KEY (run_id, session_id, tenant_id) REFERENCES agentd.runs (id, session_id, tenant_id);
ALTER TABLE agentd.tool_calls ADD CONSTRAINT tool_calls_run_fkey FOREIGN KEY (run_id, session_id, tenant_id) REFERENCES agentd.runs (id, session_id, tenant_id);
ALTER TABLE agentd.approvals ADD CONSTRAINT approvals_run_fkey FOREIGN KEY (run_id, session_id, tenant_id) REFERENCES agentd.runs (id, session_id, tenant_id);
ALTER TABLE agentd.hook_decisions ADD CONSTRAINT hook_decisions_run_fkey FOREIGN KEY (run_id, session_id, tenant_id) REFERENCES agentd.runs (id, session_id, tenant_id);
