-- +goose Up
-- What a turn took and cost: the limits of an agent count it.
ALTER TABLE agentd.turns ADD COLUMN cost_micros bigint NOT NULL DEFAULT 0;
COMMENT ON COLUMN agentd.turns.input_tokens IS 'As the provider reported, calls that failed and were made again included; 0 if it did not.';
COMMENT ON COLUMN agentd.turns.output_tokens IS 'As the provider reported, calls that failed and were made again included; 0 if it did not.';
COMMENT ON COLUMN agentd.turns.cost_micros IS 'What those tokens cost, in millionths of the unit of the prices that were set then, each call rounded up; the prices are in the events. 0 without prices.';

-- People may also be asked what became of a call that was interrupted.
ALTER TABLE agentd.approvals
    ADD COLUMN kind text NOT NULL DEFAULT 'call',
    DROP CONSTRAINT approvals_status,
    ADD CONSTRAINT approvals_kind CHECK (kind IN ('call', 'outcome')),
    ADD CONSTRAINT approvals_status CHECK (
        status IN ('pending', 'approved', 'denied', 'cancelled', 'happened', 'did_not_happen')),
    ADD CONSTRAINT approvals_answered_as_asked CHECK (
        status IN ('pending', 'cancelled') OR (kind = 'outcome') = (status IN ('happened', 'did_not_happen')));
COMMENT ON COLUMN agentd.approvals.kind IS 'What people are asked. call: whether it may run; outcome: whether a call that was started and interrupted has taken effect.';
COMMENT ON COLUMN agentd.approvals.status IS 'pending, approved, denied, cancelled (the run was cut short); of an outcome: happened, did_not_happen (the call is run again, under the same id).';
COMMENT ON COLUMN agentd.approvals.requested_by IS 'permission, or the gate whose hook asked for it; on_unknown for an outcome.';

ALTER TABLE agentd.tool_calls
    DROP CONSTRAINT tool_calls_status,
    DROP CONSTRAINT tool_calls_asked_has_an_approval,
    ADD CONSTRAINT tool_calls_status CHECK (
        status IN ('proposed', 'blocked', 'awaiting', 'approved', 'denied', 'confirmed', 'started', 'executed', 'done')),
    ADD CONSTRAINT tool_calls_asked_has_an_approval CHECK (
        status NOT IN ('awaiting', 'approved', 'denied', 'confirmed') OR approval_id IS NOT NULL);
COMMENT ON COLUMN agentd.tool_calls.status IS 'proposed, blocked (will not run, or not again), awaiting (people were asked), approved, denied, confirmed (people said that it has taken effect), started (may have taken effect), executed (returned), done (has its one result).';

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
    r.retries,
    t.cost_micros
FROM agentd.runs AS r
CROSS JOIN LATERAL (
    SELECT count(*) AS turns, coalesce(sum(attempt), 0) AS model_calls,
        coalesce(sum(input_tokens), 0) AS input_tokens, coalesce(sum(output_tokens), 0) AS output_tokens,
        coalesce(sum(cost_micros), 0) AS cost_micros
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
COMMENT ON COLUMN agentd.run_summary.cost_micros IS 'What the tokens cost, in millionths, see turns.';

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
