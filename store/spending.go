package store

import (
	"context"
	"fmt"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks"
	guards "github.com/seed-2ca4966b/agentd/hooks/guard"
	"github.com/seed-2ca4966b/agentd/loop"
)

var _ guards.Spending = (*Store)(nil)

// The sums are of any size; nothing is told of what is beyond 64 bits.
const (
	sums = `least(coalesce(sum(input_tokens::numeric + output_tokens), 0), 9223372036854775807)::bigint,
		least(coalesce(sum(cost_micros), 0), 9223372036854775807)::bigint`
	ofTurns = `SELECT ` + sums + `, count(*) FILTER (WHERE finish_reason IS NOT NULL AND input_tokens + output_tokens = 0) FROM agentd.turns WHERE `

	spentByRun     = ofTurns + `run_id = $1 AND tenant_id = $2 AND started_at >= $3`
	spentBySession = ofTurns + `session_id = $1 AND tenant_id = $2 AND started_at >= $3`

	// A tenant has a row per quarter of an hour, agent and connection that
	// appended then, however many calls there were.
	ofUsage       = `SELECT ` + sums + `, coalesce(sum(unreported), 0)::bigint FROM agentd.usage WHERE `
	spentByTenant = ofUsage + `tenant_id = $1 AND quarter >= $2`
	spentByAgent  = ofUsage + `tenant_id = $1 AND quarter >= $2 AND agent = $3`
)

// Spent implements [guards.Spending]. For a tenant or an agent a call counts
// from the quarter of an hour in which its end was stored.
func (s *Store) Spent(ctx context.Context, e guards.Expense) (guards.Spent, error) {
	if !storable(e.TenantID) || !storable(e.Agent) {
		return guards.Spent{}, loop.ErrNotFound
	}
	var got guards.Spent
	since := time.Unix(0, 0)
	if e.Since != nil {
		if err := s.pool.QueryRow(ctx, `SELECT agentd.clock()`).Scan(&got.Now); err != nil {
			return guards.Spent{}, failed("sum up what was spent", err)
		}
		got.Now = got.Now.UTC()
		since = e.Since(got.Now)
	}
	var sql string
	var args []any
	switch e.Per {
	case guards.PerRun, guards.PerSession:
		id := e.SessionID
		if sql = spentBySession; e.Per == guards.PerRun {
			sql, id = spentByRun, e.RunID
		}
		id, ok := canonicalID(id)
		if !ok {
			return guards.Spent{}, loop.ErrNotFound
		}
		args = []any{id, e.TenantID, since}
	case guards.PerTenant:
		sql, args = spentByTenant, []any{e.TenantID, since}
	case guards.PerAgent:
		sql, args = spentByAgent, []any{e.TenantID, since, e.Agent}
	default:
		return guards.Spent{}, fmt.Errorf("sum up what was spent: a budget per %q", e.Per)
	}
	var cost int64
	if err := s.pool.QueryRow(ctx, sql, args...).Scan(&got.Tokens, &cost, &got.Unreported); err != nil {
		return guards.Spent{}, failed("sum up what was spent", err)
	}
	got.Cost = hooks.Micros(cost)
	return got, nil
}
