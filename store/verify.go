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
	Approvals int64
	Decisions int64
	// Unjudged counts the starts of tool calls under a hook set that is not in
	// hook_sets: whether gates were left out there, nobody can say.
	Unjudged int64
	// Differences are the first thousand.
	Differences []Difference
	// Omitted counts those that were found after them; there may be more.
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

const (
	verifyPage = 500
	maxLost    = 10 * maxDifferences // where each is a difference
)

// Verify folds the log of every session and compares the outcome with the
// projections, field by field; it asks the transition table whether each event
// was allowed where it stands, and looks for holes in the seqs. It computes the
// hashes of the ledger again, and asks of each tool call that was started
// whether the hooks let it through, and of each that people approved whether it
// ran with the arguments that they were shown. All is read in one snapshot,
// which vacuum has to keep until Verify returns. It holds one session in memory
// at a time.
func Verify(ctx context.Context, pool *pgxpool.Pool) (Report, error) {
	return verify(ctx, pool, false)
}

// VerifyStrict is [Verify], and asks the rules of package audit besides: what the
// transition table cannot see, since it is about two events, or about an event
// and a decision. What breaks a rule is a [Difference] with the rule in the place
// of the column.
func VerifyStrict(ctx context.Context, pool *pgxpool.Pool) (Report, error) {
	return verify(ctx, pool, true)
}

func verify(ctx context.Context, pool *pgxpool.Pool, strict bool) (Report, error) {
	var report Report
	options := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
	err := pgx.BeginTxFunc(ctx, pool, options, func(tx pgx.Tx) error {
		if err := forLong(ctx, tx); err != nil {
			return err
		}
		v, err := newVerifier(ctx, tx, &report)
		if err != nil {
			return err
		}
		v.strict = strict
		after := zeroUUID
		for {
			ids, err := sessionIDs(ctx, tx, `SELECT id::text FROM agentd.sessions WHERE id > $1 ORDER BY id LIMIT $2`, after, verifyPage)
			if err != nil {
				return err
			}
			if len(ids) == 0 {
				break
			}
			if err := v.sessions(ctx, ids); err != nil {
				return err
			}
			after = ids[len(ids)-1]
		}
		ids, err := sessionIDs(ctx, tx, selectLost, maxLost)
		if err != nil {
			return err
		}
		return v.sessions(ctx, ids)
	})
	if err != nil {
		return report, fmt.Errorf("verify: %w", err)
	}
	return report, nil
}

// forLong makes a transaction one for long statements, which the limits of a
// role are not made for, and one in which nobody's functions stand before those
// of Postgres.
func forLong(ctx context.Context, tx pgx.Tx) error {
	_, err := tx.Exec(ctx, `SET LOCAL statement_timeout = 0; SET LOCAL idle_in_transaction_session_timeout = 0; SET LOCAL search_path = pg_catalog`)
	return err
}

// verifier is one Verify under way.
type verifier struct {
	tx     pgx.Tx
	report *Report
	sets   hookSets
	strict bool
}

func newVerifier(ctx context.Context, tx pgx.Tx, report *Report) (*verifier, error) {
	sets, err := readHookSets(ctx, tx, report)
	return &verifier{tx: tx, report: report, sets: sets}, err
}

func (v *verifier) sessions(ctx context.Context, ids []string) error {
	for _, id := range ids {
		if err := v.session(ctx, id); err != nil {
			return fmt.Errorf("session %s: %w", id, err)
		}
	}
	return nil
}

const zeroUUID = "00000000-0000-0000-0000-000000000000"

// selectLost names the sessions that have rows and do not exist.
const selectLost = `
	SELECT session_id::text FROM (
		SELECT session_id FROM agentd.events
		UNION SELECT session_id FROM agentd.runs
		UNION SELECT session_id FROM agentd.turns
		UNION SELECT session_id FROM agentd.messages
		UNION SELECT session_id FROM agentd.tool_calls
		UNION SELECT session_id FROM agentd.approvals
		UNION SELECT session_id FROM agentd.emission_order
		UNION SELECT session_id FROM agentd.hook_decisions) AS named
	WHERE NOT EXISTS (SELECT FROM agentd.sessions AS s WHERE s.id = named.session_id)
	ORDER BY session_id
	LIMIT $1`

func sessionIDs(ctx context.Context, tx pgx.Tx, query string, args ...any) ([]string, error) {
	rows, _ := tx.Query(ctx, query, args...) // rows has the error
	return pgx.CollectRows(rows, pgx.RowTo[string])
}
