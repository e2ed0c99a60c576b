package looptest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
)

// The part of the conformance suite that is about messages that come while a
// run is active.

// Say starts a run with a policy for a busy session, and returns its first job.
func (b *Bench) Say(t testing.TB, sessionID, text string, policy event.Policy) loop.Job {
	t.Helper()
	run, err := b.Commands.StartRun(t.Context(), loop.StartRun{
		TenantID: Tenant, SessionID: sessionID, Text: text, Policy: policy, IdempotencyKey: text, Actor: Tester,
	})
	if err != nil {
		t.Fatalf("start run: %v", err)
	}
	return loop.Job{TenantID: Tenant, SessionID: sessionID, RunID: run.RunID, Ticket: 1}
}

// stands checks which run is active, and how the others stand.
func stands(t *testing.T, b *Bench, active, last loop.Job, status ...loop.RunStatus) {
	t.Helper()
	h, err := b.Log.Head(t.Context(), Tenant, last.SessionID)
	if err != nil || h.ActiveRunID != active.RunID || h.LastRunID != last.RunID {
		t.Errorf("active %q, last %q, %v; want %q and %q", h.ActiveRunID, h.LastRunID, err, active.RunID, last.RunID)
	}
	var got []loop.RunStatus
	for _, r := range loop.FoldAll(loop.State{}, b.Events(t, last.SessionID)).Runs {
		got = append(got, b.Run(t, loop.Job{SessionID: last.SessionID, RunID: r.ID}).Status)
	}
	if !slices.Equal(got, status) {
		t.Errorf("the runs are %v; want %v", got, status)
	}
}

// answered is what b's agent makes of messages, in order.
func answered(texts ...string) []string {
	var out []string
	for _, text := range texts {
		out = append(out, "user: "+text, "assistant: let me look look look", "tool: seen", "tool: seen", "assistant: done")
	}
	return out
}

func wantSaid(t *testing.T, b *Bench, j loop.Job, want []string) {
	t.Helper()
	if got := says(conversation(t, b, j)); !slices.Equal(got, want) {
		t.Errorf("the conversation of run %s is %q; want %q", j.RunID, got, want)
	}
}

func testEnqueue(t *testing.T, log loop.Log) {
	b := on(log)
	id := b.Session(t)
	first := b.Start(t, id, "one")
	second := b.Say(t, id, "two", event.PolicyEnqueue)
	third := b.Say(t, id, "three", event.PolicyEnqueue)
	stands(t, b, first, first, loop.RunQueued, loop.RunEnqueued, loop.RunEnqueued)
	for _, j := range []loop.Job{first, second, third} {
		wantSaid(t, b, j, []string{"user: one"})
	}
	message := b.Run(t, second).MessageID
	if _, err := log.Tail(t.Context(), Tenant, id, message); !errors.Is(err, loop.ErrNotFound) {
		t.Errorf("tail from an enqueued message: %v; want ErrNotFound", err)
	}
	// Nobody can claim what has not begun.
	b.Advance(t, second)
	b.Advance(t, third)
	stands(t, b, first, first, loop.RunQueued, loop.RunEnqueued, loop.RunEnqueued)

	b.Advance(t, first)
	stands(t, b, second, second, loop.RunCompleted, loop.RunQueued, loop.RunEnqueued)
	for _, j := range []loop.Job{first, second, third} {
		wantSaid(t, b, j, append(answered("one"), "user: two"))
	}
	b.Advance(t, second)
	stands(t, b, third, third, loop.RunCompleted, loop.RunCompleted, loop.RunQueued)
	if tail, err := log.Tail(t.Context(), Tenant, id, message); err != nil || tail.Text != "two" || len(tail.MessageIDs) != 6 {
		t.Errorf("tail from a message that was enqueued: %+v, %v", tail, err)
	}
	b.Advance(t, third)
	stands(t, b, loop.Job{}, third, loop.RunCompleted, loop.RunCompleted, loop.RunCompleted)
	wantSaid(t, b, first, answered("one", "two", "three"))
}

func testWithdraw(t *testing.T, log loop.Log) {
	b := on(log)
	id := b.Session(t)
	first := b.Start(t, id, "one")
	second := b.Say(t, id, "two", event.PolicyEnqueue)
	third := b.Say(t, id, "three", event.PolicyEnqueue)
	before := len(b.Events(t, id))
	for range 2 { // asking again is no error
		if err := b.Commands.CancelRun(t.Context(), loop.CancelRun{TenantID: Tenant, SessionID: id, RunID: second.RunID, Reason: "no", Actor: Tester}); err != nil {
			t.Fatal(err)
		}
	}
	got := Types(b.Events(t, id)[before:])
	if want := []event.Type{event.TypeRunCancelRequested, event.TypeMessagesReplaced, event.TypeRunCancelled}; !slices.Equal(got, want) {
		t.Errorf("the cancel is %v; want %v", got, want)
	}
	stands(t, b, first, first, loop.RunQueued, loop.RunCancelled, loop.RunEnqueued)
	wantSaid(t, b, third, []string{"user: one"})
	b.Advance(t, first)
	stands(t, b, third, third, loop.RunCompleted, loop.RunCancelled, loop.RunQueued)
	b.Advance(t, third)
	wantSaid(t, b, second, answered("one", "three"))
}

func testEnqueueRaces(t *testing.T, log loop.Log) {
	b := on(log)
	id := b.Session(t)
	first := b.Start(t, id, "one")
	const callers, each = 6, 2
	var wg sync.WaitGroup
	ids := make([]string, callers*each)
	for i := range ids {
		wg.Go(func() {
			run, err := b.Commands.StartRun(context.WithoutCancel(t.Context()), loop.StartRun{
				TenantID: Tenant, SessionID: id, Text: "more", Policy: event.PolicyEnqueue, IdempotencyKey: string(rune('a' + i%callers)), Actor: Tester,
			})
			if err != nil {
				t.Error(err)
			}
			ids[i] = run.RunID
		})
	}
	b.Advance(t, first) // meanwhile
	wg.Wait()
	for i, runID := range ids {
		if runID != ids[i%callers] {
			t.Errorf("one key, runs %s and %s", runID, ids[i%callers])
		}
	}
	// Each begins once, when the one before it has ended.
	for range callers {
		h, err := log.Head(t.Context(), Tenant, id)
		if err != nil {
			t.Fatal(err)
		}
		if r := b.Advance(t, loop.Job{TenantID: Tenant, SessionID: id, RunID: h.ActiveRunID, Ticket: 1}); r.Status != loop.RunCompleted {
			t.Fatalf("run %+v; want it completed", r)
		}
	}
	wantSaid(t, b, first, answered("one", "more", "more", "more", "more", "more", "more"))
}

func testInterrupt(t *testing.T, log loop.Log) {
	b := on(log)
	id := b.Session(t)
	first := b.Start(t, id, "one")
	fourth := b.Say(t, id, "four", event.PolicyEnqueue)
	second := b.Say(t, id, "two", event.PolicyInterrupt)
	stands(t, b, second, second, loop.RunCancelled, loop.RunQueued, loop.RunEnqueued)
	wantSaid(t, b, fourth, []string{"user: one", "user: two"})
	if r := b.Run(t, first); r.Reason != "interrupted by a new message" {
		t.Errorf("the first run ended for %q", r.Reason)
	}
	// The worker that has the run ends it. Until then the last to interrupt is
	// the next, and who only enqueues is behind all.
	worker := claim(t, b, second, 1)
	third := b.Say(t, id, "three", event.PolicyInterrupt)
	fifth := b.Say(t, id, "five", event.PolicyEnqueue)
	last := b.Say(t, id, "first of all", event.PolicyInterrupt)
	stands(t, b, second, second, loop.RunCancelled, loop.RunRunning, loop.RunEnqueued, loop.RunEnqueued, loop.RunEnqueued, loop.RunEnqueued)
	wantSaid(t, b, third, []string{"user: one", "user: two"})
	if _, err := b.Commands.ReleaseDead(t.Context(), loop.Release{TenantID: Tenant, SessionID: id, RunID: second.RunID, WorkerID: worker, Actor: Tester}); err != nil {
		t.Fatal(err)
	}
	for _, j := range []loop.Job{last, third, fourth, fifth} {
		b.Advance(t, j)
	}
	stands(t, b, loop.Job{}, fifth,
		loop.RunCancelled, loop.RunCancelled, loop.RunCompleted, loop.RunCompleted, loop.RunCompleted, loop.RunCompleted)
	wantSaid(t, b, first, append([]string{"user: one", "user: two"}, answered("first of all", "three", "four", "five")...))
}

func testRollback(t *testing.T, log loop.Log) {
	b := on(log)
	id := b.Session(t)
	b.Advance(t, b.Start(t, id, "one"))
	second := b.Start(t, id, "two")
	third := b.Say(t, id, "three", event.PolicyRollback)
	wantSaid(t, b, third, append(answered("one"), "user: three"))
	// What a worker has begun to say is rolled back, too, with its tools.
	worker := claim(t, b, third, b.Run(t, second).Epoch+2)
	h, err := log.Head(t.Context(), Tenant, id)
	if err != nil {
		t.Fatal(err)
	}
	call := NewID()
	write(t, b, third, loop.Append{Expected: h.LastSeq, Epoch: h.Epoch}, 1,
		event.TurnStarted{}, event.ModelRequested{Attempt: 1, Model: "m", MessageIDs: []string{}},
		event.AssistantCompleted{Attempt: 1, MessageID: NewID(), Parts: []hooks.Part{
			{Type: hooks.PartToolCall, ToolCall: &hooks.ToolCall{ID: call, Name: "look", Arguments: `{}`}},
		}, Finish: stream.FinishToolCalls},
		event.ToolProposed{CallID: call, Number: 1, Name: "look", Arguments: `{}`}, event.ToolStarted{CallID: call, Attempt: 1},
	)
	fourth := b.Say(t, id, "four", event.PolicyRollback)
	wantSaid(t, b, third, append(answered("one"), "user: three", "assistant:  look"))
	if _, err := b.Commands.ReleaseDead(t.Context(), loop.Release{TenantID: Tenant, SessionID: id, RunID: third.RunID, WorkerID: worker, Actor: Tester}); err != nil {
		t.Fatal(err)
	}
	stands(t, b, fourth, fourth, loop.RunCompleted, loop.RunCancelled, loop.RunCancelled, loop.RunQueued)
	for _, j := range []loop.Job{second, third, fourth} {
		wantSaid(t, b, j, append(answered("one"), "user: four"))
	}
	b.Advance(t, fourth)
	wantSaid(t, b, fourth, answered("one", "four"))
}
