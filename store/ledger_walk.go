package store

import (
	"context"
	"fmt"
	"math"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/seed-2ca4966b/agentd/loop"
)

// LedgerScope says whose ledgers are meant. The zero value means all.
type LedgerScope struct {
	// SessionID is one session, "" for all.
	SessionID string
	// TenantID is the owner of all of them, "" for any.
	TenantID string
}

// LedgerCount is how much was seen. One that counts nothing proves nothing.
type LedgerCount struct {
	// Sessions are those that are there, or should be; Tombstones those that
	// were purged.
	Sessions   int64
	Tombstones int64
	Decisions  int64
}

// ledgerVisitor is shown ledgers: for each session its line, then its decisions
// in order with each mark behind the decision that it names, then the end.
type ledgerVisitor interface {
	session(l *sessionLine) error
	decision(l *decisionLine) error
	mark(l *markLine) error
	endSession() error
}

const (
	sessionPage  = 500
	decisionPage = 500
)

// walkLedgers shows ledgers as they were at one moment. It holds one page of
// decisions in memory, and the marks of one session. A session of the scope
// that neither is nor was there is [loop.ErrNotFound].
func walkLedgers(ctx context.Context, pool *pgxpool.Pool, scope LedgerScope, v ledgerVisitor) (LedgerCount, error) {
	w := &ledgerWalk{scope: scope, visitor: v}
	options := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
	err := pgx.BeginTxFunc(ctx, pool, options, func(tx pgx.Tx) error {
		w.tx = tx
		if err := forLong(ctx, tx); err != nil {
			return err
		}
		if scope.SessionID != "" {
			return w.one(ctx)
		}
		return w.all(ctx)
	})
	return w.count, err
}

type ledgerWalk struct {
	tx      pgx.Tx
	scope   LedgerScope
	visitor ledgerVisitor
	count   LedgerCount
}

// selectLedgerHeads begins with the ids that the caller adds.
const selectLedgerHeads = `
	SELECT x.id::text, s.tenant_id, s.last_seq, s.ledger_seq, encode(s.ledger_head, 'hex'),
		t.session_id IS NOT NULL, coalesce(t.tenant_id, ''), coalesce(t.events, 0), coalesce(t.decisions, 0), coalesce(t.last_seq, 0), coalesce(t.ledger_seq, 0),
		encode(t.ledger_head, 'hex'), coalesce(t.purged_at, 'epoch'), coalesce(t.purged_by, ''), coalesce(t.reason, '')
	FROM x
	LEFT JOIN agentd.sessions AS s ON s.id = x.id
	LEFT JOIN agentd.tombstones AS t ON t.session_id = x.id
	ORDER BY x.id`

func (w *ledgerWalk) one(ctx context.Context) error {
	id, ok := canonicalID(w.scope.SessionID)
	if !ok {
		return loop.ErrNotFound
	}
	// What is left of a session that is gone counts as one.
	lines, err := w.heads(ctx, `
		SELECT $1::uuid AS id WHERE EXISTS (SELECT FROM agentd.sessions WHERE id = $1) OR EXISTS (SELECT FROM agentd.tombstones WHERE session_id = $1)
			OR EXISTS (SELECT FROM agentd.hook_decisions WHERE session_id = $1)`, id)
	if err != nil {
		return err
	}
	if len(lines) == 0 {
		return loop.ErrNotFound
	}
	return w.sessions(ctx, lines)
}

func (w *ledgerWalk) all(ctx context.Context) error {
	for _, ids := range []string{
		`SELECT id FROM agentd.sessions WHERE id > $1 AND ($2 = '' OR tenant_id = $2) ORDER BY id LIMIT $3`,
		// One that is there all the same came with the sessions.
		`SELECT t.session_id AS id FROM agentd.tombstones AS t WHERE t.session_id > $1 AND ($2 = '' OR t.tenant_id = $2)
			AND NOT EXISTS (SELECT FROM agentd.sessions AS s WHERE s.id = t.session_id) ORDER BY t.session_id LIMIT $3`,
		`SELECT DISTINCT d.session_id AS id FROM agentd.hook_decisions AS d WHERE d.session_id > $1 AND ($2 = '' OR d.tenant_id = $2)
			AND NOT EXISTS (SELECT FROM agentd.sessions AS s WHERE s.id = d.session_id)
			AND NOT EXISTS (SELECT FROM agentd.tombstones AS t WHERE t.session_id = d.session_id) ORDER BY d.session_id LIMIT $3`,
	} {
		after := zeroUUID
		for {
			lines, err := w.heads(ctx, ids, after, w.scope.TenantID, sessionPage)
			if err != nil {
				return err
			}
			if err := w.sessions(ctx, lines); err != nil {
				return err
			}
			if len(lines) < sessionPage {
				break
			}
			after = lines[len(lines)-1].SessionID
		}
	}
	return nil
}

func (w *ledgerWalk) heads(ctx context.Context, ids string, args ...any) ([]*sessionLine, error) {
	rows, _ := w.tx.Query(ctx, `WITH x AS (`+ids+`)`+selectLedgerHeads, args...) // rows has the error
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (*sessionLine, error) {
		l := &sessionLine{Kind: "session"}
		var t tombstoneLine
		var purged bool
		err := row.Scan(&l.SessionID, &l.TenantID, &l.LastSeq, &l.LedgerSeq, &l.LedgerHead,
			&purged, &t.TenantID, &t.Events, &t.Decisions, &t.LastSeq, &t.LedgerSeq, &t.LedgerHead, &t.PurgedAt, &t.PurgedBy, &t.Reason)
		t.PurgedAt = t.PurgedAt.UTC()
		if purged {
			l.Tombstone = &t
		}
		return l, err
	})
}

func (w *ledgerWalk) sessions(ctx context.Context, lines []*sessionLine) error {
	for _, l := range lines {
		if l.LastSeq == nil && l.Tombstone != nil {
			w.count.Tombstones++
		} else {
			w.count.Sessions++
		}
		if err := w.session(ctx, l); err != nil {
			return fmt.Errorf("session %s: %w", l.SessionID, err)
		}
	}
	return nil
}

func (w *ledgerWalk) session(ctx context.Context, l *sessionLine) error {
	if err := w.visitor.session(l); err != nil {
		return err
	}
	marks, err := w.marks(ctx, l.SessionID)
	if err != nil {
		return err
	}
	marked := func(below int64) error {
		for ; len(marks) > 0 && marks[0].LedgerSeq < below; marks = marks[1:] {
			if err := w.visitor.mark(marks[0]); err != nil {
				return err
			}
		}
		return nil
	}
	after, more := int64(0), true
	for more {
		page, err := w.decisions(ctx, l.SessionID, after)
		if err != nil {
			return err
		}
		for _, d := range page {
			if err := marked(d.LedgerSeq); err != nil {
				return err
			}
			if err := w.visitor.decision(d); err != nil {
				return err
			}
			after = d.LedgerSeq
		}
		w.count.Decisions += int64(len(page))
		more = len(page) == decisionPage
	}
	if err := marked(math.MaxInt64); err != nil {
		return err
	}
	return w.visitor.endSession()
}

func (w *ledgerWalk) marks(ctx context.Context, sessionID string) ([]*markLine, error) {
	rows, _ := w.tx.Query(ctx, selectMarks, sessionID) // rows has the error
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (*markLine, error) {
		m := &markLine{Kind: "mark", SessionID: sessionID}
		return m, row.Scan(&m.EventSeq, &m.LedgerSeq, &m.LedgerHead)
	})
}

// selectMarks is what agentd.ledger_marks does, whose word is not taken here: a
// mark that is no number is one of a row that cannot be.
const selectMarks = `
	SELECT m.seq, CASE WHEN m.at IS NULL THEN 0 WHEN m.at ~ '^[0-9]{1,18}$' THEN m.at::bigint ELSE -1 END AS ledger_seq, m.head
	FROM (
		SELECT e.seq, e.payload ->> 'ledger_seq' AS at, coalesce(e.payload ->> 'ledger_head', '') AS head FROM agentd.events AS e
		WHERE e.session_id = $1 AND e.type IN ('run.completed', 'run.failed', 'run.cancelled')
	) AS m
	ORDER BY ledger_seq, m.seq`

// selectDecisionLines says of each column what it is, whatever it is: a time
// that no integer of microseconds holds, and a list that is none, is NULL.
const selectDecisionLines = `
	SELECT d.session_id::text, d.ledger_seq, d.decision_id::text, 
		CASE WHEN isfinite(d.at) AND d.at < '294247-01-10 04:00:54.775807+00' THEN (extract(epoch FROM d.at) * 1000000)::bigint END AS at_us, d.tenant_id, d.run_id::text, d.turn_no,
		d.gate, d.subject, d.attempt, d.phase, d.position, d.chain_length,
		d.hook_id, d.hook_kind, d.hook_version, d.hook_digest, d.hook_set_digest, d.rule_id,
		d.action, d.effective, d.outcome, d.failure_policy, d.failed_open, d.reason_code,
		CASE WHEN array_ndims(d.fields_changed) > 1 THEN NULL WHEN array_position(d.fields_changed, NULL) IS NULL THEN to_json(d.fields_changed) END AS fields_changed,
		encode(d.input_sha256, 'hex') AS input_sha256, encode(d.output_sha256, 'hex') AS output_sha256, d.input_bytes, d.output_bytes,
		d.event_seq, d.epoch, d.worker_id::text, d.queue_us, d.latency_us, d.deadline_ms, d.trace_id,
		encode(d.payload_sha256, 'hex') AS payload_sha256, encode(d.prev_hash, 'hex') AS prev_hash, encode(d.row_hash, 'hex') AS row_hash,
		p.decision_id IS NOT NULL AS has_payload, encode(p.salt, 'hex') AS salt, p.reason, p.patch, p.annotations
	FROM agentd.hook_decisions AS d
	LEFT JOIN agentd.hook_payloads AS p ON p.decision_id = d.decision_id
	WHERE d.session_id = $1 AND d.ledger_seq > $2
	ORDER BY d.ledger_seq LIMIT $3`

// storedLine is a row of selectDecisionLines.
type storedLine struct {
	decisionLine
	HasPayload  bool    `db:"has_payload"`
	Salt        *string `db:"salt"`
	Reason      *string `db:"reason"`
	Patch       *string `db:"patch"`
	Annotations *string `db:"annotations"`
}

func (w *ledgerWalk) decisions(ctx context.Context, sessionID string, after int64) ([]*decisionLine, error) {
	rows, _ := w.tx.Query(ctx, selectDecisionLines, sessionID, after, decisionPage) // rows has the error
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (*decisionLine, error) {
		s, err := pgx.RowToAddrOfStructByName[storedLine](row)
		if err != nil {
			return nil, err
		}
		s.Kind = "decision"
		if s.HasPayload {
			s.Payload = &payloadLine{Salt: s.Salt, Reason: s.Reason, Patch: s.Patch, Annotations: s.Annotations}
		}
		return &s.decisionLine, nil
	})
}
