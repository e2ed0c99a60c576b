-- +goose Up
CREATE VIEW agentd.decisions AS
SELECT
    d.session_id,
    d.ledger_seq,
    d.at,
    d.tenant_id,
    d.run_id,
    d.turn_no,
    d.gate,
    d.subject,
    k.name AS tool_name,
    d.attempt,
    d.phase,
    d.position,
    d.chain_length,
    d.hook_id,
    d.hook_kind,
    d.hook_version,
    d.rule_id,
    d.action,
    d.effective,
    d.outcome,
    d.failure_policy,
    d.failed_open,
    d.reason_code,
    p.reason,
    d.payload_sha256 IS NOT NULL AND p.decision_id IS NULL AS payload_erased,
    d.fields_changed,
    r.status AS run_status,
    d.event_seq,
    d.epoch,
    d.worker_id,
    d.queue_us,
    d.latency_us,
    d.deadline_ms,
    d.trace_id,
    d.hook_set_digest,
    d.decision_id
FROM agentd.hook_decisions AS d
LEFT JOIN agentd.hook_payloads AS p ON p.decision_id = d.decision_id
LEFT JOIN agentd.runs AS r ON r.id = d.run_id
LEFT JOIN agentd.tool_calls AS k ON d.gate IN ('BeforeToolCall', 'BeforeExecute', 'AfterToolCall') AND k.session_id = d.session_id
    AND k.id = CASE WHEN d.subject ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' THEN d.subject::uuid END;
COMMENT ON VIEW agentd.decisions IS 'What each hook answered, with what the ledger only names: filter by session_id or run_id, order by ledger_seq.';
COMMENT ON COLUMN agentd.decisions.tool_name IS 'The tool that was asked about; NULL at other gates.';
COMMENT ON COLUMN agentd.decisions.reason IS 'The hook''s words, or what went wrong with it; NULL if it gave none, or if they were erased.';
COMMENT ON COLUMN agentd.decisions.payload_erased IS 'Reason, patch and annotations were there and were erased.';
COMMENT ON COLUMN agentd.decisions.run_status IS 'Where the run stands now.';

CREATE VIEW agentd.fail_open AS
SELECT session_id, ledger_seq, at, tenant_id, run_id, turn_no, gate, subject, tool_name, hook_id, hook_kind, hook_version,
    outcome, reason_code, reason, effective, run_status, decision_id
FROM agentd.decisions
WHERE failed_open;
COMMENT ON VIEW agentd.fail_open IS 'Every time a hook failed and what it should have checked was let through.';

CREATE VIEW agentd.blocked AS
SELECT session_id, at, tenant_id, run_id, turn_no, gate AS blocked_by, subject, tool_name, hook_id, rule_id,
    action, outcome, reason_code, reason, run_status, event_seq AS seq
FROM agentd.decisions
WHERE effective AND action IN ('block', 'withhold', 'terminate')
UNION ALL
SELECT e.session_id, e.at, e.tenant_id, e.run_id, e.turn_no, k.blocked_by, k.id::text, k.name, NULL, NULL,
    'block', 'ok', e.payload ->> 'reason_code', e.payload ->> 'reason', r.status, e.seq
FROM agentd.tool_calls AS k
JOIN agentd.events AS e ON e.run_id = k.run_id AND e.type = 'tool.blocked' AND e.payload ->> 'call_id' = k.id::text
JOIN agentd.runs AS r ON r.id = k.run_id
WHERE k.blocked_by = 'permission' AND e.payload ->> 'by' = 'permission';
COMMENT ON VIEW agentd.blocked IS 'What was not let through: refused or withheld by a hook, by the failure of one, or by the agent''s permissions.';
COMMENT ON COLUMN agentd.blocked.blocked_by IS 'The gate, or permission.';
COMMENT ON COLUMN agentd.blocked.action IS 'block (it did not happen), withhold (it did, and nobody is shown the output), terminate (the run ended).';
COMMENT ON COLUMN agentd.blocked.outcome IS 'ok if something refused; otherwise how the check failed.';
COMMENT ON COLUMN agentd.blocked.seq IS 'Seq of the last event that was committed with it.';

CREATE VIEW agentd.hook_latency AS
SELECT
    gate,
    hook_id,
    count(*) AS calls,
    count(*) FILTER (WHERE outcome <> 'ok') AS failures,
    count(*) FILTER (WHERE outcome = 'timeout') AS timeouts,
    round((percentile_cont(0.5) WITHIN GROUP (ORDER BY latency_us))::numeric / 1000, 3) AS p50_ms,
    round((percentile_cont(0.95) WITHIN GROUP (ORDER BY latency_us))::numeric / 1000, 3) AS p95_ms,
    round((percentile_cont(0.99) WITHIN GROUP (ORDER BY latency_us))::numeric / 1000, 3) AS p99_ms,
    round(max(latency_us)::numeric / 1000, 3) AS max_ms,
    round((percentile_cont(0.99) WITHIN GROUP (ORDER BY queue_us))::numeric / 1000, 3) AS queue_p99_ms,
    max(deadline_ms) AS deadline_ms,
    max(at) AS last_at
FROM agentd.hook_decisions
GROUP BY gate, hook_id;
COMMENT ON VIEW agentd.hook_latency IS 'How long hooks take, a line per hook and gate, over the whole ledger.';
COMMENT ON COLUMN agentd.hook_latency.calls IS 'How often it was asked.';
COMMENT ON COLUMN agentd.hook_latency.failures IS 'How often it gave no usable answer.';
COMMENT ON COLUMN agentd.hook_latency.timeouts IS 'How often it did not answer in time.';
COMMENT ON COLUMN agentd.hook_latency.p50_ms IS 'Half of the calls took no longer, in milliseconds.';
COMMENT ON COLUMN agentd.hook_latency.p95_ms IS '95 of 100 calls took no longer.';
COMMENT ON COLUMN agentd.hook_latency.p99_ms IS '99 of 100 calls took no longer.';
COMMENT ON COLUMN agentd.hook_latency.max_ms IS 'The longest call.';
COMMENT ON COLUMN agentd.hook_latency.queue_p99_ms IS '99 of 100 calls waited no longer before the hook was entered.';
COMMENT ON COLUMN agentd.hook_latency.last_at IS 'When it was last asked.';

DROP VIEW agentd.timeline;
CREATE VIEW agentd.timeline AS
SELECT
    e.session_id,
    e.seq,
    e.at,
    e.type,
    e.run_id,
    e.turn_no,
    e.actor_kind || ':' || e.actor_id AS actor,
    CASE e.type
        WHEN 'session.created' THEN coalesce(e.payload ->> 'external_id', '')
        WHEN 'message.created' THEN concat_ws(': ', e.payload ->> 'role', left(said.text, 200))
        WHEN 'input.handled' THEN 'reply: ' || left(e.payload ->> 'reply', 200)
        WHEN 'input.blocked' THEN concat_ws(': ', e.payload ->> 'reason_code', left(e.payload ->> 'reason', 200))
        WHEN 'input.rejected' THEN concat_ws(' ', e.payload ->> 'policy', 'run', e.payload ->> 'active_run_id', 'is active')
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
COMMENT ON VIEW agentd.timeline IS 'What happened in a session, a line per event and per decision of a hook, in the order of commits: filter by session_id, order by seq, kind, ledger_seq.';
COMMENT ON COLUMN agentd.timeline.session_id IS 'The conversation.';
COMMENT ON COLUMN agentd.timeline.seq IS 'The order within the session. A decision has that of the first event that follows from it, and stands before it.';
COMMENT ON COLUMN agentd.timeline.at IS 'The writer''s clock.';
COMMENT ON COLUMN agentd.timeline.type IS 'What happened; of a decision, the gate.';
COMMENT ON COLUMN agentd.timeline.run_id IS 'The run that it belongs to.';
COMMENT ON COLUMN agentd.timeline.turn_no IS 'The turn within the run.';
COMMENT ON COLUMN agentd.timeline.actor IS 'Who caused it, as kind:id.';
COMMENT ON COLUMN agentd.timeline.summary IS 'It in words, at most some hundred characters.';
COMMENT ON COLUMN agentd.timeline.kind IS 'event or decision.';
COMMENT ON COLUMN agentd.timeline.event_seq IS 'Of an event its seq, of a decision that of the last event that follows from it.';
COMMENT ON COLUMN agentd.timeline.ledger_seq IS 'The decision''s place in the ledger; NULL for an event.';

-- A column of a view that is a column of the ledger means the same.
-- +goose StatementBegin
DO $$
DECLARE
    c record;
BEGIN
    FOR c IN
        SELECT v.relname, a.attname, col_description(t.attrelid, t.attnum) AS comment
        FROM pg_catalog.pg_class AS v
        JOIN pg_catalog.pg_attribute AS a ON a.attrelid = v.oid AND a.attnum > 0
        JOIN pg_catalog.pg_attribute AS t ON t.attrelid = 'agentd.hook_decisions'::regclass AND t.attname = a.attname
        WHERE v.relnamespace = 'agentd'::regnamespace AND v.relname IN ('decisions', 'fail_open', 'blocked', 'hook_latency')
            AND col_description(v.oid, a.attnum) IS NULL
    LOOP
        EXECUTE format('COMMENT ON COLUMN agentd.%I.%I IS %L', c.relname, c.attname, c.comment);
    END LOOP;
    FOR c IN
        SELECT v.relname, a.attname, col_description(t.attrelid, t.attnum) AS comment
        FROM pg_catalog.pg_class AS v
        JOIN pg_catalog.pg_attribute AS a ON a.attrelid = v.oid AND a.attnum > 0
        JOIN pg_catalog.pg_attribute AS t ON t.attrelid = 'agentd.decisions'::regclass AND t.attname = a.attname
        WHERE v.relnamespace = 'agentd'::regnamespace AND v.relname IN ('fail_open', 'blocked')
            AND col_description(v.oid, a.attnum) IS NULL
    LOOP
        EXECUTE format('COMMENT ON COLUMN agentd.%I.%I IS %L', c.relname, c.attname, c.comment);
    END LOOP;
END
$$;
-- +goose StatementEnd
