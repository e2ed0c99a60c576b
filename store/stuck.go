package store

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// StuckRun is a row of the view stuck, whose column comments say more.
type StuckRun struct {
	RunID     string        `db:"run_id"`
	TenantID  string        `db:"tenant_id"`
	SessionID string        `db:"session_id"`
	Agent     string        `db:"agent"`
	Status    string        `db:"status"`
	For       time.Duration `db:"stuck_for"`
	// Reason is a word for programs, Why a sentence for people.
	Reason string `db:"reason"`
	Why    string `db:"why"`
}

// Stuck returns the runs that should have moved on, or that somebody paused, the
// longest first.
func (s *Store) Stuck(ctx context.Context, limit int) ([]StuckRun, error) {
	rows, _ := s.pool.Query(ctx, `
		SELECT run_id::text, tenant_id, session_id::text, agent, status, stuck_for, reason, why
		FROM agentd.stuck ORDER BY since, run_id LIMIT $1`, limit) // rows has the error
	list, err := pgx.CollectRows(rows, pgx.RowToStructByName[StuckRun])
	if err != nil {
		return nil, failed("look for stuck runs", err)
	}
	return list, nil
}
