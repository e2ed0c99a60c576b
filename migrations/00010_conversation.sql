-- +goose Up
-- None of these columns changes with an append, so the updates of sessions stay HOT.
ALTER TABLE agentd.sessions
    ADD COLUMN title text,
    ADD COLUMN title_search text,
    ADD COLUMN user_id text,
    ADD COLUMN metadata jsonb NOT NULL DEFAULT '{}',
    ADD CONSTRAINT sessions_title_not_empty CHECK (title <> ''),
    ADD CONSTRAINT sessions_title_is_searched CHECK ((title IS NULL) = (title_search IS NULL)),
    ADD CONSTRAINT sessions_user_id_not_empty CHECK (user_id <> ''),
    ADD CONSTRAINT sessions_metadata_is_an_object CHECK (jsonb_typeof(metadata) = 'object');
CREATE INDEX sessions_user_idx ON agentd.sessions (tenant_id, user_id, created_at, id) WHERE user_id IS NOT NULL;
CREATE INDEX sessions_metadata_idx ON agentd.sessions USING gin (metadata jsonb_path_ops) WHERE metadata <> '{}';
COMMENT ON COLUMN agentd.sessions.title IS 'For people; NULL for none.';
COMMENT ON COLUMN agentd.sessions.title_search IS 'The title in lower case, in which sessions are searched: the database''s own lower() knows no letters but those of its locale.';
COMMENT ON COLUMN agentd.sessions.user_id IS 'The client''s own name of its end user; NULL if it gave none.';
COMMENT ON COLUMN agentd.sessions.metadata IS 'What the client wants to find the session by: texts by key.';

ALTER TABLE agentd.messages
    ADD COLUMN replaced_seq bigint,
    ADD CONSTRAINT messages_replaced_after_stored CHECK (replaced_seq > seq);
COMMENT ON COLUMN agentd.messages.replaced_seq IS 'Seq of the event that took the message out of the conversation; NULL while it is in it.';

ALTER TABLE agentd.runs
    ADD COLUMN retries integer NOT NULL DEFAULT 0,
    ADD CONSTRAINT runs_retries_from_0 CHECK (retries >= 0);
COMMENT ON COLUMN agentd.runs.retries IS 'How often the run was taken up again after it had failed.';
COMMENT ON COLUMN agentd.runs.reason IS 'Why the run ended, in a word; NULL until then, and again once a failed run is taken up again.';
COMMENT ON COLUMN agentd.runs.ended_at IS 'Time of the terminal event; NULL while the run may go on.';
COMMENT ON COLUMN agentd.runs.ended_seq IS 'Seq of the terminal event; NULL while the run may go on.';

CREATE OR REPLACE VIEW agentd.timeline AS
SELECT
    e.session_id,
    e.seq,
    e.at,
    e.type,
    e.run_id,
    e.turn_no,
    e.actor_kind || ':' || e.actor_id AS actor,
    CASE e.type
        WHEN 'session.created' THEN concat_ws(' ', e.payload ->> 'external_id', quote_literal(left(e.payload ->> 'title', 200)))
        WHEN 'session.updated' THEN concat_ws(' ', quote_literal(left(e.payload ->> 'title', 200)), e.payload ->> 'metadata')
        WHEN 'messages.replaced' THEN json_array_length(e.payload -> 'message_ids') || ' messages'
        WHEN 'message.created' THEN concat_ws(': ', e.payload ->> 'role', left(said.text, 200))
        WHEN 'input.handled' THEN 'reply: ' || left(e.payload ->> 'reply', 200)
        WHEN 'input.blocked' THEN concat_ws(': ', e.payload ->> 'reason_code', left(e.payload ->> 'reason', 200))
        WHEN 'input.rejected' THEN concat_ws(' ', e.payload ->> 'policy',
            'run ' || nullif(e.payload ->> 'active_run_id', '') || ' is active')
        WHEN 'run.created' THEN 'agent ' || (e.payload ->> 'agent')
        WHEN 'run.queued' THEN concat_ws(' ', 'ticket', e.payload ->> 'ticket', e.payload ->> 'cause')
        WHEN 'run.started' THEN concat_ws(' ', 'worker', e.payload ->> 'worker_id', 'epoch', e.payload ->> 'epoch')
        WHEN 'run.resumed' THEN concat_ws(' ', e.payload ->> 'cause', 'worker', e.payload ->> 'worker_id', 'epoch', e.payload ->> 'epoch')
        WHEN 'run.released' THEN concat_ws(' ', e.payload ->> 'cause', 'worker', e.payload ->> 'worker_id', 'epoch', e.payload ->> 'epoch')
        WHEN 'run.prepared' THEN concat_ws(', ',
            CASE WHEN e.payload -> 'system' IS NOT NULL THEN 'system prompt' END,
            json_array_length(e.payload -> 'messages') || ' hidden messages',
            json_array_length(e.payload -> 'tools') || ' tools')
        WHEN 'run.suspended' THEN concat_ws(' ', e.payload ->> 'reason', 'of', json_array_length(e.payload -> 'approval_ids'), 'calls')
        WHEN 'model.requested' THEN concat_ws(' ', e.payload ->> 'model', 'attempt', e.payload ->> 'attempt')
        WHEN 'assistant.delta' THEN concat_ws(': ', e.payload ->> 'lane', left(e.payload ->> 'text', 200))
        WHEN 'assistant.discarded' THEN concat_ws(' ', 'attempt', e.payload ->> 'attempt', e.payload ->> 'reason')
        WHEN 'assistant.completed' THEN concat_ws(': ', e.payload ->> 'finish', left(said.text, 200))
        WHEN 'assistant.stopped' THEN concat_ws(': ', e.payload ->> 'reason', left(said.text, 200))
        WHEN 'tool.proposed' THEN (e.payload ->> 'name') || '(' || left(e.payload ->> 'arguments', 200) || ')'
        WHEN 'tool.blocked' THEN concat_ws(': ',
            concat_ws(' ', call.name, 'by', e.payload ->> 'by'), e.payload ->> 'reason_code', left(e.payload ->> 'reason', 200))
        WHEN 'approval.requested' THEN concat_ws(': ',
            (e.payload ->> 'name') || '(' || left(e.payload ->> 'arguments', 200) || ')', left(e.payload ->> 'reason', 200))
        WHEN 'approval.decided' THEN concat_ws(': ', concat_ws(' ', call.name, e.payload ->> 'decision'), left(e.payload ->> 'reason', 200))
        WHEN 'tool.started' THEN concat_ws(' ', call.name, 'attempt', e.payload ->> 'attempt')
        WHEN 'tool.executed' THEN concat_ws(' ', call.name,
            CASE e.payload ->> 'success' WHEN 'true' THEN 'succeeded' ELSE 'did not succeed' END,
            e.payload ->> 'bytes', 'bytes')
        WHEN 'tool.result' THEN concat_ws(': ',
            concat_ws(' ', e.payload ->> 'name', e.payload ->> 'reason'), left(e.payload ->> 'content', 200))
        WHEN 'run.cancel_requested' THEN coalesce(e.payload ->> 'reason', '')
        WHEN 'run.completed' THEN coalesce(e.payload ->> 'reason', '')
        WHEN 'run.failed' THEN concat_ws(': ', e.payload ->> 'reason', e.payload ->> 'error')
        WHEN 'run.cancelled' THEN coalesce(e.payload ->> 'reason', '')
        ELSE ''
    END AS summary,
    'event' AS kind,
    e.seq AS event_seq,
    NULL::bigint AS ledger_seq
FROM agentd.events AS e
LEFT JOIN LATERAL (
    SELECT string_agg(part ->> 'text', '') AS text
    -- An answer that showed nothing has null for its parts.
    FROM json_array_elements(CASE json_typeof(e.payload -> 'parts') WHEN 'array' THEN e.payload -> 'parts' END) AS part
    WHERE part ->> 'type' = 'text'
) AS said ON e.type IN ('message.created', 'assistant.completed', 'assistant.stopped')
LEFT JOIN agentd.tool_calls AS call
    ON e.type IN ('tool.blocked', 'approval.decided', 'tool.started', 'tool.executed') AND call.id = (e.payload ->> 'call_id')::uuid
UNION ALL
SELECT
    d.session_id,
    greatest(before.seq, earlier.event_seq, 0) + 1,
    d.at,
    d.gate,
    d.run_id,
    d.turn_no,
    'hook:' || d.hook_id,
    concat_ws(': ',
        concat_ws(' ', d.tool_name, d.action,
            CASE WHEN d.outcome <> 'ok' THEN '(' || d.outcome || CASE WHEN d.failed_open THEN ', let through' ELSE '' END || ')' END,
            CASE WHEN NOT d.effective THEN '(without effect)' END),
        d.reason_code, left(d.reason, 200)),
    'decision',
    d.event_seq,
    d.ledger_seq
FROM agentd.decisions AS d
-- What follows from a decision is in the same append: it stands before that, behind what follows from the decisions before.
LEFT JOIN agentd.events AS last ON last.session_id = d.session_id AND last.seq = d.event_seq
LEFT JOIN LATERAL (
    SELECT b.seq FROM agentd.events AS b
    WHERE b.session_id = d.session_id AND b.seq < d.event_seq AND b.append_id <> last.append_id
    ORDER BY b.seq DESC LIMIT 1
) AS before ON true
LEFT JOIN LATERAL (
    SELECT b.event_seq FROM agentd.hook_decisions AS b
    WHERE b.session_id = d.session_id AND b.ledger_seq < d.ledger_seq AND b.event_seq < d.event_seq
    ORDER BY b.ledger_seq DESC LIMIT 1
) AS earlier ON true;

CREATE OR REPLACE VIEW agentd.run_summary AS
SELECT
    r.id AS run_id,
    r.tenant_id,
    r.session_id,
    r.agent,
    r.status,
    r.reason,
    r.error,
    t.turns,
    t.model_calls,
    k.tool_calls,
    k.blocked_calls,
    a.approvals,
    a.pending_approvals,
    d.decisions,
    t.input_tokens,
    t.output_tokens,
    r.takeovers,
    r.created_at,
    r.started_at,
    r.ended_at,
    coalesce(r.ended_at, agentd.clock()) - r.created_at AS duration,
    r.retries
FROM agentd.runs AS r
CROSS JOIN LATERAL (
    SELECT count(*) AS turns, coalesce(sum(attempt), 0) AS model_calls,
        coalesce(sum(input_tokens), 0) AS input_tokens, coalesce(sum(output_tokens), 0) AS output_tokens
    FROM agentd.turns WHERE run_id = r.id
) AS t
CROSS JOIN LATERAL (
    SELECT count(*) AS tool_calls, count(blocked_by) AS blocked_calls FROM agentd.tool_calls WHERE run_id = r.id
) AS k
CROSS JOIN LATERAL (
    SELECT count(*) AS approvals, count(*) FILTER (WHERE status = 'pending') AS pending_approvals
    FROM agentd.approvals WHERE run_id = r.id
) AS a
CROSS JOIN LATERAL (
    SELECT count(*) AS decisions FROM agentd.hook_decisions WHERE run_id = r.id
) AS d;
COMMENT ON COLUMN agentd.run_summary.retries IS 'How often it was taken up again after it had failed.';
