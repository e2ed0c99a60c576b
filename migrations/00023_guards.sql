-- +goose Up
-- What a limit counts: a slot is taken before a call starts, and a call that is
-- asked about again has it already.
CREATE TABLE agentd.guard_slots (
    session_id  uuid        NOT NULL,
    call_id     uuid        NOT NULL,
    guard       text        NOT NULL,
    tenant_id   text        NOT NULL,
    counted_for text        NOT NULL,
    taken_at    timestamptz NOT NULL,
    expires_at  timestamptz,
    PRIMARY KEY (session_id, call_id, guard),
    CONSTRAINT guard_slots_session_fkey FOREIGN KEY (session_id, tenant_id) REFERENCES agentd.sessions (id, tenant_id) ON DELETE CASCADE,
    CONSTRAINT guard_slots_no_empty_text CHECK (guard <> '' AND counted_for <> ''),
    CONSTRAINT guard_slots_expire_later CHECK (expires_at > taken_at)
);
CREATE INDEX guard_slots_count_idx ON agentd.guard_slots (tenant_id, guard, counted_for, taken_at);
CREATE INDEX guard_slots_expiry_idx ON agentd.guard_slots (expires_at) WHERE expires_at IS NOT NULL;
COMMENT ON TABLE agentd.guard_slots IS 'The places of rate limits that tool calls have taken, whether or not the call was started then. Rows leave once they count no more, and with their session.';
COMMENT ON COLUMN agentd.guard_slots.session_id IS 'The conversation of the call.';
COMMENT ON COLUMN agentd.guard_slots.call_id IS 'The tool call that has the place: one, however often it is asked about or run.';
COMMENT ON COLUMN agentd.guard_slots.guard IS 'The limit: the id of its hook and what it counts by.';
COMMENT ON COLUMN agentd.guard_slots.tenant_id IS 'The owner of the session.';
COMMENT ON COLUMN agentd.guard_slots.counted_for IS 'Whose limit it is, such as the run or the user; then the tool, where each tool has a limit of its own.';
COMMENT ON COLUMN agentd.guard_slots.taken_at IS 'When the place was taken, by the database''s clock.';
COMMENT ON COLUMN agentd.guard_slots.expires_at IS 'When it is free again; NULL if it is not before the session is purged.';

-- What model calls took, by quarters of an hour, which is when days begin in
-- every time zone there is. Each backend adds to rows of its own, so that no
-- append ever waits for another one's.
CREATE TABLE agentd.usage (
    tenant_id     text        NOT NULL REFERENCES agentd.tenants (id),
    quarter       timestamptz NOT NULL,
    agent         text        NOT NULL,
    backend       integer     NOT NULL,
    calls         bigint      NOT NULL,
    unreported    bigint      NOT NULL,
    input_tokens  bigint      NOT NULL,
    output_tokens bigint      NOT NULL,
    cost_micros   bigint      NOT NULL,
    PRIMARY KEY (tenant_id, quarter, agent, backend),
    CONSTRAINT usage_counts_from_0 CHECK (calls >= 0 AND unreported >= 0 AND input_tokens >= 0 AND output_tokens >= 0 AND cost_micros >= 0)
) WITH (fillfactor = 70);
COMMENT ON TABLE agentd.usage IS 'What model calls took, by tenant, agent and quarter of an hour, purged sessions included: sum over backend. It is written with the turns that it is about.';
COMMENT ON COLUMN agentd.usage.tenant_id IS 'Whose runs they were.';
COMMENT ON COLUMN agentd.usage.quarter IS 'When the quarter of an hour began in which it was stored what the calls took, by the database''s clock.';
COMMENT ON COLUMN agentd.usage.agent IS 'The agent of the runs.';
COMMENT ON COLUMN agentd.usage.backend IS 'The database process that added it up; 0 for what there was before this table. It means nothing else.';
COMMENT ON COLUMN agentd.usage.calls IS 'How many calls said what they took, or ended without saying so.';
COMMENT ON COLUMN agentd.usage.unreported IS 'How many of them ended without saying so.';
COMMENT ON COLUMN agentd.usage.input_tokens IS 'As the providers reported.';
COMMENT ON COLUMN agentd.usage.output_tokens IS 'As the providers reported.';
COMMENT ON COLUMN agentd.usage.cost_micros IS 'What the tokens cost, in millionths, see turns.';

-- +goose StatementBegin
CREATE FUNCTION agentd.count_usage() RETURNS trigger
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    AS $$
DECLARE
    input bigint := NEW.input_tokens;
    output bigint := NEW.output_tokens;
    cost bigint := NEW.cost_micros;
BEGIN
    IF TG_OP = 'UPDATE' THEN
        input := input - OLD.input_tokens;
        output := output - OLD.output_tokens;
        cost := cost - OLD.cost_micros;
    END IF;
    INSERT INTO agentd.usage AS u (tenant_id, quarter, agent, backend, calls, unreported, input_tokens, output_tokens, cost_micros)
    SELECT NEW.tenant_id, date_bin('15 minutes', agentd.clock(), '2000-01-01 00:00:00+00'), r.agent, pg_backend_pid(),
        1, CASE WHEN input + output = 0 THEN 1 ELSE 0 END, input, output, cost
    FROM agentd.runs AS r WHERE r.id = NEW.run_id
    ON CONFLICT ON CONSTRAINT usage_pkey DO UPDATE SET
        calls = u.calls + excluded.calls,
        unreported = u.unreported + excluded.unreported,
        input_tokens = u.input_tokens + excluded.input_tokens,
        output_tokens = u.output_tokens + excluded.output_tokens,
        cost_micros = u.cost_micros + excluded.cost_micros;
    RETURN NULL;
END
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION agentd.count_usage() IS 'Adds what a turn took since its row was written last to agentd.usage.';
CREATE TRIGGER turns_count_usage_of_new AFTER INSERT ON agentd.turns FOR EACH ROW
    WHEN (NEW.finish_reason IS NOT NULL OR NEW.input_tokens > 0 OR NEW.output_tokens > 0)
    EXECUTE FUNCTION agentd.count_usage();
CREATE TRIGGER turns_count_usage AFTER UPDATE ON agentd.turns FOR EACH ROW
    WHEN (OLD.finish_reason IS NULL AND NEW.finish_reason IS NOT NULL OR NEW.input_tokens > OLD.input_tokens OR NEW.output_tokens > OLD.output_tokens)
    EXECUTE FUNCTION agentd.count_usage();

INSERT INTO agentd.usage (tenant_id, quarter, agent, backend, calls, unreported, input_tokens, output_tokens, cost_micros)
SELECT t.tenant_id, date_bin('15 minutes', t.started_at, '2000-01-01 00:00:00+00'), r.agent, 0,
    count(*), count(*) FILTER (WHERE t.input_tokens + t.output_tokens = 0), sum(t.input_tokens), sum(t.output_tokens), sum(t.cost_micros)
FROM agentd.turns AS t
JOIN agentd.runs AS r ON r.id = t.run_id
WHERE t.finish_reason IS NOT NULL OR t.input_tokens > 0 OR t.output_tokens > 0
GROUP BY t.tenant_id, date_bin('15 minutes', t.started_at, '2000-01-01 00:00:00+00'), r.agent;

-- Whether something in a session was suspected is asked before each call.
CREATE INDEX hook_decisions_suspected_idx ON agentd.hook_decisions (session_id, hook_id) WHERE reason_code = 'injection_suspected';
