package store

import (
	"context"

	"github.com/seed-2ca4966b/agentd/hooks"
	guards "github.com/seed-2ca4966b/agentd/hooks/guard"
	"github.com/seed-2ca4966b/agentd/loop"
)

var _ guards.Suspicions = (*Store)(nil)

// The code is the literal of the index.
const selectSuspected = `
	SELECT EXISTS (SELECT FROM agentd.hook_decisions
	WHERE session_id = $1 AND tenant_id = $2 AND hook_id = $3 AND reason_code = '` + guards.CodeInjectionSuspected + `')`

// Suspected implements [guards.Suspicions]. It knows what is stored: of the calls
// of one answer, none knows what another has returned.
func (s *Store) Suspected(ctx context.Context, run hooks.RunRef, hookID string) (bool, error) {
	session, ok := canonicalID(run.SessionID)
	if !ok || !storable(run.TenantID) || !storable(hookID) {
		return false, loop.ErrNotFound
	}
	var found bool
	if err := s.pool.QueryRow(ctx, selectSuspected, session, run.TenantID, hookID).Scan(&found); err != nil {
		return false, failed("look for suspicions", err)
	}
	return found, nil
}
