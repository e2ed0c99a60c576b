package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
)

// toldTypes are the events of which plugins are told. Of run.resumed they are told
// where the tool calls of a turn are gone on with.
const toldTypes = `'run.started', 'run.resumed', 'model.requested', 'tool.started', 'turn.completed', 'run.completed', 'run.failed', 'run.cancelled'`

// maxPageBytes bounds what is read of the arguments of tool calls for one page; the
// last one may be beyond it.
const maxPageBytes = 4 << 20

// selectTold reads what is behind a cursor, the settled first. An event whose own xmin
// is another transaction was brought here by a dump.
const selectTold = `
SELECT e.xid::text, e.session_id::text, e.seq, e.xid < pg_catalog.pg_snapshot_xmin(pg_catalog.pg_current_snapshot()),
	e.type, e.at, e.tenant_id, coalesce(e.run_id::text, ''), coalesce(r.agent, ''),
	coalesce(e.turn_no, a.turn_no, 0),
	coalesce(substring(coalesce(a.attempt, o.attempt) FROM '^[0-9]{1,9}$')::integer, 0),
	coalesce(a.again, false), coalesce(o.reason, ''),
	coalesce(k.id::text, ''), coalesce(k.provider_call_id, ''), coalesce(k.name, ''), coalesce(o.arguments, k.arguments, ''),
	CASE WHEN e.type = 'turn.completed' THEN
		(SELECT count(*) FROM agentd.tool_calls AS c WHERE c.run_id = e.run_id AND c.turn_no = e.turn_no) ELSE 0 END
FROM agentd.events AS e
LEFT JOIN agentd.runs AS r ON r.id = e.run_id
LEFT JOIN LATERAL (
	SELECT e.payload ->> 'attempt' AS attempt, e.payload ->> 'reason' AS reason, e.payload ->> 'arguments' AS arguments, e.payload ->> 'call_id' AS call_id
	WHERE e.type NOT IN ('run.started', 'run.resumed', 'turn.completed')
) AS o ON true
LEFT JOIN agentd.tool_calls AS k ON e.type = 'tool.started' AND k.id = CASE WHEN o.call_id ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' THEN o.call_id::uuid END
LEFT JOIN LATERAL (
	SELECT p.turn_no, p.payload ->> 'attempt' AS attempt, p.type = 'assistant.completed' AND NOT EXISTS (
		SELECT FROM agentd.events AS c
		WHERE c.run_id = e.run_id AND c.seq < e.seq AND c.type <> 'assistant.delta' AND c.type = 'run.cancel_requested' AND NOT EXISTS (
			SELECT FROM agentd.events AS q
			WHERE q.run_id = e.run_id AND q.seq > c.seq AND q.seq < e.seq AND q.type <> 'assistant.delta' AND q.type = 'run.queued' AND q.payload ->> 'cause' = 'retry')
	) AS again
	FROM agentd.events AS p
	WHERE e.type = 'run.resumed' AND p.run_id = e.run_id AND p.seq < e.seq AND p.type <> 'assistant.delta' AND p.type IN
		('turn.started', 'model.requested', 'assistant.completed', 'assistant.stopped', 'assistant.discarded', 'turn.completed')
	ORDER BY p.seq DESC LIMIT 1
) AS a ON true
WHERE (e.xid, e.session_id, e.seq) > ($1::text::xid8, $2, $3) AND e.xmin = e.xid::xid
ORDER BY e.xid, e.session_id, e.seq LIMIT $4`

// After reads what has happened behind a cursor, at most so many events.
func (n *Notices) After(ctx context.Context, cursor string, atMost int) (hooks.NotificationPage, error) {
	from, err := parseCursor(cursor)
	if err != nil {
		return hooks.NotificationPage{}, err
	}
	page := hooks.NotificationPage{Cursor: cursor}
	read, bytes := 0, 0
	b := &pgx.Batch{}
	b.Queue(planByIndex)
	b.Queue(selectTold, from.xid, from.session, from.seq, atMost).Query(func(rows pgx.Rows) error {
		for rows.Next() && !page.Unsettled && bytes < maxPageBytes {
			var t toldRow
			if err := t.scan(rows); err != nil {
				return err
			}
			if page.Unsettled = !t.settled; page.Unsettled {
				break
			}
			read, bytes, page.Cursor = read+1, bytes+len(t.call.Arguments), t.cursor()
			if told, ok := t.notification(); ok {
				page.List = append(page.List, told)
			}
		}
		rows.Close()
		return rows.Err()
	})
	if err := n.pool.SendBatch(ctx, b).Close(); err != nil {
		return hooks.NotificationPage{}, failed("read what plugins are told", err)
	}
	page.More = read == atMost || bytes >= maxPageBytes
	return page, nil
}

// toldRow is an event with what a notification of it says.
type toldRow struct {
	xid     string
	seq     int64
	settled bool
	kind    event.Type
	at      time.Time
	run     hooks.RunRef
	turn    int
	attempt int
	again   bool
	reason  string
	call    hooks.ToolCall
	calls   int
}

func (t *toldRow) scan(rows pgx.Rows) error {
	return rows.Scan(&t.xid, &t.run.SessionID, &t.seq, &t.settled, &t.kind, &t.at, &t.run.TenantID, &t.run.RunID, &t.run.Agent,
		&t.turn, &t.attempt, &t.again, &t.reason, &t.call.ID, &t.call.ProviderID, &t.call.Name, &t.call.Arguments, &t.calls)
}

func (t *toldRow) cursor() string { return fmt.Sprintf("%s:%s:%d", t.xid, t.run.SessionID, t.seq) }

// notification is false for an event of which there is nothing to tell.
func (t *toldRow) notification() (hooks.Notification, bool) {
	out := hooks.Notification{Seq: t.seq, At: t.at.UTC()}
	switch t.kind {
	case event.TypeRunStarted:
		out.RunStart = &hooks.RunStart{RunRef: t.run}
	case event.TypeModelRequested:
		out.TurnStart = &hooks.TurnStart{RunRef: t.run, Turn: t.turn, Attempt: t.attempt, Resumed: t.attempt > 1}
	case event.TypeRunResumed:
		if !t.again {
			return out, false
		}
		out.TurnStart = &hooks.TurnStart{RunRef: t.run, Turn: t.turn, Attempt: t.attempt, Resumed: true}
	case event.TypeToolStarted:
		out.ToolExecutionStart = &hooks.ToolExecutionStart{RunRef: t.run, Turn: t.turn, Attempt: t.attempt, Call: t.call}
	case event.TypeTurnCompleted:
		out.TurnEnd = &hooks.TurnEnd{RunRef: t.run, Turn: t.turn, ToolCalls: t.calls}
	case event.TypeRunCompleted, event.TypeRunFailed, event.TypeRunCancelled:
		out.RunEnd = &hooks.RunEnd{RunRef: t.run, Status: string(endedAs[t.kind]), Reason: t.reason}
	default:
		return out, false
	}
	return out, true
}

var endedAs = map[event.Type]loop.RunStatus{
	event.TypeRunCompleted: loop.RunCompleted, event.TypeRunFailed: loop.RunFailed, event.TypeRunCancelled: loop.RunCancelled,
}
