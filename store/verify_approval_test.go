package store_test

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
	"github.com/seed-2ca4966b/agentd/store"
	"github.com/seed-2ca4966b/agentd/store/storetest"
)

// approve parks a run, answers yes, and starts the call.
func approve(t *testing.T, log loop.Log) parked {
	t.Helper()
	p := park(t, log)
	arguments := safeArguments
	mustAppend(t, log, p.answer(t, log, event.DecisionApproved,
		encode(t, p.sessionID, p.runID, 0, event.RunQueued{Ticket: 2, Cause: "approval"})))
	mustAppend(t, log, appendOf(p.sessionID, headOf(t, log, p.sessionID).LastSeq,
		encode(t, p.sessionID, p.runID, 0, event.RunResumed{WorkerID: looptest.NewID(), Epoch: 2, Ticket: 2, Cause: event.ResumeApproval}),
		encode(t, p.sessionID, p.runID, 1, event.ToolStarted{CallID: p.asked, Attempt: 1, Arguments: &arguments, ArgumentsSHA256: digestOf(arguments)})))
	return p
}

// TestVerifyHoldsEditsToTheirBytes: what runs is what the person gave, and the
// hooks have let just that through.
func TestVerifyHoldsEditsToTheirBytes(t *testing.T) {
	t.Parallel()
	const given = `{"path":"/var"}`
	for name, test := range map[string]struct {
		ran     string // instead of what was given
		digest  string // instead of its own
		asked   int    // the revision that hooks were asked about
		columns []string
	}{
		"Nothing":             {asked: 2},
		"OtherBytes":          {ran: safeArguments, asked: 2, columns: []string{"events payload arguments_sha256", "events payload arguments_sha256"}},
		"AnotherDigest":       {digest: digestOf(safeArguments), asked: 2, columns: []string{"events payload arguments_sha256", "events payload arguments_sha256", "events payload arguments_sha256"}},
		"HooksThatSawAnother": {asked: 1, columns: []string{"tool_calls status"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := storetest.New(t, storetest.Unverified)
			s := startStore(t, db, store.Options{Queue: jobs{}})
			set := hooks.Hooks{BeforeToolCall: func(context.Context, hooks.BeforeToolCall) (hooks.BeforeToolCallResult, error) {
				return hooks.BeforeToolCallResult{}, nil
			}}.Set()
			if err := s.PutHookSet(limit(t), set); err != nil {
				t.Fatal(err)
			}
			p := park(t, s)
			digest, ran := digestOf(given), given
			if test.digest != "" {
				digest = test.digest
			}
			if test.ran != "" {
				ran = test.ran
			}
			mustAppend(t, s, appendOf(p.sessionID, headOf(t, s, p.sessionID).LastSeq,
				encode(t, p.sessionID, p.runID, 1, event.ApprovalDecided{
					ApprovalID: p.approvalID, CallID: p.asked, Decision: event.DecisionEdited, ArgumentsSHA256: digestOf(safeArguments),
					EditedArguments: new(given), EditedSHA256: digest,
				}),
				encode(t, p.sessionID, p.runID, 0, event.RunQueued{Ticket: 2, Cause: "approval"}),
				encode(t, p.sessionID, p.runID, 0, event.RunResumed{WorkerID: looptest.NewID(), Epoch: 2, Ticket: 2, Cause: event.ResumeApproval, HookSet: set.Digest})))
			let := full(p.runID, 1, hooks.GateBeforeToolCall, p.asked)
			let.HookID, let.Action, let.Effective, let.Attempt = "guard", hooks.ActionContinue, true, test.asked
			h := headOf(t, s, p.sessionID)
			mustAppend(t, s, with(appendOf(p.sessionID, h.LastSeq,
				encode(t, p.sessionID, p.runID, 1, event.ToolStarted{CallID: p.asked, Attempt: 1, Arguments: &ran, ArgumentsSHA256: digestOf(ran)})),
				h.Ledger, let))
			var got []string
			for _, d := range verify(t, db).Differences {
				got = append(got, d.Table+" "+d.Column)
			}
			if !slices.Equal(got, test.columns) {
				t.Errorf("differences in %q, want %q", got, test.columns)
			}
		})
	}
}

// TestVerifyHoldsApprovalsToTheirBytes: who forges the log forges the
// projections with it, so that only the digests contradict each other.
func TestVerifyHoldsApprovalsToTheirBytes(t *testing.T) {
	t.Parallel()
	other := digestOf(proposedArguments)
	shown, digest := strings.ReplaceAll(safeArguments, `"`, `\"`), digestOf(safeArguments)
	forged := strings.ReplaceAll(proposedArguments, `"`, `\"`)
	in := func(kind event.Type, from, to string) string {
		return `UPDATE agentd.events SET payload = replace(payload::text, '` + from + `', '` + to + `')::json WHERE type = '` + string(kind) + `';`
	}
	for name, test := range map[string]struct {
		sql  string
		want []event.Type // whose digest is wrong
	}{
		"Nothing": {sql: `SELECT 1`},
		"ArgumentsOfTheRequest": {
			in(event.TypeApprovalRequested, shown, forged) + `UPDATE agentd.approvals SET arguments = '` + proposedArguments + `'`,
			[]event.Type{event.TypeApprovalRequested},
		},
		"DigestOfTheRequest": {
			in(event.TypeApprovalRequested, digest, other) + `UPDATE agentd.approvals SET arguments_sha256 = '` + other + `'`,
			[]event.Type{event.TypeApprovalRequested, event.TypeApprovalDecided, event.TypeToolStarted, event.TypeToolStarted},
		},
		"DigestOfTheAnswer": {in(event.TypeApprovalDecided, digest, other), []event.Type{event.TypeApprovalDecided}},
		"DigestOfTheStart":  {in(event.TypeToolStarted, digest, other), []event.Type{event.TypeToolStarted}},
		"ArgumentsOfTheStart": {
			in(event.TypeToolStarted, shown, forged) + `UPDATE agentd.tool_calls SET final_arguments = '` + proposedArguments + `' WHERE approval_id IS NOT NULL`,
			[]event.Type{event.TypeToolStarted},
		},
		"ArgumentsOfTheStartWithTheirDigest": {
			in(event.TypeToolStarted, shown, forged) + in(event.TypeToolStarted, digest, other) +
				`UPDATE agentd.tool_calls SET final_arguments = '` + proposedArguments + `' WHERE approval_id IS NOT NULL`,
			[]event.Type{event.TypeToolStarted, event.TypeToolStarted},
		},
		"NoDigestOfTheStart": {in(event.TypeToolStarted, digest, ""), []event.Type{event.TypeToolStarted}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := storetest.New(t, storetest.Unverified)
			s := startStore(t, db, store.Options{Queue: jobs{}})
			p := approve(t, s)
			exec(t, db, `ALTER TABLE agentd.events DISABLE TRIGGER USER; `+test.sql)
			types := map[string]event.Type{}
			events, err := s.Events(limit(t), looptest.Tenant, p.sessionID, 0, 100)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range events {
				types[e.SessionID+"/"+strconv.FormatInt(e.Seq, 10)] = e.Type
			}
			var got []event.Type
			for _, d := range verify(t, db).Differences {
				if d.Table != "events" || d.Column != "payload arguments_sha256" || strings.HasPrefix(d.Want, d.Got) {
					t.Errorf("besides: %v", d)
				}
				got = append(got, types[d.Row])
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("wrong digests in %q, want %q", got, test.want)
			}
		})
	}
}

// TestVerifyFindsAnOpenApprovalUnderARunThatHasEnded, as it would be if the
// answer that closed it had been about another.
func TestVerifyFindsAnOpenApprovalUnderARunThatHasEnded(t *testing.T) {
	t.Parallel()
	db := storetest.New(t, storetest.Unverified)
	s := startStore(t, db, store.Options{Queue: jobs{}})
	p := park(t, s)
	mustAppend(t, s, p.answer(t, s, event.DecisionCancelled,
		encode(t, p.sessionID, p.runID, 1, event.ToolResult{CallID: p.asked, MessageID: looptest.NewID(), Name: "remove", IsError: true, Reason: hooks.ReasonCancelled}),
		encode(t, p.sessionID, p.runID, 0, event.RunCancelled{Reason: "enough"})))
	if d := verify(t, db).Differences; len(d) != 0 {
		t.Fatalf("differences %v", d)
	}
	exec(t, db, `ALTER TABLE agentd.events DISABLE TRIGGER USER;
		UPDATE agentd.events SET payload = replace(payload::text, '`+p.approvalID+`', '`+looptest.NewID()+`')::json WHERE type = 'approval.decided';
		UPDATE agentd.approvals SET status = 'pending', decided_by_kind = NULL, decided_by_id = NULL, decision_reason = NULL, decided_at = NULL, decided_seq = NULL`)
	found := slices.ContainsFunc(verify(t, db).Differences, func(d store.Difference) bool {
		return d.Table == "approvals" && d.Row == p.approvalID && d.Column == "status" && d.Want == "an answer: its run is cancelled"
	})
	if !found {
		t.Errorf("not found among %v", verify(t, db).Differences)
	}
}
