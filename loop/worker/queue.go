package worker

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivertype"

	"github.com/seed-2ca4966b/agentd/loop"
)

const (
	schema    = "agentd"
	queueName = "runs"
	// laterThan is the delay from which on River keeps a job back. Its mover
	// of scheduled jobs looks every 5 s, too seldom for a short wait.
	laterThan = time.Minute
)

// Args is the content of a job: which run to advance, and the ticket that may
// claim it. The JSON names are read by the store's SQL.
type Args struct {
	TenantID  string `json:"tenant_id"`
	SessionID string `json:"session_id"`
	RunID     string `json:"run_id"`
	Ticket    int64  `json:"ticket"`
}

// Kind names the job in River's table.
func (Args) Kind() string { return "agentd_advance" }

func (a Args) job() loop.Job {
	return loop.Job{TenantID: a.TenantID, SessionID: a.SessionID, RunID: a.RunID, Ticket: a.Ticket}
}

// Queue puts jobs into River's table, for the store's appends. It is safe for
// concurrent use.
type Queue struct {
	client *river.Client[pgx.Tx]
}

// NewQueue returns a queue. It needs no database of its own: it writes in the
// transactions that it is given.
func NewQueue() *Queue {
	client, err := river.NewClient(silentDriver{riverpgxv5.New(nil)}, &river.Config{
		Schema: schema,
		Logger: slog.New(slog.DiscardHandler), // every error is returned
		Hooks:  []rivertype.Hook{&dueAtOnce{}},
	})
	if err != nil {
		panic(fmt.Sprintf("worker: River refuses a constant configuration: %v", err))
	}
	return &Queue{client: client}
}

// InsertTx inserts jobs in tx. It wakes nobody: a NOTIFY in the transaction
// would make its commit wait for every other one that has one. The caller sends
// River's wake-up after the commit. A job that is to wait for less than a minute
// is left out: the sweeper makes one when the run's delay is over.
func (q *Queue) InsertTx(ctx context.Context, tx pgx.Tx, jobs []loop.Job) error {
	params := make([]river.InsertManyParams, 0, len(jobs))
	for _, j := range jobs {
		opts := river.InsertOpts{Queue: queueName, MaxAttempts: 1}
		switch wait := time.Until(j.NotBefore); {
		case wait > laterThan:
			opts.ScheduledAt = j.NotBefore
		case wait > 0:
			continue
		}
		params = append(params, river.InsertManyParams{
			Args:       Args{TenantID: j.TenantID, SessionID: j.SessionID, RunID: j.RunID, Ticket: j.Ticket},
			InsertOpts: &opts,
		})
	}
	if len(params) == 0 {
		return nil
	}
	if _, err := q.client.InsertManyFastTx(ctx, tx, params); err != nil {
		return fmt.Errorf("insert jobs: %w", err)
	}
	return nil
}

// silentDriver keeps the inserting client from sending NOTIFY.
type silentDriver struct{ *riverpgxv5.Driver }

// SupportsListenNotify implements riverdriver.Driver.
func (silentDriver) SupportsListenNotify() bool { return false }

// dueAtOnce gives a job that need not wait a time that is always in the past.
// River would take this host's clock and compare it with the database's, so a
// clock that is a second ahead would delay every run by a second. Jobs with
// equal times are fetched in the order of insertion.
type dueAtOnce struct{ river.HookDefaults }

var longAgo = time.Unix(0, 0).UTC()

// InsertBegin implements rivertype.HookInsertBegin.
func (*dueAtOnce) InsertBegin(_ context.Context, params *rivertype.JobInsertParams) error {
	if params.State == rivertype.JobStateAvailable {
		params.ScheduledAt = &longAgo
	}
	return nil
}
