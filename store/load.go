package store

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
)

// Events implements [loop.Log].
func (s *Store) Events(ctx context.Context, tenantID, sessionID string, after int64, limit int) ([]event.Event, error) {
	id, ok := canonicalID(sessionID)
	if !ok || !storable(tenantID) {
		return nil, loop.ErrNotFound
	}
	f, err := poolReader{s.pool}.readAfter(ctx, tenantID, id, after, max(limit, 0))
	if err != nil && !errors.Is(err, loop.ErrNotFound) {
		return nil, failed("read events", err)
	}
	return f.events, err
}

// Load implements [loop.Log]. It is one round trip and one snapshot, and
// another of each for a run whose stored state is broken.
func (s *Store) Load(ctx context.Context, tenantID, sessionID, runID string) (loop.State, error) {
	session, ok := canonicalID(sessionID)
	run, ok2 := canonicalID(runID)
	if !ok || !ok2 || !storable(tenantID) {
		return loop.State{}, loop.ErrNotFound
	}
	var head []headRow
	var messages, enqueued []hooks.Message
	var events []event.Event
	var bad error
	b := &pgx.Batch{}
	b.Queue(beginSnapshot)
	b.Queue(selectHead+`s.id = $2`, tenantID, session).Query(func(rows pgx.Rows) (err error) {
		head, err = pgx.CollectRows(rows, pgx.RowToStructByName[headRow])
		return err
	})
	b.Queue(selectMessages, tenantID, session).Query(func(rows pgx.Rows) (err error) {
		found, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (conversationRow, error) {
			m, err := scanConversation(row)
			if unreadable := new(json.UnmarshalTypeError); errors.As(err, &unreadable) {
				bad, err = &loop.BadStateError{Seq: m.Position, Problem: "the message that stands there cannot be read"}, nil
			}
			return m, err
		})
		messages, enqueued = split(found)
		return err
	})
	b.Queue(selectRunEvents, tenantID, session, run).Query(func(rows pgx.Rows) (err error) {
		events, err = pgx.CollectRows(rows, scanEvent)
		return err
	})
	b.Queue(`COMMIT`)
	if err := s.pool.SendBatch(ctx, b).Close(); err != nil {
		return loop.State{}, failed("load run", err)
	}
	if len(head) == 0 {
		return loop.State{}, loop.ErrNotFound
	}
	h := head[0]
	state, err := loop.FoldRun(h.state(), events)
	if err == nil {
		err = bad
	}
	if err != nil {
		return s.loadTables(ctx, tenantID, session, run, err)
	}
	r, ok := state.Run(run)
	if !ok {
		return loop.State{}, loop.ErrNotFound
	}
	state.Runs, state.Enqueued, state.Messages = withNext(r, enqueued), byArrival(enqueued), nil
	if len(messages) > 0 {
		state.Messages = messages
	}
	return h.placed(state), nil
}

// state is the session as events that follow find it.
func (r headRow) state() loop.State {
	return loop.State{
		SessionID: r.ID, TenantID: r.TenantID, ExternalID: orZero(r.ExternalID),
		Title: orZero(r.Title), User: orZero(r.UserID), Metadata: r.Metadata,
	}
}

// placed is s at the place that the session has reached.
func (r headRow) placed(s loop.State) loop.State {
	s.LastSeq, s.Epoch, s.Deleted, s.Ledger = r.LastSeq, r.Epoch, r.Deleted, r.ledger()
	return s
}

const beginSnapshot = `BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY`

const selectMessages = `
	SELECT id::text, run_id::text, role, parts, partial, position, enqueued
	FROM agentd.messages
	WHERE tenant_id = $1 AND session_id = $2 AND replaced_seq IS NULL
	ORDER BY position`

// selectRunEvents reads the run without its deltas and without what tools said of how
// far they were, which moves nothing, and then the deltas of a model call that has no
// outcome yet.
const selectRunEvents = `
	WITH run AS MATERIALIZED (
		SELECT session_id, seq, type, run_id, turn_no, at, actor_kind, actor_id, payload
		FROM agentd.events
		WHERE run_id = $3 AND type <> 'assistant.delta' AND type <> 'tool.progress' AND session_id = $2 AND tenant_id = $1
	), call AS (
		SELECT max(seq) FILTER (WHERE type = 'model.requested') AS requested,
			max(seq) FILTER (WHERE type IN ('assistant.completed', 'assistant.stopped', 'assistant.discarded')) AS answered
		FROM run
	), open AS (
		SELECT e.session_id, e.seq, e.type, e.run_id, e.turn_no, e.at, e.actor_kind, e.actor_id, e.payload
		FROM call
		JOIN agentd.events AS e ON e.session_id = $2 AND e.seq > call.requested
		WHERE call.requested > coalesce(call.answered, 0) AND e.type = 'assistant.delta' AND e.run_id = $3
	)
	SELECT session_id::text, seq, type, run_id::text, turn_no, at, actor_kind, actor_id, payload
	FROM (TABLE run UNION ALL TABLE open) AS wanted
	ORDER BY seq`

func scanConversation(row pgx.CollectableRow) (m conversationRow, err error) {
	var runID *string
	var parts []byte
	err = row.Scan(&m.ID, &runID, &m.Role, &parts, &m.Partial, &m.Position, &m.enqueued)
	if err == nil {
		err = json.Unmarshal(parts, &m.Parts)
	}
	m.RunID = orZero(runID)
	if len(m.Parts) == 0 {
		m.Parts = nil // as in the event, whose empty list is null
	}
	return m, err
}

func scanEvent(row pgx.CollectableRow) (event.Event, error) {
	var e event.Event
	var runID *string
	var turn *int
	var at time.Time
	var payload []byte
	err := row.Scan(&e.SessionID, &e.Seq, &e.Type, &runID, &turn, &at, &e.Actor.Kind, &e.Actor.ID, &payload)
	e.RunID, e.Turn, e.At, e.Payload = orZero(runID), orZero(turn), at.UTC(), payload
	return e, err
}
