-- +goose Up
-- An answer may also give other arguments, there may be people who may give one and
-- others who may not, and the time for it may be over.
ALTER TABLE agentd.approvals
    ADD COLUMN edited_arguments text,
    ADD COLUMN edited_sha256 text,
    ADD COLUMN changed_from text,
    ADD COLUMN approvers text[],
    ADD COLUMN expires_at timestamptz,
    DROP CONSTRAINT approvals_status,
    ADD CONSTRAINT approvals_status CHECK (
        status IN ('pending', 'approved', 'denied', 'edited', 'expired', 'cancelled', 'happened', 'did_not_happen')),
    ADD CONSTRAINT approvals_edited_with_arguments CHECK (
        (status = 'edited') = (edited_arguments IS NOT NULL) AND (edited_arguments IS NULL) = (edited_sha256 IS NULL)),
    ADD CONSTRAINT approvals_edited_digest_is_sha256 CHECK (edited_sha256 ~ '^[0-9a-f]{64}$'),
    ADD CONSTRAINT approvals_expire_if_they_may CHECK (expires_at IS NOT NULL OR status <> 'expired'),
    ADD CONSTRAINT approvals_of_outcomes_stay CHECK (kind <> 'outcome' OR expires_at IS NULL);
CREATE INDEX approvals_expiry_idx ON agentd.approvals (expires_at) WHERE status = 'pending';
COMMENT ON COLUMN agentd.approvals.status IS 'pending, approved, denied, edited (may run with other arguments), expired (nobody answered in time: neither a yes nor a no), cancelled (the run was cut short); of an outcome: happened, did_not_happen (the call is run again, under the same id).';
COMMENT ON COLUMN agentd.approvals.arguments IS 'Exactly what runs if the answer is yes, byte for byte; what runs after an edit is in edited_arguments.';
COMMENT ON COLUMN agentd.approvals.edited_arguments IS 'What the one who answered gave in the place of the arguments, byte for byte; NULL if the answer was no edit. Hooks see it before it runs: what they make of it is another approval.';
COMMENT ON COLUMN agentd.approvals.edited_sha256 IS 'Digest (hex) of edited_arguments.';
COMMENT ON COLUMN agentd.approvals.changed_from IS 'What a person had given, if a hook has made the arguments of it, so that people were asked again; NULL if not.';
COMMENT ON COLUMN agentd.approvals.approvers IS 'Globs: who may answer is an actor whose id one of them fits, as it was set when people were asked; NULL is everybody who reaches the API of the tenant.';
COMMENT ON COLUMN agentd.approvals.expires_at IS 'Until when there is time to answer, by the clock of the database; NULL is for ever.';

ALTER TABLE agentd.tool_calls
    DROP CONSTRAINT tool_calls_status,
    DROP CONSTRAINT tool_calls_asked_has_an_approval,
    ADD CONSTRAINT tool_calls_status CHECK (
        status IN ('proposed', 'blocked', 'awaiting', 'approved', 'edited', 'denied', 'confirmed', 'started', 'executed', 'done')),
    ADD CONSTRAINT tool_calls_asked_has_an_approval CHECK (
        status NOT IN ('awaiting', 'approved', 'edited', 'denied', 'confirmed') OR approval_id IS NOT NULL);
COMMENT ON COLUMN agentd.tool_calls.status IS 'proposed, blocked (will not run, or not again), awaiting (people were asked), approved, edited (a person gave other arguments, which hooks have yet to see), denied (or nobody answered in time), confirmed (people said that it has taken effect), started (may have taken effect), executed (returned), done (has its one result).';
COMMENT ON COLUMN agentd.tool_calls.final_arguments IS 'What runs, if hooks or people changed the arguments; NULL if it is what the model wrote.';

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
