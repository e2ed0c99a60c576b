-- +goose Up
-- Hooks that are asked and recorded, and have no effect. What is there passed
-- the narrower check, so nothing is read again.
ALTER TABLE agentd.hook_decisions
    DROP CONSTRAINT hook_decisions_failure_policy,
    ADD CONSTRAINT hook_decisions_failure_policy CHECK (failure_policy IN ('open', 'closed', 'shadow')) NOT VALID,
    ADD CONSTRAINT hook_decisions_shadow_has_no_effect CHECK (failure_policy <> 'shadow' OR NOT effective) NOT VALID;
CREATE INDEX hook_decisions_shadow_idx ON agentd.hook_decisions (at) WHERE failure_policy = 'shadow';
COMMENT ON COLUMN agentd.hook_decisions.action IS 'What the gate took from the hook: continue, transform, ask, handled, terminate, block, withhold. Of a shadow, what it would have taken.';
COMMENT ON COLUMN agentd.hook_decisions.effective IS 'False if it led to nothing: the hook is a shadow, a stronger answer overruled it, or something came between.';
COMMENT ON COLUMN agentd.hook_decisions.failure_policy IS 'What a failure comes to: closed (refuse), open (go on), shadow (nothing: the hook is only tried, and neither its failures nor its answers have any effect).';
COMMENT ON COLUMN agentd.hook_decisions.fields_changed IS 'The fields that the hook changed; of a shadow, those that it would have changed.';
COMMENT ON COLUMN agentd.hook_decisions.output_sha256 IS 'Digest of what it left, as JSON; of a shadow, of what it would have left.';
COMMENT ON COLUMN agentd.hook_decisions.output_bytes IS 'Length of that output.';
COMMENT ON COLUMN agentd.hook_payloads.patch IS 'JSON Patch from what the hook was asked about to what it left, or would have left; NULL if it changed nothing.';
COMMENT ON COLUMN agentd.decisions.action IS 'What the gate took from the hook: continue, transform, ask, handled, terminate, block, withhold. Of a shadow, what it would have taken.';
COMMENT ON COLUMN agentd.decisions.effective IS 'False if it led to nothing: the hook is a shadow, a stronger answer overruled it, or something came between.';
COMMENT ON COLUMN agentd.decisions.failure_policy IS 'What a failure comes to: closed (refuse), open (go on), shadow (nothing: the hook is only tried, and neither its failures nor its answers have any effect).';
COMMENT ON COLUMN agentd.decisions.fields_changed IS 'The fields that the hook changed; of a shadow, those that it would have changed.';

CREATE VIEW agentd.shadowed AS
SELECT d.session_id, d.ledger_seq, d.at, d.tenant_id, d.run_id, d.turn_no, d.gate, d.subject, d.tool_name, d.attempt,
    d.hook_id, d.hook_kind, d.hook_version, d.rule_id, d.action AS would, real.action AS came_to, d.outcome, d.reason_code, d.reason, d.fields_changed,
    d.run_status, d.hook_set_digest, d.decision_id
FROM agentd.decisions AS d
CROSS JOIN LATERAL (
    SELECT
        coalesce((array_agg(o.action ORDER BY array_position(ARRAY['continue', 'transform', 'ask', 'handled', 'terminate', 'block', 'withhold'], o.action) DESC)
            FILTER (WHERE o.effective))[1], 'continue') AS action,
        -- Of those that were asked, one always has its effect, unless something came between.
        NOT coalesce(bool_or(o.effective), true) AS void
    FROM agentd.hook_decisions AS o
    -- The decisions of a gate stand together.
    WHERE o.session_id = d.session_id AND o.ledger_seq BETWEEN d.ledger_seq - d.position + 1 AND d.ledger_seq - d.position + d.chain_length
        AND o.gate = d.gate AND o.subject = d.subject AND o.attempt = d.attempt AND o.run_id IS NOT DISTINCT FROM d.run_id
        AND o.failure_policy <> 'shadow'
) AS real
WHERE d.failure_policy = 'shadow' AND NOT real.void
    AND (d.action = 'transform' AND real.action = 'transform'
        OR array_position(ARRAY['continue', 'transform', 'ask', 'handled', 'terminate', 'block', 'withhold'], d.action)
            > array_position(ARRAY['continue', 'transform', 'ask', 'handled', 'terminate', 'block', 'withhold'], real.action));
COMMENT ON VIEW agentd.shadowed IS 'What hooks in shadow would have done that the hooks in force did not: a line per decision. What several would have done together is not in it: each was tried alone.';
COMMENT ON COLUMN agentd.shadowed.would IS 'What it would have done: transform, ask, handled, terminate, block, withhold.';
COMMENT ON COLUMN agentd.shadowed.came_to IS 'What the hooks in force came to there; continue also where there was none.';
COMMENT ON COLUMN agentd.shadowed.outcome IS 'ok if it said so; otherwise how it failed, which would have come to this.';
COMMENT ON COLUMN agentd.shadowed.fields_changed IS 'The fields that it would have changed.';
COMMENT ON COLUMN agentd.shadowed.tool_name IS 'The tool that was asked about; NULL at other gates.';
COMMENT ON COLUMN agentd.shadowed.reason IS 'The hook''s words, or what went wrong with it; NULL if it gave none, or if they were erased.';
COMMENT ON COLUMN agentd.shadowed.run_status IS 'Where the run stands now.';

CREATE VIEW agentd.shadow_hooks AS
SELECT d.gate, d.hook_id, d.hook_kind, d.hook_version, d.action, count(*) AS decisions, count(s.decision_id) AS differing,
    count(*) FILTER (WHERE d.outcome <> 'ok') AS failures, min(d.at) AS first_at, max(d.at) AS last_at
FROM agentd.hook_decisions AS d
LEFT JOIN agentd.shadowed AS s ON s.session_id = d.session_id AND s.ledger_seq = d.ledger_seq
WHERE d.failure_policy = 'shadow'
GROUP BY d.gate, d.hook_id, d.hook_kind, d.hook_version, d.action;
COMMENT ON VIEW agentd.shadow_hooks IS 'What hooks in shadow answer, a line per hook, version and answer, over the whole ledger.';
COMMENT ON COLUMN agentd.shadow_hooks.action IS 'What it would have done, continue included.';
COMMENT ON COLUMN agentd.shadow_hooks.decisions IS 'How often it answered so.';
COMMENT ON COLUMN agentd.shadow_hooks.differing IS 'How often the hooks in force did not: the lines of shadowed.';
COMMENT ON COLUMN agentd.shadow_hooks.failures IS 'How often it came to this because it failed.';
COMMENT ON COLUMN agentd.shadow_hooks.first_at IS 'When it first answered so.';
COMMENT ON COLUMN agentd.shadow_hooks.last_at IS 'When it last did.';

-- A column of these views that is a column of the ledger means the same.
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
        WHERE v.relnamespace = 'agentd'::regnamespace AND v.relname IN ('shadowed', 'shadow_hooks')
            AND col_description(v.oid, a.attnum) IS NULL
    LOOP
        EXECUTE format('COMMENT ON COLUMN agentd.%I.%I IS %L', c.relname, c.attname, c.comment);
    END LOOP;
END
$$;
-- +goose StatementEnd

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
            (e.payload ->> 'name') || '(' || left(e.payload ->> 'arguments', 200) || ')',
            'changed from ' || left(e.payload ->> 'changed_from', 200), left(e.payload ->> 'reason', 200))
        WHEN 'approval.decided' THEN concat_ws(': ', concat_ws(' ', call.name, e.payload ->> 'decision',
            'from ' || left(edited.arguments, 200) || ' to ' || left(e.payload ->> 'edited_arguments', 200)), left(e.payload ->> 'reason', 200))
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
LEFT JOIN agentd.approvals AS edited
    ON e.type = 'approval.decided' AND edited.id = (e.payload ->> 'approval_id')::uuid
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
            CASE WHEN d.failure_policy = 'shadow' THEN '(shadow)' WHEN NOT d.effective THEN '(without effect)' END),
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
