package store

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Report is what [Verify] saw. One that counts nothing proves nothing.
type Report struct {
	Sessions  int64
	Runs      int64
	Events    int64
	ToolCalls int64
	// Differences are the first thousand.
	Differences []Difference
	// Omitted counts those that were found after them.
	Omitted int64
}

// Difference is a place where the database is not what its log says.
type Difference struct {
	Table string
	// Row is the primary key, its parts joined with a slash.
	Row string
	// Column is "" when the whole row is missing, or there and should not be.
	Column string
	Got    string
	Want   string
}

// String names the place, and both values.
func (d Difference) String() string {
	where := d.Table + " " + d.Row
	if d.Column != "" {
		where += " " + d.Column
	}
	return fmt.Sprintf("%s: got %s, want %s", where, d.Got, d.Want)
}

const maxDifferences = 1000

func (r *Report) add(d Difference) {
	if len(r.Differences) == maxDifferences {
		r.Omitted++
		return
	}
	r.Differences = append(r.Differences, d)
}

const verifyPage = 500

// Verify folds the log of every session and compares the outcome with the
// projections, field by field; it asks the transition table whether each event
// was allowed where it stands, and looks for holes in the seqs. All is read in
// one snapshot, which vacuum has to keep until Verify returns. It holds one
// session in memory at a time.
func Verify(ctx context.Context, pool *pgxpool.Pool) (Report, error) {
	var report Report
	options := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
	err := pgx.BeginTxFunc(ctx, pool, options, func(tx pgx.Tx) error {
		after := ""
		for {
			ids, err := sessionIDs(ctx, tx, after)
			if err != nil || len(ids) == 0 {
				return err
			}
			for _, id := range ids {
				if err := verifySession(ctx, tx, id, &report); err != nil {
					return fmt.Errorf("session %s: %w", id, err)
				}
			}
			after = ids[len(ids)-1]
		}
	})
	if err != nil {
		return report, fmt.Errorf("verify: %w", err)
	}
	return report, nil
}

// sessionIDs returns the next ids of everything that names a session: a row of
// a session that does not exist is a difference too.
func sessionIDs(ctx context.Context, tx pgx.Tx, after string) ([]string, error) {
	var cursor *string
	if after != "" {
		cursor = &after
	}
	rows, err := tx.Query(ctx, `
		SELECT id::text FROM (
			SELECT id FROM agentd.sessions
			UNION SELECT session_id FROM agentd.events
			UNION SELECT session_id FROM agentd.runs
			UNION SELECT session_id FROM agentd.turns
			UNION SELECT session_id FROM agentd.messages
			UNION SELECT session_id FROM agentd.tool_calls) AS named
		WHERE $1::uuid IS NULL OR id > $1::uuid
		ORDER BY named.id
		LIMIT $2`, cursor, verifyPage)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}
