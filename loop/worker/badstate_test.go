package worker_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
	"github.com/seed-2ca4966b/agentd/store/storetest"
)

// corrupt writes over what nobody may write over: the payload of the run's event
// of that type.
func corrupt(t *testing.T, db *storetest.DB, j loop.Job, kind event.Type, payload string) (seq int64) {
	t.Helper()
	tx, err := db.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	if _, err := tx.Exec(t.Context(), `SET LOCAL session_replication_role = replica`); err != nil {
		t.Fatal(err)
	}
	err = tx.QueryRow(t.Context(), `UPDATE agentd.events SET payload = $3::json WHERE run_id = $1 AND type = $2 RETURNING seq`,
		j.RunID, kind, payload).Scan(&seq)
	if err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	return seq
}

// stored is what the tables say of a run that cannot be loaded.
func stored(t *testing.T, db *storetest.DB, j loop.Job) (status, reason, problem string) {
	t.Helper()
	err := db.Pool.QueryRow(t.Context(), `
		SELECT status, coalesce(reason, ''), coalesce(error, '') FROM agentd.runs
		WHERE id = $1 AND (worker_id IS NULL) = (status <> 'running')`, j.RunID).Scan(&status, &reason, &problem)
	if err != nil {
		t.Fatal(err)
	}
	return status, reason, problem
}

// checkBadState waits for the end of a run that was broken at seq, and checks
// that nothing of it is left open.
func checkBadState(t *testing.T, db *storetest.DB, j loop.Job, seq int64) {
	t.Helper()
	eventually(t, "the run has ended", func() bool {
		status, _, _ := stored(t, db, j)
		return loop.RunStatus(status).Terminal()
	})
	status, reason, problem := stored(t, db, j)
	if want := scalar[string](t, db, `SELECT 'at seq ' || $1::bigint || ': '`, seq); status != "failed" || reason != "bad_state" || !strings.Contains(problem, want) {
		t.Errorf("run is %s, %s: %s; want failed, bad_state, %s", status, reason, problem, want)
	}
	if n := scalar[int](t, db, `
		SELECT (SELECT count(*) FROM agentd.tool_calls WHERE run_id = $1 AND status <> 'done')
			+ (SELECT count(*) FROM agentd.approvals WHERE run_id = $1 AND status = 'pending')
			+ (SELECT count(*) FROM agentd.turns WHERE run_id = $1 AND status = 'calling')`, j.RunID); n != 0 {
		t.Errorf("%d calls, approvals and answers are still open", n)
	}
}

func TestARunWhoseStoredStateIsBrokenEndsAndOthersGoOn(t *testing.T) {
	t.Parallel()
	t.Run("Queued", func(t *testing.T) {
		t.Parallel()
		for name, breaks := range map[string]func(*testing.T, *storetest.DB, loop.Job) int64{
			"Payload": func(t *testing.T, db *storetest.DB, j loop.Job) int64 {
				return corrupt(t, db, j, event.TypeRunCreated, `"x"`)
			},
			"Transition": func(t *testing.T, db *storetest.DB, j loop.Job) int64 {
				return corrupt(t, db, j, event.TypeRunQueued, `{"ticket":0}`)
			},
			"Message": func(t *testing.T, db *storetest.DB, j loop.Job) int64 {
				run(t, db, `UPDATE agentd.messages SET parts = '7'`)
				return scalar[int64](t, db, `SELECT position FROM agentd.messages`)
			},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				db := storetest.New(t, storetest.Unverified)
				p := setup(t, db, looptest.Answers(looptest.Answer(looptest.Text("hi"), looptest.Finish(stream.FinishStop))))
				j := p.Start(t, p.Session(t), "hello")
				seq := breaks(t, db, j)
				next := p.Say(t, j.SessionID, "and then?", event.PolicyEnqueue)
				p.work(t)
				checkBadState(t, db, j, seq)
				if name != "Message" { // which is still there
					checkEnd(t, p, next)
				}
				checkEnd(t, p, p.Start(t, p.Session(t), "hello"))
			})
		}
	})
	t.Run("QueuedAndItsJobComes", func(t *testing.T) {
		t.Parallel()
		db := storetest.New(t, storetest.Unverified)
		p := setup(t, db, callsTool("look"), looptest.Says("look", "seen"))
		j := p.Start(t, p.Session(t), "hello")
		seq := corrupt(t, db, j, event.TypeRunCreated, `"x"`)
		// Without a sweeper: the job itself is enough, and a stale one does nothing.
		for _, ticket := range []int64{7, j.Ticket} {
			j.Ticket = ticket
			if err := p.Engine.Advance(t.Context(), j, loop.Holder{WorkerID: looptest.NewID()}); err != nil {
				t.Fatal(err)
			}
			if status, _, _ := stored(t, db, j); (status == "failed") != (ticket == 1) {
				t.Errorf("the run is %s after the job with ticket %d", status, ticket)
			}
		}
		checkBadState(t, db, j, seq)
	})
	t.Run("RunningWhenItsWorkerDies", func(t *testing.T) {
		t.Parallel()
		db := storetest.New(t, storetest.Unverified)
		var entered atomic.Int64
		hold := looptest.Tool{Name: "hold", Run: func(context.Context, loop.ToolInput) (loop.ToolOutput, error) {
			entered.Add(1)
			return loop.ToolOutput{}, nil
		}}
		p := setup(t, db, callsTool("hold"), hold)
		victim := startChild(t, db.URL)
		j := p.Start(t, p.Session(t), "hello")
		victim.says(t, "entered")
		// Folded without it, the tool would look as if it had never been entered.
		seq := corrupt(t, db, j, event.TypeToolStarted, `{"call_id":"nobody's"}`)
		p.work(t, short)
		victim.kill()
		checkBadState(t, db, j, seq)
		if got := payload[event.ToolResult](t, p, j.SessionID).Reason; got != hooks.ReasonOutcomeUnknown {
			t.Errorf("the tool's result says %q, want %q", got, hooks.ReasonOutcomeUnknown)
		}
		if n := entered.Load(); n != 0 {
			t.Errorf("the tool was entered again %d times", n)
		}
		checkEnd(t, p, p.Start(t, p.Session(t), "hello"))
	})
	t.Run("Waiting", func(t *testing.T) {
		t.Parallel()
		for _, test := range []struct {
			name string
			ends func(t *testing.T, p *process, j loop.Job, approval string)
			want string
		}{
			{"WhenItIsAnswered", func(t *testing.T, p *process, _ loop.Job, approval string) {
				_, err := p.Commands.DecideApproval(t.Context(), loop.DecideApproval{
					TenantID: looptest.Tenant, ApprovalID: approval, Approve: true, Actor: looptest.Tester,
				})
				if !errors.Is(err, loop.ErrBadState) {
					t.Errorf("the answer gives %v, want that the state is broken", err)
				}
			}, "bad_state"},
			{"WhenItIsRolledBack", func(t *testing.T, p *process, j loop.Job, _ string) {
				p.Say(t, j.SessionID, "never mind", event.PolicyRollback)
				rows, _ := p.pool.Query(t.Context(), `SELECT parts #>> '{0,text}' FROM agentd.messages WHERE role = 'user' AND replaced_seq IS NULL`) // rows has the error
				said, err := pgx.CollectRows(rows, pgx.RowTo[string])
				if err != nil || !slices.Equal(said, []string{"never mind"}) {
					t.Errorf("the user said %q, %v; want nothing of what was rolled back", said, err)
				}
			}, "rolled back by a new message"},
			{"WhenItIsFailedByForce", func(t *testing.T, p *process, j loop.Job, _ string) {
				err := p.Commands.FailRun(t.Context(), loop.FailRun{
					TenantID: looptest.Tenant, SessionID: j.SessionID, RunID: j.RunID, Reason: "broken", Actor: looptest.Tester,
				})
				if err != nil {
					t.Error(err)
				}
			}, "forced"},
		} {
			t.Run(test.name, func(t *testing.T) {
				t.Parallel()
				db := storetest.New(t, storetest.Unverified)
				p := setup(t, db, callsTool("pay"), looptest.Says("pay", "paid"))
				agent := p.Engine.Agents["demo"]
				agent.Permissions = []loop.Permission{{Tools: "pay", Mode: loop.PermissionAsk}}
				p.Engine.Agents["demo"] = agent
				j := p.Start(t, p.Session(t), "hello")
				p.work(t)
				p.await(t, j, func(r loop.Run) bool { return r.Status == loop.RunWaiting })
				seq := corrupt(t, db, j, event.TypeAssistantCompleted, `[]`)
				test.ends(t, p, j, scalar[string](t, db, `SELECT id::text FROM agentd.approvals`))
				if test.want == "bad_state" {
					checkBadState(t, db, j, seq)
				} else if status, reason, _ := stored(t, db, j); !loop.RunStatus(status).Terminal() || reason != test.want {
					t.Errorf("run is %s, %s; want it ended, %s", status, reason, test.want)
				}
				if got := scalar[string](t, db, `SELECT result_reason FROM agentd.tool_calls`); got != string(hooks.ReasonCancelled) {
					t.Errorf("the tool's result says %q, want that it was not run", got)
				}
			})
		}
	})
}
