-- +goose Up
CREATE TABLE agentd.runs (
    id                   uuid        NOT NULL PRIMARY KEY,
    tenant_id            text        NOT NULL,
    session_id           uuid        NOT NULL,
    status               text        NOT NULL,
    agent                text        NOT NULL,
    message_id           uuid        NOT NULL,
    assistant_message_id uuid        NOT NULL,
    idempotency_key      text,
    request_sha256       text,
    ticket               bigint      NOT NULL DEFAULT 0,
    worker_id            uuid,
    epoch                bigint      NOT NULL DEFAULT 0,
    takeovers            integer     NOT NULL DEFAULT 0,
    not_before           timestamptz,
    cancel_requested_at  timestamptz,
    cancel_reason        text,
    reason               text,
    error                text,
    created_at           timestamptz NOT NULL,
    started_at           timestamptz,
    ended_at             timestamptz,
    created_seq          bigint      NOT NULL,
    ended_seq            bigint,
    CONSTRAINT runs_owner UNIQUE (id, session_id, tenant_id),
    CONSTRAINT runs_session_fkey FOREIGN KEY (session_id, tenant_id) REFERENCES agentd.sessions (id, tenant_id),
    CONSTRAINT runs_status CHECK (status IN ('enqueued', 'queued', 'running', 'completed', 'failed', 'cancelled')),
    CONSTRAINT runs_running_is_leased CHECK ((status = 'running') = (worker_id IS NOT NULL)),
    CONSTRAINT runs_running_was_started CHECK (status <> 'running' OR started_at IS NOT NULL),
    CONSTRAINT runs_terminal_has_an_end CHECK (
        (status IN ('completed', 'failed', 'cancelled')) = (ended_at IS NOT NULL)
        AND (ended_at IS NULL) = (ended_seq IS NULL)),
    CONSTRAINT runs_ended_has_the_reason CHECK (ended_at IS NOT NULL OR (reason IS NULL AND error IS NULL)),
    CONSTRAINT runs_failed_has_the_error CHECK (error IS NULL OR status = 'failed'),
    CONSTRAINT runs_active_has_a_ticket CHECK (status NOT IN ('queued', 'running') OR ticket >= 1),
    CONSTRAINT runs_enqueued_has_no_ticket CHECK (status <> 'enqueued' OR ticket = 0),
    CONSTRAINT runs_counts_from_0 CHECK (ticket >= 0 AND epoch >= 0 AND takeovers >= 0 AND created_seq >= 1),
    CONSTRAINT runs_ended_after_created CHECK (ended_seq > created_seq)
) WITH (fillfactor = 80);
CREATE UNIQUE INDEX runs_one_active_per_session ON agentd.runs (session_id) WHERE status IN ('queued', 'running');
CREATE INDEX runs_session_idx ON agentd.runs (session_id, created_seq);
CREATE INDEX runs_tenant_idx ON agentd.runs (tenant_id, created_at, id);
CREATE INDEX runs_idempotency_key_idx ON agentd.runs (session_id, idempotency_key) WHERE idempotency_key IS NOT NULL;
CREATE INDEX runs_worker_idx ON agentd.runs (worker_id) WHERE status = 'running';
CREATE INDEX runs_queued_idx ON agentd.runs (not_before) WHERE status = 'queued';
COMMENT ON TABLE agentd.runs IS 'The work that user messages started.';
COMMENT ON COLUMN agentd.runs.id IS 'agentd''s own id (UUIDv7).';
COMMENT ON COLUMN agentd.runs.tenant_id IS 'The owner of the session.';
COMMENT ON COLUMN agentd.runs.session_id IS 'The conversation.';
COMMENT ON COLUMN agentd.runs.status IS 'enqueued (behind another run), queued (a job may claim it), running (leased), completed, failed, cancelled. At most one run of a session is queued or running.';
COMMENT ON COLUMN agentd.runs.agent IS 'Name of the agent in the configuration.';
COMMENT ON COLUMN agentd.runs.message_id IS 'The user message that the run answers.';
COMMENT ON COLUMN agentd.runs.assistant_message_id IS 'One id for the whole answer, for front ends that show a run as a single message.';
COMMENT ON COLUMN agentd.runs.idempotency_key IS 'The client''s key; the same key starts no second run for 24 h. NULL if it gave none.';
COMMENT ON COLUMN agentd.runs.request_sha256 IS 'Digest (hex) of the request that came with the key.';
COMMENT ON COLUMN agentd.runs.ticket IS 'Raised whenever a job is made; only the job with this ticket may claim the run. 0 before the first.';
COMMENT ON COLUMN agentd.runs.worker_id IS 'The worker that holds the lease; set while running, and only then.';
COMMENT ON COLUMN agentd.runs.epoch IS 'The epoch of the last claim or release of this run.';
COMMENT ON COLUMN agentd.runs.takeovers IS 'Releases from dead workers since a step last finished.';
COMMENT ON COLUMN agentd.runs.not_before IS 'The next claim waits until then; NULL means that it need not.';
COMMENT ON COLUMN agentd.runs.cancel_requested_at IS 'When somebody last asked for the run to stop.';
COMMENT ON COLUMN agentd.runs.cancel_reason IS 'What the one who asked said.';
COMMENT ON COLUMN agentd.runs.reason IS 'Why the run ended, in a word; NULL until then.';
COMMENT ON COLUMN agentd.runs.error IS 'What went wrong, for people; NULL if nothing did.';
COMMENT ON COLUMN agentd.runs.created_at IS 'Time of run.created.';
COMMENT ON COLUMN agentd.runs.started_at IS 'Time of the first claim.';
COMMENT ON COLUMN agentd.runs.ended_at IS 'Time of the terminal event.';
COMMENT ON COLUMN agentd.runs.created_seq IS 'Seq of run.created.';
COMMENT ON COLUMN agentd.runs.ended_seq IS 'Seq of the terminal event.';

CREATE TABLE agentd.turns (
    run_id        uuid        NOT NULL,
    turn_no       integer     NOT NULL,
    tenant_id     text        NOT NULL,
    session_id    uuid        NOT NULL,
    status        text        NOT NULL,
    attempt       integer     NOT NULL DEFAULT 0,
    model         text,
    message_id    uuid,
    finish_reason text,
    finish_raw    text,
    input_tokens  bigint      NOT NULL DEFAULT 0,
    output_tokens bigint      NOT NULL DEFAULT 0,
    started_at    timestamptz NOT NULL,
    completed_at  timestamptz,
    PRIMARY KEY (run_id, turn_no),
    CONSTRAINT turns_run_fkey FOREIGN KEY (run_id, session_id, tenant_id) REFERENCES agentd.runs (id, session_id, tenant_id),
    CONSTRAINT turns_turn_no_from_1 CHECK (turn_no >= 1),
    CONSTRAINT turns_status CHECK (status IN ('open', 'calling', 'answered', 'stopped', 'completed')),
    CONSTRAINT turns_completed_has_an_end CHECK ((status = 'completed') = (completed_at IS NOT NULL)),
    CONSTRAINT turns_answered_has_a_message CHECK (status NOT IN ('answered', 'completed') OR message_id IS NOT NULL),
    CONSTRAINT turns_calling_has_an_attempt CHECK (status = 'open' OR attempt >= 1),
    CONSTRAINT turns_counts_from_0 CHECK (attempt >= 0)
) WITH (fillfactor = 80);
CREATE INDEX turns_session_idx ON agentd.turns (session_id);
COMMENT ON TABLE agentd.turns IS 'Model calls, each with the tool calls that it asked for.';
COMMENT ON COLUMN agentd.turns.run_id IS 'The run.';
COMMENT ON COLUMN agentd.turns.turn_no IS 'Counts from 1 in the run.';
COMMENT ON COLUMN agentd.turns.tenant_id IS 'The owner of the session.';
COMMENT ON COLUMN agentd.turns.session_id IS 'The conversation.';
COMMENT ON COLUMN agentd.turns.status IS 'open (no call under way), calling, answered (tool calls are worked on), stopped (cut off, what was shown is kept), completed.';
COMMENT ON COLUMN agentd.turns.attempt IS 'Number of the last model call, 0 before the first.';
COMMENT ON COLUMN agentd.turns.model IS 'Name of the model that the last attempt asked for.';
COMMENT ON COLUMN agentd.turns.message_id IS 'The assistant message, once it is stored; a stopped answer that showed nothing has none.';
COMMENT ON COLUMN agentd.turns.finish_reason IS 'Why the model stopped: stop, length, tool_calls, content_filter, unknown.';
COMMENT ON COLUMN agentd.turns.finish_raw IS 'The provider''s own word for it.';
COMMENT ON COLUMN agentd.turns.input_tokens IS 'As the provider reported; 0 if it did not.';
COMMENT ON COLUMN agentd.turns.output_tokens IS 'As the provider reported; 0 if it did not.';
COMMENT ON COLUMN agentd.turns.started_at IS 'Time of turn.started.';
COMMENT ON COLUMN agentd.turns.completed_at IS 'Time of turn.completed.';

CREATE TABLE agentd.messages (
    id         uuid        NOT NULL PRIMARY KEY,
    tenant_id  text        NOT NULL,
    session_id uuid        NOT NULL,
    run_id     uuid,
    turn_no    integer,
    role       text        NOT NULL,
    parts      json        NOT NULL,
    partial    boolean     NOT NULL DEFAULT false,
    position   bigint      NOT NULL,
    seq        bigint      NOT NULL,
    created_at timestamptz NOT NULL,
    CONSTRAINT messages_one_per_position UNIQUE (session_id, position),
    CONSTRAINT messages_session_fkey FOREIGN KEY (session_id, tenant_id) REFERENCES agentd.sessions (id, tenant_id),
    CONSTRAINT messages_partial_is_an_answer CHECK (NOT partial OR role = 'assistant'),
    CONSTRAINT messages_role CHECK (role IN ('system', 'user', 'assistant', 'tool')),
    CONSTRAINT messages_stored_at_or_after_its_position CHECK (position >= 1 AND seq >= position)
);
COMMENT ON TABLE agentd.messages IS 'What was said, in order of position.';
COMMENT ON COLUMN agentd.messages.id IS 'agentd''s own id.';
COMMENT ON COLUMN agentd.messages.tenant_id IS 'The owner of the session.';
COMMENT ON COLUMN agentd.messages.session_id IS 'The conversation.';
COMMENT ON COLUMN agentd.messages.run_id IS 'The run that the message belongs to.';
COMMENT ON COLUMN agentd.messages.turn_no IS 'The turn that it came from; NULL for what a user said.';
COMMENT ON COLUMN agentd.messages.role IS 'Who speaks: system, user, assistant, tool.';
COMMENT ON COLUMN agentd.messages.parts IS 'Typed parts: text, reasoning, tool call, tool result.';
COMMENT ON COLUMN agentd.messages.partial IS 'The answer was cut off: the text is what the user saw.';
COMMENT ON COLUMN agentd.messages.position IS 'Orders the messages of the session. A tool result stands where its call was proposed.';
COMMENT ON COLUMN agentd.messages.seq IS 'Seq of the event that stored the message.';
COMMENT ON COLUMN agentd.messages.created_at IS 'Time of that event.';

CREATE TABLE agentd.tool_calls (
    id                uuid        NOT NULL PRIMARY KEY,
    tenant_id         text        NOT NULL,
    session_id        uuid        NOT NULL,
    run_id            uuid        NOT NULL,
    turn_no           integer     NOT NULL,
    call_no           integer     NOT NULL,
    name              text        NOT NULL,
    arguments         text        NOT NULL,
    provider_call_id  text,
    status            text        NOT NULL,
    attempt           integer     NOT NULL DEFAULT 0,
    success           boolean,
    output_sha256     text,
    output_bytes      bigint,
    is_error          boolean,
    result_reason     text,
    result_message_id uuid,
    position          bigint      NOT NULL,
    proposed_at       timestamptz NOT NULL,
    started_at        timestamptz,
    executed_at       timestamptz,
    done_at           timestamptz,
    CONSTRAINT tool_calls_number_key UNIQUE (run_id, turn_no, call_no),
    CONSTRAINT tool_calls_run_fkey FOREIGN KEY (run_id, session_id, tenant_id) REFERENCES agentd.runs (id, session_id, tenant_id),
    CONSTRAINT tool_calls_turn_fkey FOREIGN KEY (run_id, turn_no) REFERENCES agentd.turns (run_id, turn_no),
    CONSTRAINT tool_calls_call_no_from_1 CHECK (call_no >= 1),
    CONSTRAINT tool_calls_status CHECK (status IN ('proposed', 'started', 'executed', 'done')),
    CONSTRAINT tool_calls_started_has_an_attempt CHECK (status NOT IN ('started', 'executed') OR (attempt >= 1 AND started_at IS NOT NULL)),
    CONSTRAINT tool_calls_attempt_was_started CHECK ((attempt >= 1) = (started_at IS NOT NULL)),
    CONSTRAINT tool_calls_executed_has_an_outcome CHECK (
        (status <> 'executed' OR executed_at IS NOT NULL)
        AND (executed_at IS NULL) = (success IS NULL)
        AND (executed_at IS NULL) = (output_sha256 IS NULL)
        AND (executed_at IS NULL) = (output_bytes IS NULL)),
    CONSTRAINT tool_calls_done_has_a_result CHECK (
        (status = 'done') = (done_at IS NOT NULL)
        AND (done_at IS NULL) = (result_message_id IS NULL)
        AND (done_at IS NULL) = (is_error IS NULL))
) WITH (fillfactor = 80);
CREATE INDEX tool_calls_session_idx ON agentd.tool_calls (session_id);
COMMENT ON TABLE agentd.tool_calls IS 'Tool calls that models asked for, and what became of them.';
COMMENT ON COLUMN agentd.tool_calls.id IS 'agentd''s own id, and the idempotency key of the execution.';
COMMENT ON COLUMN agentd.tool_calls.tenant_id IS 'The owner of the session.';
COMMENT ON COLUMN agentd.tool_calls.session_id IS 'The conversation.';
COMMENT ON COLUMN agentd.tool_calls.run_id IS 'The run.';
COMMENT ON COLUMN agentd.tool_calls.turn_no IS 'The turn whose answer asked for it.';
COMMENT ON COLUMN agentd.tool_calls.call_no IS 'Counts from 1 in the turn, in the model''s order.';
COMMENT ON COLUMN agentd.tool_calls.name IS 'The tool, as the model wrote it.';
COMMENT ON COLUMN agentd.tool_calls.arguments IS 'The text that the model wrote, byte for byte. It may not be valid JSON.';
COMMENT ON COLUMN agentd.tool_calls.provider_call_id IS 'The provider''s id, only echoed back to it; NULL if it gave none.';
COMMENT ON COLUMN agentd.tool_calls.status IS 'proposed, started (may have taken effect), executed (returned), done (has its one result).';
COMMENT ON COLUMN agentd.tool_calls.attempt IS 'Number of the last execution, 0 before the first.';
COMMENT ON COLUMN agentd.tool_calls.success IS 'Whether the last execution succeeded; NULL if it never returned.';
COMMENT ON COLUMN agentd.tool_calls.output_sha256 IS 'Digest (hex) of the output as the tool gave it.';
COMMENT ON COLUMN agentd.tool_calls.output_bytes IS 'Length of that output.';
COMMENT ON COLUMN agentd.tool_calls.is_error IS 'Whether the model was shown a failure; NULL without a result.';
COMMENT ON COLUMN agentd.tool_calls.result_reason IS 'Why the result is not the tool''s ordinary output; NULL if it is.';
COMMENT ON COLUMN agentd.tool_calls.result_message_id IS 'The message that holds the result.';
COMMENT ON COLUMN agentd.tool_calls.position IS 'Seq of tool.proposed; the result''s message stands there.';
COMMENT ON COLUMN agentd.tool_calls.proposed_at IS 'Time of tool.proposed.';
COMMENT ON COLUMN agentd.tool_calls.started_at IS 'Time of the last tool.started.';
COMMENT ON COLUMN agentd.tool_calls.executed_at IS 'Time of the last tool.executed.';
COMMENT ON COLUMN agentd.tool_calls.done_at IS 'Time of tool.result.';
