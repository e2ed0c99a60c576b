-- +goose Up
CREATE VIEW agentd.run_summary AS
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
    coalesce(r.ended_at, agentd.clock()) - r.created_at AS duration
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
COMMENT ON VIEW agentd.run_summary IS 'A line per run: what it came to and what it took.';
COMMENT ON COLUMN agentd.run_summary.run_id IS 'The run.';
COMMENT ON COLUMN agentd.run_summary.tenant_id IS 'The owner of the session.';
COMMENT ON COLUMN agentd.run_summary.session_id IS 'The conversation.';
COMMENT ON COLUMN agentd.run_summary.agent IS 'Name of the agent in the configuration.';
COMMENT ON COLUMN agentd.run_summary.status IS 'Where it stands.';
COMMENT ON COLUMN agentd.run_summary.reason IS 'Why it ended, in a word; NULL until then.';
COMMENT ON COLUMN agentd.run_summary.error IS 'What went wrong, for people; NULL if nothing did.';
COMMENT ON COLUMN agentd.run_summary.turns IS 'Turns that were started.';
COMMENT ON COLUMN agentd.run_summary.model_calls IS 'Model calls, those that were made again included.';
COMMENT ON COLUMN agentd.run_summary.tool_calls IS 'Tool calls that the model asked for.';
COMMENT ON COLUMN agentd.run_summary.blocked_calls IS 'Those of them that a hook or the agent''s permissions refused.';
COMMENT ON COLUMN agentd.run_summary.approvals IS 'How often people were asked.';
COMMENT ON COLUMN agentd.run_summary.pending_approvals IS 'How often they have not answered yet.';
COMMENT ON COLUMN agentd.run_summary.decisions IS 'Answers of hooks once the run was there.';
COMMENT ON COLUMN agentd.run_summary.input_tokens IS 'As the provider reported.';
COMMENT ON COLUMN agentd.run_summary.output_tokens IS 'As the provider reported.';
COMMENT ON COLUMN agentd.run_summary.takeovers IS 'Releases from dead workers since a step last finished.';
COMMENT ON COLUMN agentd.run_summary.created_at IS 'Time of run.created.';
COMMENT ON COLUMN agentd.run_summary.started_at IS 'Time of the first claim.';
COMMENT ON COLUMN agentd.run_summary.ended_at IS 'Time of the terminal event.';
COMMENT ON COLUMN agentd.run_summary.duration IS 'From its creation to its end, or until now.';

-- Times of events are those of the hosts, and are compared with the database's:
-- seconds do not matter here.
CREATE VIEW agentd.stuck AS
SELECT x.run_id, x.tenant_id, x.session_id, x.agent, x.status, x.since, agentd.clock() - x.since AS stuck_for, x.why
FROM (
    SELECT r.id AS run_id, r.tenant_id, r.session_id, r.agent, r.status, due.since,
        CASE WHEN alive.any THEN 'no worker has claimed it' ELSE 'no worker is alive' END AS why,
        interval '10 seconds' AS patience
    FROM agentd.runs AS r
    CROSS JOIN LATERAL (
        SELECT greatest(max(e.at), r.not_before) AS since FROM agentd.events AS e
        WHERE e.run_id = r.id AND e.type <> 'assistant.delta' AND e.type IN ('run.queued', 'run.released')
    ) AS due
    CROSS JOIN LATERAL (
        SELECT EXISTS (SELECT FROM agentd.workers WHERE dead_at IS NULL AND stopped_at IS NULL AND alive_until > agentd.clock()) AS any
    ) AS alive
    WHERE r.status = 'queued'
    UNION ALL
    SELECT r.id, r.tenant_id, r.session_id, r.agent, r.status, s.updated_at,
        'it is behind no other run and nobody queued it', interval '10 seconds'
    FROM agentd.runs AS r
    JOIN agentd.sessions AS s ON s.id = r.session_id
    WHERE r.status = 'enqueued' AND NOT EXISTS (
        SELECT FROM agentd.runs AS a WHERE a.session_id = r.session_id AND a.status IN ('queued', 'running', 'waiting'))
    UNION ALL
    SELECT r.id, r.tenant_id, r.session_id, r.agent, r.status,
        CASE WHEN w.alive THEN s.updated_at ELSE coalesce(w.dead_at, w.stopped_at, w.alive_until, s.updated_at) END,
        CASE
            WHEN w.dead_at IS NOT NULL THEN 'its worker was declared dead and the run was not released'
            WHEN w.stopped_at IS NOT NULL THEN 'its worker stopped and did not release it'
            WHEN w.id IS NULL THEN 'its worker is not known'
            WHEN NOT w.alive THEN 'its worker''s lease ran out and nobody declared it dead'
            WHEN t.status = 'calling' THEN 'the model ' || coalesce(t.model, '') || ' has said nothing more'
            WHEN k.names IS NOT NULL THEN 'it waits for the tool ' || k.names
            ELSE 'its worker takes no further step'
        END,
        CASE WHEN w.alive THEN interval '1 minute' ELSE interval '10 seconds' END
    FROM agentd.runs AS r
    JOIN agentd.sessions AS s ON s.id = r.session_id
    LEFT JOIN LATERAL (
        SELECT id, dead_at, stopped_at, alive_until, dead_at IS NULL AND stopped_at IS NULL AND alive_until > agentd.clock() AS alive
        FROM agentd.workers WHERE id = r.worker_id
    ) AS w ON true
    LEFT JOIN LATERAL (
        SELECT turn_no, status, model FROM agentd.turns WHERE run_id = r.id ORDER BY turn_no DESC LIMIT 1
    ) AS t ON true
    LEFT JOIN LATERAL (
        SELECT string_agg(name, ', ' ORDER BY call_no) AS names FROM agentd.tool_calls
        WHERE run_id = r.id AND turn_no = t.turn_no AND status = 'started'
    ) AS k ON true
    WHERE r.status = 'running'
    UNION ALL
    SELECT r.id, r.tenant_id, r.session_id, r.agent, r.status, coalesce(a.since, s.updated_at),
        CASE WHEN a.names IS NULL THEN 'everything is answered and nobody queued it'
            ELSE 'nobody has answered whether it may call ' || a.names END,
        CASE WHEN a.names IS NULL THEN interval '10 seconds' ELSE interval '1 hour' END
    FROM agentd.runs AS r
    JOIN agentd.sessions AS s ON s.id = r.session_id
    CROSS JOIN LATERAL (
        SELECT min(requested_at) AS since, string_agg(name, ', ' ORDER BY requested_seq) AS names
        FROM agentd.approvals WHERE run_id = r.id AND status = 'pending'
    ) AS a
    WHERE r.status = 'waiting'
) AS x
WHERE agentd.clock() > x.since + x.patience;
COMMENT ON VIEW agentd.stuck IS 'Runs that should have moved on: queued and due for 10 s, without a living worker for 10 s, running without an event for a minute, waiting for people for an hour.';
COMMENT ON COLUMN agentd.stuck.run_id IS 'The run.';
COMMENT ON COLUMN agentd.stuck.tenant_id IS 'The owner of the session.';
COMMENT ON COLUMN agentd.stuck.session_id IS 'The conversation.';
COMMENT ON COLUMN agentd.stuck.agent IS 'Name of the agent in the configuration.';
COMMENT ON COLUMN agentd.stuck.status IS 'Where it stands.';
COMMENT ON COLUMN agentd.stuck.since IS 'Since when it could have gone on.';
COMMENT ON COLUMN agentd.stuck.stuck_for IS 'How long ago that was.';
COMMENT ON COLUMN agentd.stuck.why IS 'What it waits for.';
