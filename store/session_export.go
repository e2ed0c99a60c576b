package store

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// sessionFormat names the form of the export of a session.
const sessionFormat = "agentd.session.v1"

// SessionCount is how much of a session was exported.
type SessionCount struct {
	LedgerCount
	Events   int64
	Messages int64
}

// ExportSession writes all that is stored of a session to w, a line of JSON each, in
// the form that docs/operations.md describes: its ledger as [ExportLedger] does, so
// that the same programs verify it, then its log, with payloads as they are stored,
// then its messages. All of it is as it was at one moment; in memory is one page.
// A session that was deleted is there, and of one that was purged the tombstone. The
// errors are those of [VerifyLedger].
func ExportSession(ctx context.Context, pool *pgxpool.Pool, sessionID string, w io.Writer) (SessionCount, error) {
	buffered := bufio.NewWriterSize(w, 1<<16)
	e := &exporter{json.NewEncoder(buffered)}
	e.SetEscapeHTML(false)
	var count SessionCount
	options := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
	err := pgx.BeginTxFunc(ctx, pool, options, func(tx pgx.Tx) error {
		if err := forLong(ctx, tx); err != nil {
			return err
		}
		if err := e.Encode(headLine{"export", sessionFormat}); err != nil {
			return err
		}
		ledger := &ledgerWalk{tx: tx, scope: LedgerScope{SessionID: sessionID}, visitor: e}
		if err := ledger.one(ctx); err != nil {
			return err
		}
		count.LedgerCount = ledger.count
		var err error
		if count.Events, err = exportPages[eventLine](ctx, tx, e, selectEventLines, sessionID); err != nil {
			return fmt.Errorf("events: %w", err)
		}
		if count.Messages, err = exportPages[messageLine](ctx, tx, e, selectMessageLines, sessionID); err != nil {
			return fmt.Errorf("messages: %w", err)
		}
		return e.Encode(sessionEndLine{endLine{"end", count.Sessions, count.Tombstones, count.Decisions}, count.Events, count.Messages})
	})
	if err == nil {
		err = buffered.Flush()
	}
	if err != nil {
		return count, fmt.Errorf("export session: %w", err)
	}
	return count, nil
}

type sessionEndLine struct {
	endLine
	Events   int64 `json:"events"`
	Messages int64 `json:"messages"`
}

// exportLine is a line with a place in its list.
type exportLine interface{ place() int64 }

const exportPage = 500

// exportPages writes a list that is read above a place, page by page.
func exportPages[L exportLine](ctx context.Context, tx pgx.Tx, e *exporter, query, sessionID string) (n int64, err error) {
	for after := int64(math.MinInt64); ; { // what is enqueued stands before the first place
		rows, _ := tx.Query(ctx, query, sessionID, after, exportPage) // rows has the error
		page, err := pgx.CollectRows(rows, pgx.RowToStructByName[L])
		if err != nil {
			return n, err
		}
		for _, l := range page {
			if err := e.Encode(l); err != nil {
				return n, err
			}
			after = l.place()
		}
		if n += int64(len(page)); len(page) < exportPage {
			return n, nil
		}
	}
}

// eventLine is an event, its payload as it is stored but for white space between
// tokens, of which agentd writes none.
type eventLine struct {
	Kind      string          `json:"kind"`
	SessionID string          `json:"session_id"`
	Seq       int64           `json:"seq"`
	AtUS      int64           `json:"at_us"`
	Type      string          `json:"type"`
	RunID     *string         `json:"run_id"`
	TurnNo    *int64          `json:"turn_no"`
	ActorKind string          `json:"actor_kind"`
	ActorID   string          `json:"actor_id"`
	AppendID  string          `json:"append_id"`
	Payload   json.RawMessage `json:"payload"`
}

func (l eventLine) place() int64 { return l.Seq }

const selectEventLines = `
	SELECT 'event' AS kind, session_id::text, seq, (extract(epoch FROM at) * 1000000)::bigint AS at_us, type, run_id::text, turn_no,
		actor_kind, actor_id, append_id::text, payload
	FROM agentd.events WHERE session_id = $1 AND seq > $2 ORDER BY seq LIMIT $3`

// messageLine is a message of the conversation, or one that was taken out of it.
type messageLine struct {
	Kind        string          `json:"kind"`
	SessionID   string          `json:"session_id"`
	ID          string          `json:"id"`
	Position    int64           `json:"position"`
	Role        string          `json:"role"`
	Parts       json.RawMessage `json:"parts"`
	Partial     bool            `json:"partial"`
	RunID       *string         `json:"run_id"`
	TurnNo      *int64          `json:"turn_no"`
	Seq         int64           `json:"seq"`
	ReplacedSeq *int64          `json:"replaced_seq"`
	Enqueued    bool            `json:"enqueued"`
	CreatedAtUS int64           `json:"created_at_us"`
}

func (l messageLine) place() int64 { return l.Position }

const selectMessageLines = `
	SELECT 'message' AS kind, session_id::text, id::text, position, role, parts, partial, run_id::text, turn_no, seq, replaced_seq, enqueued,
		(extract(epoch FROM created_at) * 1000000)::bigint AS created_at_us
	FROM agentd.messages WHERE session_id = $1 AND position > $2 ORDER BY position LIMIT $3`
