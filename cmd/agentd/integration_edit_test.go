package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/seed-2ca4966b/agentd/api/client"
	agentdv1 "github.com/seed-2ca4966b/agentd/api/gen/agentd/v1"
	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
	"github.com/seed-2ca4966b/agentd/store/storetest"
)

// paying is a stack whose agent asks before it pays, and what it paid.
func paying(t *testing.T, db *storetest.DB, change func(*loop.Agent)) (s *stack, j loop.Job, paid *[]string) {
	t.Helper()
	paid = new([]string)
	s = newStack(t, db, playing(
		looptest.Answers(
			looptest.Answer(looptest.ToolCall("a", "pay", `{"to": "Ada", "cents": 9007199254740993}`), looptest.Finish(stream.FinishToolCalls)),
			looptest.Answer(looptest.Text("Paid."), looptest.Finish(stream.FinishStop))),
		looptest.Tool{Name: "pay", Run: func(_ context.Context, in loop.ToolInput) (loop.ToolOutput, error) {
			*paid = append(*paid, string(in.Arguments))
			return loop.ToolOutput{Content: "paid"}, nil
		}}))
	s.askingFor("pay")
	agent := s.Engine.Agents["demo"]
	if change != nil {
		change(&agent)
	}
	s.Engine.Agents["demo"] = agent
	j = s.Start(t, s.Session(t), "go")
	return s, j, paid
}

// commandLine is a command of agentd against the stack, and what it prints.
func (s *stack) commandLine(t *testing.T, stdin string, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	err := runCommand(t.Context(), append(args, "--url", s.url), &std{in: strings.NewReader(stdin), out: &out, err: &out})
	return out.String(), err
}

// TestAnEditRunsOnceAndIsShownWhereverOneLooks: on the command line, in SQL, in
// the story of the run; with the arguments that the model wrote beside it.
func TestAnEditRunsOnceAndIsShownWhereverOneLooks(t *testing.T) {
	t.Parallel()
	const given = `{ "to": "Ada", "cents": 9007199254740992 }`
	db := storetest.New(t)
	s, j, paid := paying(t, db, nil)
	s.checked(t, hooks.Hooks{BeforeToolCall: hooks.Named("guard", "1", func(_ context.Context, in hooks.BeforeToolCall) (hooks.BeforeToolCallResult, error) {
		return hooks.BeforeToolCallResult{Action: hooks.ActionContinue}, nil
	})})
	s.Advance(t, j)
	id := s.openApprovals(t, j)[0].GetId()
	file := filepath.Join(t.TempDir(), "arguments.json")
	if err := os.WriteFile(file, []byte(given+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for arguments, want := range map[string]string{
		`{"to"`:           "arguments: are not whole JSON",
		`[]`:              "arguments: are no JSON object",
		"@" + file + ".x": "read the arguments: open ",
		"-":               "arguments: are no JSON object", // what comes on standard input
	} {
		if out, err := s.commandLine(t, "7\n", "approvals", "edit", id, "--arguments", arguments); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, printed %q; want %q", arguments, err, out, want)
		}
	}
	s.wantOpen(t, j, `{"to": "Ada", "cents": 9007199254740993}`)
	out, err := s.commandLine(t, "", "approvals", "edit", id, "--arguments", "@"+file, "--reason", "a cent less")
	if want := "edited: pay " + given + "\n"; err != nil || out != want {
		t.Fatalf("%v, printed %q; want %q", err, out, want)
	}
	// Again, from standard input, is no error.
	if again, err := s.commandLine(t, given+"\r\n", "approvals", "edit", id, "--arguments", "-"); err != nil || again != out {
		t.Errorf("%v, printed %q; want %q", err, again, out)
	}
	if status := scalar[string](t, db, `SELECT status FROM agentd.tool_calls WHERE run_id = $1`, j.RunID); status != "edited" {
		t.Errorf("the call is %s", status)
	}
	j.Ticket = 2
	if run := s.Advance(t, j); run.Status != loop.RunCompleted || !slices.Equal(*paid, []string{given}) {
		t.Errorf("the run is %s, paid %q", run.Status, *paid)
	}

	const patch = `[{"op":"replace","path":"/cents","value":9007199254740992}]`
	out, err = s.commandLine(t, "", "approvals", "show", id)
	wantInOrder(t, out, err, "status:            edited", "they said:         a cent less", "arguments:\n{\"to\": \"Ada\", \"cents\": 9007199254740993}\n",
		"edited to:\n"+given+"\nby the patch:\n"+patch+"\n")
	out, err = s.commandLine(t, "", "explain", j.RunID)
	wantInOrder(t, out, err, "? BeforeToolCall", "approval.requested", "approval.decided", "edited by principal local: a cent less", "to "+given+", which is "+patch,
		"? BeforeToolCall", "tool.started")
	if line := scalar[string](t, db, `SELECT summary FROM agentd.timeline WHERE run_id = $1 AND type = 'approval.decided'`, j.RunID); line !=
		`pay edited from {"to": "Ada", "cents": 9007199254740993} to `+given+`: a cent less` {
		t.Errorf("the timeline says %s", line)
	}
	for column, want := range map[string]string{
		"a.arguments": `{"to": "Ada", "cents": 9007199254740993}`, "a.edited_arguments": given, "a.status": "edited", "a.decided_by_id": "local",
		"k.arguments": `{"to": "Ada", "cents": 9007199254740993}`, "k.final_arguments": given,
		"encode(sha256(a.edited_arguments::bytea), 'hex') = a.edited_sha256": "true",
	} {
		if got := scalar[string](t, db, `SELECT (`+column+`)::text FROM agentd.approvals a JOIN agentd.tool_calls k ON k.id = a.call_id WHERE a.run_id = $1`, j.RunID); got != want {
			t.Errorf("%s is %s; want %s", column, got, want)
		}
	}
	if n := scalar[string](t, db, `SELECT string_agg(attempt::text, ',' ORDER BY ledger_seq) FROM agentd.hook_decisions WHERE run_id = $1`, j.RunID); n != "1,2" {
		t.Errorf("decisions at the attempts %s", n)
	}
}

func wantInOrder(t *testing.T, out string, err error, parts ...string) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
	rest := out
	for _, part := range parts {
		_, behind, ok := strings.Cut(rest, part)
		if !ok {
			t.Errorf("no %q, or not there:\n%s", part, out)
			return
		}
		rest = behind
	}
}

// TestOfTwoCallersOnlyTheOneWhoWasNamedDecides: at two servers over one
// database.
func TestOfTwoCallersOnlyTheOneWhoWasNamedDecides(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	s, j, paid := paying(t, db, func(a *loop.Agent) { a.Approvers = []string{"def*"} })
	keyed := newStack(t, db, func(p *stackParts) { p.api.APIKey = "k" })
	s.Advance(t, j)
	id := s.openApprovals(t, j)[0].GetId()
	yes := func(c *client.Client) (*agentdv1.Approval, error) {
		return c.DecideApproval(t.Context(), &agentdv1.DecideApprovalRequest{ApprovalId: id, Decision: agentdv1.ApprovalDecision_APPROVAL_DECISION_APPROVE})
	}
	here, there := s.dial(t), keyed.dial(t, client.WithAPIKey("k"))
	for c, want := range map[*client.Client]bool{here: false, there: true} {
		if a, err := c.GetApproval(t.Context(), id); err != nil || a.GetMayDecide() != want {
			t.Errorf("may decide: %t, %v; want %t", a.GetMayDecide(), err, want)
		}
	}
	_, err := yes(here)
	wantRefused(t, err, connect.CodePermissionDenied, "not_an_approver")
	if out, err := s.commandLine(t, "", "approvals", "show", id); err != nil || !strings.Contains(out, "for:               def*\n") {
		t.Errorf("%v, printed %s", err, out)
	}
	if got := scalar[string](t, db, `SELECT approvers::text || status FROM agentd.approvals`); got != "{def*}pending" {
		t.Errorf("stored %s", got)
	}
	if a, err := yes(there); err != nil || a.GetMayDecide() {
		t.Errorf("%v, %v", a, err)
	}
	_, err = yes(here)
	wantRefused(t, err, connect.CodePermissionDenied, "not_an_approver")
	j.Ticket = 2
	if run := s.Advance(t, j); run.Status != loop.RunCompleted || len(*paid) != 1 {
		t.Errorf("the run is %s, paid %q", run.Status, *paid)
	}
}

// TestALateYesIsToldThatTheTimeIsOver: by the database's clock, to the
// millisecond, though no worker sweeps.
func TestALateYesIsToldThatTheTimeIsOver(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		timeout, answered time.Duration
		late              bool
	}{
		"a millisecond before": {time.Second, time.Second - time.Millisecond, false},
		"a millisecond after":  {time.Second, time.Second + time.Millisecond, true},
		"without a limit":      {0, 72 * time.Hour, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := storetest.New(t)
			start := time.Now().Truncate(time.Millisecond)
			db.SetClock(t, start)
			s, j, paid := paying(t, db, func(a *loop.Agent) { a.ApprovalTimeout = c.timeout })
			s.Advance(t, j)
			a := s.openApprovals(t, j)[0]
			if c.timeout == 0 {
				if a.GetExpiresAt() != nil {
					t.Errorf("expires %v", a.GetExpiresAt())
				}
			} else if !a.GetExpiresAt().AsTime().Equal(start.Add(c.timeout)) {
				t.Errorf("expires %v; want %v", a.GetExpiresAt().AsTime(), start.Add(c.timeout))
			}
			db.SetClock(t, start.Add(c.answered))
			_, err := s.dial(t).DecideApproval(t.Context(), &agentdv1.DecideApprovalRequest{
				ApprovalId: a.GetId(), Decision: agentdv1.ApprovalDecision_APPROVAL_DECISION_APPROVE, ArgumentsSha256: a.GetArgumentsSha256(),
			})
			j.Ticket = 2
			status := "approved"
			if c.late {
				status = "expired"
				if d := wantRefused(t, err, connect.CodeAborted, "already_decided").GetDecided(); d.GetDecision() != "expired" || d.GetBy().GetKind() != "system" {
					t.Errorf("told of %v", d)
				}
				if !strings.Contains(err.Error(), "the approval has expired: nobody answered in time") {
					t.Errorf("told %v", err)
				}
			} else if err != nil {
				t.Fatal(err)
			}
			if run := s.Advance(t, j); run.Status != loop.RunCompleted || len(*paid) == 1 == c.late {
				t.Errorf("the run is %s, paid %q", run.Status, *paid)
			}
			if got := scalar[string](t, db, `SELECT status FROM agentd.approvals`); got != status {
				t.Errorf("the approval is %s; want %s", got, status)
			}
			result := scalar[string](t, db, `SELECT coalesce(result_reason, '') || ' ' || attempt FROM agentd.tool_calls`)
			if want := map[bool]string{true: "expired 0", false: " 1"}[c.late]; result != want {
				t.Errorf("the result is %q; want %q", result, want)
			}
		})
	}
}
