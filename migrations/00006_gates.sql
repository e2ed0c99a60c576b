-- +goose Up
-- A run that waits for people is active, and nobody holds its lease.
ALTER TABLE agentd.runs
    ADD COLUMN hook_set text,
    DROP CONSTRAINT runs_status,
    DROP CONSTRAINT runs_running_was_started,
    ADD CONSTRAINT runs_status CHECK (status IN ('enqueued', 'queued', 'running', 'waiting', 'completed', 'failed', 'cancelled')),
    ADD CONSTRAINT runs_running_was_started CHECK (status NOT IN ('running', 'waiting') OR started_at IS NOT NULL);
DROP INDEX agentd.runs_one_active_per_session;
CREATE UNIQUE INDEX runs_one_active_per_session ON agentd.runs (session_id) WHERE status IN ('queued', 'running', 'waiting');
COMMENT ON COLUMN agentd.runs.status IS 'enqueued (behind another run), queued (a job may claim it), running (leased), waiting (for people), completed, failed, cancelled. At most one run of a session is queued, running or waiting.';
COMMENT ON COLUMN agentd.runs.hook_set IS 'Digest of the hooks that the worker of the last claim asks, see hook_sets; NULL for none.';

ALTER TABLE agentd.tool_calls
    ADD COLUMN final_arguments text,
    ADD COLUMN approval_id uuid,
    ADD COLUMN blocked_by text,
    DROP CONSTRAINT tool_calls_status,
    ADD CONSTRAINT tool_calls_status CHECK (
        status IN ('proposed', 'blocked', 'awaiting', 'approved', 'denied', 'started', 'executed', 'done')),
    ADD CONSTRAINT tool_calls_blocked_by_something CHECK (status <> 'blocked' OR blocked_by IS NOT NULL),
    ADD CONSTRAINT tool_calls_asked_has_an_approval CHECK (status NOT IN ('awaiting', 'approved', 'denied') OR approval_id IS NOT NULL);
COMMENT ON COLUMN agentd.tool_calls.status IS 'proposed, blocked (will not run, or not again), awaiting (people were asked), approved, denied, started (may have taken effect), executed (returned), done (has its one result).';
COMMENT ON COLUMN agentd.tool_calls.final_arguments IS 'What runs, if hooks changed the arguments; NULL if it is what the model wrote.';
COMMENT ON COLUMN agentd.tool_calls.approval_id IS 'The last approval that was asked for; NULL if people were not asked.';
COMMENT ON COLUMN agentd.tool_calls.blocked_by IS 'The gate that refused the call, or permission; NULL if nothing did.';

CREATE TABLE agentd.approvals (
    id               uuid        NOT NULL PRIMARY KEY,
    tenant_id        text        NOT NULL,
    session_id       uuid        NOT NULL,
    run_id           uuid        NOT NULL REFERENCES agentd.runs (id),
    turn_no          integer     NOT NULL,
    call_id          uuid        NOT NULL REFERENCES agentd.tool_calls (id),
    name             text        NOT NULL,
    arguments        text        NOT NULL,
    arguments_sha256 text        NOT NULL,
    requested_by     text        NOT NULL,
    reason           text,
    status           text        NOT NULL,
    decided_by_kind  text,
    decided_by_id    text,
    decision_reason  text,
    requested_at     timestamptz NOT NULL,
    decided_at       timestamptz,
    requested_seq    bigint      NOT NULL,
    decided_seq      bigint,
    CONSTRAINT approvals_status CHECK (status IN ('pending', 'approved', 'denied', 'cancelled')),
    CONSTRAINT approvals_decided_by_somebody CHECK (
        (status = 'pending') = (decided_at IS NULL)
        AND (decided_at IS NULL) = (decided_seq IS NULL)
        AND (decided_at IS NULL) = (decided_by_kind IS NULL)
        AND (decided_at IS NULL) = (decided_by_id IS NULL)
        AND (decided_at IS NOT NULL OR decision_reason IS NULL)),
    CONSTRAINT approvals_decided_after_requested CHECK (requested_seq >= 1 AND decided_seq > requested_seq),
    CONSTRAINT approvals_turn_no_from_1 CHECK (turn_no >= 1),
    CONSTRAINT approvals_digest_is_sha256 CHECK (arguments_sha256 ~ '^[0-9a-f]{64}$')
);
CREATE UNIQUE INDEX approvals_one_pending_per_call ON agentd.approvals (call_id) WHERE status = 'pending';
CREATE INDEX approvals_pending_idx ON agentd.approvals (tenant_id, requested_at, id) WHERE status = 'pending';
CREATE INDEX approvals_tenant_idx ON agentd.approvals (tenant_id, requested_at, id);
CREATE INDEX approvals_session_idx ON agentd.approvals (session_id, requested_seq);
CREATE INDEX approvals_run_idx ON agentd.approvals (run_id, requested_seq);
COMMENT ON TABLE agentd.approvals IS 'Tool calls about which people were asked, and their answers.';
COMMENT ON COLUMN agentd.approvals.id IS 'agentd''s own id.';
COMMENT ON COLUMN agentd.approvals.tenant_id IS 'The owner of the session.';
COMMENT ON COLUMN agentd.approvals.session_id IS 'The conversation.';
COMMENT ON COLUMN agentd.approvals.run_id IS 'The run that waits for the answer.';
COMMENT ON COLUMN agentd.approvals.turn_no IS 'The turn whose answer asked for the call.';
COMMENT ON COLUMN agentd.approvals.call_id IS 'The tool call.';
COMMENT ON COLUMN agentd.approvals.name IS 'The tool.';
COMMENT ON COLUMN agentd.approvals.arguments IS 'Exactly what runs if the answer is yes, byte for byte.';
COMMENT ON COLUMN agentd.approvals.arguments_sha256 IS 'Digest (hex) of the arguments: the answer is bound to it.';
COMMENT ON COLUMN agentd.approvals.requested_by IS 'permission, or the gate whose hook asked for it.';
COMMENT ON COLUMN agentd.approvals.reason IS 'Why people were asked; NULL if nobody said.';
COMMENT ON COLUMN agentd.approvals.status IS 'pending, approved, denied, cancelled (the run was cut short).';
COMMENT ON COLUMN agentd.approvals.decided_by_kind IS 'What kind of party answered: principal, key, system; NULL while pending.';
COMMENT ON COLUMN agentd.approvals.decided_by_id IS 'Who answered.';
COMMENT ON COLUMN agentd.approvals.decision_reason IS 'What the one who answered said; NULL for nothing.';
COMMENT ON COLUMN agentd.approvals.requested_at IS 'Time of approval.requested.';
COMMENT ON COLUMN agentd.approvals.decided_at IS 'Time of approval.decided.';
COMMENT ON COLUMN agentd.approvals.requested_seq IS 'Seq of approval.requested.';
COMMENT ON COLUMN agentd.approvals.decided_seq IS 'Seq of approval.decided.';

-- A message that became no run is nothing but its event; a repeated request finds it here.
CREATE INDEX events_input_key_idx ON agentd.events (session_id, (payload ->> 'idempotency_key'))
    WHERE type IN ('input.handled', 'input.blocked', 'input.rejected');
