-- +goose Up
-- A run that waits until another one over which workers have died is out of the
-- way is stuck since it began to wait.
CREATE OR REPLACE VIEW agentd.stuck AS
SELECT x.run_id, x.tenant_id, x.session_id, x.agent, x.status, x.since, agentd.clock() - x.since AS stuck_for, x.why, x.reason
FROM (
    SELECT r.id AS run_id, r.tenant_id, r.session_id, r.agent, r.status, greatest(due.since, p.since) AS since,
        CASE
            WHEN p.since IS NOT NULL THEN 'it is paused by ' || p.actor_id || coalesce(': ' || nullif(p.reason, ''), '')
            WHEN r.takeovers >= 3 THEN r.takeovers || ' workers in a row died over it; at 5 it fails as poisoned'
            WHEN workers.taking THEN CASE WHEN agentd.has_job(r.id, r.ticket) THEN 'no worker has claimed it' ELSE 'its job is lost: no worker will be told of it' END
            WHEN workers.drained THEN 'all workers are drained'
            ELSE 'no worker is alive'
        END AS why,
        CASE
            WHEN p.since IS NOT NULL THEN 'paused'
            WHEN r.takeovers >= 3 THEN 'poisoned_soon'
            WHEN workers.taking THEN CASE WHEN agentd.has_job(r.id, r.ticket) THEN 'not_claimed' ELSE 'job_lost' END
            WHEN workers.drained THEN 'drained'
            ELSE 'no_worker'
        END AS reason,
        interval '10 seconds' AS patience
    FROM agentd.runs AS r
    CROSS JOIN LATERAL (
        SELECT greatest(max(e.at), r.not_before) AS since FROM agentd.events AS e
        WHERE e.run_id = r.id AND e.type <> 'assistant.delta' AND e.type IN ('run.queued', 'run.released')
            -- A run that is kept apart from another one is queued again and again, and waits all the while.
            AND e.payload ->> 'cause' IS DISTINCT FROM 'crowded'
    ) AS due
    LEFT JOIN LATERAL (
        SELECT since, actor_id, reason FROM agentd.pauses
        WHERE (tenant_id IS NULL OR tenant_id = r.tenant_id) AND (agent IS NULL OR agent = r.agent)
        ORDER BY since LIMIT 1
    ) AS p ON true
    CROSS JOIN LATERAL (
        SELECT coalesce(bool_or(drain_requested_at IS NULL), false) AS taking, count(*) > 0 AS drained FROM agentd.workers
        WHERE dead_at IS NULL AND stopped_at IS NULL AND alive_until > agentd.clock()
    ) AS workers
    WHERE r.status = 'queued' AND agentd.clock() > greatest(due.since, p.since) + interval '10 seconds'
    UNION ALL
    SELECT r.id, r.tenant_id, r.session_id, r.agent, r.status, s.updated_at,
        'it is behind no other run and nobody queued it', 'not_promoted', interval '10 seconds'
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
            WHEN r.takeovers >= 3 THEN r.takeovers || ' workers in a row died over it; at 5 it fails as poisoned'
            WHEN t.status = 'calling' THEN 'the model ' || coalesce(t.model, '') || ' has said nothing more'
            WHEN k.names IS NOT NULL THEN 'it waits for the tool ' || k.names
            ELSE 'its worker takes no further step'
        END,
        CASE
            WHEN NOT coalesce(w.alive, false) THEN 'worker_gone'
            WHEN r.takeovers >= 3 THEN 'poisoned_soon'
            WHEN t.status = 'calling' THEN 'model_silent'
            WHEN k.names IS NOT NULL THEN 'tool_silent'
            ELSE 'no_progress'
        END,
        CASE WHEN w.alive AND r.takeovers < 3 THEN interval '1 minute' ELSE interval '10 seconds' END
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
            WHEN a.outcomes THEN 'nobody has said whether it has taken effect: ' || a.names
            ELSE 'nobody has answered whether it may call ' || a.names END,
        CASE WHEN a.names IS NULL THEN 'not_queued' ELSE 'waiting_for_approval' END,
        CASE WHEN a.names IS NULL THEN interval '10 seconds' ELSE interval '1 hour' END
    FROM agentd.runs AS r
    JOIN agentd.sessions AS s ON s.id = r.session_id
    CROSS JOIN LATERAL (
        SELECT min(requested_at) AS since, string_agg(name, ', ' ORDER BY requested_seq) AS names, bool_and(kind = 'outcome') AS outcomes
        FROM agentd.approvals WHERE run_id = r.id AND status = 'pending'
    ) AS a
    WHERE r.status = 'waiting'
) AS x
WHERE agentd.clock() > x.since + x.patience;
