package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/seed-2ca4966b/agentd/api/client"
	agentdv1 "github.com/seed-2ca4966b/agentd/api/gen/agentd/v1"
	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
	"github.com/seed-2ca4966b/agentd/store/storetest"
)

// askingFor makes the stack's agent ask about each call of a tool.
func (s *stack) askingFor(tool string) {
	agent := s.Engine.Agents["demo"]
	agent.Permissions = []loop.Permission{{Tools: tool, Mode: loop.PermissionAsk}}
	s.Engine.Agents["demo"] = agent
}

// TestOfManyAnswersAtOnceTheFirstHoldsEverywhere: two processes, whose callers
// are two different ones, and an answer of each kind from everybody.
func TestOfManyAnswersAtOnceTheFirstHoldsEverywhere(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	var ran atomic.Int32
	tool := looptest.Tool{Name: "send", Run: func(context.Context, loop.ToolInput) (loop.ToolOutput, error) {
		ran.Add(1)
		return loop.ToolOutput{Content: "sent"}, nil
	}}
	model := looptest.Answers(
		looptest.Answer(looptest.ToolCall("a", "send", `{"to": "Ada"}`), looptest.Finish(stream.FinishToolCalls)),
		looptest.Answer(looptest.Text("Sent."), looptest.Finish(stream.FinishStop)))
	here := newStack(t, db, playing(model, tool))
	there := newStack(t, db, func(p *stackParts) { p.api.APIKey = "k" })
	here.askingFor("send")
	clients := []*client.Client{here.dial(t), there.dial(t, client.WithAPIKey("k"))}
	for range 5 {
		ran.Store(0)
		j := here.Start(t, here.Session(t), "go")
		if run := here.Advance(t, j); run.Status != loop.RunWaiting {
			t.Fatalf("the run is %s, want it to wait", run.Status)
		}
		id := scalar[string](t, db, `SELECT id::text FROM agentd.approvals WHERE run_id = $1 AND status = 'pending'`, j.RunID)
		answers := decideTogether(t, 40, id, clients)
		status := approvalWord(checkFirstHolds(t, db, id, answers).GetStatus())
		j.Ticket = 2
		if run := here.Advance(t, j); run.Status != loop.RunCompleted {
			t.Errorf("the run is %s", run.Status)
		}
		want := int32(0)
		if status == "approved" {
			want = 1
		}
		if n := ran.Load(); n != want {
			t.Errorf("%s, and the tool ran %d times", status, n)
		}
	}
}

// checkFirstHolds: one answer was taken. Whoever gave the same as the same
// caller is told that it is, everybody else what it is, from whom and since
// when. It returns what the first are shown.
func checkFirstHolds(t *testing.T, db *storetest.DB, id string, answers []decideAnswer) (winner *agentdv1.Approval) {
	t.Helper()
	var (
		status, by, byID, said string
		at                     time.Time
	)
	err := db.Pool.QueryRow(t.Context(), `
		SELECT status, decided_by_kind, decided_by_id, decision_reason, decided_at FROM agentd.approvals WHERE id = $1`, id).
		Scan(&status, &by, &byID, &said, &at)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range answers {
		if won := a.word == status && a.caller == by; !won {
			d := wantRefused(t, a.err, connect.CodeAborted, "already_decided").GetDecided()
			if d.GetDecision() != status || d.GetBy().GetKind() != by || d.GetBy().GetId() != byID || !d.GetAt().AsTime().Equal(at) {
				t.Errorf("told of %v, want %s by %s %s at %s", d, status, by, byID, at)
			}
			continue
		}
		if a.err != nil {
			t.Fatalf("the same answer again: %v", a.err)
		}
		if winner == nil {
			winner = a.approval
		}
		if !proto.Equal(winner, a.approval) {
			t.Errorf("answered %v and %v", winner, a.approval)
		}
	}
	if winner.GetDecisionReason() != said || approvalWord(winner.GetStatus()) != status || winner.GetDecidedBy().GetKind() != by {
		t.Errorf("shown %v, want %s by %s, who said %q", winner, status, by, said)
	}
	n := scalar[int](t, db, `SELECT count(*) FROM agentd.events WHERE type = 'approval.decided' AND payload ->> 'approval_id' = $1`, id)
	if n != 1 {
		t.Errorf("%d decisions", n)
	}
	return winner
}

// decideAnswer is what one of many is told.
type decideAnswer struct {
	caller, word string
	said         string // why; everybody has a reason of their own
	approval     *agentdv1.Approval
	err          error
}

func decideTogether(t *testing.T, n int, id string, clients []*client.Client) []decideAnswer {
	t.Helper()
	answers := make([]decideAnswer, n)
	begin := make(chan struct{})
	var all sync.WaitGroup
	for i := range answers {
		a := &answers[i]
		a.caller, a.word, a.said = []string{"principal", "key"}[i%2], "approved", fmt.Sprint("reason ", i)
		decision := agentdv1.ApprovalDecision_APPROVAL_DECISION_APPROVE
		if i/2%2 == 1 {
			a.word, decision = "denied", agentdv1.ApprovalDecision_APPROVAL_DECISION_DENY
		}
		all.Go(func() {
			<-begin
			a.approval, a.err = clients[i%2].DecideApproval(t.Context(), &agentdv1.DecideApprovalRequest{ApprovalId: id, Decision: decision, Reason: a.said})
		})
	}
	close(begin)
	all.Wait()
	return answers
}
