-- +goose Up
-- What tools said of how far they were, and who has left a run which tools, in words.
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
        WHEN 'assistant.stopped' THEN concat_ws(': ',
            CASE WHEN e.payload ->> 'observer' IS NULL THEN e.payload ->> 'reason'
                ELSE concat_ws(' ', e.payload ->> 'reason', 'by', e.payload ->> 'observer', 'at chunk', e.payload ->> 'chunk',
                    'behind', coalesce(e.payload ->> 'accepted', '0'), 'bytes, then', e.payload ->> 'policy') END,
            left(said.text, 200))
        WHEN 'emission' THEN concat_ws(' ', e.payload ->> 'observer', 'on', e.payload ->> 'channel') || ': ' || left(e.payload ->> 'envelope', 200)
        WHEN 'tool.proposed' THEN (e.payload ->> 'name') || '(' || left(e.payload ->> 'arguments', 200) || ')'
        WHEN 'tool.blocked' THEN concat_ws(': ',
            concat_ws(' ', call.name, 'by', e.payload ->> 'by'), e.payload ->> 'reason_code', left(e.payload ->> 'reason', 200))
        WHEN 'approval.requested' THEN concat_ws(': ',
            (e.payload ->> 'name') || '(' || left(e.payload ->> 'arguments', 200) || ')',
            'changed from ' || left(e.payload ->> 'changed_from', 200), left(e.payload ->> 'reason', 200))
        WHEN 'approval.decided' THEN concat_ws(': ', concat_ws(' ', call.name, e.payload ->> 'decision',
            'from ' || left(edited.arguments, 200) || ' to ' || left(e.payload ->> 'edited_arguments', 200)), left(e.payload ->> 'reason', 200))
        WHEN 'tool.started' THEN concat_ws(' ', call.name, 'attempt', e.payload ->> 'attempt')
        WHEN 'tool.progress' THEN concat_ws(' ', call.name, e.payload ->> 'number') || ': '
            || CASE e.payload ->> 'withheld' WHEN 'true' THEN '(withheld)' ELSE left(e.payload ->> 'text', 200) END
        WHEN 'tools.narrowed' THEN (e.payload ->> 'by') || ' leaves ' || left(e.payload ->> 'tools', 200)
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
    ON e.type IN ('tool.blocked', 'approval.decided', 'tool.started', 'tool.progress', 'tool.executed') AND call.id = (e.payload ->> 'call_id')::uuid
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
