package store_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
	"github.com/seed-2ca4966b/agentd/store"
	"github.com/seed-2ca4966b/agentd/store/storetest"
)

// lines returns the rows of a query, their columns joined with a bar.
func lines(t *testing.T, db *storetest.DB, query string, args ...any) []string {
	t.Helper()
	rows, _ := db.Pool.Query(limit(t), query, args...)
	out, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (string, error) {
		values, err := row.Values()
		texts := make([]string, len(values))
		for i, v := range values {
			texts[i] = fmt.Sprint(v)
		}
		return strings.Join(texts, "|"), err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func wantLines(t *testing.T, what string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s\n got %s\nwant %s", what, strings.Join(got, "\n     "), strings.Join(want, "\n     "))
	}
}

func TestTimelineHasDecisionsBeforeWhatFollowsFromThem(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	s := startStore(t, db, store.Options{Queue: jobs{}})
	p := park(t, s)
	h := headOf(t, s, p.sessionID)
	// Two steps in one append: each decision stands before its own.
	a := appendOf(p.sessionID, h.LastSeq,
		p.answer(t, s, event.DecisionDenied).Events[0],
		encode(t, p.sessionID, p.runID, 0, event.RunQueued{Ticket: 2, Cause: "approval"}))
	a = with(a, h.Ledger, overtaken(p.runID), failedOpen(p.runID))
	a.Ledger[0].EventSeq--
	mustAppend(t, s, rechained(a, h.Ledger))
	got := lines(t, db, `
		SELECT seq - $2::bigint, kind, type, actor, summary FROM agentd.timeline
		WHERE session_id = $1 AND seq > $2 ORDER BY seq, kind, ledger_seq`, p.sessionID, h.LastSeq-4)
	wantLines(t, "timeline", got, []string{
		"1|decision|BeforeToolCall|hook:guard|remove ask: final: it is final",
		`1|event|approval.requested|principal:test|remove({"path":"/tmp"}): it is final`,
		"2|event|tool.blocked|principal:test|format by permission: permission_denied: The agent may not use this tool.",
		"3|event|tool.result|principal:test|format blocked: blocked",
		"4|event|run.suspended|principal:test|approval of 1 calls",
		"5|decision|BeforeRunStart|hook:checker|continue (without effect)",
		"5|event|approval.decided|principal:test|remove denied: because",
		"6|decision|TransformContext|hook:checker|continue (timeout, let through): hook.timeout: no answer",
		"6|event|run.queued|principal:test|ticket 2 approval",
	})
}

func overtaken(runID string) hooks.Decision {
	d := sparse(hooks.GateBeforeRunStart, runID)
	d.RunID, d.Effective = runID, false
	return d
}

func failedOpen(runID string) hooks.Decision {
	d := full(runID, 1, hooks.GateTransformContext, "1")
	d.Effective = true
	return d
}

// rechained makes the hashes right after a row was changed.
func rechained(a loop.Append, head loop.LedgerHead) loop.Append {
	for i := range a.Ledger {
		r := &a.Ledger[i]
		r.PrevHash = head.Hash
		r.Hash = r.Row.Hash()
		head.Hash = r.Hash
	}
	return a
}

func TestTimelineTellsWhatGatesDo(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	s := startStore(t, db, store.Options{Queue: jobs{}})
	id, runID := started(t, s)
	system, tools := "be brief", []string{"look"}
	at := headOf(t, s, id).LastSeq
	mustAppend(t, s, appendOf(id, at,
		encode(t, id, "", 0, event.InputHandled{InputID: "i", Agent: "a", Reply: "we are closed"}),
		encode(t, id, "", 0, event.InputBlocked{InputID: "i", Agent: "a", ReasonCode: "pii", Reason: "a card number"}),
		encode(t, id, "", 0, event.InputRejected{InputID: "i", Agent: "a", Policy: "reject", ActiveRunID: runID}),
		encode(t, id, runID, 0, event.RunPrepared{System: &system, Tools: &tools, Messages: []event.PreparedMessage{{MessageID: "m", Role: hooks.RoleUser, Text: "x"}}}),
	))
	got := lines(t, db, `SELECT type, summary FROM agentd.timeline WHERE session_id = $1 AND seq > $2 ORDER BY seq`, id, at)
	wantLines(t, "timeline", got, []string{
		"input.handled|reply: we are closed", "input.blocked|pii: a card number", "input.rejected|reject run " + runID + " is active",
		"run.prepared|system prompt, 1 hidden messages, 1 tools",
	})
}

func TestViewsOfTheLedger(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	s := startStore(t, db, store.Options{Queue: jobs{}})
	p := park(t, s)
	h := headOf(t, s, p.sessionID)
	block := sparse(hooks.GateBeforeInput, "input")
	block.Action, block.RuleID, block.ReasonCode, block.Payload.Reason = hooks.ActionBlock, "pii", "pii", "a card number"
	vain := block
	vain.ID, vain.Effective = looptest.NewID(), false
	mustAppend(t, s, with(say(t, p.sessionID, h.LastSeq), h.Ledger, failedOpen(p.runID), block, vain))
	exec(t, db, `DELETE FROM agentd.hook_payloads WHERE decision_id = '`+vain.ID+`'`)

	wantLines(t, "decisions", lines(t, db, `
		SELECT ledger_seq, gate, tool_name, hook_id, action, effective, outcome, rule_id, reason, payload_erased, run_status
		FROM agentd.decisions WHERE session_id = $1 ORDER BY ledger_seq`, p.sessionID), []string{
		"1|BeforeToolCall|remove|guard|ask|true|ok|no <rm>|it is final|false|waiting",
		"2|TransformContext|<nil>|checker|continue|true|timeout|no <rm>|no answer|false|waiting",
		"3|BeforeInput|<nil>|checker|block|true|ok|pii|a card number|false|<nil>",
		"4|BeforeInput|<nil>|checker|block|false|ok|pii|<nil>|true|<nil>",
	})
	wantLines(t, "fail_open", lines(t, db, `SELECT ledger_seq, gate, hook_id, outcome, reason FROM agentd.fail_open`), []string{
		"2|TransformContext|checker|timeout|no answer",
	})
	wantLines(t, "blocked", lines(t, db, `
		SELECT blocked_by, tool_name, hook_id, rule_id, action, outcome, reason_code, reason, seq FROM agentd.blocked ORDER BY seq`), []string{
		fmt.Sprintf("permission|format|<nil>|<nil>|block|ok|permission_denied|The agent may not use this tool.|%d", h.LastSeq-2),
		fmt.Sprintf("BeforeInput|<nil>|checker|pii|block|ok|pii|a card number|%d", h.LastSeq+1),
	})
}

func TestHookLatencyIsPerHookAndGate(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	s := startStore(t, db, store.Options{})
	id := newSession(t, s)
	var all []hooks.Decision
	for i := range 101 { // 0 to 100 ms
		d := sparse(hooks.GateBeforeInput, "i")
		d.Latency, d.Queue, d.Deadline = time.Duration(i)*time.Millisecond, time.Millisecond, 2*time.Second
		if i > 98 {
			d.Outcome, d.Action = hooks.OutcomeTimeout, hooks.ActionBlock
		}
		all = append(all, d)
	}
	other := sparse(hooks.GateBeforeExecute, "x")
	other.Outcome, other.Latency = hooks.OutcomeError, time.Microsecond
	mustAppend(t, s, with(say(t, id, 1), loop.LedgerHead{}, append(all, other)...))
	wantLines(t, "hook_latency", lines(t, db, `
		SELECT gate, hook_id, calls, failures, timeouts, p50_ms::text, p95_ms::text, p99_ms::text, max_ms::text, queue_p99_ms::text, deadline_ms
		FROM agentd.hook_latency ORDER BY gate`), []string{
		"BeforeExecute|checker|1|1|0|0.001|0.001|0.001|0.001|0.000|0",
		"BeforeInput|checker|101|2|2|50.000|95.000|99.000|100.000|1.000|2000",
	})
}

func TestRunSummaryIsALinePerRun(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	s := startStore(t, db, store.Options{Queue: jobs{}})
	p := park(t, s)
	id := oneRun(t, s)
	const query = `
		SELECT status, reason, turns, model_calls, tool_calls, blocked_calls, approvals, pending_approvals, decisions,
			input_tokens::text, output_tokens::text, takeovers, duration >= '0' AND duration < '1 hour'
		FROM agentd.run_summary WHERE session_id = $1`
	wantLines(t, "run that waits", lines(t, db, query, p.sessionID), []string{"waiting|<nil>|1|1|2|1|1|1|1|0|0|0|true"})
	wantLines(t, "run that ended", lines(t, db, query, id), []string{"completed|stop|2|2|1|0|0|0|0|6|10|0|true"})
}

func TestStuckSaysWhy(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		// make stores a run; later is how the clock runs ahead then.
		make  func(t *testing.T, db *storetest.DB, s *store.Store)
		later time.Duration
		want  []string
	}{
		"QueuedAndNoWorker": {queued, time.Minute, []string{"queued|no_worker|no worker is alive"}},
		"QueuedForAMoment":  {queued, 5 * time.Second, nil},
		"QueuedAndNotDue": {func(t *testing.T, _ *storetest.DB, s *store.Store) {
			t.Helper()
			id, runID := started(t, s)
			later := time.Now().Add(time.Hour)
			mustAppend(t, s, appendOf(id, headOf(t, s, id).LastSeq, encode(t, id, runID, 0,
				event.RunReleased{Cause: event.ReleaseWorkerDead, WorkerID: looptest.NewID(), Epoch: 2, Ticket: 2, NotBefore: &later})))
		}, 30 * time.Minute, nil},
		"QueuedAndNobodyComes": {func(t *testing.T, db *storetest.DB, s *store.Store) {
			t.Helper()
			queued(t, db, s)
			aliveWorker(t, db, looptest.NewID())
		}, time.Minute, []string{"queued|job_lost|its job is lost: no worker will be told of it"}},
		"QueuedAndItsJobIsThere": {func(t *testing.T, db *storetest.DB, s *store.Store) {
			t.Helper()
			queued(t, db, s)
			aliveWorker(t, db, looptest.NewID())
			exec(t, db, `INSERT INTO agentd.river_job (args, kind, queue, state, max_attempts)
				SELECT jsonb_build_object('run_id', id::text, 'ticket', ticket), 'agentd_advance', 'runs', 'available', 1 FROM agentd.runs`)
		}, time.Minute, []string{"queued|not_claimed|no worker has claimed it"}},
		"QueuedAndItsJobIsWithADeadWorker": {func(t *testing.T, db *storetest.DB, s *store.Store) {
			t.Helper()
			queued(t, db, s)
			aliveWorker(t, db, looptest.NewID())
			exec(t, db, `INSERT INTO agentd.river_job (args, kind, queue, state, max_attempts, attempted_by)
				SELECT jsonb_build_object('run_id', id::text, 'ticket', ticket), 'agentd_advance', 'runs', 'running', 1, '{gone}' FROM agentd.runs`)
		}, time.Minute, []string{"queued|job_lost|its job is lost: no worker will be told of it"}},
		"QueuedAndAllAreDrained": {func(t *testing.T, db *storetest.DB, s *store.Store) {
			t.Helper()
			queued(t, db, s)
			aliveWorker(t, db, looptest.NewID())
			if _, err := s.Drain(t.Context(), "", looptest.Tester); err != nil {
				t.Fatal(err)
			}
		}, time.Minute, []string{"queued|drained|all workers are drained"}},
		"QueuedAndPaused": {func(t *testing.T, db *storetest.DB, s *store.Store) {
			t.Helper()
			queued(t, db, s)
			if _, err := s.Pause(t.Context(), loop.Pause{TenantID: looptest.Tenant, Agent: "demo", Reason: "it spends too much", By: looptest.Tester}); err != nil {
				t.Fatal(err)
			}
		}, time.Minute, []string{"queued|paused|it is paused by " + looptest.Tester.ID + ": it spends too much"}},
		"QueuedAndAnotherAgentIsPaused": {func(t *testing.T, db *storetest.DB, s *store.Store) {
			t.Helper()
			queued(t, db, s)
			if _, err := s.Pause(t.Context(), loop.Pause{TenantID: looptest.Tenant, Agent: "other", By: looptest.Tester}); err != nil {
				t.Fatal(err)
			}
		}, time.Minute, []string{"queued|no_worker|no worker is alive"}},
		"QueuedAfterThreeDeaths": {func(t *testing.T, _ *storetest.DB, s *store.Store) {
			t.Helper()
			die(t, s, 3)
		}, time.Minute, []string{"queued|poisoned_soon|3 workers in a row died over it; at 5 it fails as poisoned"}},
		"QueuedAfterThreeDeathsAndKeptApartEverSince": {func(t *testing.T, db *storetest.DB, s *store.Store) {
			t.Helper()
			die(t, s, 3)
			crowded(t, db, s, time.Now().Add(55*time.Second))
		}, time.Minute, []string{"queued|poisoned_soon|3 workers in a row died over it; at 5 it fails as poisoned"}},
		"RunningOnAWorkerThatIsNotThere": {func(t *testing.T, _ *storetest.DB, s *store.Store) {
			t.Helper()
			started(t, s)
		}, time.Minute, []string{"running|worker_gone|its worker is not known"}},
		"RunningOnADeadWorker":    {runningOn(`dead_at = now(), declared_by = id`), time.Minute, []string{"running|worker_gone|its worker was declared dead and the run was not released"}},
		"RunningOnAStoppedWorker": {runningOn(`stopped_at = now()`), time.Minute, []string{"running|worker_gone|its worker stopped and did not release it"}},
		"RunningOnALeaseThatRanOut": {runningOn(`alive_until = now()`), time.Minute,
			[]string{"running|worker_gone|its worker's lease ran out and nobody declared it dead"}},
		"RunningAndTheModelIsSilent": {runningOn(`version = ''`), 2 * time.Minute, []string{"running|model_silent|the model m has said nothing more"}},
		"RunningForAMoment":          {runningOn(`version = ''`), 30 * time.Second, nil},
		"RunningATool": {runningATool(event.ToolStarted{Attempt: 1}), 2 * time.Minute,
			[]string{"running|tool_silent|it waits for the tool look"}},
		"RunningAndIdle":    {runningATool(nil), 2 * time.Minute, []string{"running|no_progress|its worker takes no further step"}},
		"WaitingForAnHour":  {waitingRun, 2 * time.Hour, []string{"waiting|waiting_for_approval|nobody has answered whether it may call remove"}},
		"WaitingForAMinute": {waitingRun, 2 * time.Minute, nil},
		"WaitingForNothing": {func(t *testing.T, _ *storetest.DB, s *store.Store) {
			t.Helper()
			p := park(t, s)
			mustAppend(t, s, p.answer(t, s, event.DecisionDenied))
		}, time.Minute, []string{"waiting|not_queued|everything is answered and nobody queued it"}},
		"Completed": {func(t *testing.T, _ *storetest.DB, s *store.Store) {
			t.Helper()
			oneRun(t, s)
		}, 24 * time.Hour, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := storetest.New(t)
			test.make(t, db, startStore(t, db, store.Options{Queue: jobs{}}))
			db.ShiftClock(t, test.later)
			got := lines(t, db, `SELECT status, reason, why FROM agentd.stuck WHERE stuck_for > '0' AND since < agentd.clock()`)
			wantLines(t, "stuck", got, test.want)
		})
	}
}

// die stores a run over which so many workers have died.
func die(t *testing.T, s *store.Store, deaths int64) {
	t.Helper()
	id, runID := started(t, s)
	for n := int64(1); n <= deaths; n++ {
		events := []event.Event{encode(t, id, runID, 0, event.RunReleased{Cause: event.ReleaseWorkerDead, WorkerID: looptest.NewID(), Epoch: 2 * n, Ticket: n + 1})}
		if n < deaths {
			events = append(events, encode(t, id, runID, 0, event.RunResumed{WorkerID: looptest.NewID(), Epoch: 2*n + 1, Ticket: n + 1, Cause: event.ResumeTakeover}))
		}
		mustAppend(t, s, appendOf(id, headOf(t, s, id).LastSeq, events...))
	}
}

// crowded queues the one run again, which another one over which workers have died
// keeps out.
func crowded(t *testing.T, db *storetest.DB, s *store.Store, at time.Time) {
	t.Helper()
	id, runID, _ := strings.Cut(lines(t, db, `SELECT session_id::text, id::text FROM agentd.runs`)[0], "|")
	e := encode(t, id, runID, 0, event.RunQueued{Ticket: 5, Cause: "crowded"})
	e.At = at.UTC().Truncate(time.Microsecond)
	mustAppend(t, s, appendOf(id, headOf(t, s, id).LastSeq, e))
}

func queued(t *testing.T, _ *storetest.DB, s *store.Store) {
	t.Helper()
	b := looptest.NewBench(s, nil)
	b.Start(t, b.Session(t), "hi")
}

func waitingRun(t *testing.T, _ *storetest.DB, s *store.Store) {
	t.Helper()
	park(t, s)
}

// aliveWorker stays alive however the clock runs.
func aliveWorker(t *testing.T, db *storetest.DB, id string) {
	t.Helper()
	exec(t, db, `INSERT INTO agentd.workers (id, alive_until) VALUES ('`+id+`', now() + interval '1 year')`)
}

// runningOn stores a run whose model call is open, on a worker that is changed
// like that.
func runningOn(change string) func(t *testing.T, db *storetest.DB, s *store.Store) {
	return func(t *testing.T, db *storetest.DB, s *store.Store) {
		t.Helper()
		in, appendAll := onAliveWorker(t, db, s)
		appendAll(in(event.TurnStarted{}), in(event.ModelRequested{Attempt: 1, Model: "m"}))
		exec(t, db, `UPDATE agentd.workers SET `+change)
	}
}

// runningATool stores a run whose call was proposed, and started if start is
// not nil.
func runningATool(start event.Payload) func(t *testing.T, db *storetest.DB, s *store.Store) {
	return func(t *testing.T, db *storetest.DB, s *store.Store) {
		t.Helper()
		in, appendAll := onAliveWorker(t, db, s)
		call := looptest.NewID()
		events := []event.Event{
			in(event.TurnStarted{}), in(event.ModelRequested{Attempt: 1, Model: "m"}),
			in(event.AssistantCompleted{Attempt: 1, MessageID: looptest.NewID(), Finish: stream.FinishToolCalls}),
			in(event.ToolProposed{CallID: call, Number: 1, Name: "look"}),
		}
		if start, ok := start.(event.ToolStarted); ok {
			start.CallID = call
			events = append(events, in(start))
		}
		appendAll(events...)
	}
}

func onAliveWorker(t *testing.T, db *storetest.DB, s *store.Store) (in func(event.Payload) event.Event, appendAll func(...event.Event)) {
	t.Helper()
	worker := looptest.NewID()
	aliveWorker(t, db, worker)
	b := looptest.NewBench(s, nil)
	id := b.Session(t)
	runID := b.Start(t, id, "hi").RunID
	mustAppend(t, s, appendOf(id, headOf(t, s, id).LastSeq, encode(t, id, runID, 0, event.RunStarted{WorkerID: worker, Epoch: 1, Ticket: 1})))
	return func(p event.Payload) event.Event { return encode(t, id, runID, 1, p) },
		func(events ...event.Event) {
			mustAppend(t, s, appendOf(id, headOf(t, s, id).LastSeq, events...))
		}
}
