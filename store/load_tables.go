package store

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed-2ca4966b/agentd/loop"
)

// loadTables is Load for a run whose events or messages cannot be read: what the
// tables say of the run and its last turn, beside cause, the reason.
func (s *Store) loadTables(ctx context.Context, tenantID, sessionID, runID string, cause error) (loop.State, error) {
	var head []headRow
	var runs []loop.Run
	var turns []loop.Turn
	var calls []loop.Call
	var order []conversationRow
	b := &pgx.Batch{}
	b.Queue(beginSnapshot)
	b.Queue(selectHead+`s.id = $2`, tenantID, sessionID).Query(func(rows pgx.Rows) (err error) {
		head, err = pgx.CollectRows(rows, pgx.RowToStructByName[headRow])
		return err
	})
	b.Queue(`
		SELECT id::text, status, agent, message_id::text, assistant_message_id::text, ticket, coalesce(worker_id::text, ''), epoch,
			started_at IS NOT NULL, takeovers, not_before, cancel_requested_at IS NOT NULL, coalesce(cancel_reason, ''),
			EXISTS (SELECT FROM agentd.events AS e WHERE e.run_id = $3 AND e.type = 'run.cancel_requested' AND e.payload ->> 'rollback' = 'true'),
			coalesce(reason, ''), coalesce(error, ''), created_at, ended_at, coalesce(ended_seq, 0), retries
		FROM agentd.runs WHERE id = $3 AND session_id = $2 AND tenant_id = $1`, tenantID, sessionID, runID,
	).Query(func(rows pgx.Rows) (err error) {
		runs, err = pgx.CollectRows(rows, scanStoredRun)
		return err
	})
	b.Queue(`
		SELECT turn_no, status, attempt, coalesce(message_id::text, '') FROM agentd.turns
		WHERE run_id = $3 AND session_id = $2 AND tenant_id = $1 ORDER BY turn_no DESC LIMIT 1`, tenantID, sessionID, runID,
	).Query(func(rows pgx.Rows) (err error) {
		turns, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (t loop.Turn, err error) {
			err = row.Scan(&t.No, &t.Status, &t.Attempt, &t.MessageID)
			return t, err
		})
		return err
	})
	b.Queue(`
		SELECT id::text, call_no, name, arguments, final_arguments, status, coalesce(approval_id::text, ''), attempt, position
		FROM agentd.tool_calls
		WHERE run_id = $3 AND session_id = $2 AND tenant_id = $1
			AND turn_no = (SELECT max(turn_no) FROM agentd.turns WHERE run_id = $3)
		ORDER BY call_no`, tenantID, sessionID, runID,
	).Query(func(rows pgx.Rows) (err error) {
		calls, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (c loop.Call, err error) {
			err = row.Scan(&c.ID, &c.Number, &c.Name, &c.Arguments, &c.Final, &c.Status, &c.ApprovalID, &c.Attempt, &c.Position)
			return c, err
		})
		return err
	})
	b.Queue(selectOrder, tenantID, sessionID).Query(func(rows pgx.Rows) (err error) {
		order, err = pgx.CollectRows(rows, scanOrder)
		return err
	})
	b.Queue(`COMMIT`)
	if err := s.pool.SendBatch(ctx, b).Close(); err != nil {
		return loop.State{}, failed("load run from its tables", err)
	}
	if len(head) == 0 || len(runs) == 0 {
		return loop.State{}, loop.ErrNotFound
	}
	if len(turns) > 0 {
		turns[0].Calls = calls
		runs[0].Turns = turns
	}
	state := head[0].state()
	messages, enqueued := split(order)
	state.Runs, state.Enqueued, state.Messages = withNext(runs[0], enqueued), byArrival(enqueued), messages
	return head[0].placed(state), cause
}

func scanStoredRun(row pgx.CollectableRow) (r loop.Run, err error) {
	var ended *time.Time
	err = row.Scan(&r.ID, &r.Status, &r.Agent, &r.MessageID, &r.AssistantMessageID, &r.Ticket, &r.WorkerID, &r.Epoch,
		&r.Started, &r.Takeovers, &r.NotBefore, &r.CancelRequested, &r.CancelReason, &r.RolledBack,
		&r.Reason, &r.Error, &r.CreatedAt, &ended, &r.EndedSeq, &r.Retries)
	r.EndedAt = orZero(ended)
	return r, err
}
