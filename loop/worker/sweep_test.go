package worker_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
	"github.com/seed-2ca4966b/agentd/loop/worker"
	"github.com/seed-2ca4966b/agentd/store"
	"github.com/seed-2ca4966b/agentd/store/storetest"
)

// engineFunc is an engine that a function plays.
type engineFunc func(ctx context.Context, j loop.Job, h loop.Holder) error

func (f engineFunc) Advance(ctx context.Context, j loop.Job, h loop.Holder) error {
	return f(ctx, j, h)
}

// fetchedBy marks the jobs of a run as fetched by a worker.
func fetchedBy(t *testing.T, db *storetest.DB, runID, workerID string) {
	t.Helper()
	run(t, db, `UPDATE agentd.river_job SET state = 'running', attempt = 1, attempted_at = now(), attempted_by = ARRAY[$2]
		WHERE args ->> 'run_id' = $1`, runID, workerID)
}

func requeuedFor(t *testing.T, p *process, j loop.Job, cause string) {
	t.Helper()
	checkEnd(t, p, j)
	if got := payload[event.RunQueued](t, p, j.SessionID); got.Cause != cause || got.Ticket != 2 {
		t.Errorf("queued again %+v, want ticket 2 because of %q", got, cause)
	}
}

func TestARunWhoseJobIsLostIsQueuedAgain(t *testing.T) {
	t.Parallel()
	const gone = "01a228cb-d81f-7cb4-ba69-edb947803cc2"
	for _, test := range []struct {
		name string
		lose func(t *testing.T, db *storetest.DB, runID string)
	}{
		{"WithTheWorkerThatFetchedIt", func(t *testing.T, db *storetest.DB, runID string) {
			run(t, db, `INSERT INTO agentd.workers (id, alive_until) VALUES ($1, agentd.clock() - interval '1 minute')`, gone)
			fetchedBy(t, db, runID, gone)
		}},
		{"WithAWorkerThatHasStopped", func(t *testing.T, db *storetest.DB, runID string) {
			run(t, db, `INSERT INTO agentd.workers (id, alive_until, stopped_at) VALUES ($1, agentd.clock() + interval '1 hour', agentd.clock())`, gone)
			fetchedBy(t, db, runID, gone)
		}},
		{"WithAWorkerThatNeverRegistered", func(t *testing.T, db *storetest.DB, runID string) { fetchedBy(t, db, runID, gone) }},
		{"BecauseSomebodyDeletedIt", func(t *testing.T, db *storetest.DB, runID string) { run(t, db, `DELETE FROM agentd.river_job`) }},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			db := storetest.New(t)
			p := setup(t, db, callsTool("look"), looptest.Says("look", "seen"))
			j := p.Start(t, p.Session(t), "hello")
			test.lose(t, db, j.RunID)
			p.work(t, short)
			requeuedFor(t, p, j, "job_lost")
		})
	}
}

// fetchedQueue puts every job of ticket 1 into the table as one that the worker
// has fetched already: the answer to its fetch was lost on the way.
type fetchedQueue struct {
	store.Queue
	workerID string
}

func (q *fetchedQueue) InsertTx(ctx context.Context, tx pgx.Tx, jobs []loop.Job) error {
	if err := q.Queue.InsertTx(ctx, tx, jobs); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, `UPDATE agentd.river_job SET state = 'running', attempt = 1, attempted_at = now(), attempted_by = ARRAY[$1]
		WHERE args ->> 'ticket' = '1'`, q.workerID)
	return err
}

func TestAJobThatNeverArrivedIsMadeAgain(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	p := setup(t, db, callsTool("look"), looptest.Says("look", "seen"))
	w := p.work(t, short)
	queue := worker.NewQueue()
	st := store.New(db.Pool, store.Options{Queue: &fetchedQueue{queue, w.ID()}})
	if err := st.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = st.Stop(context.Background()) })
	sender := looptest.NewBench(st, nil)
	requeuedFor(t, p, sender.Start(t, sender.Session(t), "hello"), "job_lost")
}

type dyingKey struct{}

// dying is a context that ends in the middle of the next model call, if the
// model is mortal. To the log this looks like the death of the worker.
func dying(ctx context.Context) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	return context.WithValue(ctx, dyingKey{}, cancel)
}

func mortal(m loop.Model) loop.Model {
	return looptest.Model(func(ctx context.Context, req loop.ModelRequest, yield func(stream.Chunk, error) bool) {
		if die, ok := ctx.Value(dyingKey{}).(context.CancelFunc); ok {
			die()
			<-ctx.Done()
			return
		}
		for c, err := range m.Stream(ctx, req) {
			if !yield(c, err) {
				return
			}
		}
	})
}

func TestARunIsTakenUpWhenItsDelayIsOver(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	p := setup(t, db, mortal(callsTool("look")), looptest.Says("look", "seen"))
	j := p.Start(t, p.Session(t), "hello")
	for range 2 {
		id := looptest.NewID()
		j.Ticket = p.Run(t, j).Ticket
		if err := p.Engine.Advance(dying(t.Context()), j, loop.Holder{WorkerID: id}); !errors.Is(err, context.Canceled) {
			t.Fatalf("advance: %v", err)
		}
		if _, err := p.Commands.ReleaseDead(t.Context(), loop.Release{
			TenantID: j.TenantID, SessionID: j.SessionID, RunID: j.RunID, WorkerID: id, Actor: looptest.Tester,
			Now: scalar[time.Time](t, db, `SELECT agentd.clock()`),
		}); err != nil {
			t.Fatal(err)
		}
	}
	delay := p.Run(t, j).NotBefore
	if delay == nil {
		t.Fatal("there is no delay after the second death")
	}
	p.work(t)
	checkEnd(t, p, j)
	for _, e := range p.Events(t, j.SessionID) {
		x, err := event.Decode(e)
		if err != nil {
			t.Fatal(err)
		}
		if q, ok := x.(event.RunQueued); ok && q.Ticket == 4 {
			if q.Cause != "due" || e.At.Before(*delay) {
				t.Errorf("queued again because of %q at %s, want because it was due at %s", q.Cause, e.At, delay)
			}
			return
		}
	}
	t.Error("the run was not queued again")
}

func TestARunThatTheEngineLeavesBehindIsTakenUpAgain(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		fail func(ctx context.Context, p *process, j loop.Job, h loop.Holder) error
		want func(t *testing.T, p *process, j loop.Job)
	}{
		{"AfterTheClaim", func(ctx context.Context, p *process, j loop.Job, h loop.Holder) error {
			return p.Engine.Advance(dying(ctx), j, h)
		}, func(t *testing.T, p *process, j loop.Job) {
			checkEnd(t, p, j)
			if got := payload[event.RunReleased](t, p, j.SessionID); got.Cause != event.ReleaseWorkerDead {
				t.Errorf("released %+v", got)
			}
		}},
		{"BeforeTheClaim", func(context.Context, *process, loop.Job, loop.Holder) error {
			return errors.New("cannot load")
		}, func(t *testing.T, p *process, j loop.Job) { requeuedFor(t, p, j, "job_lost") }},
		{"ByAPanic", func(context.Context, *process, loop.Job, loop.Holder) error {
			panic("a bug")
		}, func(t *testing.T, p *process, j loop.Job) { requeuedFor(t, p, j, "job_lost") }},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			p := setup(t, storetest.New(t), mortal(callsTool("look")), looptest.Says("look", "seen"))
			var calls atomic.Int64
			p.work(t, short, func(c *worker.Config) {
				c.Engine = engineFunc(func(ctx context.Context, j loop.Job, h loop.Holder) error {
					if calls.Add(1) == 1 {
						return test.fail(ctx, p, j, h)
					}
					return p.Engine.Advance(ctx, j, h)
				})
			})
			test.want(t, p, p.Start(t, p.Session(t), "hello"))
		})
	}
}

// settled waits until no job is left to be worked.
func settled(t *testing.T, db *storetest.DB) {
	t.Helper()
	eventually(t, "every job is done", func() bool {
		return scalar[bool](t, db, `SELECT count(*) > 0 AND bool_and(state = 'completed') FROM agentd.river_job`)
	})
}

func TestAStaleTicketClaimsNothing(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	g := newGate()
	p := setup(t, db, callsTool("hold"), looptest.Tool{Name: "hold", Run: func(ctx context.Context, _ loop.ToolInput) (loop.ToolOutput, error) {
		return loop.ToolOutput{}, g.pass(ctx)
	}})
	p.work(t)
	j := p.Start(t, p.Session(t), "hello")
	g.await(t)
	for _, ticket := range []int64{0, 1, 2} {
		insert(t, db, loop.Job{TenantID: j.TenantID, SessionID: j.SessionID, RunID: j.RunID, Ticket: ticket})
	}
	eventually(t, "the other jobs are done", func() bool {
		return scalar[int](t, db, `SELECT count(*) FROM agentd.river_job WHERE state = 'completed'`) == 3
	})
	close(g.open)
	checkEnd(t, p, j)
	if n := p.count(t, j.SessionID, event.TypeRunStarted) + p.count(t, j.SessionID, event.TypeRunResumed); n != 1 {
		t.Errorf("the run was claimed %d times", n)
	}
}

// TestARescueDoesNotStartAnEndedRun: River's rescuer may set any job of a run
// that has ended back to available.
func TestARescueDoesNotStartAnEndedRun(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*testing.T, *storetest.DB, *process, loop.Job){
		"completed": func(*testing.T, *storetest.DB, *process, loop.Job) {},
		"cancelled": func(t *testing.T, _ *storetest.DB, p *process, j loop.Job) {
			err := p.Commands.CancelRun(t.Context(), loop.CancelRun{TenantID: j.TenantID, SessionID: j.SessionID, RunID: j.RunID, Actor: looptest.Tester})
			if err != nil {
				t.Fatal(err)
			}
		},
		"taken over": func(t *testing.T, db *storetest.DB, p *process, j loop.Job) {
			id := looptest.NewID()
			run(t, db, `INSERT INTO agentd.workers (id, alive_until) VALUES ($1, agentd.clock())`, id)
			if err := p.Engine.Advance(dying(t.Context()), j, loop.Holder{WorkerID: id}); !errors.Is(err, context.Canceled) {
				t.Fatalf("advance: %v", err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := storetest.New(t)
			p := setup(t, db, mortal(callsTool("look")), looptest.Says("look", "seen"))
			j := p.Start(t, p.Session(t), "hello")
			end(t, db, p, j)
			p.work(t, short)
			p.await(t, j, ended)
			settled(t, db)
			head := len(p.Events(t, j.SessionID))
			run(t, db, `UPDATE agentd.river_job SET state = 'available', finalized_at = NULL`)
			settled(t, db)
			if got := len(p.Events(t, j.SessionID)); got != head {
				t.Errorf("%d events were added to a run that had ended", got-head)
			}
		})
	}
}

func TestManySweepersTakeARunAwayOnce(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	p := setup(t, db, mortal(callsTool("look")), looptest.Says("look", "seen"))
	id := looptest.NewID()
	run(t, db, `INSERT INTO agentd.workers (id, alive_until) VALUES ($1, agentd.clock())`, id)
	var jobs []loop.Job
	for range 5 {
		j := p.Start(t, p.Session(t), "hello")
		jobs = append(jobs, j)
		if err := p.Engine.Advance(dying(t.Context()), j, loop.Holder{WorkerID: id}); !errors.Is(err, context.Canceled) {
			t.Fatalf("advance: %v", err)
		}
	}
	for range 4 {
		q := *p
		q.leases = store.NewLeases(p.store)
		q.work(t, short)
	}
	for _, j := range jobs {
		checkEnd(t, p, j)
		if n := p.count(t, j.SessionID, event.TypeRunReleased); n != 1 {
			t.Errorf("a run was released %d times", n)
		}
	}
	if by := scalar[int](t, db, `SELECT count(declared_by) FROM agentd.workers WHERE id = $1`, id); by != 1 {
		t.Errorf("%d declarations", by)
	}
}
