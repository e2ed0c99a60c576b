package store

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/loop/audit"
)

// utc is the one way in which Verify writes a time.
func utc(column string) string {
	return `to_char(` + column + ` AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.US') AS ` + column
}

// The projections of one session as text. The first column is the key.
var projected = map[string]string{
	"sessions": `SELECT id::text, tenant_id, external_id, ` + utc("created_at") + `, ` + utc("updated_at") + `, ` + utc("deleted_at") + `,
		last_seq::text, run_epoch::text, append_id::text, ledger_seq::text, encode(ledger_head, 'hex') AS ledger_head,
		title, title_search, user_id, metadata::text
		FROM agentd.sessions WHERE id = $1`,
	"runs": `SELECT id::text, tenant_id, status, agent, message_id::text, assistant_message_id::text, idempotency_key, request_sha256,
		ticket::text, worker_id::text, epoch::text, takeovers::text, ` + utc("not_before") + `, ` + utc("cancel_requested_at") + `,
		cancel_reason, reason, error, ` + utc("created_at") + `, ` + utc("started_at") + `, ` + utc("ended_at") + `,
		created_seq::text, ended_seq::text, hook_set, retries::text
		FROM agentd.runs WHERE session_id = $1`,
	"turns": `SELECT run_id::text || '/' || turn_no AS key, tenant_id, status, attempt::text, model, message_id::text, finish_reason, finish_raw,
		input_tokens::text, output_tokens::text, cost_micros::text, ` + utc("started_at") + `, ` + utc("completed_at") + `
		FROM agentd.turns WHERE session_id = $1`,
	"messages": `SELECT id::text, tenant_id, run_id::text, turn_no::text, role, parts::text, partial::text, position::text, seq::text, ` + utc("created_at") + `, replaced_seq::text, enqueued::text
		FROM agentd.messages WHERE session_id = $1`,
	"tool_calls": `SELECT id::text, tenant_id, run_id::text, turn_no::text, call_no::text, name, arguments, provider_call_id, status, attempt::text,
		success::text, output_sha256, output_bytes::text, is_error::text, result_reason, result_message_id::text, position::text,
		` + utc("proposed_at") + `, ` + utc("started_at") + `, ` + utc("executed_at") + `, ` + utc("done_at") + `,
		final_arguments, approval_id::text, blocked_by
		FROM agentd.tool_calls WHERE session_id = $1`,
	"approvals": `SELECT id::text, tenant_id, run_id::text, turn_no::text, call_id::text, kind, name, arguments, arguments_sha256, requested_by, reason,
		status, decided_by_kind, decided_by_id, decision_reason, ` + utc("requested_at") + `, ` + utc("decided_at") + `,
		requested_seq::text, decided_seq::text, edited_arguments, edited_sha256, changed_from, to_json(approvers)::text AS approvers,
		(expires_at IS NOT NULL)::text AS expires
		FROM agentd.approvals WHERE session_id = $1`,
	"emission_order": `SELECT session_id::text || '/' || seq AS key, tenant_id
		FROM agentd.emission_order WHERE session_id = $1`,
}

// columns are the values of a row by name; NULL is absent.
type columns map[string]string

// table has the rows by key.
type table map[string]columns

func (v *verifier) session(ctx context.Context, id string) error {
	h := newHistory(id, v.report, v.sets)
	if v.strict {
		h.audit = audit.New()
		h.ledger.decided = h.audit.Decided
	}
	// The ledger first: what was started is compared with what was decided.
	if err := h.ledger.read(ctx, v.tx); err != nil {
		return err
	}
	if err := h.read(ctx, v.tx); err != nil {
		return err
	}
	h.finish()
	for _, name := range slices.Sorted(maps.Keys(projected)) {
		got, err := readTable(ctx, v.tx, name, id)
		if err != nil {
			return err
		}
		compare(v.report, name, got, h.want(name))
	}
	if h.state.SessionID != "" {
		v.report.Sessions++
	}
	v.report.Runs += int64(len(h.state.Runs))
	v.report.ToolCalls += int64(len(h.calls))
	v.report.Approvals += int64(len(h.approvals))
	return nil
}

func readTable(ctx context.Context, tx pgx.Tx, name, sessionID string) (table, error) {
	rows, _ := tx.Query(ctx, projected[name], sessionID) // rows has the error
	out := table{}
	_, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (struct{}, error) {
		fields := row.FieldDescriptions()
		values := make([]*string, len(fields))
		into := make([]any, len(fields))
		for i := range values {
			into[i] = &values[i]
		}
		err := row.Scan(into...)
		r := columns{}
		for i, v := range values[1:] {
			if v != nil {
				r[fields[i+1].Name] = *v
			}
		}
		if parts, ok := r["parts"]; ok {
			r["parts"] = canonicalParts(parts)
		}
		if metadata, ok := r["metadata"]; ok {
			r["metadata"] = canonicalMetadata(metadata)
		}
		out[orZero(values[0])] = r
		return struct{}{}, err
	})
	return out, err
}

// canonicalParts makes what another release encoded comparable.
func canonicalParts(stored string) string {
	var parts []hooks.Part
	if err := json.Unmarshal([]byte(stored), &parts); err != nil {
		return stored
	}
	return encodeParts(parts)
}

// canonicalMetadata puts the keys in Go's order, which is not jsonb's.
func canonicalMetadata(stored string) string {
	var metadata map[string]string
	if err := json.Unmarshal([]byte(stored), &metadata); err != nil {
		return stored
	}
	return encodeMetadata(metadata)
}

func encodeMetadata(metadata map[string]string) string {
	patch := map[string]*string{}
	for k, v := range metadata {
		patch[k] = &v
	}
	return encodePatch(patch)
}

func compare(report *Report, name string, got, want table) {
	keys := table{} // a clone of a nil map would be nil
	maps.Copy(keys, want)
	maps.Copy(keys, got)
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		g, exists := got[key]
		w, wanted := want[key]
		switch {
		case !exists:
			report.add(Difference{Table: name, Row: key, Got: "no row", Want: "a row"})
		case !wanted:
			report.add(Difference{Table: name, Row: key, Got: "a row", Want: "no row"})
		default:
			compareRow(report, Difference{Table: name, Row: key}, g, w)
		}
	}
}

func compareRow(report *Report, at Difference, got, want columns) {
	names := columns{}
	maps.Copy(names, want)
	maps.Copy(names, got)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		g, isSet := got[name]
		w, mayBeSet := want[name]
		if g != w || isSet != mayBeSet {
			at.Column, at.Got, at.Want = name, quoted(g, isSet), quoted(w, mayBeSet)
			report.add(at)
		}
	}
}

func quoted(value string, isSet bool) string {
	if !isSet {
		return "NULL"
	}
	return fmt.Sprintf("%q", value)
}
