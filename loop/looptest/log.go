// Package looptest holds what tests of the loop share: an in-memory Log, the
// conformance suite that it and the Postgres store pass, and tools and models
// that a test steers.
package looptest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
)

// Log is a loop.Log in memory. It is safe for concurrent use.
type Log struct {
	// Now is the log's clock, for the age of idempotency keys and the time that
	// there is to answer. Set it before the first use.
	Now func() time.Time

	mu       sync.Mutex
	stopped  time.Time // the clock, once it is
	sessions map[string]*session
	jobs     []loop.Job
	jobAdded chan struct{}
	watchers map[string]map[chan int64]bool
	// fail, when set, is asked before each append; an error is returned
	// instead of writing.
	fail func(loop.Append) error
	// lose, when set, is asked after each append; an error is returned though
	// the append was written.
	lose func(loop.Append) error
}

type session struct {
	state   loop.State
	events  []event.Event
	ledger  []loop.LedgerRow
	appends []string // the append id of each event
	// expires says until when approvals may be answered, for those that expire.
	expires map[string]time.Time
}

var _ loop.Log = (*Log)(nil)

// NewLog returns an empty log.
func NewLog() *Log {
	return &Log{
		Now:      time.Now,
		sessions: map[string]*session{},
		watchers: map[string]map[chan int64]bool{},
		jobAdded: make(chan struct{}, 1),
	}
}

// SetClock stops the log's clock at a time.
func (l *Log) SetClock(_ testing.TB, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stopped = at
}

func (l *Log) now() time.Time {
	if !l.stopped.IsZero() {
		return l.stopped
	}
	return l.Now()
}

// FailAppends makes every append that f refuses fail with f's error. Nil ends
// that.
func (l *Log) FailAppends(f func(loop.Append) error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fail = f
}

// LoseAcks makes every append that f refuses go through, and fail with f's error
// all the same: its caller does not learn that it was written. Nil ends that.
func (l *Log) LoseAcks(f func(loop.Append) error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lose = f
}

// Jobs returns the jobs that were appended and not taken yet.
func (l *Log) Jobs() []loop.Job {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.jobs)
}

// TakeJob removes and returns the oldest job, waiting for one until ctx ends.
func (l *Log) TakeJob(ctx context.Context) (loop.Job, error) {
	for {
		l.mu.Lock()
		if len(l.jobs) > 0 {
			j := l.jobs[0]
			l.jobs = l.jobs[1:]
			l.mu.Unlock()
			return j, nil
		}
		l.mu.Unlock()
		select {
		case <-l.jobAdded:
		case <-ctx.Done():
			return loop.Job{}, ctx.Err()
		}
	}
}

// Append implements loop.Log.
func (l *Log) Append(ctx context.Context, a loop.Append) (loop.Appended, error) {
	if err := ctx.Err(); err != nil {
		return loop.Appended{}, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fail != nil {
		if err := l.fail(a); err != nil {
			return loop.Appended{}, err
		}
	}
	s, err := l.target(a)
	if err != nil {
		return loop.Appended{}, err
	}
	if done, ok := s.repeat(a); ok {
		return l.acknowledge(a, done)
	}
	if a.Epoch != 0 && s.state.Epoch != a.Epoch {
		return loop.Appended{}, loop.ErrLeaseLost
	}
	if s.state.LastSeq != a.Expected {
		return loop.Appended{}, loop.ErrConflict
	}
	if at, ok := s.expires[a.Answers]; ok && !l.now().Before(at) {
		return loop.Appended{}, loop.ErrExpired
	}
	if err := s.chain(a); err != nil {
		return loop.Appended{}, err
	}
	out := slices.Clone(a.Events)
	for i := range out {
		out[i].Seq = a.Expected + int64(i) + 1
		s.state = loop.Fold(s.state, out[i])
		s.events = append(s.events, out[i])
		s.appends = append(s.appends, a.ID)
		s.expire(out[i], l.now())
	}
	l.sessions[a.SessionID] = s
	l.publish(a)
	return l.acknowledge(a, loop.Appended{Events: out, LastSeq: s.state.LastSeq})
}

// expire notes until when what e asks may be answered.
func (s *session) expire(e event.Event, now time.Time) {
	if e.Type != event.TypeApprovalRequested {
		return
	}
	p, _ := event.Decode(e) // nobody is asked by what cannot be read
	if q, ok := p.(event.ApprovalRequested); ok && q.TimeoutMS > 0 {
		if s.expires == nil {
			s.expires = map[string]time.Time{}
		}
		s.expires[q.ApprovalID] = now.Add(time.Duration(q.TimeoutMS) * time.Millisecond)
	}
}

func (l *Log) acknowledge(a loop.Append, done loop.Appended) (loop.Appended, error) {
	if l.lose != nil {
		if err := l.lose(a); err != nil {
			return loop.Appended{}, err
		}
	}
	return done, nil
}

// chain adds a's decisions to the ledger, all or none: they follow its head,
// are committed with a's events, and none of them was recorded before.
func (s *session) chain(a loop.Append) error {
	head, seen := s.state.Ledger, map[string]bool{}
	for _, r := range s.ledger {
		seen[r.ID] = true
	}
	for _, r := range a.Ledger {
		if err := checkRow(head, r); err != nil {
			return err
		}
		if seen[r.ID] || r.EventSeq <= a.Expected || r.EventSeq > a.Expected+int64(len(a.Events)) {
			return fmt.Errorf("ledger row %d: decision %s is recorded already, or not with event %d", r.LedgerSeq, r.ID, r.EventSeq)
		}
		seen[r.ID] = true
		head = loop.LedgerHead{Seq: r.LedgerSeq, Hash: r.Hash}
	}
	s.state.Ledger = head
	s.ledger = append(s.ledger, a.Ledger...)
	return nil
}

// Ledger returns the decisions of a session.
func (l *Log) Ledger(sessionID string) []loop.LedgerRow {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s, ok := l.sessions[sessionID]; ok {
		return slices.Clone(s.ledger)
	}
	return nil
}

// Approval implements loop.Log.
func (l *Log) Approval(_ context.Context, tenantID, approvalID string) (sessionID, runID string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, s := range l.sessions {
		if s.state.TenantID != tenantID || s.state.Deleted {
			continue
		}
		for _, r := range s.state.Runs {
			for _, t := range r.Turns {
				for _, c := range t.Calls {
					earlier := slices.ContainsFunc(c.Earlier, func(q loop.Question) bool { return q.ApprovalID == approvalID })
					if approvalID != "" && (c.ApprovalID == approvalID || earlier) {
						return id, r.ID, nil
					}
				}
			}
		}
	}
	return "", "", loop.ErrNotFound
}

// target returns the session that a goes to: an existing one, or a fresh one
// for a first append that no rival made impossible.
func (l *Log) target(a loop.Append) (*session, error) {
	if s, ok := l.sessions[a.SessionID]; ok {
		if s.state.TenantID != a.TenantID {
			return nil, loop.ErrNotFound
		}
		return s, nil
	}
	if a.Expected != 0 {
		return nil, loop.ErrNotFound
	}
	p, err := event.Decode(a.Events[0])
	if err != nil {
		return nil, err
	}
	if c, ok := p.(event.SessionCreated); ok && c.ExternalID != "" && l.byExternal(a.TenantID, c.ExternalID) != nil {
		return nil, loop.ErrConflict
	}
	return &session{}, nil
}

// repeat reports whether a is already in the log.
func (s *session) repeat(a loop.Append) (loop.Appended, bool) {
	n := int64(len(s.events))
	if a.Expected >= n || s.appends[a.Expected] != a.ID {
		return loop.Appended{}, false
	}
	end := a.Expected + int64(len(a.Events))
	return loop.Appended{Events: slices.Clone(s.events[a.Expected:end]), LastSeq: end}, true
}

func (l *Log) publish(a loop.Append) {
	l.jobs = append(l.jobs, a.Jobs...)
	if len(a.Jobs) > 0 {
		signal(l.jobAdded)
	}
	for ch := range l.watchers[a.SessionID] {
		select {
		case <-ch: // the new seq stands for the old one
		default:
		}
		ch <- l.sessions[a.SessionID].state.LastSeq
	}
}

func signal(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

func (l *Log) byExternal(tenantID, externalID string) *session {
	for _, s := range l.sessions {
		if s.state.TenantID == tenantID && s.state.ExternalID == externalID && !s.state.Deleted {
			return s
		}
	}
	return nil
}

func (l *Log) session(tenantID, sessionID string) (*session, error) {
	s, ok := l.sessions[sessionID]
	if !ok || s.state.TenantID != tenantID {
		return nil, loop.ErrNotFound
	}
	return s, nil
}

// Head implements loop.Log.
func (l *Log) Head(_ context.Context, tenantID, sessionID string) (loop.Head, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s, err := l.session(tenantID, sessionID)
	if err != nil {
		return loop.Head{}, err
	}
	return s.head(), nil
}

// HeadByExternalID implements loop.Log.
func (l *Log) HeadByExternalID(_ context.Context, tenantID, externalID string) (loop.Head, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.byExternal(tenantID, externalID)
	if s == nil {
		return loop.Head{}, loop.ErrNotFound
	}
	return s.head(), nil
}

func (s *session) head() loop.Head {
	h := loop.Head{
		TenantID: s.state.TenantID, SessionID: s.state.SessionID, ExternalID: s.state.ExternalID,
		Title: s.state.Title, User: s.state.User, Metadata: s.state.Metadata,
		LastSeq: s.state.LastSeq, Epoch: s.state.Epoch, Deleted: s.state.Deleted, Ledger: s.state.Ledger,
	}
	for _, r := range s.state.Runs {
		if r.Ticket > 0 {
			h.LastRunID = r.ID
		}
		if r.Status.Active() {
			h.ActiveRunID, h.Waiting = r.ID, r.Status == loop.RunWaiting
		}
	}
	return h
}

// Tail implements loop.Log.
func (l *Log) Tail(_ context.Context, tenantID, sessionID, messageID string) (loop.Tail, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s, err := l.session(tenantID, sessionID)
	if err != nil {
		return loop.Tail{}, err
	}
	t, ok := s.state.Tail(messageID)
	if !ok {
		return loop.Tail{}, loop.ErrNotFound
	}
	return t, nil
}

// Load implements loop.Log.
func (l *Log) Load(_ context.Context, tenantID, sessionID, runID string) (loop.State, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s, err := l.session(tenantID, sessionID)
	if err != nil {
		return loop.State{}, err
	}
	r, ok := s.state.Run(runID)
	if !ok {
		return loop.State{}, loop.ErrNotFound
	}
	return loaded(s.state, r), nil
}

// loaded is what [loop.Log.Load] gives for the run r of a session.
func loaded(whole loop.State, r loop.Run) loop.State {
	out := whole
	out.Runs = nil
	if r.Status != loop.RunEnqueued {
		out.Runs = append(out.Runs, r)
	}
	for _, q := range whole.Runs {
		switch {
		case q.Status != loop.RunEnqueued:
		case q.ID == r.ID:
			out.Runs = append(out.Runs, r)
		default:
			out.Runs = append(out.Runs, loop.Run{ID: q.ID, Status: q.Status, MessageID: q.MessageID})
		}
	}
	return out
}

// Events implements loop.Log.
func (l *Log) Events(_ context.Context, tenantID, sessionID string, after int64, limit int) ([]event.Event, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s, err := l.session(tenantID, sessionID)
	if err != nil {
		return nil, err
	}
	if after >= int64(len(s.events)) {
		return nil, nil
	}
	rest := s.events[after:]
	return slices.Clone(rest[:min(limit, len(rest))]), nil
}

// Watch implements loop.Log.
func (l *Log) Watch(sessionID string) (<-chan int64, func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	ch := make(chan int64, 1)
	if l.watchers[sessionID] == nil {
		l.watchers[sessionID] = map[chan int64]bool{}
	}
	l.watchers[sessionID][ch] = true
	return ch, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.watchers[sessionID], ch)
	}
}
