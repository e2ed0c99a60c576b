package store_test

import (
	"errors"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
	"github.com/seed-2ca4966b/agentd/store"
	"github.com/seed-2ca4966b/agentd/store/storetest"
)

const (
	proposedArguments = `{"path":"/"}`
	safeArguments     = `{"path":"/tmp"}`
)

// parked is a run that waits for people.
type parked struct {
	sessionID  string
	runID      string
	asked      string // the call that waits
	blocked    string // the one that is done
	approvalID string
}

// park stores a run with one call that hooks changed and want a person for,
// and one that the agent may not make.
func park(t *testing.T, log loop.Log) parked {
	t.Helper()
	id, runID := started(t, log)
	p := parked{sessionID: id, runID: runID, asked: looptest.NewID(), blocked: looptest.NewID(), approvalID: looptest.NewID()}
	in := func(payload event.Payload) event.Event { return encode(t, id, runID, 1, payload) }
	events := []event.Event{
		in(event.TurnStarted{}), in(event.ModelRequested{Attempt: 1, Model: "m"}),
		in(event.AssistantCompleted{Attempt: 1, MessageID: looptest.NewID(), Finish: stream.FinishToolCalls}),
		in(event.ToolProposed{CallID: p.asked, Number: 1, Name: "remove", Arguments: proposedArguments}),
		in(event.ToolProposed{CallID: p.blocked, Number: 2, Name: "format", Arguments: `{}`}),
	}
	mustAppend(t, log, appendOf(id, headOf(t, log, id).LastSeq, events...))
	h := headOf(t, log, id)
	mustAppend(t, log, with(appendOf(id, h.LastSeq,
		in(event.ApprovalRequested{
			ApprovalID: p.approvalID, CallID: p.asked, Name: "remove", Arguments: safeArguments, ArgumentsSHA256: digestOf(safeArguments),
			By: "BeforeToolCall", Reason: "it is final",
		}),
		in(event.ToolBlocked{CallID: p.blocked, By: "permission", ReasonCode: "permission_denied", Reason: "The agent may not use this tool."}),
		in(event.ToolResult{CallID: p.blocked, MessageID: looptest.NewID(), Name: "format", Content: "blocked", IsError: true, Reason: hooks.ReasonBlocked}),
		encode(t, id, runID, 0, event.RunSuspended{Reason: "approval", ApprovalIDs: []string{p.approvalID}})),
		h.Ledger, asks(runID, p.asked)))
	return p
}

func asks(runID, callID string) hooks.Decision {
	d := full(runID, 1, hooks.GateBeforeToolCall, callID)
	d.HookID, d.Action, d.Effective, d.Outcome, d.FailedOpen, d.ReasonCode = "guard", hooks.ActionAsk, true, hooks.OutcomeOK, false, "final"
	d.Payload.Reason = "it is final"
	return d
}

// answer is the append that answers the parked run's question.
func (p parked) answer(t *testing.T, log loop.Log, decision event.ApprovalDecision, more ...event.Event) loop.Append {
	t.Helper()
	return appendOf(p.sessionID, headOf(t, log, p.sessionID).LastSeq, append([]event.Event{
		encode(t, p.sessionID, p.runID, 1, event.ApprovalDecided{
			ApprovalID: p.approvalID, CallID: p.asked, Decision: decision, ArgumentsSHA256: digestOf(safeArguments), Reason: "because",
		}),
	}, more...)...)
}

func TestApprovalIsAskedForAndAnswered(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	exec(t, db, `INSERT INTO agentd.tenants (id, name) VALUES ('another', 'Another')`)
	s := startStore(t, db, store.Options{Queue: jobs{}})
	p := park(t, s)
	if h := headOf(t, s, p.sessionID); h.ActiveRunID != p.runID || !h.Waiting {
		t.Errorf("head %+v; want it to wait with its run active", h)
	}
	if info, err := s.GetSession(limit(t), looptest.Tenant, p.sessionID); err != nil || info.ActiveRunID != p.runID {
		t.Errorf("session %+v, %v; want its run active", info, err)
	}
	state, err := s.Load(limit(t), looptest.Tenant, p.sessionID, p.runID)
	if err != nil {
		t.Fatal(err)
	}
	if r, _ := state.Run(p.runID); r.Status != loop.RunWaiting || r.Turns[0].Calls[0].Status != loop.CallAwaiting {
		t.Errorf("loaded run %+v; want it to wait", r)
	}
	want := loop.ApprovalInfo{
		ID: p.approvalID, TenantID: looptest.Tenant, SessionID: p.sessionID, RunID: p.runID, Turn: 1, CallID: p.asked, Name: "remove",
		Arguments: safeArguments, ArgumentsSHA256: digestOf(safeArguments), RequestedBy: "BeforeToolCall", Reason: "it is final",
	}
	got, err := s.GetApproval(limit(t), looptest.Tenant, p.approvalID)
	want.RequestedAt = got.RequestedAt
	if err != nil || !reflect.DeepEqual(got, want) || got.RequestedAt.Location() != time.UTC {
		t.Errorf("pending\n got %+v, %v\nwant %+v", got, err, want)
	}

	mustAppend(t, s, p.answer(t, s, event.DecisionApproved, encode(t, p.sessionID, p.runID, 0, event.RunQueued{Ticket: 2, Cause: "approval"})))
	got, err = s.GetApproval(limit(t), looptest.Tenant, p.approvalID)
	if got.DecidedAt == nil {
		t.Fatalf("answered: %+v, %v; want a time", got, err)
	}
	want.Decision, want.DecidedBy, want.DecisionReason, want.DecidedAt = event.DecisionApproved, looptest.Tester, "because", got.DecidedAt
	if !reflect.DeepEqual(got, want) {
		t.Errorf("answered\n got %+v\nwant %+v", got, want)
	}
	if session, run, err := s.Approval(limit(t), looptest.Tenant, p.approvalID); err != nil || session != p.sessionID || run != p.runID {
		t.Errorf("approval is of session %s, run %s, %v", session, run, err)
	}
	for name, test := range map[string]struct{ tenant, id string }{
		"Foreign": {another, p.approvalID}, "Unknown": {looptest.Tenant, looptest.NewID()}, "NoID": {looptest.Tenant, "nope"}, "NoTenant": {"a\x00", p.approvalID},
	} {
		if _, _, err := s.Approval(limit(t), test.tenant, test.id); !errors.Is(err, loop.ErrNotFound) {
			t.Errorf("find %s: %v; want ErrNotFound", name, err)
		}
		if _, err := s.GetApproval(limit(t), test.tenant, test.id); !errors.Is(err, loop.ErrNotFound) {
			t.Errorf("get %s: %v; want ErrNotFound", name, err)
		}
	}
}

func TestApprovalOfADeletedSessionIsGone(t *testing.T) {
	t.Parallel()
	s := startStore(t, storetest.New(t), store.Options{Queue: jobs{}})
	p := park(t, s)
	turn := func(payload event.Payload) event.Event { return encode(t, p.sessionID, p.runID, 1, payload) }
	mustAppend(t, s, p.answer(t, s, event.DecisionCancelled,
		turn(event.ToolResult{CallID: p.asked, MessageID: looptest.NewID(), Name: "remove", IsError: true, Reason: hooks.ReasonCancelled}),
		encode(t, p.sessionID, p.runID, 0, event.RunCancelled{Reason: "enough"}),
		encode(t, p.sessionID, "", 0, event.SessionDeleted{})))
	if _, _, err := s.Approval(limit(t), looptest.Tenant, p.approvalID); !errors.Is(err, loop.ErrNotFound) {
		t.Errorf("find: %v; want ErrNotFound", err)
	}
	if _, err := s.GetApproval(limit(t), looptest.Tenant, p.approvalID); !errors.Is(err, loop.ErrNotFound) {
		t.Errorf("get: %v; want ErrNotFound", err)
	}
	if list, err := s.ListApprovals(limit(t), looptest.Tenant, loop.ApprovalFilter{}, loop.Page{}); err != nil || len(list) != 0 {
		t.Errorf("list: %+v, %v; want nothing", list, err)
	}
	if _, err := s.ListDecisions(limit(t), looptest.Tenant, loop.DecisionFilter{RunID: p.runID}, loop.Page{}); !errors.Is(err, loop.ErrNotFound) {
		t.Errorf("decisions: %v; want ErrNotFound", err)
	}
}

func TestApprovalListIsFilteredAndPaged(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	exec(t, db, `INSERT INTO agentd.tenants (id, name) VALUES ('another', 'Another')`)
	s := startStore(t, db, store.Options{Queue: jobs{}})
	a, b, c := park(t, s), park(t, s), park(t, s)
	mustAppend(t, s, b.answer(t, s, event.DecisionDenied))
	list := func(filter loop.ApprovalFilter, page loop.Page) (ids []string) {
		t.Helper()
		found, err := s.ListApprovals(limit(t), looptest.Tenant, filter, page)
		if err != nil {
			t.Fatal(err)
		}
		for _, info := range found {
			ids = append(ids, info.ID)
		}
		return ids
	}
	pending := loop.ApprovalFilter{PendingOnly: true}
	for name, test := range map[string]struct {
		filter loop.ApprovalFilter
		page   loop.Page
		want   []string
	}{
		"All":       {loop.ApprovalFilter{}, loop.Page{}, []string{c.approvalID, b.approvalID, a.approvalID}},
		"Pending":   {pending, loop.Page{}, []string{c.approvalID, a.approvalID}},
		"Session":   {loop.ApprovalFilter{SessionID: b.sessionID}, loop.Page{}, []string{b.approvalID}},
		"Run":       {loop.ApprovalFilter{RunID: c.runID}, loop.Page{}, []string{c.approvalID}},
		"Neither":   {loop.ApprovalFilter{RunID: c.runID, SessionID: b.sessionID}, loop.Page{}, nil},
		"FirstPage": {pending, loop.Page{Limit: 1}, []string{c.approvalID}},
		"NextPage":  {pending, loop.Page{Limit: 1, After: c.approvalID}, []string{a.approvalID}},
		// It was answered since it ended the page before.
		"AfterOneThatIsGone": {pending, loop.Page{After: b.approvalID}, []string{a.approvalID}},
	} {
		if got := list(test.filter, test.page); !slices.Equal(got, test.want) {
			t.Errorf("%s: %v; want %v", name, got, test.want)
		}
	}
	for name, test := range map[string]struct {
		tenant string
		filter loop.ApprovalFilter
		after  string
	}{
		"ForeignSession": {another, loop.ApprovalFilter{SessionID: a.sessionID}, ""},
		"ForeignRun":     {another, loop.ApprovalFilter{RunID: a.runID}, ""},
		"ForeignPage":    {another, loop.ApprovalFilter{}, a.approvalID},
		"NoPage":         {looptest.Tenant, loop.ApprovalFilter{}, "nope"},
		"NoTenant":       {"a\x00", loop.ApprovalFilter{}, ""},
	} {
		if _, err := s.ListApprovals(limit(t), test.tenant, test.filter, loop.Page{After: test.after}); !errors.Is(err, loop.ErrNotFound) {
			t.Errorf("%s: %v; want ErrNotFound", name, err)
		}
	}
}

func TestRequestFindsTheInputThatAHookHandled(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	s := startStore(t, db, store.Options{Queue: jobs{}})
	id := newSession(t, s)
	handled := event.InputHandled{InputID: looptest.NewID(), Agent: "a", Reply: "we are closed", IdempotencyKey: "k", RequestSHA256: "d"}
	mustAppend(t, s, appendOf(id, 1, encode(t, id, "", 0, handled)))
	got, ok, err := s.Request(limit(t), looptest.Tenant, id, "k")
	if want := (loop.Request{Handled: true, Reply: "we are closed", RequestSHA256: "d", Seq: 1}); err != nil || !ok || got != want {
		t.Errorf("request %+v, %t, %v; want %+v", got, ok, err, want)
	}
	if _, ok, err := s.Request(limit(t), looptest.Tenant, id, "another"); ok || err != nil {
		t.Errorf("another key: %t, %v; want none", ok, err)
	}
	db.ShiftClock(t, 25*time.Hour)
	if _, ok, err := s.Request(limit(t), looptest.Tenant, id, "k"); ok || err != nil {
		t.Errorf("a day later: %t, %v; want none", ok, err)
	}
	// The key is used again, for a run this time, and counts from then on.
	runID, messageID := looptest.NewID(), looptest.NewID()
	created := encode(t, id, runID, 0, event.RunCreated{
		Agent: "a", MessageID: messageID, AssistantMessageID: looptest.NewID(), IdempotencyKey: "k", RequestSHA256: "e",
	})
	mustAppend(t, s, appendOf(id, 2, created, encode(t, id, runID, 0, event.RunQueued{Ticket: 1})))
	db.ShiftClock(t, 0)
	if got, ok, err := s.Request(limit(t), looptest.Tenant, id, "k"); err != nil || !ok || got.Handled || got.RunID != runID {
		t.Errorf("used again: %+v, %t, %v; want the run", got, ok, err)
	}
}

func TestSchemaRefusesWhatAWaitingRunCannotBe(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	s := startStore(t, db, store.Options{Queue: jobs{}})
	p := park(t, s)
	for name, sql := range map[string]string{
		"SecondActiveRun": `INSERT INTO agentd.runs (id, tenant_id, session_id, status, agent, message_id, assistant_message_id, ticket, created_at, created_seq)
			SELECT gen_random_uuid(), tenant_id, session_id, 'queued', agent, message_id, assistant_message_id, 1, now(), 1 FROM agentd.runs`,
		"Leased":            `UPDATE agentd.runs SET worker_id = id`,
		"NeverStarted":      `UPDATE agentd.runs SET started_at = NULL`,
		"AnsweredByNobody":  `UPDATE agentd.approvals SET status = 'approved', decided_at = now(), decided_seq = requested_seq + 1`,
		"PendingAndDecided": `UPDATE agentd.approvals SET decided_at = now(), decided_seq = requested_seq + 1, decided_by_kind = 'key', decided_by_id = 'k'`,
		"AskedTwice": `INSERT INTO agentd.approvals (id, tenant_id, session_id, run_id, turn_no, call_id, name, arguments, arguments_sha256, requested_by, status, requested_at, requested_seq)
			SELECT gen_random_uuid(), tenant_id, session_id, run_id, turn_no, call_id, name, arguments, arguments_sha256, requested_by, status, requested_at, requested_seq FROM agentd.approvals`,
		"EditedToNothing": `UPDATE agentd.approvals SET status = 'edited', decided_at = now(), decided_seq = requested_seq + 1, decided_by_kind = 'key', decided_by_id = 'k'`,
		"ApprovedAndEdited": `UPDATE agentd.approvals SET status = 'approved', edited_arguments = '{}', edited_sha256 = arguments_sha256,
			decided_at = now(), decided_seq = requested_seq + 1, decided_by_kind = 'key', decided_by_id = 'k'`,
		"EditedWithoutDigest": `UPDATE agentd.approvals SET status = 'edited', edited_arguments = '{}',
			decided_at = now(), decided_seq = requested_seq + 1, decided_by_kind = 'key', decided_by_id = 'k'`,
		"ExpiredThoughItCannot": `UPDATE agentd.approvals SET status = 'expired', decided_at = now(), decided_seq = requested_seq + 1, decided_by_kind = 'system', decided_by_id = 's'`,
		"OutcomeThatExpires":    `UPDATE agentd.approvals SET kind = 'outcome', expires_at = now()`,
		"AwaitingNothing":       `UPDATE agentd.tool_calls SET approval_id = NULL`,
		"BlockedBySth":          `UPDATE agentd.tool_calls SET status = 'blocked' WHERE id = '` + p.asked + `'`,
		"HeadWithoutSeq":        `UPDATE agentd.sessions SET ledger_seq = 0`,
		"SeqWithoutHead":        `UPDATE agentd.sessions SET ledger_head = NULL`,
	} {
		if _, err := db.Pool.Exec(limit(t), sql); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// TestAnEmptyListOfApproversStaysOne: it is nobody, and NULL is everybody.
func TestAnEmptyListOfApproversStaysOne(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	s := startStore(t, db, store.Options{Queue: jobs{}})
	b := looptest.NewBench(s, looptest.Answers(
		looptest.Answer(looptest.ToolCall("x", "pay", `{}`), looptest.Finish(stream.FinishToolCalls)),
	), looptest.Says("pay", "paid"))
	agent := b.Engine.Agents["demo"]
	agent.Permissions, agent.Approvers = []loop.Permission{{Tools: "*", Mode: loop.PermissionAsk}}, []string{}
	b.Engine.Agents["demo"] = agent
	j := b.Start(t, b.Session(t), "go")
	b.Advance(t, j)
	list, err := s.ListApprovals(limit(t), looptest.Tenant, loop.ApprovalFilter{RunID: j.RunID}, loop.Page{})
	if err != nil || len(list) != 1 || list[0].Approvers == nil || loop.MayDecide(list[0].Approvers, looptest.Tester) {
		t.Errorf("got %+v, %v; want one that is for nobody", list, err)
	}
}
