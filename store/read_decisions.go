package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed-2ca4966b/agentd/loop"
)

// storedDecision is a row of the ledger as the database has it, with its
// payload if that is still there.
type storedDecision struct {
	loop.LedgerRow
	// hasPayload says that there is a row in hook_payloads.
	hasPayload bool
	toolName   string
}

// selectDecisions has the columns of [scanDecision]. A subject that is not the
// id of a tool call finds none.
const selectDecisions = `
	SELECT d.session_id::text, d.ledger_seq, d.decision_id::text, d.at, d.tenant_id, coalesce(d.run_id::text, ''), coalesce(d.turn_no, 0),
		d.gate, d.subject, d.attempt, d.phase, d.position, d.chain_length,
		d.hook_id, d.hook_kind, coalesce(d.hook_version, ''), coalesce(d.hook_digest, ''), coalesce(d.hook_set_digest, ''),
		coalesce(d.rule_id, ''), d.action, d.effective, d.outcome, d.failure_policy, d.failed_open, coalesce(d.reason_code, ''),
		d.fields_changed, d.input_sha256, d.output_sha256, d.input_bytes, d.output_bytes, d.event_seq, coalesce(d.epoch, 0),
		coalesce(d.worker_id::text, ''), d.queue_us, d.latency_us, d.deadline_ms, coalesce(d.trace_id, ''),
		d.payload_sha256, d.prev_hash, d.row_hash,
		p.decision_id IS NOT NULL, p.salt, coalesce(p.reason, ''), coalesce(p.patch, ''), coalesce(p.annotations, ''), coalesce(k.name, '')
	FROM agentd.hook_decisions AS d
	LEFT JOIN agentd.hook_payloads AS p ON p.decision_id = d.decision_id
	LEFT JOIN agentd.tool_calls AS k ON d.gate IN ('BeforeToolCall', 'BeforeExecute', 'AfterToolCall') AND k.session_id = d.session_id
		AND k.id = CASE WHEN d.subject ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' THEN d.subject::uuid END`

func scanDecision(row pgx.CollectableRow) (d storedDecision, err error) {
	var at time.Time
	var queue, latency, deadline int64
	var input, output, prev, hash, salt []byte
	err = row.Scan(&d.SessionID, &d.LedgerSeq, &d.ID, &at, &d.TenantID, &d.RunID, &d.Turn,
		&d.Gate, &d.Subject, &d.Attempt, &d.Phase, &d.Index, &d.ChainLength,
		&d.HookID, &d.HookKind, &d.HookVersion, &d.HookDigest, &d.HookSetDigest,
		&d.RuleID, &d.Action, &d.Effective, &d.Outcome, &d.FailurePolicy, &d.FailedOpen, &d.ReasonCode,
		&d.FieldsChanged, &input, &output, &d.InputBytes, &d.OutputBytes, &d.EventSeq, &d.Epoch,
		&d.WorkerID, &queue, &latency, &deadline, &d.TraceID,
		&d.PayloadSHA256, &prev, &hash,
		&d.hasPayload, &salt, &d.Payload.Reason, &d.Payload.Patch, &d.Payload.Annotations, &d.toolName)
	d.At = at.UTC()
	d.Queue, d.Latency = time.Duration(queue)*time.Microsecond, time.Duration(latency)*time.Microsecond
	d.Deadline = time.Duration(deadline) * time.Millisecond
	copy(d.InputSHA256[:], input)
	copy(d.OutputSHA256[:], output)
	copy(d.PrevHash[:], prev)
	copy(d.Hash[:], hash)
	copy(d.Salt[:], salt)
	if len(d.FieldsChanged) == 0 {
		d.FieldsChanged = nil
	}
	return d, err
}

// ListDecisions returns a page of the ledger of a session, or of a run, in the
// order of the ledger; [loop.Page].After is a decision's ID. Without a session
// and a run it is [loop.ErrInvalid]. A session or run that the tenant does not
// see, and a page after something that is no decision of the tenant, are
// [loop.ErrNotFound].
func (s *Store) ListDecisions(ctx context.Context, tenantID string, filter loop.DecisionFilter, page loop.Page) ([]loop.DecisionInfo, error) {
	if !storable(tenantID) {
		return nil, loop.ErrNotFound
	}
	query, args, err := s.decisionQuery(ctx, tenantID, filter)
	if err != nil {
		return nil, failed("list decisions", err)
	}
	if page.After != "" {
		after, err := s.decisionCursor(ctx, tenantID, page.After)
		if err != nil {
			return nil, failed("list decisions", err)
		}
		args = append(args, after)
		query += fmt.Sprintf(` AND d.ledger_seq > $%d`, len(args))
	}
	args = append(args, pageLimit(page.Limit))
	query += fmt.Sprintf(` ORDER BY d.ledger_seq LIMIT $%d`, len(args))
	rows, _ := s.pool.Query(ctx, query, args...) // rows has the error
	found, err := pgx.CollectRows(rows, scanDecision)
	if err != nil {
		return nil, failed("list decisions", err)
	}
	infos := make([]loop.DecisionInfo, len(found))
	for i, d := range found {
		infos[i] = loop.DecisionInfo{
			Row: d.Row, Hash: d.Hash, ToolName: d.toolName, PayloadErased: d.PayloadSHA256 != nil && !d.hasPayload,
		}
	}
	return infos, nil
}

func (s *Store) decisionQuery(ctx context.Context, tenantID string, filter loop.DecisionFilter) (query string, args []any, err error) {
	var session, run string
	if filter.RunID != "" {
		if run, session, err = s.visibleRun(ctx, tenantID, filter.RunID); err != nil {
			return "", nil, err
		}
	}
	if filter.SessionID != "" {
		id, err := s.visibleSession(ctx, tenantID, filter.SessionID)
		if err != nil {
			return "", nil, err
		}
		if run != "" && id != session {
			return "", nil, loop.ErrNotFound
		}
		session = id
	}
	if session == "" {
		return "", nil, fmt.Errorf("%w: neither a session nor a run", loop.ErrInvalid)
	}
	query, args = selectDecisions+` WHERE d.tenant_id = $1 AND d.session_id = $2`, []any{tenantID, session}
	if run != "" {
		return query + ` AND d.run_id = $3`, append(args, run), nil
	}
	return query, args, nil
}

func (s *Store) decisionCursor(ctx context.Context, tenantID, after string) (ledgerSeq int64, err error) {
	id, ok := canonicalID(after)
	if !ok {
		return 0, loop.ErrNotFound
	}
	err = s.pool.QueryRow(ctx, `SELECT ledger_seq FROM agentd.hook_decisions WHERE decision_id = $1 AND tenant_id = $2`,
		id, tenantID).Scan(&ledgerSeq)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, loop.ErrNotFound
	}
	return ledgerSeq, err
}
