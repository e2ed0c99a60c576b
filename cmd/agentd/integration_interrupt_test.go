package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	agentdv1 "github.com/seed-2ca4966b/agentd/api/gen/agentd/v1"
	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
	"github.com/seed-2ca4966b/agentd/store/storetest"
)

// stalling begins to answer the first message and never ends, and repeats what
// was said last to all others.
func stalling() looptest.Model {
	return func(ctx context.Context, req loop.ModelRequest, yield func(stream.Chunk, error) bool) {
		last := req.Messages[len(req.Messages)-1].Text()
		if last != "first" {
			if yield(looptest.Text(fmt.Sprintf("%d: %s", len(req.Messages), last)), nil) {
				yield(looptest.Finish(stream.FinishStop), nil)
			}
			return
		}
		if yield(looptest.Text("Once upon"), nil) {
			<-ctx.Done()
			yield(stream.Chunk{}, ctx.Err())
		}
	}
}

// TestEachPolicyDoesWhatItSays to a run that another process streams.
func TestEachPolicyDoesWhatItSays(t *testing.T) {
	t.Parallel()
	for policy, want := range map[string][]string{
		"interrupt": {
			"user first", "assistant Once upon (partial)", "user second", "assistant 3: second", "user third", "assistant 5: third",
		},
		"rollback": {"user second", "assistant 1: second", "user third", "assistant 3: third"},
	} {
		t.Run(policy, func(t *testing.T) {
			t.Parallel()
			db := storetest.New(t)
			here, there := newStack(t, db, playing(stalling())), newStack(t, db, playing(stalling()))
			id := here.Session(t)
			first := here.Start(t, id, "first")
			here.work(t)
			awaitRow(t, db, `SELECT 'x' FROM agentd.events WHERE type = 'assistant.delta'`)
			third := there.start(t, &agentdv1.StartRunRequest{SessionId: id, Text: "third", Policy: "enqueue"})
			idle := there.listen(t, id, "?until=idle", fromStart)
			request := &agentdv1.StartRunRequest{SessionId: id, Text: "second", Policy: policy, IdempotencyKey: "k"}
			second := there.start(t, request)
			if !second.GetEnqueued() {
				t.Errorf("%v, want it enqueued until the active run has stopped", second)
			}
			idle.facts(t, toTheEnd)
			if got := there.said(t, id, 2); !slices.Equal(got, want) {
				t.Errorf("the conversation is %q, want %q", got, want)
			}
			if r := here.run(t, first.RunID); r.GetStatus() != agentdv1.RunStatus_RUN_STATUS_CANCELLED || !strings.HasSuffix(r.GetReason(), "by a new message") {
				t.Errorf("the first run is %v", r)
			}
			if a, b := there.run(t, second.GetRunId()), there.run(t, third.GetRunId()); !a.GetStartedAt().AsTime().Before(b.GetStartedAt().AsTime()) {
				t.Errorf("the second run began at %v, the third at %v", a.GetStartedAt().AsTime(), b.GetStartedAt().AsTime())
			}
			again := here.start(t, request)
			if again.GetRunId() != second.GetRunId() || !again.GetAlreadyStarted() || again.GetEnqueued() {
				t.Errorf("again: %v, want the run that there is", again)
			}
			// What was rolled back is still in the log, and listed on demand.
			if n := scalar[int](t, db, `SELECT count(*) FROM agentd.messages WHERE replaced_seq IS NOT NULL`); n != map[string]int{"interrupt": 0, "rollback": 2}[policy] {
				t.Errorf("%d messages have left the conversation", n)
			}
		})
	}
}

func TestOfManyInterruptsAtOnceEachIsToldWhatBecameOfIt(t *testing.T) {
	t.Parallel()
	for _, policy := range []string{"interrupt", "rollback"} {
		t.Run(policy, func(t *testing.T) {
			t.Parallel()
			db := storetest.New(t)
			here, there := newStack(t, db, playing(stalling())), newStack(t, db, playing(stalling()))
			id := here.Session(t)
			first := here.Start(t, id, "first").RunID
			here.work(t)
			there.work(t)
			awaitRow(t, db, `SELECT 'x' FROM agentd.events WHERE type = 'assistant.delta'`)
			answers := startTogether(t, 50, func(i int) *agentdv1.StartRunRequest {
				n := fmt.Sprint("message ", i/2)
				return &agentdv1.StartRunRequest{SessionId: id, Text: n, IdempotencyKey: n, Policy: policy}
			}, here, there)
			for i, a := range answers {
				if a.err != nil {
					t.Fatal(a.err)
				}
				if a.run.GetRunId() != answers[i/2*2].run.GetRunId() {
					t.Errorf("request %d is told %v, its twin %v", i, a.run, answers[i/2*2].run)
				}
			}
			awaitRow(t, db, `SELECT 'x' WHERE NOT EXISTS (SELECT FROM agentd.runs WHERE status NOT IN ('completed', 'cancelled'))`)
			if n := scalar[int](t, db, `SELECT count(*) FROM agentd.runs`); n != 26 {
				t.Errorf("%d runs, want 26", n)
			}
			if r := there.run(t, first); r.GetStatus() != agentdv1.RunStatus_RUN_STATUS_CANCELLED {
				t.Errorf("the first run is %s", r.GetStatus())
			}
			// Each run that has completed is in the conversation with its answer,
			// and what was cancelled is there only if it was not rolled back. A
			// cancel may come when all is said.
			said := here.said(t, id, 100)
			answered := slices.DeleteFunc(slices.Clone(said), func(l string) bool { return strings.HasPrefix(l, "user ") || strings.Contains(l, "(partial)") })
			if n := scalar[int](t, db, `SELECT count(*) FROM agentd.runs WHERE status = 'completed'`); len(answered) < n || n == 0 || policy == "rollback" && len(answered) > n {
				t.Errorf("%d answers of %d completed runs in %q", len(answered), n, said)
			}
			if policy == "rollback" && (slices.Contains(said, "user first") || len(said) != 2*len(answered)) {
				t.Errorf("the conversation is %q, want nothing of what was rolled back", said)
			}
		})
	}
}
