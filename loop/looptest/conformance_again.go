package looptest

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"sync"
	"testing"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
)

// The part of the conformance suite that is about answering again: messages
// that are replaced, and failed runs that are taken up again.

// says lists who said what in a conversation.
func says(messages []hooks.Message) []string {
	out := []string{}
	for _, m := range messages {
		line := string(m.Role) + ": " + m.Text()
		for _, p := range m.Parts {
			if p.ToolCall != nil {
				line += " " + p.ToolCall.Name
			}
			if p.ToolResult != nil {
				line += p.ToolResult.Content
			}
		}
		if m.Partial {
			line += " (partial)"
		}
		out = append(out, line)
	}
	return out
}

// conversation loads what the run of j is about, after comparing it with the
// log.
func conversation(t *testing.T, b *Bench, j loop.Job) []hooks.Message {
	t.Helper()
	events := b.Events(t, j.SessionID)
	if err := CheckLog(events); err != nil {
		t.Errorf("log: %v\n%v", err, Types(events))
	}
	got, err := b.Log.Load(t.Context(), Tenant, j.SessionID, j.RunID)
	if err != nil {
		t.Fatal(err)
	}
	want := loop.FoldAll(loop.State{}, events)
	r, _ := want.Run(j.RunID)
	same(t, got, loaded(want, r))
	return got.Messages
}

func replace(t *testing.T, b *Bench, sessionID, from, text string) loop.Job {
	t.Helper()
	run, err := b.Commands.StartRun(t.Context(), loop.StartRun{TenantID: Tenant, SessionID: sessionID, ReplaceFrom: from, Text: text, Actor: Tester})
	if err != nil {
		t.Fatalf("replace: %v", err)
	}
	return loop.Job{TenantID: Tenant, SessionID: sessionID, RunID: run.RunID, Ticket: 1}
}

func testReplace(t *testing.T, log loop.Log) {
	b := on(log)
	id := b.Session(t)
	b.Advance(t, b.Start(t, id, "one"))
	second := b.Start(t, id, "two")
	b.Advance(t, second)
	before := conversation(t, b, second)
	answer := []string{"assistant: let me look look look", "tool: seen", "tool: seen", "assistant: done"}
	expect := func(j loop.Job, first, second string) []hooks.Message {
		t.Helper()
		got := conversation(t, b, j)
		want := append(append([]string{"user: " + first}, answer...), "user: "+second)
		if r := b.Run(t, j); r.Status.Terminal() {
			want = append(want, answer...)
		}
		if !slices.Equal(says(got), want) {
			t.Errorf("conversation %q; want %q", says(got), want)
		}
		return got
	}
	expect(second, "one", "two")
	tail, err := log.Tail(t.Context(), Tenant, id, before[7].ID)
	if want := (loop.Tail{Role: hooks.RoleTool, Text: "two", Agent: "demo", MessageIDs: ids(before[5:])}); err != nil || !reflect.DeepEqual(tail, want) {
		t.Errorf("tail %+v, %v; want %+v", tail, err, want)
	}

	// A tool's result, an answer and the message itself give the same again.
	from := before[7].ID
	for _, at := range []int{9, 6, 5} {
		j := replace(t, b, id, from, "")
		expect(j, "one", "two")
		b.Advance(t, j)
		from = expect(j, "one", "two")[at].ID
	}
	j := replace(t, b, id, from, "three")
	b.Advance(t, j)
	now := expect(j, "one", "three")
	for _, gone := range []string{before[5].ID, before[9].ID, NewID(), "nope", ""} {
		if _, err := log.Tail(t.Context(), Tenant, id, gone); !errors.Is(err, loop.ErrNotFound) {
			t.Errorf("tail from %q: %v; want ErrNotFound", gone, err)
		}
	}
	for _, where := range [][2]string{{"other", id}, {Tenant, b.Session(t)}, {Tenant, "nope"}} {
		if _, err := log.Tail(t.Context(), where[0], where[1], now[5].ID); !errors.Is(err, loop.ErrNotFound) {
			t.Errorf("tail in %v: %v; want ErrNotFound", where, err)
		}
	}
	// The earlier runs still have their logs, in a conversation without them.
	if r := b.Run(t, second); r.Status != loop.RunCompleted || len(r.Turns) != 2 {
		t.Errorf("the replaced run %+v", r)
	}
	j = replace(t, b, id, now[0].ID, "zero")
	b.Advance(t, j)
	if got, want := says(conversation(t, b, j)), append([]string{"user: zero"}, answer...); !slices.Equal(got, want) {
		t.Errorf("after replacing all: %q; want %q", got, want)
	}
}

func ids(messages []hooks.Message) []string {
	out := []string{}
	for _, m := range messages {
		out = append(out, m.ID)
	}
	return out
}

// breaks is a model that breaks off its nth answers in the middle, and a bench
// that makes a run with a tool call fail in its second turn.
func breaks(log loop.Log, times int) *Bench {
	var mu sync.Mutex
	b := on(log)
	whole := Answers(
		Answer(ToolCall("c1", "look", `{}`), Finish(stream.FinishToolCalls)),
		Answer(Text("done"), Finish(stream.FinishStop)),
	)
	agent := b.Engine.Agents["demo"]
	agent.Model = Model(func(ctx context.Context, req loop.ModelRequest, yield func(stream.Chunk, error) bool) {
		mu.Lock()
		broken := req.Turn > 1 && times > 0
		if broken {
			times--
		}
		mu.Unlock()
		if !broken {
			whole(ctx, req, yield)
		} else if yield(Text("do"), nil) {
			yield(stream.Chunk{}, &loop.ModelError{Message: "it broke"})
		}
	})
	b.Engine.Agents["demo"] = agent
	return b
}

func retryRun(t *testing.T, b *Bench, j loop.Job) (loop.RetriedRun, error) {
	t.Helper()
	return b.Commands.RetryRun(t.Context(), loop.RetryRun{TenantID: Tenant, SessionID: j.SessionID, RunID: j.RunID, Actor: Tester})
}

func testRetry(t *testing.T, log loop.Log) {
	b := breaks(log, 2)
	j := b.Start(t, b.Session(t), "hi")
	if r := b.Advance(t, j); r.Status != loop.RunFailed || r.Reason != string(event.FailModel) {
		t.Fatalf("run %+v; want it failed", r)
	}
	partial := []string{"user: hi", "assistant:  look", "tool: seen", "assistant: do (partial)"}
	if got := says(conversation(t, b, j)); !slices.Equal(got, partial) {
		t.Errorf("conversation %q; want %q", got, partial)
	}
	for n := 1; n <= 2; n++ {
		failed := b.Run(t, j)
		got, err := retryRun(t, b, j)
		if want := (loop.RetriedRun{Seq: failed.EndedSeq}); err != nil || got != want || got.Seq == 0 {
			t.Fatalf("retry: %+v, %v; want %+v", got, err, want)
		}
		again, err := retryRun(t, b, j)
		if want := (loop.RetriedRun{Seq: failed.EndedSeq, Repeated: true}); err != nil || again != want {
			t.Errorf("retry again: %+v, %v; want %+v", again, err, want)
		}
		if got := says(conversation(t, b, j)); !slices.Equal(got, partial[:3]) {
			t.Errorf("conversation %q; want %q", got, partial[:3])
		}
		h, err := log.Head(t.Context(), Tenant, j.SessionID)
		if err != nil || h.ActiveRunID != j.RunID || h.LastRunID != j.RunID {
			t.Errorf("head %+v, %v", h, err)
		}
		j.Ticket = failed.Ticket + 1
		b.Advance(t, j)
		if r := b.Run(t, j); r.Retries != n || len(r.Turns) != 2+n || r.Takeovers != 0 {
			t.Errorf("after retry %d: %+v", n, r)
		}
	}
	whole := append(slices.Clone(partial[:3]), "assistant: done")
	if got := says(conversation(t, b, j)); !slices.Equal(got, whole) {
		t.Errorf("conversation %q; want %q", got, whole)
	}
	if r := b.Run(t, j); r.Status != loop.RunCompleted || r.Error != "" {
		t.Errorf("run %+v; want it completed", r)
	}
	if _, err := retryRun(t, b, j); !errors.Is(err, loop.ErrNotRetryable) {
		t.Errorf("retry of a completed run: %v; want ErrNotRetryable", err)
	}
}

func testRetryRaces(t *testing.T, log loop.Log) {
	b := breaks(log, 1)
	id := b.Session(t)
	j := b.Start(t, id, "hi")
	b.Advance(t, j)
	const callers = 8
	var wg sync.WaitGroup
	retried, started := make([]error, callers), make([]error, callers)
	fresh := make([]bool, callers)
	for i := range callers {
		wg.Go(func() {
			got, err := retryRun(t, b, j)
			retried[i], fresh[i] = err, err == nil && !got.Repeated
		})
		wg.Go(func() {
			_, started[i] = b.Commands.StartRun(t.Context(), loop.StartRun{TenantID: Tenant, SessionID: id, Text: "new", Actor: Tester})
		})
	}
	wg.Wait()
	queued, runs := 0, 0
	for i := range callers {
		if fresh[i] {
			queued++
		}
		if started[i] == nil {
			runs++
		}
		for _, err := range []error{retried[i], started[i]} {
			if err != nil && !errors.Is(err, loop.ErrBusy) {
				t.Errorf("%v; want ErrBusy", err)
			}
		}
	}
	if queued+runs != 1 {
		t.Errorf("%d retries and %d new runs; want one of them all", queued, runs)
	}
	conversation(t, b, j)
}
