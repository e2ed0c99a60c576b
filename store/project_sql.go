package store

import (
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// The set-based statements of a group. Each joins sessions on `ownSession`, so that
// it touches only the sessions whose compare-and-set this transaction won.
//
// append_id alone would not do: when an append is repeated whose first try was
// committed, its session still carries its append_id.
//
// The rows to update are found by their own keys and then compared with the
// session: an index on session_id, which = would allow, reads every run or
// turn that the session ever had.
const ownSession = `JOIN agentd.sessions AS s
	ON s.id = c.session_id AND s.append_id = c.append_id AND s.xmin = pg_catalog.pg_current_xact_id()::xid`

const (
	// Where no plugin listens, looking for one is all that it costs.
	insertEvents = `
INSERT INTO agentd.events (session_id, seq, tenant_id, run_id, turn_no, type, payload, actor_kind, actor_id, at, append_id, xid)
SELECT s.id, c.seq, s.tenant_id, c.run_id, c.turn_no, c.type, c.payload::json, c.actor_kind, c.actor_id, c.at, c.append_id,
	CASE WHEN c.type IN (` + toldTypes + `) AND EXISTS (SELECT FROM agentd.plugin_cursors) THEN pg_catalog.pg_current_xact_id() END
FROM unnest($1::uuid[], $2::uuid[], $3::bigint[], $4::uuid[], $5::integer[], $6::text[], $7::text[], $8::text[], $9::text[], $10::timestamptz[])
	AS c (session_id, append_id, seq, run_id, turn_no, type, payload, actor_kind, actor_id, at)
` + ownSession

	runColumns = `unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::text[], $5::bigint[], $6::uuid[], $7::bigint[], $8::integer[], $9::integer[],
	$10::timestamptz[], $11::timestamptz[], $12::text[], $13::text[], $14::text[], $15::timestamptz[], $16::timestamptz[], $17::bigint[], $18::text[],
	$19::integer[]`
	runNames = `session_id, append_id, id, status, ticket, worker_id, epoch, takeovers, takeovers_more,
	not_before, cancel_requested_at, cancel_reason, reason, error, started_at, ended_at, ended_seq, hook_set, retries_more`

	insertRuns = `
INSERT INTO agentd.runs (id, tenant_id, session_id, status, ticket, worker_id, epoch, takeovers, not_before,
	cancel_requested_at, cancel_reason, reason, error, started_at, ended_at, ended_seq, hook_set, retries,
	agent, message_id, assistant_message_id, idempotency_key, request_sha256, created_at, created_seq)
SELECT c.id, s.tenant_id, s.id, c.status, coalesce(c.ticket, 0), nullif(c.worker_id, '` + zeroUUID + `'),
	coalesce(c.epoch, 0), coalesce(c.takeovers, 0) + c.takeovers_more, nullif(c.not_before, '-infinity'),
	nullif(c.cancel_requested_at, '-infinity'), nullif(c.cancel_reason, ''), nullif(c.reason, ''), nullif(c.error, ''), c.started_at,
	nullif(c.ended_at, '-infinity'), nullif(c.ended_seq, 0), nullif(c.hook_set, ''), c.retries_more,
	c.agent, c.message_id, c.assistant_message_id, c.idempotency_key, c.request_sha256, c.created_at, c.created_seq
FROM ` + runColumns + `, $20::text[], $21::uuid[], $22::uuid[], $23::text[], $24::text[], $25::timestamptz[], $26::bigint[])
	AS c (` + runNames + `, agent, message_id, assistant_message_id, idempotency_key, request_sha256, created_at, created_seq)
` + ownSession

	// A change that only says that a step finished has no status, and writes
	// nothing unless there are take-overs to forget.
	updateRuns = `
UPDATE agentd.runs AS r SET
	status = coalesce(c.status, r.status),
	ticket = coalesce(c.ticket, r.ticket),
	worker_id = nullif(coalesce(c.worker_id, r.worker_id), '` + zeroUUID + `'),
	epoch = coalesce(c.epoch, r.epoch),
	takeovers = coalesce(c.takeovers, r.takeovers) + c.takeovers_more,
	not_before = nullif(coalesce(c.not_before, r.not_before), '-infinity'),
	cancel_requested_at = nullif(coalesce(c.cancel_requested_at, r.cancel_requested_at), '-infinity'),
	cancel_reason = nullif(coalesce(c.cancel_reason, r.cancel_reason), ''),
	reason = nullif(coalesce(c.reason, r.reason), ''),
	error = nullif(coalesce(c.error, r.error), ''),
	started_at = coalesce(c.started_at, r.started_at),
	ended_at = nullif(coalesce(c.ended_at, r.ended_at), '-infinity'),
	ended_seq = nullif(coalesce(c.ended_seq, r.ended_seq), 0),
	hook_set = nullif(coalesce(c.hook_set, r.hook_set), ''),
	retries = r.retries + c.retries_more
FROM ` + runColumns + `) AS c (` + runNames + `)
` + ownSession + `
WHERE r.id = c.id AND r.session_id IS NOT DISTINCT FROM s.id
	AND (c.status IS NOT NULL OR c.cancel_requested_at IS NOT NULL OR r.takeovers > 0)`

	insertTurns = `
INSERT INTO agentd.turns (run_id, turn_no, tenant_id, session_id, status, attempt, model, message_id,
	finish_reason, finish_raw, input_tokens, output_tokens, cost_micros, started_at, completed_at)
SELECT c.run_id, c.turn_no, s.tenant_id, s.id, c.status, coalesce(c.attempt, 0), nullif(c.model, ''), c.message_id,
	c.finish_reason, c.finish_raw, c.input_more, c.output_more, c.cost_more, c.started_at, c.completed_at
FROM ` + turnColumns + `, $15::timestamptz[]) AS c (` + turnNames + `, started_at)
` + ownSession
	turnColumns = `unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::integer[], $5::text[], $6::integer[], $7::text[], $8::uuid[],
	$9::text[], $10::text[], $11::bigint[], $12::bigint[], $13::bigint[], $14::timestamptz[]`
	turnNames = `session_id, append_id, run_id, turn_no, status, attempt, model, message_id,
	finish_reason, finish_raw, input_more, output_more, cost_more, completed_at`
	updateTurns = `
UPDATE agentd.turns AS t SET
	status = c.status,
	attempt = coalesce(c.attempt, t.attempt),
	model = nullif(coalesce(c.model, t.model), ''),
	message_id = coalesce(c.message_id, t.message_id),
	finish_reason = coalesce(c.finish_reason, t.finish_reason),
	finish_raw = coalesce(c.finish_raw, t.finish_raw),
	input_tokens = t.input_tokens + c.input_more,
	output_tokens = t.output_tokens + c.output_more,
	cost_micros = t.cost_micros + c.cost_more,
	completed_at = coalesce(c.completed_at, t.completed_at)
FROM ` + turnColumns + `) AS c (` + turnNames + `)
` + ownSession + `
WHERE t.run_id = c.run_id AND t.turn_no = c.turn_no AND t.session_id IS NOT DISTINCT FROM s.id`

	// The position of a result is that of its call, which this statement may
	// find only after the calls of the group were inserted.
	insertMessages = `
INSERT INTO agentd.messages (id, tenant_id, session_id, run_id, turn_no, role, parts, partial, position, seq, created_at, enqueued)
SELECT c.id, s.tenant_id, s.id, c.run_id, c.turn_no, c.role, c.parts::json, c.partial, coalesce(c.position, k.position), c.seq, c.created_at, c.enqueued
FROM unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::uuid[], $5::integer[], $6::text[], $7::text[], $8::boolean[], $9::bigint[], $10::uuid[],
	$11::bigint[], $12::timestamptz[], $13::boolean[])
	AS c (session_id, append_id, id, run_id, turn_no, role, parts, partial, position, call_id, seq, created_at, enqueued)
` + ownSession + `
LEFT JOIN agentd.tool_calls AS k ON k.id = c.call_id AND k.session_id IS NOT DISTINCT FROM c.session_id`

	callColumns = `unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::text[], $5::integer[], $6::boolean[], $7::text[], $8::bigint[],
	$9::boolean[], $10::text[], $11::uuid[], $12::timestamptz[], $13::timestamptz[], $14::timestamptz[],
	$15::uuid[], $16::text[], $17::text[], $18::text[]`
	callNames = `session_id, append_id, id, status, attempt, success, output_sha256, output_bytes,
	is_error, result_reason, result_message_id, started_at, executed_at, done_at,
	approval_id, asked, final_arguments, blocked_by`
	insertCalls = `
INSERT INTO agentd.tool_calls (id, tenant_id, session_id, run_id, turn_no, call_no, name, arguments, provider_call_id,
	status, attempt, success, output_sha256, output_bytes, is_error, result_reason, result_message_id, position,
	proposed_at, started_at, executed_at, done_at, approval_id, final_arguments, blocked_by)
SELECT c.id, s.tenant_id, s.id, c.run_id, c.turn_no, c.call_no, c.name, c.arguments, c.provider_call_id,
	c.status, coalesce(c.attempt, 0), c.success, c.output_sha256, c.output_bytes, c.is_error, c.result_reason, c.result_message_id, c.position,
	c.proposed_at, c.started_at, c.executed_at, c.done_at,
	c.approval_id, coalesce(c.final_arguments, nullif(c.asked, c.arguments)), c.blocked_by
FROM ` + callColumns + `, $19::uuid[], $20::integer[], $21::integer[], $22::text[], $23::text[], $24::text[], $25::bigint[], $26::timestamptz[])
	AS c (` + callNames + `, run_id, turn_no, call_no, name, arguments, provider_call_id, position, proposed_at)
` + ownSession
	updateCalls = `
UPDATE agentd.tool_calls AS k SET
	status = c.status,
	attempt = coalesce(c.attempt, k.attempt),
	success = coalesce(c.success, k.success),
	output_sha256 = coalesce(c.output_sha256, k.output_sha256),
	output_bytes = coalesce(c.output_bytes, k.output_bytes),
	is_error = coalesce(c.is_error, k.is_error),
	result_reason = coalesce(c.result_reason, k.result_reason),
	result_message_id = coalesce(c.result_message_id, k.result_message_id),
	started_at = coalesce(c.started_at, k.started_at),
	executed_at = coalesce(c.executed_at, k.executed_at),
	done_at = coalesce(c.done_at, k.done_at),
	approval_id = coalesce(c.approval_id, k.approval_id),
	final_arguments = CASE WHEN c.asked IS NULL THEN coalesce(c.final_arguments, k.final_arguments)
		ELSE coalesce(c.final_arguments, nullif(c.asked, k.arguments)) END,
	blocked_by = coalesce(c.blocked_by, k.blocked_by)
FROM ` + callColumns + `) AS c (` + callNames + `)
` + ownSession + `
WHERE k.id = c.id AND k.session_id IS NOT DISTINCT FROM s.id`
)

// row is a row of a projection with the append that it belongs to.
type row[T any] struct {
	of *request
	v  *T
}

// column picks one field of every row, as a parameter of a statement.
func column[T, V any](rows []row[T], field func(*T) V) values[V] {
	out := make(values[V], len(rows))
	for i, r := range rows {
		out[i] = field(r.v)
	}
	return out
}

// owners are the two columns that every statement joins on.
func owners[T any](rows []row[T]) (sessions, appends values[pgtype.UUID]) {
	sessions = make(values[pgtype.UUID], len(rows))
	appends = make(values[pgtype.UUID], len(rows))
	for i, r := range rows {
		sessions[i], appends[i] = r.of.sessionID, r.of.id
	}
	return sessions, appends
}

// projections collects the rows of a group by statement.
type projections struct {
	described   []row[descriptionChange]
	runsEnded   []row[runChange]
	runsCreated []row[runChange]
	runsMoved   []row[runChange]
	turnsNew    []row[turnChange]
	turns       []row[turnChange]
	callsNew    []row[callChange]
	calls       []row[callChange]
	messages    []row[messageRow]
	joined      []row[joinedRow]
	replaced    []row[replacedRow]
	asked       []row[approvalChange]
	decided     []row[approvalChange]
	decisions   []row[decisionRow]
	payloads    []row[payloadRow]
	emissions   []row[emissionRow]
	deleted     []row[request]
}

func (p *projections) add(r *request) {
	for i := range r.changes.described {
		p.described = append(p.described, row[descriptionChange]{r, &r.changes.described[i]})
	}
	for i := range r.changes.runs {
		c := row[runChange]{r, &r.changes.runs[i]}
		switch {
		case c.v.created:
			p.runsCreated = append(p.runsCreated, c)
		case c.v.ends():
			p.runsEnded = append(p.runsEnded, c)
		default:
			p.runsMoved = append(p.runsMoved, c)
		}
	}
	for i := range r.changes.turns {
		c := row[turnChange]{r, &r.changes.turns[i]}
		if c.v.created {
			p.turnsNew = append(p.turnsNew, c)
		} else {
			p.turns = append(p.turns, c)
		}
	}
	for i := range r.changes.calls {
		c := row[callChange]{r, &r.changes.calls[i]}
		if c.v.created {
			p.callsNew = append(p.callsNew, c)
		} else {
			p.calls = append(p.calls, c)
		}
	}
	for i := range r.changes.messages {
		p.messages = append(p.messages, row[messageRow]{r, &r.changes.messages[i]})
	}
	for i := range r.changes.joined {
		p.joined = append(p.joined, row[joinedRow]{r, &r.changes.joined[i]})
	}
	for i := range r.changes.replaced {
		p.replaced = append(p.replaced, row[replacedRow]{r, &r.changes.replaced[i]})
	}
	for i := range r.changes.approvals {
		c := row[approvalChange]{r, &r.changes.approvals[i]}
		if c.v.created {
			p.asked = append(p.asked, c)
		} else {
			p.decided = append(p.decided, c)
		}
	}
	for i := range r.changes.emissions {
		p.emissions = append(p.emissions, row[emissionRow]{r, &r.changes.emissions[i]})
	}
	for i := range r.ledger.decisions {
		p.decisions = append(p.decisions, row[decisionRow]{r, &r.ledger.decisions[i]})
	}
	for i := range r.ledger.payloads {
		p.payloads = append(p.payloads, row[payloadRow]{r, &r.ledger.payloads[i]})
	}
	if r.changes.session.deletedAt.Valid {
		p.deleted = append(p.deleted, row[request]{r, r})
	}
}

// queue adds the statements that have rows. A run that ends makes room for
// the one that is queued in the same append, so ends come first, and so do
// answers, since a call has one open approval. A turn needs its run, a call its
// turn, an approval its call and a payload its decision.
func (p *projections) queue(b *pgx.Batch) {
	queue(b, updateDescriptions, p.described, descriptionArgs)
	queue(b, updateRuns, p.runsEnded, runArgs)
	queue(b, insertRuns, p.runsCreated, newRunArgs)
	queue(b, updateRuns, p.runsMoved, runArgs)
	queue(b, insertTurns, p.turnsNew, newTurnArgs)
	queue(b, updateTurns, p.turns, turnArgs)
	queue(b, insertCalls, p.callsNew, newCallArgs)
	queue(b, updateCalls, p.calls, callArgs)
	queue(b, insertMessages, p.messages, messageArgs)
	queue(b, joinMessages, p.joined, joinedArgs)
	queue(b, replaceMessages, p.replaced, replacedArgs)
	queue(b, updateApprovals, p.decided, approvalArgs)
	queue(b, insertApprovals, p.asked, newApprovalArgs)
	queue(b, insertDecisions, p.decisions, decisionArgs)
	queue(b, insertPayloads, p.payloads, payloadArgs)
	queue(b, insertEmissions, p.emissions, emissionArgs)
	queue(b, erasePayloads, p.deleted, deletedArgs)
}

func queue[T any](b *pgx.Batch, sql string, rows []row[T], args func([]row[T]) []any) {
	if len(rows) > 0 {
		b.Queue(sql, args(rows)...)
	}
}

func runArgs(rows []row[runChange]) []any {
	type c = runChange
	sessions, appends := owners(rows)
	return []any{
		sessions, appends,
		column(rows, func(r *c) pgtype.UUID { return r.id }),
		column(rows, func(r *c) pgtype.Text { return r.status }),
		column(rows, func(r *c) pgtype.Int8 { return r.ticket }),
		column(rows, func(r *c) pgtype.UUID { return r.workerID }),
		column(rows, func(r *c) pgtype.Int8 { return r.epoch }),
		column(rows, func(r *c) pgtype.Int4 { return r.takeovers }),
		column(rows, func(r *c) int32 { return r.takeoversMore }),
		column(rows, func(r *c) pgtype.Timestamptz { return r.notBefore }),
		column(rows, func(r *c) pgtype.Timestamptz { return r.cancelRequestedAt }),
		column(rows, func(r *c) pgtype.Text { return r.cancelReason }),
		column(rows, func(r *c) pgtype.Text { return r.reason }),
		column(rows, func(r *c) pgtype.Text { return r.err }),
		column(rows, func(r *c) pgtype.Timestamptz { return r.startedAt }),
		column(rows, func(r *c) pgtype.Timestamptz { return r.endedAt }),
		column(rows, func(r *c) pgtype.Int8 { return r.endedSeq }),
		column(rows, func(r *c) pgtype.Text { return r.hookSet }),
		column(rows, func(r *c) int32 { return r.retriesMore }),
	}
}

func newRunArgs(rows []row[runChange]) []any {
	type c = runChange
	return append(runArgs(rows),
		column(rows, func(r *c) string { return r.agent }),
		column(rows, func(r *c) pgtype.UUID { return r.messageID }),
		column(rows, func(r *c) pgtype.UUID { return r.assistantMessageID }),
		column(rows, func(r *c) pgtype.Text { return r.idempotencyKey }),
		column(rows, func(r *c) pgtype.Text { return r.requestSHA256 }),
		column(rows, func(r *c) time.Time { return r.createdAt }),
		column(rows, func(r *c) int64 { return r.createdSeq }),
	)
}

func turnArgs(rows []row[turnChange]) []any {
	type c = turnChange
	sessions, appends := owners(rows)
	return []any{
		sessions, appends,
		column(rows, func(t *c) pgtype.UUID { return t.runID }),
		column(rows, func(t *c) int32 { return t.no }),
		column(rows, func(t *c) string { return t.status }),
		column(rows, func(t *c) pgtype.Int4 { return t.attempt }),
		column(rows, func(t *c) pgtype.Text { return t.model }),
		column(rows, func(t *c) pgtype.UUID { return t.messageID }),
		column(rows, func(t *c) pgtype.Text { return t.finish }),
		column(rows, func(t *c) pgtype.Text { return t.finishRaw }),
		column(rows, func(t *c) int64 { return t.inputMore }),
		column(rows, func(t *c) int64 { return t.outputMore }),
		column(rows, func(t *c) int64 { return t.costMore }),
		column(rows, func(t *c) pgtype.Timestamptz { return t.completedAt }),
	}
}

func newTurnArgs(rows []row[turnChange]) []any {
	return append(turnArgs(rows), column(rows, func(t *turnChange) time.Time { return t.startedAt }))
}

func messageArgs(rows []row[messageRow]) []any {
	type c = messageRow
	sessions, appends := owners(rows)
	return []any{
		sessions, appends,
		column(rows, func(m *c) pgtype.UUID { return m.id }),
		column(rows, func(m *c) pgtype.UUID { return m.runID }),
		column(rows, func(m *c) pgtype.Int4 { return m.turn }),
		column(rows, func(m *c) string { return m.role }),
		column(rows, func(m *c) string { return m.parts }),
		column(rows, func(m *c) bool { return m.partial }),
		column(rows, func(m *c) pgtype.Int8 { return m.position }),
		column(rows, func(m *c) pgtype.UUID { return m.callID }),
		column(rows, func(m *c) int64 { return m.seq }),
		column(rows, func(m *c) time.Time { return m.createdAt }),
		column(rows, func(m *c) bool { return m.enqueued }),
	}
}

func callArgs(rows []row[callChange]) []any {
	type c = callChange
	sessions, appends := owners(rows)
	return []any{
		sessions, appends,
		column(rows, func(k *c) pgtype.UUID { return k.id }),
		column(rows, func(k *c) string { return k.status }),
		column(rows, func(k *c) pgtype.Int4 { return k.attempt }),
		column(rows, func(k *c) pgtype.Bool { return k.success }),
		column(rows, func(k *c) pgtype.Text { return k.sha256 }),
		column(rows, func(k *c) pgtype.Int8 { return k.bytes }),
		column(rows, func(k *c) pgtype.Bool { return k.isError }),
		column(rows, func(k *c) pgtype.Text { return k.reason }),
		column(rows, func(k *c) pgtype.UUID { return k.resultMessageID }),
		column(rows, func(k *c) pgtype.Timestamptz { return k.startedAt }),
		column(rows, func(k *c) pgtype.Timestamptz { return k.executedAt }),
		column(rows, func(k *c) pgtype.Timestamptz { return k.doneAt }),
		column(rows, func(k *c) pgtype.UUID { return k.approvalID }),
		column(rows, func(k *c) pgtype.Text { return k.asked }),
		column(rows, func(k *c) pgtype.Text { return k.final }),
		column(rows, func(k *c) pgtype.Text { return k.blockedBy }),
	}
}

func newCallArgs(rows []row[callChange]) []any {
	type c = callChange
	return append(callArgs(rows),
		column(rows, func(k *c) pgtype.UUID { return k.runID }),
		column(rows, func(k *c) int32 { return k.turn }),
		column(rows, func(k *c) int32 { return k.no }),
		column(rows, func(k *c) string { return k.name }),
		column(rows, func(k *c) string { return k.arguments }),
		column(rows, func(k *c) pgtype.Text { return k.providerID }),
		column(rows, func(k *c) int64 { return k.position }),
		column(rows, func(k *c) time.Time { return k.proposedAt }),
	)
}
