package store_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
	"github.com/seed-2ca4966b/agentd/store"
	"github.com/seed-2ca4966b/agentd/store/storetest"
)

func TestVerifyFindsEveryTamperedDecision(t *testing.T) {
	t.Parallel()
	db := storetest.New(t, storetest.Unverified)
	s := startStore(t, db, store.Options{Queue: jobs{}})
	exec(t, db, `ALTER TABLE agentd.hook_decisions DISABLE TRIGGER USER; ALTER TABLE agentd.events DISABLE TRIGGER USER;
		ALTER TABLE agentd.hook_decisions DROP CONSTRAINT hook_decisions_first_follows_zeros`)
	const unchecked = `SET LOCAL session_replication_role = replica; `
	known := map[store.Difference]bool{} // of the cases before
	for _, test := range []struct{ name, sql, table, column string }{
		{"Edited", `UPDATE agentd.hook_decisions SET action = 'continue' WHERE ledger_seq = 1 AND session_id = $session`, "hook_decisions", "row_hash"},
		{"EditedWithItsHash", `UPDATE agentd.hook_decisions SET action = 'continue', row_hash = sha256('x') WHERE ledger_seq = 1 AND session_id = $session`, "hook_decisions", "prev_hash"},
		{"NullMadeEmpty", `ALTER TABLE agentd.hook_decisions DROP CONSTRAINT hook_decisions_no_empty_text;
			UPDATE agentd.hook_decisions SET rule_id = 'x' WHERE ledger_seq = 2 AND session_id = $session`, "hook_decisions", "row_hash"},
		{"ListEdited", `UPDATE agentd.hook_decisions SET fields_changed = '{"a","b"}' WHERE ledger_seq = 3 AND session_id = $session`, "hook_decisions", "row_hash"},
		{"TimeEdited", `UPDATE agentd.hook_decisions SET at = at + interval '1 microsecond' WHERE ledger_seq = 3 AND session_id = $session`, "hook_decisions", "row_hash"},
		{"Missing", unchecked + `DELETE FROM agentd.hook_decisions WHERE ledger_seq = 2 AND session_id = $session`, "hook_decisions", "ledger_seq"},
		{"MissingAtFirst", unchecked + `DELETE FROM agentd.hook_decisions WHERE ledger_seq = 1 AND session_id = $session`, "hook_decisions", "ledger_seq"},
		{"Reordered", `UPDATE agentd.hook_decisions SET ledger_seq = ledger_seq + 100 WHERE session_id = $session;
			UPDATE agentd.hook_decisions SET ledger_seq = (ARRAY[1,3,2,4])[ledger_seq - 100] WHERE session_id = $session`, "hook_decisions", "prev_hash"},
		{"CutOff", unchecked + `DELETE FROM agentd.hook_decisions WHERE ledger_seq = 4 AND session_id = $session`, "sessions", "ledger_seq"},
		{"CutOffWithItsCount", unchecked + `DELETE FROM agentd.hook_decisions WHERE ledger_seq = 4 AND session_id = $session;
			UPDATE agentd.sessions SET ledger_seq = 3 WHERE id = $session`, "sessions", "ledger_head"},
		{"AllGone", unchecked + `DELETE FROM agentd.hook_decisions WHERE session_id = $session`, "sessions", "ledger_seq"},
		{"PayloadEdited", unchecked + `UPDATE agentd.hook_payloads SET reason = 'I never said that' WHERE decision_id = $first`, "hook_payloads", "reason, patch, annotations"},
		{"PayloadInvented", `INSERT INTO agentd.hook_payloads (decision_id, tenant_id, salt, reason) SELECT decision_id, tenant_id, sha256('x'), 'so'
			FROM agentd.hook_decisions WHERE ledger_seq = 2 AND session_id = $session`, "hook_payloads", "reason, patch, annotations"},
		{"EventThatIsNot", `UPDATE agentd.hook_decisions SET event_seq = 1000 WHERE ledger_seq = 4 AND session_id = $session`, "hook_decisions", "event_seq"},
		{"EventBefore", `UPDATE agentd.hook_decisions SET event_seq = 1 WHERE ledger_seq = 4 AND session_id = $session`, "hook_decisions", "event_seq"},
		{"Tenant", `UPDATE agentd.hook_decisions SET tenant_id = 'x' WHERE ledger_seq = 4 AND session_id = $session`, "hook_decisions", "tenant_id"},
		{"OfNoSession", `UPDATE agentd.hook_decisions SET session_id = gen_random_uuid() WHERE ledger_seq = 4 AND session_id = $session`, "hook_decisions", "event_seq"},
		{"Approval", `UPDATE agentd.approvals SET arguments = '{"path":"/"}' WHERE session_id = $session`, "approvals", "arguments"},
		{"ApprovalAnswered", `UPDATE agentd.approvals SET status = 'approved', decided_by_kind = 'key', decided_by_id = 'k', decided_at = now(), decided_seq = 1000 WHERE session_id = $session`, "approvals", "status"},
		{"ApprovalMissing", `DELETE FROM agentd.approvals WHERE session_id = $session`, "approvals", ""},
		{"ApprovalOfNoSession", unchecked + `UPDATE agentd.approvals SET session_id = gen_random_uuid() WHERE session_id = $session`, "approvals", ""},
		{"RunStatus", `UPDATE agentd.runs SET status = 'queued' WHERE session_id = $session`, "runs", "status"},
		{"RunHookSet", `UPDATE agentd.runs SET hook_set = 'x' WHERE session_id = $session`, "runs", "hook_set"},
		{"CallFinal", `UPDATE agentd.tool_calls SET final_arguments = NULL WHERE name = 'remove' AND session_id = $session`, "tool_calls", "final_arguments"},
		{"CallBlockedBy", `UPDATE agentd.tool_calls SET blocked_by = NULL WHERE name = 'format' AND session_id = $session`, "tool_calls", "blocked_by"},
	} {
		p := park(t, s)
		h := headOf(t, s, p.sessionID)
		mustAppend(t, s, with(say(t, p.sessionID, h.LastSeq), h.Ledger, sparse(hooks.GateBeforeInput, "i"),
			full(p.runID, 0, hooks.GateBeforeRunStart, p.runID), full("", 0, hooks.GateBeforeInput, "i")))
		first := decisionsOf(t, s, p.sessionID)[0].ID
		exec(t, db, strings.NewReplacer("$session", "'"+p.sessionID+"'", "$first", "'"+first+"'").Replace(test.sql))
		found := false
		for _, d := range verify(t, db).Differences {
			if d.Table == test.table && d.Column == test.column && !known[d] {
				found = true
				if d.Got == d.Want || d.Row == "" || !strings.Contains(d.String(), d.Row) {
					t.Errorf("%s: says nothing: %+v", test.name, d)
				}
			}
			known[d] = true
		}
		if !found {
			t.Errorf("%s: no difference in %s %s", test.name, test.table, test.column)
		}
	}
}

func TestVerifyCountsTheLedger(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	s := startStore(t, db, store.Options{Queue: jobs{}})
	p := park(t, s)
	mustAppend(t, s, p.answer(t, s, event.DecisionDenied))
	exec(t, db, `DELETE FROM agentd.hook_payloads`) // erasing is no tampering
	report := verify(t, db)
	if report.Decisions != 1 || report.Approvals != 1 || len(report.Differences) > 0 {
		t.Errorf("%+v; want 1 decision, 1 approval, no difference", report)
	}
}

func TestVerifyFindsAnAnswerToAnotherQuestion(t *testing.T) {
	t.Parallel()
	db := storetest.New(t, storetest.Unverified)
	s := startStore(t, db, store.Options{Queue: jobs{}})
	p := park(t, s)
	a := p.answer(t, s, event.DecisionApproved)
	exec(t, db, `ALTER TABLE agentd.events DISABLE TRIGGER USER`)
	mustAppend(t, s, a)
	exec(t, db, `UPDATE agentd.events SET payload = replace(payload::text, '`+p.approvalID+`', '`+looptest.NewID()+`')::json WHERE type = 'approval.decided'`)
	differences := verify(t, db).Differences
	if !slices.ContainsFunc(differences, func(d store.Difference) bool { return d.Table == "events" && d.Column == "payload" }) {
		t.Errorf("%v; want one of the event", differences)
	}
}

func TestVerifyFindsAHookSetThatIsNotItsDigest(t *testing.T) {
	t.Parallel()
	db := storetest.New(t, storetest.Unverified)
	s := startStore(t, db, store.Options{})
	if err := s.PutHookSet(limit(t), guarded()); err != nil {
		t.Fatal(err)
	}
	exec(t, db, `SET LOCAL session_replication_role = replica; UPDATE agentd.hook_sets SET hooks = '[]'`)
	if d := verify(t, db).Differences; len(d) != 1 || d[0].Table != "hook_sets" || d[0].Column != "hooks" {
		t.Errorf("%v; want one of the set", d)
	}
	exec(t, db, `SET LOCAL session_replication_role = replica; UPDATE agentd.hook_sets SET hooks = '["x"]'`)
	if _, err := store.Verify(limit(t), db.Pool); err == nil {
		t.Error("a set that cannot be read: no error")
	}
}

// guarded has hooks at both gates before a tool.
func guarded() hooks.HookSet {
	return hooks.Hooks{
		BeforeToolCall: hooks.Named("guard", "1", func(context.Context, hooks.BeforeToolCall) (hooks.BeforeToolCallResult, error) {
			return hooks.BeforeToolCallResult{Action: hooks.ActionContinue}, nil
		}),
		BeforeExecute: hooks.Named("last", "1", func(context.Context, hooks.BeforeExecute) (hooks.BeforeExecuteResult, error) {
			return hooks.BeforeExecuteResult{Action: hooks.ActionContinue}, nil
		}),
	}.Set()
}

func TestVerifyFindsAToolThatStartedPastItsGates(t *testing.T) {
	t.Parallel()
	set := guarded()
	overruled := func(d hooks.Decision) hooks.Decision { d.Effective = false; return d }
	as := func(d hooks.Decision, action hooks.Action) hooks.Decision { d.Action = action; return d }
	second := func(d hooks.Decision) hooks.Decision { d.Attempt = 2; return d }
	before := func(call string) hooks.Decision { return sparse(hooks.GateBeforeToolCall, call) }
	execute := func(call string) hooks.Decision { return sparse(hooks.GateBeforeExecute, call) }
	for name, test := range map[string]struct {
		hookSet   string
		decisions func(call string) []hooks.Decision
		later     func(call string) []hooks.Decision
		missing   []hooks.Gate
		unjudged  int64
	}{
		"BothAsked":        {hookSet: set.Digest, decisions: func(c string) []hooks.Decision { return []hooks.Decision{before(c), execute(c)} }},
		"NoneAsked":        {hookSet: set.Digest, missing: []hooks.Gate{hooks.GateBeforeToolCall, hooks.GateBeforeExecute}},
		"OneAsked":         {hookSet: set.Digest, decisions: func(c string) []hooks.Decision { return []hooks.Decision{before(c)} }, missing: []hooks.Gate{hooks.GateBeforeExecute}},
		"AskedOfAnother":   {hookSet: set.Digest, decisions: func(c string) []hooks.Decision { return []hooks.Decision{before(c), execute("x")} }, missing: []hooks.Gate{hooks.GateBeforeExecute}},
		"OfAnotherAttempt": {hookSet: set.Digest, decisions: func(c string) []hooks.Decision { return []hooks.Decision{before(c), second(execute(c))} }, missing: []hooks.Gate{hooks.GateBeforeExecute}},
		"WithoutEffect":    {hookSet: set.Digest, decisions: func(c string) []hooks.Decision { return []hooks.Decision{overruled(before(c)), execute(c)} }, missing: []hooks.Gate{hooks.GateBeforeToolCall}},
		"Refused": {hookSet: set.Digest, decisions: func(c string) []hooks.Decision {
			return []hooks.Decision{before(c), execute(c), as(execute(c), hooks.ActionBlock)}
		}, missing: []hooks.Gate{hooks.GateBeforeExecute}},
		"AskedAfterwards": {hookSet: set.Digest, decisions: func(c string) []hooks.Decision { return []hooks.Decision{before(c)} }, later: func(c string) []hooks.Decision { return []hooks.Decision{execute(c)} }, missing: []hooks.Gate{hooks.GateBeforeExecute}},
		"NoHooks":         {},
		"UnknownHooks":    {hookSet: strings.Repeat("0", 64), unjudged: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := storetest.New(t, storetest.Unverified)
			s := startStore(t, db, store.Options{Queue: jobs{}})
			if err := s.PutHookSet(limit(t), set); err != nil {
				t.Fatal(err)
			}
			call := looptest.NewID()
			a := startsTool(t, s, test.hookSet, call)
			if test.decisions != nil {
				a = with(a, loop.LedgerHead{}, test.decisions(call)...)
			}
			mustAppend(t, s, a)
			if test.later != nil {
				h := headOf(t, s, a.SessionID)
				mustAppend(t, s, with(say(t, a.SessionID, h.LastSeq), h.Ledger, test.later(call)...))
			}
			report := verify(t, db)
			var missing []hooks.Gate
			for _, d := range report.Differences {
				if d.Table == "hook_sets" && test.unjudged > 0 && d.Row == test.hookSet {
					continue
				}
				if d.Table != "tool_calls" || d.Row != call || d.Column != "status" {
					t.Errorf("besides: %v", d)
				}
				for _, gate := range []hooks.Gate{hooks.GateBeforeToolCall, hooks.GateBeforeExecute} {
					if strings.Contains(d.Want, string(gate)) {
						missing = append(missing, gate)
					}
				}
			}
			if said := slices.ContainsFunc(report.Differences, func(d store.Difference) bool { return d.Table == "hook_sets" }); said != (test.unjudged > 0) {
				t.Errorf("differences %v; want a hook set that is not there to be one", report.Differences)
			}
			if !slices.Equal(missing, test.missing) || report.Unjudged != test.unjudged {
				t.Errorf("missing %v, unjudged %d; want %v, %d", missing, report.Unjudged, test.missing, test.unjudged)
			}
		})
	}
}

// startsTool is the append in which a run of that hook set starts a call.
func startsTool(t *testing.T, log loop.Log, hookSet, call string) loop.Append {
	t.Helper()
	b := looptest.NewBench(log, nil)
	id := b.Session(t)
	runID := b.Start(t, id, "hi").RunID
	in := func(payload event.Payload) event.Event { return encode(t, id, runID, 1, payload) }
	mustAppend(t, log, appendOf(id, headOf(t, log, id).LastSeq,
		encode(t, id, runID, 0, event.RunStarted{WorkerID: looptest.NewID(), Epoch: 1, Ticket: 1, HookSet: hookSet}),
		in(event.TurnStarted{}), in(event.ModelRequested{Attempt: 1, Model: "m"}),
		in(event.AssistantCompleted{Attempt: 1, MessageID: looptest.NewID()}), in(event.ToolProposed{CallID: call, Number: 1, Name: "look"})))
	return appendOf(id, headOf(t, log, id).LastSeq, in(event.ToolStarted{CallID: call, Attempt: 1}))
}

func TestVerifyFindsAnApprovalThatOutlivesItsRun(t *testing.T) {
	t.Parallel()
	db := storetest.New(t, storetest.Unverified)
	s := startStore(t, db, store.Options{Queue: jobs{}})
	p := park(t, s)
	turn := func(payload event.Payload) event.Event { return encode(t, p.sessionID, p.runID, 1, payload) }
	mustAppend(t, s, p.answer(t, s, event.DecisionCancelled,
		turn(event.ToolResult{CallID: p.asked, MessageID: looptest.NewID(), Name: "remove", IsError: true, Reason: hooks.ReasonCancelled}),
		encode(t, p.sessionID, p.runID, 0, event.RunCancelled{Reason: "enough"})))
	// A second question about the same call, which the first answer leaves open.
	exec(t, db, `ALTER TABLE agentd.events DISABLE TRIGGER USER;
		UPDATE agentd.events SET payload = replace(payload::text, '`+p.approvalID+`', '`+looptest.NewID()+`')::json WHERE type = 'approval.requested'`)
	differences := verify(t, db).Differences
	if !slices.ContainsFunc(differences, func(d store.Difference) bool {
		return d.Table == "approvals" && d.Column == "status" && strings.Contains(d.Want, "cancelled")
	}) {
		t.Errorf("%v; want one of the approval", differences)
	}
}
