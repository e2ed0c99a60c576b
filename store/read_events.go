package store

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
)

// poolReader is the hub's eye on the database.
type poolReader struct{ pool *pgxpool.Pool }

var _ logReader = poolReader{}

// readAfter reads the head and the events in one statement, so in one snapshot.
func (r poolReader) readAfter(ctx context.Context, tenantID, sessionID string, after int64, limit int) (found, error) {
	rows, err := r.pool.Query(ctx, `
		SELECT s.last_seq, e.seq, e.type, e.run_id::text, e.turn_no, e.at, e.actor_kind, e.actor_id, e.payload
		FROM agentd.sessions s
		LEFT JOIN LATERAL (
			SELECT seq, type, run_id, turn_no, at, actor_kind, actor_id, payload
			FROM agentd.events
			WHERE session_id = s.id AND seq > $3
			ORDER BY seq LIMIT $4) e ON true
		WHERE s.id = $1 AND s.tenant_id = $2 AND s.deleted_at IS NULL
		ORDER BY e.seq`, sessionID, tenantID, after, limit)
	if err != nil {
		return found{}, err
	}
	records, err := pgx.CollectRows(rows, pgx.RowToStructByPos[eventRecord])
	if err != nil {
		return found{}, err
	}
	if len(records) == 0 {
		return found{}, loop.ErrNotFound
	}
	f := found{after: after, head: records[0].Head}
	if records[0].Seq != nil {
		f.events = make([]event.Event, len(records))
		for i, record := range records {
			f.events[i] = record.event(sessionID)
		}
	}
	f.whole = len(f.events) < limit
	return f, nil
}

// eventRecord is the head beside an event; without an event the rest is nil.
type eventRecord struct {
	Head      int64
	Seq       *int64
	Type      *string
	RunID     *string
	Turn      *int
	At        *time.Time
	ActorKind *string
	ActorID   *string
	Payload   []byte
}

func (r eventRecord) event(sessionID string) event.Event {
	return event.Event{
		SessionID: sessionID,
		Seq:       *r.Seq,
		Type:      event.Type(*r.Type),
		RunID:     orZero(r.RunID),
		Turn:      orZero(r.Turn),
		At:        r.At.UTC(),
		Actor:     event.Actor{Kind: event.ActorKind(*r.ActorKind), ID: *r.ActorID},
		Payload:   r.Payload,
	}
}

// moved sends the ids as text: pgx has no binary form of a string as a uuid, and
// finds that out at length, with an error that quotes the whole list.
func (r poolReader) moved(ctx context.Context, sessionIDs []string, seqs []int64) ([]head, error) {
	rows, err := r.pool.Query(ctx, `
		SELECT s.id::text, k.seq, s.last_seq, s.deleted_at IS NOT NULL
		FROM unnest($1::text[]::uuid[], $2::bigint[]) AS k (id, seq)
		JOIN agentd.sessions AS s ON s.id = k.id
		WHERE s.last_seq <> k.seq OR s.deleted_at IS NOT NULL`, sessionIDs, seqs)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (h head, err error) {
		return h, row.Scan(&h.sessionID, &h.knownSeq, &h.lastSeq, &h.deleted)
	})
}

// Next returns up to limit events with a seq above after, in order, as soon as
// there are any; until then it blocks, and returns ctx's error when ctx ends.
// Calling it again with the last seq that it returned gives every event once,
// without a hole: the seqs decide, not the signals. A session that is deleted,
// or deleted while it waits, is [loop.ErrNotFound]. A cursor ahead of the
// session waits until the session has passed it. The events share memory with
// what other callers get and must not be changed. It holds no goroutine and,
// while it waits, no connection.
func (s *Store) Next(ctx context.Context, tenantID, sessionID string, after int64, limit int) ([]event.Event, error) {
	id, ok := canonicalID(sessionID)
	if !ok || !storable(tenantID) {
		return nil, loop.ErrNotFound
	}
	if limit <= 0 {
		return nil, &loop.InvalidError{Field: "limit", Problem: "must be at least 1"}
	}
	events, err := s.delivery.hub.next(ctx, tenantID, id, max(after, 0), limit)
	switch {
	case err == nil || errors.Is(err, loop.ErrNotFound):
		return events, err
	case ctx.Err() != nil:
		return nil, ctx.Err()
	default:
		return nil, failed("next events", err)
	}
}

// Watch implements [loop.Log]. An id that is none gets no signal.
func (s *Store) Watch(sessionID string) (signals <-chan int64, stop func()) {
	id, ok := canonicalID(sessionID)
	if !ok {
		return make(chan int64), func() {}
	}
	return s.delivery.hub.watch(id)
}

// idLength is that of a UUID in text, with its hyphens.
const idLength = 36

// canonicalID is the one way to write an id; false for a text that is none.
func canonicalID(text string) (string, bool) {
	_, err := uuid.Parse(text)
	// Other notations have other lengths; what is left to choose is the case.
	return strings.ToLower(text), err == nil && len(text) == idLength
}

func orZero[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}
