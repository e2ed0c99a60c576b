package store

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
)

// Queue puts jobs where workers find them.
type Queue interface {
	// InsertTx is called once per transaction, for the jobs of every session in
	// it; an error rolls all of them back. It must not commit, and must tell
	// nobody before the commit.
	InsertTx(ctx context.Context, tx pgx.Tx, jobs []loop.Job) error
}

// Options configure a [Store]. The zero value can append, but no jobs.
type Options struct {
	// Queue takes the jobs of appends; an append with jobs is refused without
	// one.
	Queue Queue
	// Logger gets what no caller is told. Nil discards.
	Logger *slog.Logger
	// CommitWindow is how long after the last commit an append of nothing but
	// deltas waits for company. It trades latency for fewer commits; [MaxCommitWindow]
	// is the most. 0 is half of what the last commit took, and 5 ms at most;
	// negative means none.
	CommitWindow time.Duration
	// PollEvery is how often the store looks for appends of other processes
	// whose notifications it did not hear; 0 means once a second, or four times
	// where nobody listens.
	PollEvery time.Duration
	// Pooled says that the pool goes through a pooler in transaction mode, see
	// [Pooled]. Unless there is a Direct way, nobody listens then, and what
	// other processes commit is found by polling.
	Pooled bool
	// Direct is the way past a pooler, for what needs a session of its own:
	// to listen, and to beat. Nil takes the pool's.
	Direct *pgx.ConnConfig
	// BeforeCommit is a test point: it is called with the transaction open and
	// all rows written. Nil in production, where a transaction without jobs
	// has no such moment.
	BeforeCommit func(ctx context.Context)
}

// MaxCommitWindow is the longest that deltas wait for company: what is shown
// later looks like a model that stutters.
const MaxCommitWindow = time.Second

const defaultCommitWindow = 5 * time.Millisecond

// window is how long after a commit deltas wait that has taken so long.
func (o Options) window(took time.Duration) time.Duration {
	if o.CommitWindow == 0 {
		// Where commits are quick, waiting for company saves little.
		return min(defaultCommitWindow, took/2)
	}
	return min(max(o.CommitWindow, 0), MaxCommitWindow)
}

// session is how to connect for what needs a session of its own; nil if there
// is no way.
func (o Options) session(pool *pgxpool.Pool) *pgx.ConnConfig {
	switch {
	case o.Direct != nil:
		return o.Direct.Copy()
	case o.Pooled:
		return nil
	}
	return pool.Config().ConnConfig
}

// committed is what one append added to one session.
type committed struct {
	tenantID  string
	sessionID string
	events    []event.Event
	jobs      []loop.Job
}

// edge hands on what was committed. Of a session, groups come in the order in
// which they were committed; groups of different sessions may come at the same
// time. What an append of unknown outcome wrote comes when the outcome is
// known, and a repeated append comes again. handOn must be quick: the
// committer waits for it.
type edge interface {
	handOn(group []committed)
}

// Store is the log in Postgres. It is safe for concurrent use. Nothing is
// appended before Start or after Stop; reads work at any time. The pool
// belongs to the caller, who closes it after Stop.
type Store struct {
	pool   *pgxpool.Pool
	opts   Options
	logger *slog.Logger

	delivery  *delivery
	committer *committer

	mu    sync.Mutex
	phase phase
}

type phase int

const (
	phaseNew phase = iota
	phaseRunning
	phaseStopped
)

// New returns a store that is not started. The sessions of the pool should
// have the limits that [ConfigureRole] sets: without an idle-in-transaction
// timeout a suspended process can hold the rows of its sessions for ever.
func New(pool *pgxpool.Pool, opts Options) *Store {
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Store{pool: pool, opts: opts, logger: opts.Logger}
	s.delivery = newDelivery(pool, opts)
	s.committer = newCommitter(s, s.delivery)
	return s
}

// Start begins to commit. It may be called once; a store does not start again
// after Stop. Ending ctx does not stop the store.
func (s *Store) Start(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.phase != phaseNew {
		return errors.New("start store: it was started or stopped before")
	}
	s.phase = phaseRunning
	s.delivery.start()
	s.committer.start(context.WithoutCancel(ctx))
	return nil
}

// Stop refuses further appends, commits those that were accepted and returns.
// When ctx ends first, the appends that are still open are given up: their
// callers get an error and do not know whether they went through. Stop may be
// called twice, and before Start.
func (s *Store) Stop(ctx context.Context) error {
	s.mu.Lock()
	started := s.phase == phaseRunning || s.phase == phaseStopped
	if started {
		s.phase = phaseStopped
	}
	s.mu.Unlock()
	if !started {
		return nil
	}
	// The edge goes last, so that what was committed last is handed on too.
	err := s.committer.stop(ctx)
	s.delivery.stop()
	return err
}

var _ loop.Log = (*Store)(nil)
