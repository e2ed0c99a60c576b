package loop_test

import (
	"context"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
)

// afterTime is a tool that answers with content after d.
func afterTime(name string, d time.Duration, content string) looptest.Tool {
	return looptest.Tool{Name: name, Run: func(ctx context.Context, _ loop.ToolInput) (loop.ToolOutput, error) {
		pause(ctx, d)
		return loop.ToolOutput{Content: content}, ctx.Err()
	}}
}

func TestRunWithTextReasoningAndParallelTools(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		model := looptest.Answers(
			looptest.Answer(
				looptest.Reasoning("h"), looptest.Text("let me "), looptest.Reasoning("m"), looptest.Text("look"),
				looptest.ToolCall("x", "slow", `{"q": 1}`), looptest.ToolCall("y", "fast", `{}`), looptest.Finish(stream.FinishToolCalls),
			),
			looptest.Answer(looptest.Text("done"), looptest.Finish(stream.FinishStop)),
		)
		b := looptest.NewBench(looptest.NewLog(), strict(t, paced(model)),
			afterTime("slow", 2*time.Second, "first"), afterTime("fast", time.Second, "second"))
		id := b.Session(t)
		run := b.Advance(t, b.Start(t, id, "hi"))
		if run.Status != loop.RunCompleted || run.Reason != "stop" || run.WorkerID != "" || run.EndedAt.IsZero() {
			t.Errorf("run %+v; want it completed", run)
		}
		events, s := checked(t, b, id)
		want := []event.Type{
			event.TypeSessionCreated,
			event.TypeMessageCreated, event.TypeRunCreated, event.TypeRunQueued,
			event.TypeRunStarted, event.TypeTurnStarted, event.TypeModelRequested,
			event.TypeAssistantDelta, event.TypeAssistantDelta, event.TypeAssistantDelta, event.TypeAssistantDelta,
			event.TypeAssistantCompleted, event.TypeToolProposed, event.TypeToolProposed, event.TypeToolStarted, event.TypeToolStarted,
			event.TypeToolExecuted, event.TypeToolResult, event.TypeToolExecuted, event.TypeToolResult,
			event.TypeTurnCompleted, event.TypeTurnStarted, event.TypeModelRequested,
			event.TypeAssistantDelta, event.TypeAssistantCompleted, event.TypeTurnCompleted, event.TypeRunCompleted,
		}
		if got := looptest.Types(events); !reflect.DeepEqual(got, want) {
			t.Fatalf("events\n got %v\nwant %v", got, want)
		}
		checkTalk(t, s, events)
	})
}

// checkTalk checks the history that the run of the test above leaves.
func checkTalk(t *testing.T, s loop.State, events []event.Event) {
	t.Helper()
	if len(s.Messages) != 5 {
		t.Fatalf("%d messages: %+v", len(s.Messages), s.Messages)
	}
	answer := s.Messages[1].Parts
	calls := payloads[event.ToolProposed](t, events)
	want := []hooks.Part{
		{Type: hooks.PartReasoning, Text: "hm"}, {Type: hooks.PartText, Text: "let me look"},
		{Type: hooks.PartToolCall, ToolCall: &hooks.ToolCall{ID: calls[0].CallID, ProviderID: "x", Name: "slow", Arguments: `{"q": 1}`}},
		{Type: hooks.PartToolCall, ToolCall: &hooks.ToolCall{ID: calls[1].CallID, ProviderID: "y", Name: "fast", Arguments: `{}`}},
	}
	if !reflect.DeepEqual(answer, want) {
		t.Errorf("answer %+v; want %+v", answer, want)
	}
	if calls[0].Number != 1 || calls[1].Number != 2 || calls[0].CallID == calls[1].CallID {
		t.Errorf("calls %+v", calls)
	}
	if got := results(s); got[0].Content != "first" || got[1].Content != "second" || got[0].CallID != calls[0].CallID || got[0].IsError || got[0].Reason != "" {
		t.Errorf("results %+v; want them in call order", got)
	}
	if done := payloads[event.ToolExecuted](t, events); done[0].CallID != calls[1].CallID || !done[0].Success || done[0].Bytes != 6 || len(done[0].SHA256) != 64 {
		t.Errorf("executed %+v; want the fast one first, with size and digest", done)
	}
	whole := payloads[event.AssistantCompleted](t, events)
	if whole[0].FirstSeq != 8 || whole[0].Usage != (stream.Usage{InputTokens: 3, OutputTokens: 5}) || whole[0].Finish != stream.FinishToolCalls || whole[0].Sanitized {
		t.Errorf("answer %+v; want its first delta at seq 8", whole[0])
	}
	if got := s.Messages[4].Text(); got != "done" {
		t.Errorf("last answer %q", got)
	}
	asked := payloads[event.ModelRequested](t, events)
	var ids []string
	for _, m := range s.Messages[:4] {
		ids = append(ids, m.ID)
	}
	if !reflect.DeepEqual(asked[0].MessageIDs, ids[:1]) || !reflect.DeepEqual(asked[1].MessageIDs, ids) || asked[0].Model != "test-model" {
		t.Errorf("asked %+v; want the messages %v", asked, ids)
	}
	if !reflect.DeepEqual(asked[0].Tools, []string{"slow", "fast"}) {
		t.Errorf("tools %v", asked[0].Tools)
	}
}

func TestModelSeesTheWholeConversation(t *testing.T) {
	t.Parallel()
	var asked []loop.ModelRequest
	model := func(ctx context.Context, req loop.ModelRequest, yield func(stream.Chunk, error) bool) {
		asked = append(asked, req)
		calls("look")(ctx, req, yield)
	}
	b := looptest.NewBench(looptest.NewLog(), strict(t, model), looptest.Says("look", "seen"))
	agent := b.Engine.Agents["demo"]
	agent.System = "be brief"
	b.Engine.Agents["demo"] = agent
	id := b.Session(t)
	b.Advance(t, b.Start(t, id, "one"))
	second := b.Start(t, id, "two")
	b.Advance(t, second)
	checked(t, b, id)
	last := asked[len(asked)-1]
	var got []string
	for _, m := range last.Messages {
		got = append(got, string(m.Role)+" "+m.Text())
	}
	want := []string{"user one", "assistant ", "tool ", "assistant done", "user two", "assistant ", "tool "}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("history %q; want %q", got, want)
	}
	if last.System != "be brief" || last.Model != "test-model" || last.SessionID != id || last.RunID != second.RunID || last.Turn != 2 || last.Attempt != 1 {
		t.Errorf("request %+v", last)
	}
	if len(last.Tools) != 1 || last.Tools[0].Name != "look" {
		t.Errorf("tools %+v", last.Tools)
	}
}

func TestMessagesThatSayNothingAreNotSent(t *testing.T) {
	t.Parallel()
	model := looptest.Model(func(_ context.Context, req loop.ModelRequest, yield func(stream.Chunk, error) bool) {
		for _, m := range req.Messages {
			if m.Role == hooks.RoleAssistant {
				t.Errorf("the model was sent an answer that says nothing: %+v", m)
			}
		}
		_ = yield(looptest.Reasoning("hm"), nil) && yield(looptest.Text("  \n"), nil) && yield(looptest.Finish(stream.FinishStop), nil)
	})
	b := looptest.NewBench(looptest.NewLog(), model)
	id := b.Session(t)
	b.Advance(t, b.Start(t, id, "one"))
	if run := b.Advance(t, b.Start(t, id, "two")); run.Status != loop.RunCompleted {
		t.Errorf("run %+v", run)
	}
}

func TestAnswerWithoutAnythingCompletes(t *testing.T) {
	t.Parallel()
	b := looptest.NewBench(looptest.NewLog(), looptest.Answers(looptest.Answer(looptest.Finish(stream.FinishLength))))
	id := b.Session(t)
	if run := b.Advance(t, b.Start(t, id, "hi")); run.Status != loop.RunCompleted || run.Reason != "length" {
		t.Errorf("run %+v; want it completed by length", run)
	}
	events, s := checked(t, b, id)
	if whole := only[event.AssistantCompleted](t, events); len(s.Messages) != 2 || whole.FirstSeq != 0 {
		t.Errorf("messages %+v, answer %+v", s.Messages, whole)
	}
}

func TestUnknownAgentFailsTheRun(t *testing.T) {
	t.Parallel()
	b := looptest.NewBench(looptest.NewLog(), says("hi"))
	b.Commands.Agents = []string{"gone"}
	id := b.Session(t)
	run := b.Advance(t, b.Start(t, id, "hi"))
	if run.Status != loop.RunFailed || run.Reason != string(event.FailUnknownAgent) || run.Error == "" {
		t.Errorf("run %+v; want it failed as unknown_agent", run)
	}
	checked(t, b, id)
}

func TestAnotherWorkersAgentIsGoneInTheMiddle(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := looptest.NewBench(looptest.NewLog(), strict(t, calls("look")), afterTime("look", time.Hour, "seen"))
		id := b.Session(t)
		j := b.Start(t, id, "hi")
		j = handedOver(t, b, j, time.Second)
		delete(b.Engine.Agents, "demo")
		run := b.Advance(t, j)
		if run.Status != loop.RunFailed || run.Reason != string(event.FailUnknownAgent) {
			t.Errorf("run %+v; want it failed as unknown_agent", run)
		}
		_, s := checked(t, b, id)
		if got := results(s); len(got) != 1 || got[0].Reason != hooks.ReasonOutcomeUnknown {
			t.Errorf("results %+v; want the open call's outcome unknown", got)
		}
	})
}
