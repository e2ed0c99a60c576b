package store

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/seed-2ca4966b/agentd/loop"
)

// ledger is what an append adds to the ledger of its session.
type ledger struct {
	decisions []decisionRow
	payloads  []payloadRow
}

// decisionRow is a row of the ledger with the ids that the database takes.
type decisionRow struct {
	*loop.LedgerRow

	id       pgtype.UUID
	runID    pgtype.UUID
	workerID pgtype.UUID
}

type payloadRow struct {
	decisionID pgtype.UUID
	*loop.LedgerRow
}

var zeroHash [32]byte

// zeroBytea is zeroHash in SQL.
const zeroBytea = `\x0000000000000000000000000000000000000000000000000000000000000000`

// newLedger refuses rows that are no chain. Once they are stored nobody can
// repair them, and everything that follows would hang on them.
func newLedger(a loop.Append) (ledger, error) {
	var l ledger
	for i := range a.Ledger {
		r := &a.Ledger[i]
		if err := checkLink(a, i); err != nil {
			return ledger{}, fmt.Errorf("decision %d of %s: %w", i+1, r.HookID, err)
		}
		d := decisionRow{LedgerRow: r}
		if err := d.parseIDs(); err != nil {
			return ledger{}, fmt.Errorf("decision %d of %s: %w", i+1, r.HookID, err)
		}
		l.decisions = append(l.decisions, d)
		if r.PayloadSHA256 != nil {
			l.payloads = append(l.payloads, payloadRow{d.id, r})
		}
	}
	return l, nil
}

func (d *decisionRow) parseIDs() (err error) {
	if d.id, err = parseID(d.ID); err != nil {
		return fmt.Errorf("decision id: %w", err)
	}
	if d.RunID != "" {
		if d.runID, err = parseID(d.RunID); err != nil {
			return fmt.Errorf("run id: %w", err)
		}
	}
	if d.WorkerID != "" {
		if d.workerID, err = parseID(d.WorkerID); err != nil {
			return fmt.Errorf("worker id: %w", err)
		}
	}
	return nil
}

// checkLink says whether row i of a's ledger hangs on the row before it. What
// the first one hangs on is compared in the database.
func checkLink(a loop.Append, i int) error {
	r := a.Ledger[i]
	first := a.Ledger[0].LedgerSeq
	switch {
	case r.SessionID != a.SessionID || r.TenantID != a.TenantID:
		return errors.New("it is of another session")
	case first < 1 || a.Expected == 0 && first != 1 || r.LedgerSeq != first+int64(i):
		return fmt.Errorf("it stands at %d", r.LedgerSeq)
	case r.EventSeq <= a.Expected || r.EventSeq > a.Expected+int64(len(a.Events)):
		return fmt.Errorf("it is committed with event %d", r.EventSeq)
	case r.LedgerSeq == 1 && r.PrevHash != zeroHash || i > 0 && r.PrevHash != a.Ledger[i-1].Hash:
		return errors.New("it is not chained to the one before")
	case r.Row.Hash() != r.Hash:
		return errors.New("its hash is another")
	}
	return checkPayload(r)
}

func checkPayload(r loop.LedgerRow) error {
	if r.PayloadSHA256 == nil {
		if !r.Payload.Empty() {
			return errors.New("it has a payload and no hash of it")
		}
		return nil
	}
	if sum := r.Payload.Hash(r.Salt); string(sum[:]) != string(r.PayloadSHA256) {
		return errors.New("the hash of its payload is another")
	}
	return nil
}

// ledgerFrom is the place that the first new row hangs on; NULL for none.
func (r *request) ledgerFrom() pgtype.Int8 {
	if len(r.append.Ledger) == 0 {
		return pgtype.Int8{}
	}
	return bigint(r.append.Ledger[0].LedgerSeq - 1)
}

func (r *request) ledgerPrev() []byte {
	if len(r.append.Ledger) == 0 {
		return nil
	}
	return r.append.Ledger[0].PrevHash[:]
}

// ledgerSeq and ledgerHead are where the ledger stands after the append; NULL
// where it stood before.
func (r *request) ledgerSeq() pgtype.Int8 {
	n := len(r.append.Ledger)
	if n == 0 {
		return pgtype.Int8{}
	}
	return bigint(r.append.Ledger[n-1].LedgerSeq)
}

func (r *request) ledgerHead() []byte {
	n := len(r.append.Ledger)
	if n == 0 {
		return nil
	}
	return r.append.Ledger[n-1].Hash[:]
}

const (
	insertDecisions = `
INSERT INTO agentd.hook_decisions (session_id, tenant_id, ledger_seq, decision_id, at, run_id, turn_no, gate, subject, attempt,
	phase, position, chain_length, hook_id, hook_kind, hook_version, hook_digest, hook_set_digest, rule_id,
	action, effective, outcome, failure_policy, failed_open, reason_code, fields_changed,
	input_sha256, output_sha256, input_bytes, output_bytes, event_seq, epoch, worker_id,
	queue_us, latency_us, deadline_ms, trace_id, payload_sha256, prev_hash, row_hash)
SELECT s.id, s.tenant_id, c.ledger_seq, c.decision_id, c.at, c.run_id, c.turn_no, c.gate, c.subject, c.attempt,
	c.phase, c.position, c.chain_length, c.hook_id, c.hook_kind, c.hook_version, c.hook_digest, c.hook_set_digest, c.rule_id,
	c.action, c.effective, c.outcome, c.failure_policy, c.failed_open, c.reason_code, c.fields_changed::text[],
	c.input_sha256, c.output_sha256, c.input_bytes, c.output_bytes, c.event_seq, c.epoch, c.worker_id,
	c.queue_us, c.latency_us, c.deadline_ms, c.trace_id, c.payload_sha256, c.prev_hash, c.row_hash
FROM unnest($1::uuid[], $2::uuid[], $3::bigint[], $4::uuid[], $5::timestamptz[], $6::uuid[], $7::integer[], $8::text[], $9::text[], $10::integer[],
	$11::text[], $12::integer[], $13::integer[], $14::text[], $15::text[], $16::text[], $17::text[], $18::text[], $19::text[],
	$20::text[], $21::boolean[], $22::text[], $23::text[], $24::boolean[], $25::text[], $26::text[],
	$27::bytea[], $28::bytea[], $29::bigint[], $30::bigint[], $31::bigint[], $32::bigint[], $33::uuid[],
	$34::bigint[], $35::bigint[], $36::bigint[], $37::text[], $38::bytea[], $39::bytea[], $40::bytea[])
	AS c (session_id, append_id, ledger_seq, decision_id, at, run_id, turn_no, gate, subject, attempt,
	phase, position, chain_length, hook_id, hook_kind, hook_version, hook_digest, hook_set_digest, rule_id,
	action, effective, outcome, failure_policy, failed_open, reason_code, fields_changed,
	input_sha256, output_sha256, input_bytes, output_bytes, event_seq, epoch, worker_id,
	queue_us, latency_us, deadline_ms, trace_id, payload_sha256, prev_hash, row_hash)
` + ownSession

	insertPayloads = `
INSERT INTO agentd.hook_payloads (decision_id, tenant_id, salt, reason, patch, annotations)
SELECT c.decision_id, s.tenant_id, c.salt, c.reason, c.patch, c.annotations
FROM unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::bytea[], $5::text[], $6::text[], $7::text[])
	AS c (session_id, append_id, decision_id, salt, reason, patch, annotations)
` + ownSession

	// A session that is deleted takes along what its hooks said.
	erasePayloads = `
DELETE FROM agentd.hook_payloads AS p
USING unnest($1::uuid[], $2::uuid[]) AS c (session_id, append_id)
` + ownSession + `
JOIN agentd.hook_decisions AS d ON d.session_id = s.id
WHERE p.decision_id = d.decision_id`
)

func decisionArgs(rows []row[decisionRow]) []any {
	type d = decisionRow
	sessions, appends := owners(rows)
	args := []any{
		sessions, appends,
		column(rows, func(d *d) int64 { return d.LedgerSeq }),
		column(rows, func(d *d) pgtype.UUID { return d.id }),
		column(rows, func(d *d) time.Time { return d.At }),
		column(rows, func(d *d) pgtype.UUID { return d.runID }),
		column(rows, func(d *d) pgtype.Int4 { return pgtype.Int4{Int32: int32(d.Turn), Valid: d.Turn != 0} }),
		column(rows, func(d *d) string { return string(d.Gate) }),
		column(rows, func(d *d) string { return d.Subject }),
		column(rows, func(d *d) int32 { return int32(d.Attempt) }),
		column(rows, func(d *d) string { return string(d.Phase) }),
		column(rows, func(d *d) int32 { return int32(d.Index) }),
		column(rows, func(d *d) int32 { return int32(d.ChainLength) }),
		column(rows, func(d *d) string { return d.HookID }),
		column(rows, func(d *d) string { return string(d.HookKind) }),
		column(rows, func(d *d) pgtype.Text { return text(d.HookVersion) }),
		column(rows, func(d *d) pgtype.Text { return text(d.HookDigest) }),
		column(rows, func(d *d) pgtype.Text { return text(d.HookSetDigest) }),
		column(rows, func(d *d) pgtype.Text { return text(d.RuleID) }),
	}
	return append(args, answerArgs(rows)...)
}

// answerArgs are the columns from action on.
func answerArgs(rows []row[decisionRow]) []any {
	type d = decisionRow
	return []any{
		column(rows, func(d *d) string { return string(d.Action) }),
		column(rows, func(d *d) bool { return d.Effective }),
		column(rows, func(d *d) string { return string(d.Outcome) }),
		column(rows, func(d *d) string { return string(d.FailurePolicy) }),
		column(rows, func(d *d) bool { return d.FailedOpen }),
		column(rows, func(d *d) pgtype.Text { return text(d.ReasonCode) }),
		column(rows, func(d *d) string { return arrayLiteral(d.FieldsChanged) }),
		column(rows, func(d *d) []byte { return d.InputSHA256[:] }),
		column(rows, func(d *d) []byte { return d.OutputSHA256[:] }),
		column(rows, func(d *d) int64 { return int64(d.InputBytes) }),
		column(rows, func(d *d) int64 { return int64(d.OutputBytes) }),
		column(rows, func(d *d) int64 { return d.EventSeq }),
		column(rows, func(d *d) pgtype.Int8 { return pgtype.Int8{Int64: d.Epoch, Valid: d.Epoch != 0} }),
		column(rows, func(d *d) pgtype.UUID { return d.workerID }),
		column(rows, func(d *d) int64 { return d.Queue.Microseconds() }),
		column(rows, func(d *d) int64 { return d.Latency.Microseconds() }),
		column(rows, func(d *d) int64 { return d.Deadline.Milliseconds() }),
		column(rows, func(d *d) pgtype.Text { return text(d.TraceID) }),
		column(rows, func(d *d) []byte { return d.PayloadSHA256 }),
		column(rows, func(d *d) []byte { return d.PrevHash[:] }),
		column(rows, func(d *d) []byte { return d.Hash[:] }),
	}
}

func payloadArgs(rows []row[payloadRow]) []any {
	type p = payloadRow
	sessions, appends := owners(rows)
	return []any{
		sessions, appends,
		column(rows, func(p *p) pgtype.UUID { return p.decisionID }),
		column(rows, func(p *p) []byte { return p.Salt[:] }),
		column(rows, func(p *p) pgtype.Text { return text(p.Payload.Reason) }),
		column(rows, func(p *p) pgtype.Text { return text(p.Payload.Patch) }),
		column(rows, func(p *p) pgtype.Text { return text(p.Payload.Annotations) }),
	}
}

func deletedArgs(rows []row[request]) []any {
	sessions, appends := owners(rows)
	return []any{sessions, appends}
}

// arrayLiteral writes texts as Postgres reads an array: a parameter cannot
// hold one array per row.
func arrayLiteral(texts []string) string {
	quoted := make([]string, len(texts))
	for i, s := range texts {
		quoted[i] = `"` + arrayEscapes.Replace(s) + `"`
	}
	return "{" + strings.Join(quoted, ",") + "}"
}

var arrayEscapes = strings.NewReplacer(`\`, `\\`, `"`, `\"`)
