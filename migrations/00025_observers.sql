-- +goose Up
-- Who has stopped an answer is an observer, and what stands in its place may be
-- nothing: the turn is over all the same. What is there passed the narrower check.
ALTER TABLE agentd.turns
    DROP CONSTRAINT turns_answered_has_a_message,
    ADD CONSTRAINT turns_answered_has_a_message CHECK (status <> 'answered' OR message_id IS NOT NULL) NOT VALID;
COMMENT ON COLUMN agentd.turns.status IS 'open (no call under way), calling, answered (tool calls are worked on), stopped (cut off, what was shown is kept), completed (also where an observer has stopped the answer and the run went on, or ended as completed).';
COMMENT ON COLUMN agentd.turns.message_id IS 'The assistant message, once it is stored; an answer that was cut off before it showed anything has none.';
COMMENT ON COLUMN agentd.turns.finish_reason IS 'Why the model stopped: stop, length, tool_calls, content_filter, unknown; NULL of an answer that was cut off.';
COMMENT ON COLUMN agentd.messages.partial IS 'The answer was cut off, by an observer too: the text is what the user saw.';

-- What observers emitted, in an order that is safe to read on from: a transaction
-- that commits late has a low number, and whoever waits until no lower one is open
-- has missed none.
CREATE TABLE agentd.emission_order (
    session_id uuid   NOT NULL,
    seq        bigint NOT NULL,
    tenant_id  text   NOT NULL,
    xid        xid8   NOT NULL,
    PRIMARY KEY (session_id, seq),
    CONSTRAINT emission_order_session_fkey FOREIGN KEY (session_id, tenant_id) REFERENCES agentd.sessions (id, tenant_id) ON DELETE CASCADE,
    CONSTRAINT emission_order_seq_from_1 CHECK (seq >= 1)
);
CREATE INDEX emission_order_xid_idx ON agentd.emission_order (xid, session_id, seq);
COMMENT ON TABLE agentd.emission_order IS 'A row for each emission of the log, with the transaction that stored it. Rows leave with their session.';
COMMENT ON COLUMN agentd.emission_order.session_id IS 'The session whose log it is in.';
COMMENT ON COLUMN agentd.emission_order.seq IS 'Its place there.';
COMMENT ON COLUMN agentd.emission_order.tenant_id IS 'The owner of the session.';
COMMENT ON COLUMN agentd.emission_order.xid IS 'The transaction that stored it. A cluster that a dump was restored into counts anew.';

CREATE VIEW agentd.emissions AS
SELECT
    o.session_id,
    o.seq,
    e.at,
    o.tenant_id,
    e.run_id,
    e.turn_no,
    (e.payload ->> 'attempt')::integer AS attempt,
    e.payload ->> 'observer' AS observer,
    e.payload ->> 'channel' AS channel,
    (e.payload ->> 'chunk')::integer AS chunk,
    e.payload -> 'envelope' AS envelope,
    coalesce(t.attempt > (e.payload ->> 'attempt')::integer OR t.status = 'open', false) AS discarded,
    o.xid,
    o.xid || ':' || o.session_id || ':' || o.seq AS cursor
FROM agentd.emission_order AS o
JOIN agentd.events AS e ON e.session_id = o.session_id AND e.seq = o.seq
LEFT JOIN agentd.turns AS t ON t.run_id = e.run_id AND t.turn_no = e.turn_no;
COMMENT ON VIEW agentd.emissions IS 'What observers emitted while answers arrived, a line per envelope. Of one session: order by seq. Of all: agentd.emissions_after(), which misses none.';
COMMENT ON COLUMN agentd.emissions.session_id IS 'The conversation.';
COMMENT ON COLUMN agentd.emissions.seq IS 'Its place in the session''s log. With session_id it is the emission''s identity.';
COMMENT ON COLUMN agentd.emissions.at IS 'The writer''s clock.';
COMMENT ON COLUMN agentd.emissions.tenant_id IS 'The owner of the session.';
COMMENT ON COLUMN agentd.emissions.run_id IS 'The run.';
COMMENT ON COLUMN agentd.emissions.turn_no IS 'The turn within the run.';
COMMENT ON COLUMN agentd.emissions.attempt IS 'The model call within the turn, from 1.';
COMMENT ON COLUMN agentd.emissions.observer IS 'Who emitted it.';
COMMENT ON COLUMN agentd.emissions.channel IS 'On which channel.';
COMMENT ON COLUMN agentd.emissions.chunk IS 'The number of the provider''s chunk with which it was emitted, from 1.';
COMMENT ON COLUMN agentd.emissions.envelope IS 'What was emitted: one JSON document.';
COMMENT ON COLUMN agentd.emissions.discarded IS 'The model call was void: it is made again, and its observers emit again. It can become so as long as the call is under way.';
COMMENT ON COLUMN agentd.emissions.xid IS 'The transaction that stored it.';
COMMENT ON COLUMN agentd.emissions.cursor IS 'Where agentd.emissions_after() goes on behind it.';

-- +goose StatementBegin
CREATE FUNCTION agentd.emissions_after(after text, at_most integer DEFAULT 1000, channel text DEFAULT NULL)
    RETURNS SETOF agentd.emissions
    -- Each query of a volatile function sees what is committed by then: the cursor may
    -- have had to be waited for.
    LANGUAGE plpgsql VOLATILE
    SET search_path = pg_catalog, pg_temp
    AS $$
DECLARE
    parts text[] := ARRAY['0', '00000000-0000-0000-0000-000000000000', '0'];
BEGIN
    IF after <> '' THEN
        parts := regexp_match(after, '^([0-9]{1,19}):([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}):([0-9]{1,18})$');
        IF parts IS NULL THEN
            RAISE EXCEPTION '% is no cursor of agentd.emissions', quote_literal(after) USING ERRCODE = 'invalid_parameter_value';
        END IF;
        IF parts[1]::xid8 >= pg_snapshot_xmax(pg_current_snapshot()) THEN
            RAISE EXCEPTION 'cursor % is of another cluster, whose transactions were counted further', quote_literal(after)
                USING ERRCODE = 'invalid_parameter_value',
                HINT = 'After a dump was restored: UPDATE agentd.emission_order SET xid = pg_current_xact_id(), and begin anew with an empty cursor.';
        END IF;
    END IF;
    RETURN QUERY
    SELECT e.* FROM agentd.emissions AS e
    WHERE (e.xid, e.session_id, e.seq) > (parts[1]::xid8, parts[2]::uuid, parts[3]::bigint)
        -- What is still open may yet store something before what is here already.
        AND e.xid < pg_snapshot_xmin(pg_current_snapshot())
        AND (emissions_after.channel IS NULL OR e.channel = emissions_after.channel)
    ORDER BY e.xid, e.session_id, e.seq LIMIT at_most;
END
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION agentd.emissions_after(text, integer, text) IS 'The emissions of all sessions behind a cursor, which is that of the last line that was received; an empty one is the beginning. Each is returned once, however transactions overlap, and those of a session are in their order.';

-- A stop is a refusal: it stands among them.
CREATE OR REPLACE VIEW agentd.blocked AS
SELECT session_id, at, tenant_id, run_id, turn_no, gate AS blocked_by, subject, tool_name, hook_id, rule_id,
    action, outcome, reason_code, reason, run_status, event_seq AS seq
FROM agentd.decisions
WHERE effective AND action IN ('block', 'withhold', 'terminate', 'stop')
UNION ALL
SELECT e.session_id, e.at, e.tenant_id, e.run_id, e.turn_no, k.blocked_by, k.id::text, k.name, NULL, NULL,
    'block', 'ok', e.payload ->> 'reason_code', e.payload ->> 'reason', r.status, e.seq
FROM agentd.tool_calls AS k
JOIN agentd.events AS e ON e.run_id = k.run_id AND e.type = 'tool.blocked' AND e.payload ->> 'call_id' = k.id::text
JOIN agentd.runs AS r ON r.id = k.run_id
WHERE k.blocked_by = 'permission' AND e.payload ->> 'by' = 'permission';
COMMENT ON VIEW agentd.blocked IS 'What was not let through: refused, withheld or stopped by a hook or an observer, by the failure of one, or by the agent''s permissions.';
COMMENT ON COLUMN agentd.blocked.blocked_by IS 'The gate, or permission; OnChunk of an answer that an observer stopped, see stopped.';
COMMENT ON COLUMN agentd.blocked.action IS 'block (it did not happen), withhold (it did, and nobody is shown the output), terminate (the run ended), stop (the answer ended there).';

CREATE VIEW agentd.stopped AS
SELECT
    d.session_id,
    e.seq,
    d.at,
    d.tenant_id,
    d.run_id,
    d.turn_no,
    d.attempt,
    d.hook_id AS observer,
    d.outcome,
    d.reason_code,
    d.reason,
    (e.payload ->> 'chunk')::integer AS chunk,
    coalesce((e.payload ->> 'accepted')::bigint, 0) AS accepted,
    e.payload ->> 'policy' AS policy,
    nullif(e.payload ->> 'message_id', '')::uuid AS message_id,
    next.type AS followed_by,
    CASE WHEN next.type = 'turn.started' THEN t.model END AS next_model,
    d.run_status,
    d.ledger_seq
FROM agentd.decisions AS d
CROSS JOIN LATERAL (
    SELECT s.seq, s.payload FROM agentd.events AS s
    WHERE s.run_id = d.run_id AND s.type <> 'assistant.delta' AND s.type = 'assistant.stopped' AND s.seq <= d.event_seq
    ORDER BY s.seq DESC LIMIT 1
) AS e
LEFT JOIN LATERAL (
    SELECT n.type FROM agentd.events AS n
    WHERE n.run_id = d.run_id AND n.type <> 'assistant.delta' AND n.seq > e.seq
        AND n.type IN ('turn.started', 'run.completed', 'run.failed', 'run.cancelled')
    ORDER BY n.seq LIMIT 1
) AS next ON true
LEFT JOIN agentd.turns AS t ON t.run_id = d.run_id AND t.turn_no = d.turn_no + 1
WHERE d.hook_kind = 'observer' AND d.action = 'stop' AND d.effective;
COMMENT ON VIEW agentd.stopped IS 'Every answer that an observer stopped: by whom, where, and what followed.';
COMMENT ON COLUMN agentd.stopped.seq IS 'Seq of assistant.stopped.';
COMMENT ON COLUMN agentd.stopped.attempt IS 'The model call within the turn, from 1.';
COMMENT ON COLUMN agentd.stopped.observer IS 'Who stopped it.';
COMMENT ON COLUMN agentd.stopped.outcome IS 'ok if it said so; otherwise how it failed.';
COMMENT ON COLUMN agentd.stopped.reason IS 'The observer''s words, or what went wrong with it; NULL if it gave none, or if they were erased.';
COMMENT ON COLUMN agentd.stopped.chunk IS 'The number of the provider''s chunk that was not accepted, from 1.';
COMMENT ON COLUMN agentd.stopped.accepted IS 'How many bytes of text, reasoning and arguments went on before it.';
COMMENT ON COLUMN agentd.stopped.policy IS 'What was to follow, as it was possible: end_turn, fail, retry, fallback.';
COMMENT ON COLUMN agentd.stopped.message_id IS 'The message with what was accepted; NULL if that was nothing.';
COMMENT ON COLUMN agentd.stopped.followed_by IS 'What did follow: turn.started (a model was asked again), run.completed, run.failed, run.cancelled; NULL if nothing has yet.';
COMMENT ON COLUMN agentd.stopped.next_model IS 'The model that was asked again; NULL if none was.';
COMMENT ON COLUMN agentd.stopped.run_status IS 'Where the run stands now.';

-- The words that observers add. Which there are is not for the tables to say:
-- gate and action take any.
COMMENT ON COLUMN agentd.hook_decisions.gate IS 'Where the loop asked before it acted, such as BeforeToolCall. Of an observer: OnEnd (all that it did in a model call, one row), OnChunk (that it stopped the answer, one more).';
COMMENT ON COLUMN agentd.hook_decisions.action IS 'What the gate took from the hook: continue, transform, ask, handled, terminate, block, withhold; of an observer continue, transform (it changed something) or stop. Of a shadow, what it would have taken.';
COMMENT ON COLUMN agentd.hook_decisions.failure_policy IS 'What a failure comes to: closed (refuse; of an observer, stop the answer), open (go on; of an observer, without it), shadow (nothing: the hook is only tried, and neither its failures nor its answers have any effect).';
COMMENT ON COLUMN agentd.hook_decisions.fields_changed IS 'The fields that the hook changed, of an observer the lanes; of a shadow, those that it would have changed.';
COMMENT ON COLUMN agentd.hook_decisions.input_sha256 IS 'Digest of what the hook was asked about, as JSON; of an observer, of counts, and never of what the model said.';
COMMENT ON COLUMN agentd.hook_decisions.output_sha256 IS 'Digest of what it left, as JSON; of a shadow, of what it would have left; of an observer, of counts.';
COMMENT ON COLUMN agentd.hook_decisions.latency_us IS 'Microseconds that the whole call took; of an observer, all its calls for the answer together.';
COMMENT ON COLUMN agentd.hook_decisions.deadline_ms IS 'Milliseconds that it might take; of an observer, all its calls for the answer together.';
COMMENT ON VIEW agentd.hook_latency IS 'How long hooks take, a line per hook and gate, over the whole ledger. Of an observer, the line of OnEnd is about what it took for a whole answer, and that of OnChunk about the answers that it stopped.';
COMMENT ON COLUMN agentd.hook_latency.calls IS 'How often it was asked; of an observer, for how many answers.';
COMMENT ON COLUMN agentd.hooks.gate IS 'Where it is asked. An observer has two lines, OnChunk and OnEnd, as its decisions have.';
COMMENT ON COLUMN agentd.hooks.on_failure IS 'What a failure comes to: closed (refuse), open (go on); of an observer stop (the answer ends), detach (it is left out for the rest of the answer).';
COMMENT ON COLUMN agentd.hooks.time_limit_ms IS 'Milliseconds that one call may take; of an observer, all its calls for an answer together. What it may take for a chunk is in text.';
COMMENT ON COLUMN agentd.hooks.reply_limit IS 'Bytes that an answer may have; of an observer, an envelope.';
COMMENT ON COLUMN agentd.hooks.hook_kind IS 'go, rule, plugin, webhook, observer, host.';

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
        WHERE v.relnamespace = 'agentd'::regnamespace
            AND (v.relname = 'stopped' AND col_description(v.oid, a.attnum) IS NULL
                OR v.relname = 'decisions' AND a.attname IN ('gate', 'action', 'failure_policy', 'fields_changed', 'latency_us', 'deadline_ms'))
    LOOP
        EXECUTE format('COMMENT ON COLUMN agentd.%I.%I IS %L', c.relname, c.attname, c.comment);
    END LOOP;
END
$$;
-- +goose StatementEnd

-- Counting what turns took once a statement costs a group of appends less than
-- once a row: for 16 turns a quarter. New turns took nothing yet, and a trigger that
-- looks at each and does nothing costs less than one that looks at all.
DROP TRIGGER turns_count_usage ON agentd.turns;
-- +goose StatementBegin
CREATE FUNCTION agentd.count_more_usage() RETURNS trigger
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    AS $$
BEGIN
    INSERT INTO agentd.usage AS u (tenant_id, quarter, agent, backend, calls, unreported, input_tokens, output_tokens, cost_micros)
    SELECT t.tenant_id, date_bin('15 minutes', agentd.clock(), '2000-01-01 00:00:00+00'), r.agent, pg_backend_pid(),
        count(*), count(*) FILTER (WHERE t.input_tokens + t.output_tokens = o.input_tokens + o.output_tokens),
        sum(t.input_tokens - o.input_tokens)::bigint, sum(t.output_tokens - o.output_tokens)::bigint, sum(t.cost_micros - o.cost_micros)::bigint
    FROM new_turns AS t
    JOIN old_turns AS o ON o.run_id = t.run_id AND o.turn_no = t.turn_no
    JOIN agentd.runs AS r ON r.id = t.run_id
    WHERE o.finish_reason IS NULL AND t.finish_reason IS NOT NULL OR t.input_tokens > o.input_tokens OR t.output_tokens > o.output_tokens
    GROUP BY t.tenant_id, r.agent
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
COMMENT ON FUNCTION agentd.count_usage() IS 'Adds what a new turn took to agentd.usage.';
COMMENT ON FUNCTION agentd.count_more_usage() IS 'Adds what turns took since their rows were written last to agentd.usage.';
CREATE TRIGGER turns_count_usage AFTER UPDATE ON agentd.turns
    REFERENCING OLD TABLE AS old_turns NEW TABLE AS new_turns FOR EACH STATEMENT EXECUTE FUNCTION agentd.count_more_usage();

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
