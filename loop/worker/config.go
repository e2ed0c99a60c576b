package worker

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
)

// Engine advances runs; it is [loop.Engine].
type Engine interface {
	// Advance returns soon after its context has ended.
	Advance(ctx context.Context, j loop.Job, h loop.Holder) error
}

// Commands take runs away from dead workers; they are [loop.Commands].
type Commands interface {
	// ReleaseDead takes the run away from the worker that cmd names, if that
	// one still holds it.
	ReleaseDead(ctx context.Context, cmd loop.Release) (bool, error)
	// Requeue makes a new job for the run of j, if it is queued with j's ticket.
	Requeue(ctx context.Context, j loop.Job, cause string, actor event.Actor) (bool, error)
	// BeginNext begins the next enqueued run of j's session, if none is active.
	BeginNext(ctx context.Context, j loop.Job, actor event.Actor) (bool, error)
	// ExpireApproval stores that nobody has answered the approval in time.
	ExpireApproval(ctx context.Context, tenantID, approvalID string) (bool, error)
}

// Leases is the table of workers. Durations are counted by the database's
// clock. Join, Beat and Close belong to the heartbeat and its connection; the
// rest may be called at any time.
type Leases interface {
	// Join makes the row of a worker that starts now.
	Join(ctx context.Context, w loop.Joining, lease time.Duration) (loop.Orders, error)
	// Beat prolongs the lease. It returns false if the worker is dead, and
	// else what it is to do. An error says nothing about the worker.
	Beat(ctx context.Context, workerID string, lease time.Duration) (alive bool, orders loop.Orders, err error)
	// Leave says that the worker stopped by itself and holds nothing any more.
	Leave(ctx context.Context, workerID string) error
	// Close ends the heartbeat's connection.
	Close()

	// DeclareDead declares dead the workers whose lease has run out, or whose
	// connection is gone and whose last heartbeat is older than stale, if this
	// worker was itself connected for a whole lease. It returns them.
	DeclareDead(ctx context.Context, workerID string, lease, stale time.Duration) ([]string, error)
	// Orphans returns runs that are leased by workers which are gone, and those
	// that were asked to stop longer than unheard ago by a worker from which
	// nothing was heard since.
	Orphans(ctx context.Context, unheard time.Duration, limit int) ([]loop.Release, error)
	// Due returns queued runs whose delay is over and that are paused neither in
	// the table nor by known, which is what this worker has heard last: it would
	// not claim what it queues.
	Due(ctx context.Context, known loop.Pauses, limit int) ([]loop.Job, error)
	// Expired returns approvals that nobody has answered in time.
	Expired(ctx context.Context, limit int) ([]loop.ApprovalRef, error)
	// Lost returns queued runs that no job will claim and that are not
	// paused, as Due means it. A job that ended less
	// than settle ago does not count as lost yet.
	Lost(ctx context.Context, settle time.Duration, known loop.Pauses, limit int) ([]loop.Job, error)
	// Passed returns an enqueued run of each session that has some and no active
	// one.
	Passed(ctx context.Context, limit int) ([]loop.Job, error)
	// Held returns the runs that the worker holds, but for those in except.
	Held(ctx context.Context, workerID string, except []string) ([]loop.Release, error)
	// Fetched returns the queued runs whose job the worker has fetched, but
	// for those in except.
	Fetched(ctx context.Context, workerID string, except []string) ([]loop.Job, error)
	// Forget deletes the rows of workers that are gone for longer than keep.
	Forget(ctx context.Context, keep time.Duration) error

	// Wake makes the runs of these sessions in this process read the log.
	Wake(sessionIDs ...string)
}

// Config configures a [Worker]. The fields up to NewID are required.
type Config struct {
	// Pool is what River fetches with. It belongs to the caller, who closes it
	// after Stop.
	Pool     *pgxpool.Pool
	Engine   Engine
	Commands Commands
	Leases   Leases
	// NewID returns a fresh UUID.
	NewID func() string
	// Logger gets what no caller is told. Nil discards.
	Logger *slog.Logger
	// Version of the binary and name of the machine, for people who look at the
	// table of workers.
	Version string
	Host    string

	// MaxWorkers is how many runs the worker holds at most, 0 for 1,000. A run
	// counts while a model streams.
	MaxWorkers int
	// Heartbeat is the time between two heartbeats, 0 for 1 s. It is also how
	// long a cancel takes to arrive when notifications do not, and a pause or a
	// drain always. All workers on a database should have the same: one with a
	// shorter one takes runs that are to stop away from those that have not heard
	// of it yet.
	Heartbeat time.Duration
	// Lease is how long after a heartbeat others may not take the runs away,
	// 0 for 3 s. All workers on a database should have the same.
	Lease time.Duration
	// Outage is how long the worker keeps its runs going while it cannot reach
	// the database, 0 for the lease. A longer one lets them survive a restart
	// of the database untouched. Cut off alone, the worker then goes on with
	// steps that others have already taken over: what it does is not stored,
	// but a tool that it has entered runs to its end.
	Outage time.Duration
	// Poll is the time between two looks for jobs of which no notification told,
	// 0 for 250 ms.
	Poll time.Duration
	// PollOnly has new jobs found by that look alone. It is for a pool behind a
	// pooler in transaction mode, where nobody can listen.
	PollOnly bool
	// Sweep is the time between two looks for dead workers, 0 for 500 ms. The
	// actual time varies by a quarter.
	Sweep time.Duration
	// Grace is how long Stop lets each run finish its current step, 0 for
	// 20 s. Afterwards the step is interrupted and the run handed back.
	Grace time.Duration

	// place is taken while a run is in the process that has to be apart.
	place chan struct{}
}

func (c Config) withDefaults() (Config, error) {
	if c.Pool == nil || c.Engine == nil || c.Commands == nil || c.Leases == nil || c.NewID == nil {
		return c, errors.New("make worker: pool, engine, commands, leases and id generator are required")
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	c.place = make(chan struct{}, 1)
	if c.MaxWorkers == 0 {
		c.MaxWorkers = 1000
	}
	for _, d := range []struct {
		value *time.Duration
		zero  time.Duration
	}{
		{&c.Heartbeat, time.Second},
		{&c.Lease, 3 * time.Second},
		{&c.Poll, 250 * time.Millisecond},
		{&c.Sweep, 500 * time.Millisecond},
		{&c.Grace, 20 * time.Second},
	} {
		if *d.value == 0 {
			*d.value = d.zero
		}
	}
	if c.Outage == 0 {
		c.Outage = c.Lease
	}
	if c.Lease < 2*c.Heartbeat {
		return c, errors.New("make worker: a lease must last for two heartbeats at least, or one that is late ends it")
	}
	return c, nil
}
