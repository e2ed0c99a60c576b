package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
)

// request is an append on its way through the committer, which owns it from
// submit until it has answered.
type request struct {
	left      <-chan struct{} // closed when the caller has left; then it is not begun
	append    loop.Append
	id        pgtype.UUID
	sessionID pgtype.UUID
	rows      []eventRow
	bytes     int
	changes   changes
	ledger    ledger
	answers   pgtype.UUID // an approval; not valid for none
	creates   bool
	answer    chan answer // has room for the one answer

	// skipped counts the groups that found the session locked.
	skipped int
	// failures counts the attempts that ended in a transient error.
	failures int
	began    time.Time
}

type answer struct {
	appended loop.Appended
	err      error
}

type eventRow struct {
	seq       int64
	runID     pgtype.UUID
	turn      pgtype.Int4
	kind      string
	payload   string
	actorKind string
	actorID   string
	at        time.Time
}

// Append implements [loop.Log]. It returns once the events are durable. When
// ctx ends before that, or the store gives up on a broken database, the append
// may have gone through or may still: repeat it unchanged to find out. The
// payloads of a, and the events that come back, are shared with those who
// watch the session: they must not be changed.
func (s *Store) Append(ctx context.Context, a loop.Append) (loop.Appended, error) {
	if err := ctx.Err(); err != nil {
		return loop.Appended{}, fmt.Errorf("append: %w", err)
	}
	r, err := newRequest(ctx, a)
	if err != nil {
		return loop.Appended{}, fmt.Errorf("append: %w", err)
	}
	if len(a.Jobs) > 0 && s.opts.Queue == nil {
		return loop.Appended{}, fmt.Errorf("append: %w", errNoQueue)
	}
	if err := s.committer.submit(r); err != nil {
		return loop.Appended{}, fmt.Errorf("append: %w", err)
	}
	select {
	case got := <-r.answer:
		if got.err != nil {
			return loop.Appended{}, failed("append", got.err)
		}
		return got.appended, nil
	case <-ctx.Done():
		return loop.Appended{}, fmt.Errorf("append: %w", ctx.Err())
	}
}

// newRequest does the work that needs no database, in the caller's goroutine.
func newRequest(ctx context.Context, a loop.Append) (*request, error) {
	r := &request{left: ctx.Done(), append: a, answer: make(chan answer, 1), began: time.Now()}
	if len(a.Events) == 0 {
		return nil, errors.New("no events")
	}
	r.creates = a.Expected == 0 && a.Events[0].Type == event.TypeSessionCreated
	var err error
	if r.id, err = parseID(a.ID); err != nil {
		return nil, fmt.Errorf("append id: %w", err)
	}
	if r.sessionID, err = parseID(a.SessionID); err != nil || !storable(a.TenantID) {
		return nil, loop.ErrNotFound
	}
	if a.Answers != "" {
		if r.answers, err = parseID(a.Answers); err != nil {
			return nil, fmt.Errorf("approval id: %w", err)
		}
	}
	r.append.Events = slices.Clone(a.Events)
	r.rows = make([]eventRow, len(a.Events))
	for i := range r.append.Events {
		e := &r.append.Events[i]
		e.SessionID, e.Seq = a.SessionID, a.Expected+1+int64(i)
		if r.rows[i], err = newEventRow(*e); err != nil {
			return nil, err
		}
		r.bytes += len(e.Payload)
	}
	if r.changes, err = project(r.append.Events); err != nil {
		return nil, err
	}
	if r.ledger, err = newLedger(r.append); err != nil {
		return nil, err
	}
	if err := r.checkCreation(); err != nil {
		return nil, err
	}
	return r, nil
}

// checkCreation refuses a creation at the wrong place. The projections would
// not be what the log says.
func (r *request) checkCreation() error {
	if owner := r.changes.session.owner; r.creates && owner != r.append.TenantID {
		return fmt.Errorf("session.created names tenant %q in an append of tenant %q", owner, r.append.TenantID)
	}
	for i, e := range r.append.Events {
		if e.Type == event.TypeSessionCreated && (i > 0 || !r.creates) {
			return fmt.Errorf("session.created at seq %d", e.Seq)
		}
	}
	return nil
}

func newEventRow(e event.Event) (eventRow, error) {
	row := eventRow{
		seq: e.Seq, kind: string(e.Type), payload: string(e.Payload),
		actorKind: string(e.Actor.Kind), actorID: e.Actor.ID, at: e.At,
	}
	if e.RunID != "" {
		var err error
		if row.runID, err = parseID(e.RunID); err != nil {
			return eventRow{}, fmt.Errorf("run id of %s: %w", e.Type, err)
		}
	}
	if e.Turn != 0 {
		row.turn = integer(e.Turn)
	}
	return row, nil
}

func (r *request) lastSeq() int64 { return r.append.Expected + int64(len(r.append.Events)) }

// abandoned says that nobody waits for the answer any more.
func (r *request) abandoned() bool {
	select {
	case <-r.left:
		return true
	default:
		return false
	}
}

func (r *request) succeed() {
	r.answer <- answer{appended: loop.Appended{Events: r.append.Events, LastSeq: r.lastSeq()}}
}

func (r *request) fail(err error) { r.answer <- answer{err: err} }
