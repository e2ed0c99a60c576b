package main

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/seed-2ca4966b/agentd/api/client"
	agentdv1 "github.com/seed-2ca4966b/agentd/api/gen/agentd/v1"
	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
	"github.com/seed-2ca4966b/agentd/store/storetest"
)

// TestOfAnAnswerAndACancelAtOnceOneIsFirst: a yes, an edit or a no and a cancel
// at the same moment, with a worker that takes up whatever comes. Either the call
// was let run, and then the cancel came, or the cancel closed its approval; no
// approval is open under a run that has ended, and the next message works.
func TestOfAnAnswerAndACancelAtOnceOneIsFirst(t *testing.T) {
	t.Parallel()
	rounds := 12
	if fullSize() {
		rounds = 200
	}
	db := storetest.New(t)
	var ran atomic.Int32
	tool := looptest.Tool{Name: "send", Run: func(context.Context, loop.ToolInput) (loop.ToolOutput, error) {
		ran.Add(1)
		return loop.ToolOutput{Content: "sent"}, nil
	}}
	answers := looptest.Answers(
		looptest.Answer(looptest.ToolCall("a", "send", `{"to": "Ada"}`), looptest.Finish(stream.FinishToolCalls)),
		looptest.Answer(looptest.Text("Sent."), looptest.Finish(stream.FinishStop)))
	var next atomic.Bool // the message behind the race
	model := looptest.Model(func(ctx context.Context, req loop.ModelRequest, yield func(stream.Chunk, error) bool) {
		if err := looptest.CheckRequest(req); err != nil {
			t.Errorf("a request that no provider takes: %v", err)
		}
		if next.Load() {
			hello(ctx, req, yield)
			return
		}
		answers(ctx, req, yield)
	})
	s := newStack(t, db, playing(model, tool))
	s.askingFor("send")
	c := s.dial(t)
	seen := map[string]int{}
	for i := range rounds {
		ran.Store(0)
		next.Store(false)
		j := s.Start(t, s.Session(t), "go")
		s.Advance(t, j)
		s.raceCancel(t, c, j, i%3)
		var status, decision string
		var started int
		err := db.Pool.QueryRow(t.Context(), `
			SELECT r.status, a.status, (SELECT count(*) FROM agentd.events WHERE run_id = r.id AND type = 'tool.started')
			FROM agentd.runs r JOIN agentd.approvals a ON a.run_id = r.id WHERE r.id = $1`, j.RunID).Scan(&status, &decision, &started)
		if err != nil {
			t.Fatal(err)
		}
		seen[status+" "+decision]++
		let := decision == "approved" || decision == "edited"
		switch n := int(ran.Load()); {
		case n != started || n > 1 || n == 1 && !let:
			t.Errorf("%s, and the tool was started %d times and ran %d times", decision, started, n)
		case status == "completed" && let && n != 1:
			t.Errorf("completed, %s, and it never ran", decision)
		case status != "completed" && status != "cancelled" || decision == "pending":
			t.Errorf("the run is %s, its approval %s", status, decision)
		}
		next.Store(true)
		if run := s.Advance(t, s.Start(t, j.SessionID, "and now?")); run.Status != loop.RunCompleted {
			t.Errorf("after %s, %s: the next run is %+v", status, decision, run)
		}
	}
	if n := scalar[int](t, db, `
		SELECT count(*) FROM agentd.approvals a JOIN agentd.runs r ON r.id = a.run_id
		WHERE a.status = 'pending' AND r.status IN ('completed', 'failed', 'cancelled')`); n != 0 {
		t.Errorf("%d approvals are open under runs that have ended", n)
	}
	t.Logf("ended as %v", seen)
}

// raceCancel answers the run's approval in one of three ways and cancels the run,
// and has the run taken to its end.
func (s *stack) raceCancel(t *testing.T, c *client.Client, j loop.Job, way int) {
	t.Helper()
	a := s.openApprovals(t, j)[0]
	answer := &agentdv1.DecideApprovalRequest{ApprovalId: a.GetId(), Decision: agentdv1.ApprovalDecision_APPROVAL_DECISION_APPROVE}
	switch way {
	case 1:
		answer.Decision, answer.Arguments = agentdv1.ApprovalDecision_APPROVAL_DECISION_EDIT, `{"to": "Bob"}`
	case 2:
		answer.Decision = agentdv1.ApprovalDecision_APPROVAL_DECISION_DENY
	}
	work := func() {
		j.Ticket = s.Run(t, j).Ticket
		if err := s.Engine.Advance(t.Context(), j, loop.Holder{WorkerID: looptest.NewID()}); err != nil && !errors.Is(err, loop.ErrLeaseLost) {
			t.Errorf("advance: %v", err)
		}
	}
	begin := make(chan struct{})
	var all sync.WaitGroup
	all.Go(func() {
		<-begin
		switch _, err := c.DecideApproval(t.Context(), answer); {
		case err == nil:
			work()
		case client.ReasonOf(err) != "already_decided":
			t.Errorf("answer: %v", err)
		}
	})
	all.Go(func() {
		<-begin
		if err := c.CancelRun(t.Context(), j.RunID, "enough"); err != nil && client.ReasonOf(err) != "run_ended" {
			t.Errorf("cancel: %v", err)
		}
	})
	close(begin)
	all.Wait()
}
