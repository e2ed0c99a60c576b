package store

import (
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
)

type approvalChange struct {
	id      pgtype.UUID
	created bool

	runID       pgtype.UUID
	turn        int32
	callID      pgtype.UUID
	kind        string
	name        string
	arguments   string
	sha256      string
	by          string
	reason      pgtype.Text
	changedFrom pgtype.Text
	approvers   pgtype.Text // JSON, since arrays have no arrays in them
	timeoutMS   pgtype.Int8
	requestedAt time.Time
	requested   int64

	status         string
	decidedByKind  pgtype.Text
	decidedByID    pgtype.Text
	decisionReason pgtype.Text
	edited         pgtype.Text
	editedSHA256   pgtype.Text
	decidedAt      pgtype.Timestamptz
	decided        pgtype.Int8
}

const (
	approvalPending = "pending"
	// kindOfCall is what the kind that events leave out is called in SQL.
	kindOfCall = "call"
)

func kindColumn(k event.ApprovalKind) string {
	if k == event.ApprovalOfCall {
		return kindOfCall
	}
	return string(k)
}

func (p *projector) addToApproval(e event.Event, payload event.Payload) {
	switch v := payload.(type) {
	case event.ApprovalRequested:
		c := p.call(v.CallID, loop.CallAwaiting)
		c.approvalID = p.id(v.ApprovalID)
		c.asked, c.final = pgtype.Text{String: v.Arguments, Valid: true}, pgtype.Text{}
		a := p.approval(v.ApprovalID)
		a.created, a.runID, a.turn, a.callID = true, p.id(e.RunID), int32(e.Turn), p.id(v.CallID)
		a.kind = kindColumn(v.Kind)
		a.name, a.arguments, a.sha256 = v.Name, v.Arguments, v.ArgumentsSHA256
		a.by, a.reason, a.requestedAt, a.requested = v.By, text(v.Reason), e.At, e.Seq
		a.changedFrom, a.approvers = textOf(v.ChangedFrom), approversColumn(v.Approvers)
		if v.TimeoutMS > 0 {
			a.timeoutMS = bigint(v.TimeoutMS)
		}
		a.status = approvalPending
	case event.ApprovalDecided:
		if c := p.call(v.CallID, loop.StatusAfter(v.Decision)); v.EditedArguments != nil {
			c.asked, c.final = textOf(v.EditedArguments), pgtype.Text{}
		}
		a := p.approval(v.ApprovalID)
		a.status, a.decisionReason = string(v.Decision), text(v.Reason)
		a.decidedByKind = pgtype.Text{String: string(e.Actor.Kind), Valid: true}
		a.decidedByID = pgtype.Text{String: e.Actor.ID, Valid: true}
		a.decidedAt, a.decided = at(e.At), bigint(e.Seq)
		a.edited, a.editedSHA256 = textOf(v.EditedArguments), text(v.EditedSHA256)
	}
}

// textOf is a text that may be empty, and NULL for nil.
func textOf(s *string) pgtype.Text {
	if s == nil {
		return pgtype.Text{}
	}
	return pgtype.Text{String: *s, Valid: true}
}

func approversColumn(globs []string) pgtype.Text {
	if globs == nil {
		return pgtype.Text{}
	}
	encoded, _ := json.Marshal(globs) // strings only: it cannot fail
	return pgtype.Text{String: string(encoded), Valid: true}
}

// approval is as run, turn and call.
func (p *projector) approval(approvalID string) *approvalChange {
	id := p.id(approvalID)
	for i := len(p.approvals) - 1; i >= 0; i-- {
		if p.approvals[i].id == id {
			return &p.approvals[i]
		}
	}
	p.approvals = append(p.approvals, approvalChange{id: id})
	return &p.approvals[len(p.approvals)-1]
}

const (
	approvalColumns = `unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::text[], $5::text[], $6::text[], $7::text[], $8::timestamptz[], $9::bigint[],
	$10::text[], $11::text[]`
	approvalNames = `session_id, append_id, id, status, decided_by_kind, decided_by_id, decision_reason, decided_at, decided_seq, edited_arguments, edited_sha256`

	// The time for an answer begins here, by the clock that ends it.
	insertApprovals = `
INSERT INTO agentd.approvals (id, tenant_id, session_id, run_id, turn_no, call_id, kind, name, arguments, arguments_sha256, requested_by, reason,
	requested_at, requested_seq, status, decided_by_kind, decided_by_id, decision_reason, decided_at, decided_seq, edited_arguments, edited_sha256,
	changed_from, approvers, expires_at)
SELECT c.id, s.tenant_id, s.id, c.run_id, c.turn_no, c.call_id, c.kind, c.name, c.arguments, c.arguments_sha256, c.requested_by, c.reason,
	c.requested_at, c.requested_seq, c.status, c.decided_by_kind, c.decided_by_id, c.decision_reason, c.decided_at, c.decided_seq,
	c.edited_arguments, c.edited_sha256,
	c.changed_from, CASE WHEN c.approvers IS NOT NULL THEN ARRAY(SELECT json_array_elements_text(c.approvers::json)) END,
	agentd.clock() + c.timeout_ms * interval '1 millisecond'
FROM ` + approvalColumns + `, $12::uuid[], $13::integer[], $14::uuid[], $15::text[], $16::text[], $17::text[], $18::text[], $19::text[],
	$20::timestamptz[], $21::bigint[], $22::text[], $23::text[], $24::text[], $25::bigint[])
	AS c (` + approvalNames + `, run_id, turn_no, call_id, name, arguments, arguments_sha256, requested_by, reason, requested_at, requested_seq, kind,
	changed_from, approvers, timeout_ms)
` + ownSession

	updateApprovals = `
UPDATE agentd.approvals AS a SET
	status = c.status,
	decided_by_kind = c.decided_by_kind,
	decided_by_id = c.decided_by_id,
	decision_reason = c.decision_reason,
	decided_at = c.decided_at,
	decided_seq = c.decided_seq,
	edited_arguments = c.edited_arguments,
	edited_sha256 = c.edited_sha256
FROM ` + approvalColumns + `) AS c (` + approvalNames + `)
` + ownSession + `
WHERE a.id = c.id AND a.session_id IS NOT DISTINCT FROM s.id`
)

func approvalArgs(rows []row[approvalChange]) []any {
	type c = approvalChange
	sessions, appends := owners(rows)
	return []any{
		sessions, appends,
		column(rows, func(a *c) pgtype.UUID { return a.id }),
		column(rows, func(a *c) string { return a.status }),
		column(rows, func(a *c) pgtype.Text { return a.decidedByKind }),
		column(rows, func(a *c) pgtype.Text { return a.decidedByID }),
		column(rows, func(a *c) pgtype.Text { return a.decisionReason }),
		column(rows, func(a *c) pgtype.Timestamptz { return a.decidedAt }),
		column(rows, func(a *c) pgtype.Int8 { return a.decided }),
		column(rows, func(a *c) pgtype.Text { return a.edited }),
		column(rows, func(a *c) pgtype.Text { return a.editedSHA256 }),
	}
}

func newApprovalArgs(rows []row[approvalChange]) []any {
	type c = approvalChange
	return append(approvalArgs(rows),
		column(rows, func(a *c) pgtype.UUID { return a.runID }),
		column(rows, func(a *c) int32 { return a.turn }),
		column(rows, func(a *c) pgtype.UUID { return a.callID }),
		column(rows, func(a *c) string { return a.name }),
		column(rows, func(a *c) string { return a.arguments }),
		column(rows, func(a *c) string { return a.sha256 }),
		column(rows, func(a *c) string { return a.by }),
		column(rows, func(a *c) pgtype.Text { return a.reason }),
		column(rows, func(a *c) time.Time { return a.requestedAt }),
		column(rows, func(a *c) int64 { return a.requested }),
		column(rows, func(a *c) string { return a.kind }),
		column(rows, func(a *c) pgtype.Text { return a.changedFrom }),
		column(rows, func(a *c) pgtype.Text { return a.approvers }),
		column(rows, func(a *c) pgtype.Int8 { return a.timeoutMS }),
	)
}
