package store

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
)

// Pause stores a pause, which all workers know within two heartbeats. Pausing
// again what is paused keeps its time and changes who and why. It returns the
// pause as stored, [loop.ErrNotFound] if there is no such tenant, and
// [loop.ErrInvalid] for an agent without a tenant.
func (s *Store) Pause(ctx context.Context, p loop.Pause) (loop.Pause, error) {
	p.Reason, _ = event.CleanText(p.Reason)
	if p.Agent != "" && p.TenantID == "" {
		return loop.Pause{}, &loop.InvalidError{Field: "agent", Problem: "is an agent of a tenant: name the tenant too"}
	}
	if !storable(p.TenantID) {
		return loop.Pause{}, loop.ErrNotFound
	}
	if !storable(p.Agent) {
		return loop.Pause{}, &loop.InvalidError{Field: "agent", Problem: "is not valid text: send UTF-8 without U+0000"}
	}
	err := s.pool.QueryRow(ctx, `
		INSERT INTO agentd.pauses (tenant_id, agent, reason, actor_kind, actor_id)
		VALUES (nullif($1, ''), nullif($2, ''), $3, $4, $5)
		ON CONFLICT ON CONSTRAINT pauses_one_per_scope DO UPDATE SET
			reason = excluded.reason, actor_kind = excluded.actor_kind, actor_id = excluded.actor_id
		RETURNING since`, p.TenantID, p.Agent, p.Reason, p.By.Kind, p.By.ID).Scan(&p.Since)
	if hasCode(err, codeForeignKeyViolation) {
		return loop.Pause{}, loop.ErrNotFound
	}
	if err != nil {
		return loop.Pause{}, failed("pause", err)
	}
	p.Since = p.Since.UTC()
	return p, nil
}

// Resume ends the pause of exactly that tenant and agent, "" as in
// [loop.Pause]; others that cover the same runs stay. It reports whether there
// was one.
func (s *Store) Resume(ctx context.Context, tenantID, agent string) (bool, error) {
	if !storable(tenantID) || !storable(agent) {
		return false, nil
	}
	tag, err := s.pool.Exec(ctx, `
		DELETE FROM agentd.pauses WHERE tenant_id IS NOT DISTINCT FROM nullif($1, '') AND agent IS NOT DISTINCT FROM nullif($2, '')`,
		tenantID, agent)
	if err != nil {
		return false, failed("resume", err)
	}
	return tag.RowsAffected() > 0, nil
}

// ListPauses returns the pauses that touch a tenant, or all of them for "", the
// oldest first.
func (s *Store) ListPauses(ctx context.Context, tenantID string) (loop.Pauses, error) {
	if !storable(tenantID) {
		return nil, nil
	}
	rows, _ := s.pool.Query(ctx, `
		SELECT coalesce(tenant_id, ''), coalesce(agent, ''), reason, actor_kind, actor_id, since FROM agentd.pauses
		WHERE $1 = '' OR tenant_id IS NULL OR tenant_id = $1
		ORDER BY since, tenant_id NULLS FIRST, agent NULLS FIRST`, tenantID) // rows has the error
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (p loop.Pause, err error) {
		err = row.Scan(&p.TenantID, &p.Agent, &p.Reason, &p.By.Kind, &p.By.ID, &p.Since)
		p.Since = p.Since.UTC()
		return p, err
	})
	if err != nil {
		return nil, failed("list pauses", err)
	}
	return list, nil
}

// Coverage is how many active runs there are.
type Coverage struct{ Queued, Running, Waiting int }

// Covered counts the active runs that a pause covers, others that cover them
// notwithstanding.
func (s *Store) Covered(ctx context.Context, p loop.Pause) (n Coverage, err error) {
	err = s.pool.QueryRow(ctx, `
		SELECT count(*) FILTER (WHERE status = 'queued'), count(*) FILTER (WHERE status = 'running'),
			count(*) FILTER (WHERE status = 'waiting')
		FROM agentd.runs
		WHERE status IN ('queued', 'running', 'waiting') AND ($1 = '' OR tenant_id = $1) AND ($2 = '' OR agent = $2)`,
		p.TenantID, p.Agent).Scan(&n.Queued, &n.Running, &n.Waiting)
	if err != nil {
		return Coverage{}, failed("count covered runs", err)
	}
	return n, nil
}

// notPaused is a condition on a run r: that it is paused neither by the table
// nor by pauses that the parameters have, as columnsOf makes them.
func notPaused(tenants, agents string) string {
	return `NOT EXISTS (
		SELECT FROM (
			SELECT tenant_id, agent FROM agentd.pauses
			UNION ALL
			SELECT nullif(k.tenant_id, ''), nullif(k.agent, '') FROM unnest(` + tenants + `::text[], ` + agents + `::text[]) AS k (tenant_id, agent)) AS p
		WHERE (p.tenant_id IS NULL OR p.tenant_id = r.tenant_id) AND (p.agent IS NULL OR p.agent = r.agent))`
}

// columnsOf are the pauses as two lists of one length.
func columnsOf(pauses loop.Pauses) (tenants, agents []string) {
	for _, p := range pauses {
		tenants, agents = append(tenants, p.TenantID), append(agents, p.Agent)
	}
	return tenants, agents
}

// allPauses is an expression for the answer to a heartbeat.
const allPauses = `(
	SELECT coalesce(json_agg(json_build_object('tenant', coalesce(tenant_id, ''), 'agent', coalesce(agent, ''))), '[]')
	FROM agentd.pauses)`

// scanPauses reads what allPauses gives.
func scanPauses(text []byte) (loop.Pauses, error) {
	var list []struct {
		Tenant, Agent string
	}
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, fmt.Errorf("pauses: %w", err)
	}
	var out loop.Pauses
	for _, p := range list {
		out = append(out, loop.Pause{TenantID: p.Tenant, Agent: p.Agent})
	}
	return out, nil
}
