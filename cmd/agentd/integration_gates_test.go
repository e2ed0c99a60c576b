package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"connectrpc.com/connect"

	agentdv1 "github.com/seed-2ca4966b/agentd/api/gen/agentd/v1"
	"github.com/seed-2ca4966b/agentd/api/gen/agentd/v1/agentdv1connect"
	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/guard"
	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
	"github.com/seed-2ca4966b/agentd/store/storetest"
)

func denyTools(t *testing.T, globs ...string) hooks.BeforeToolCallFunc {
	t.Helper()
	h, err := guard.DenyTools(guard.DenyToolsConfig{Tools: globs})
	if err != nil {
		t.Fatal(err)
	}
	return h.BeforeToolCall
}

func maxInputBytes(t *testing.T, n int) hooks.BeforeInputFunc {
	t.Helper()
	h, err := guard.MaxInputBytes(guard.MaxInputBytesConfig{Bytes: n})
	if err != nil {
		t.Fatal(err)
	}
	return h.BeforeInput
}

// checked gives a stack hooks.
func (s *stack) checked(t *testing.T, h hooks.Hooks) {
	t.Helper()
	set := h.Set()
	if err := s.store.PutHookSet(t.Context(), set); err != nil {
		t.Fatal(err)
	}
	asker := &hooks.Asker{HookSet: set.Digest}
	s.Commands.Hooks, s.Commands.Asker, s.Engine.Hooks, s.Engine.Asker = h, asker, h, asker
}

func TestChatShowsWhatAHookAnswersInPlaceOfARun(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	s := newStack(t, db)
	s.checked(t, hooks.Hooks{BeforeInput: hooks.Named("helper", "1", func(context.Context, hooks.BeforeInput) (hooks.BeforeInputResult, error) {
		return hooks.BeforeInputResult{Action: hooks.ActionHandled, Reply: "Ask me anything."}, nil
	})})
	c := chat(t, s.url, strings.NewReader("help\nhelp\n"))
	if code := c.wait(t); code != 0 || c.out.String() != "Ask me anything.\nAsk me anything.\n" {
		t.Errorf("exit code %d, printed %q, said %q", code, c.out.String(), c.err.String())
	}
	p := sitDown(t, s.url, 80, 20)
	p.types(t, "help\r")
	p.awaitText(t, "> help\nAsk me anything.\n>")
	if n := scalar[int](t, db, `SELECT count(*) FROM agentd.runs`); n != 0 {
		t.Errorf("%d runs", n)
	}
}

func TestChatSaysWhichHookWantsAnAnswer(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	s := newStack(t, db, playing(
		looptest.Answers(looptest.Answer(looptest.ToolCall("a", "send", `{}`), looptest.Finish(stream.FinishToolCalls)), looptest.Answer(looptest.Text("Well."), looptest.Finish(stream.FinishStop))),
		looptest.Says("send", "sent")))
	s.checked(t, hooks.Hooks{BeforeToolCall: hooks.Named("doubter", "1", func(context.Context, hooks.BeforeToolCall) (hooks.BeforeToolCallResult, error) {
		return hooks.BeforeToolCallResult{Action: hooks.ActionAsk, Reason: hooks.Reason{Code: "doubt", Text: "Are you sure?"}}, nil
	})})
	p := sitDown(t, s.url, 100, 20)
	p.types(t, "go\r")
	j := loop.Job{
		TenantID: looptest.Tenant, SessionID: awaitRow(t, db, `SELECT id::text FROM agentd.sessions`),
		RunID: awaitRow(t, db, `SELECT id::text FROM agentd.runs`), Ticket: 1,
	}
	s.advance(t, j).wait(t)
	p.awaitQuestion(t, 1)
	p.awaitText(t, "  {}\n  (a hook at BeforeToolCall wants you to decide: Are you sure?)\n  y or n?")
	p.types(t, "yes\r")
	awaitRow(t, db, `SELECT 'x' FROM agentd.runs WHERE ticket = 2`)
	j.Ticket = 2
	s.advance(t, j).wait(t)
	p.awaitText(t, "· send {} → sent\nWell.\n>")
}

// TestCallsThatWaitAndCallsThatDoNot: of four calls of one answer two need a
// yes. They are answered in either order, with a new process in between.
func TestCallsThatWaitAndCallsThatDoNot(t *testing.T) {
	t.Parallel()
	for _, first := range []int{0, 1} {
		t.Run(fmt.Sprint("answer ", first, " first"), func(t *testing.T) {
			t.Parallel()
			db := storetest.New(t)
			var (
				mu  sync.Mutex
				ran []string
			)
			tool := func(name string) loop.Tool {
				return looptest.Tool{Name: name, Run: func(_ context.Context, in loop.ToolInput) (loop.ToolOutput, error) {
					mu.Lock()
					defer mu.Unlock()
					ran = append(ran, string(in.Arguments))
					return loop.ToolOutput{Content: "did " + string(in.Arguments)}, nil
				}}
			}
			option := playing(looptest.Answers(
				looptest.Answer(
					looptest.ToolCall("a", "ask", `{"n":1}`), looptest.ToolCall("b", "free", `{"n":2}`),
					looptest.ToolCall("c", "ask", `{"n":3}`), looptest.ToolCall("d", "free", `{"n":4}`), looptest.Finish(stream.FinishToolCalls)),
				looptest.Answer(looptest.Text("Done."), looptest.Finish(stream.FinishStop))), tool("ask"), tool("free"))
			s := newStack(t, db, option)
			s.askingFor("ask")
			j := s.Start(t, s.Session(t), "go")
			s.Advance(t, j)
			s.wantOpen(t, j, `{"n":1}`, `{"n":3}`)

			arguments := []string{`{"n":1}`, `{"n":3}`}
			s.answer(t, j, arguments[first], first == 0) // the first call is approved, the third denied
			s.wantOpen(t, j, arguments[1-first])
			if status := s.Run(t, j).Status; status != loop.RunWaiting {
				t.Errorf("after the first answer the run is %s", status)
			}
			s = s.again(t, option)
			s.askingFor("ask")
			s.wantOpen(t, j, arguments[1-first])
			s.answer(t, j, arguments[1-first], first == 1)
			s.wantOpen(t, j)
			j.Ticket = 2
			if run := s.Advance(t, j); run.Status != loop.RunCompleted || len(run.Turns) != 2 {
				t.Fatalf("the run is %s after %d turns", run.Status, len(run.Turns))
			}
			slices.Sort(ran)
			if want := []string{`{"n":1}`, `{"n":2}`, `{"n":4}`}; !slices.Equal(ran, want) {
				t.Errorf("ran %q, want %q", ran, want)
			}
			sent := scalar[string](t, db, `
				SELECT string_agg(m.parts -> 0 -> 'tool_result' ->> 'content', '|' ORDER BY n)
				FROM agentd.events e, json_array_elements_text(e.payload -> 'message_ids') WITH ORDINALITY AS i (id, n)
				JOIN agentd.messages m ON m.id::text = i.id AND m.role = 'tool'
				WHERE e.run_id = $1 AND e.type = 'model.requested' AND e.turn_no = 2`, j.RunID)
			if want := `did {"n":1}|did {"n":2}|This call was denied by a person. It was not run.|did {"n":4}`; sent != want {
				t.Errorf("the model was sent %s, want %s", sent, want)
			}
		})
	}
}

// openApprovals are the approvals that a reloaded page shows, the oldest first.
func (s *stack) openApprovals(t *testing.T, j loop.Job) []*agentdv1.Approval {
	t.Helper()
	res, err := agentdv1connect.NewApprovalServiceClient(s.client, s.url).
		ListApprovals(t.Context(), connect.NewRequest(&agentdv1.ListApprovalsRequest{RunId: j.RunID, PendingOnly: true}))
	if err != nil {
		t.Fatal(err)
	}
	list := res.Msg.GetApprovals()
	slices.Reverse(list)
	return list
}

func (s *stack) wantOpen(t *testing.T, j loop.Job, want ...string) {
	t.Helper()
	var got []string
	for _, a := range s.openApprovals(t, j) {
		got = append(got, a.GetArguments())
	}
	if !slices.Equal(got, want) {
		t.Errorf("open %q, want %q", got, want)
	}
}

func (s *stack) answer(t *testing.T, j loop.Job, arguments string, approve bool) {
	t.Helper()
	decision := agentdv1.ApprovalDecision_APPROVAL_DECISION_DENY
	if approve {
		decision = agentdv1.ApprovalDecision_APPROVAL_DECISION_APPROVE
	}
	for _, a := range s.openApprovals(t, j) {
		if a.GetArguments() != arguments {
			continue
		}
		_, err := agentdv1connect.NewApprovalServiceClient(s.client, s.url).DecideApproval(t.Context(), connect.NewRequest(
			&agentdv1.DecideApprovalRequest{ApprovalId: a.GetId(), Decision: decision, ArgumentsSha256: a.GetArgumentsSha256()}))
		if err != nil {
			t.Fatal(err)
		}
	}
}
