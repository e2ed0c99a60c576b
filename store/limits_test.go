package store_test

import (
	"testing"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
	"github.com/seed-2ca4966b/agentd/store"
	"github.com/seed-2ca4966b/agentd/store/storetest"
)

// TestWhatARunTookIsTheSumOfItsCalls: those that failed are in it, whether or
// not they are in the append of the one that follows.
func TestWhatARunTookIsTheSumOfItsCalls(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	s := startStore(t, db, store.Options{Queue: jobs{}})
	b := looptest.NewBench(s, nil)
	id := b.Session(t)
	run := b.Start(t, id, "hi").RunID
	in := func(p event.Payload) event.Event { return encode(t, id, run, 1, p) }
	failed := func(attempt int) event.Event {
		return in(event.AssistantDiscarded{
			Attempt: attempt, Reason: "failed", Usage: &stream.Usage{InputTokens: 10, OutputTokens: 1}, Cost: &event.Cost{Micros: 40, InputPrice: 1, OutputPrice: 1},
		})
	}
	for _, events := range [][]event.Event{
		{encode(t, id, run, 0, event.RunStarted{WorkerID: looptest.NewID(), Epoch: 1, Ticket: 1}), in(event.TurnStarted{}), in(event.ModelRequested{Attempt: 1, Model: "m"}), failed(1)},
		{in(event.ModelRequested{Attempt: 2, Model: "m"}), failed(2), in(event.ModelRequested{Attempt: 3, Model: "m"})},
		{in(event.AssistantCompleted{
			Attempt: 3, MessageID: looptest.NewID(), Finish: stream.FinishStop, Usage: stream.Usage{InputTokens: 3, OutputTokens: 5}, Cost: &event.Cost{Micros: 83},
		}), in(event.TurnCompleted{}), in(event.RunCompleted{Reason: stream.FinishStop})},
	} {
		mustAppend(t, s, appendOf(id, headOf(t, s, id).LastSeq, events...))
	}
	got, err := s.GetRun(t.Context(), looptest.Tenant, run)
	if err != nil || got.InputTokens != 23 || got.OutputTokens != 7 || got.CostMicros != 163 {
		t.Errorf("run %+v, %v", got, err)
	}
	wantLines(t, "run_summary", lines(t, db, `SELECT input_tokens::text, output_tokens::text, cost_micros::text FROM agentd.run_summary WHERE run_id = $1`, run), []string{"23|7|163"})
}

// TestAQuestionAboutAnOutcomeIsReadAsOne: and who looks for runs that are stuck
// is told what is asked.
func TestAQuestionAboutAnOutcomeIsReadAsOne(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	s := startStore(t, db, store.Options{Queue: jobs{}})
	in, appendAll := onAliveWorker(t, db, s)
	call, approval := looptest.NewID(), looptest.NewID()
	appendAll(in(event.TurnStarted{}), in(event.ModelRequested{Attempt: 1, Model: "m"}),
		in(event.AssistantCompleted{Attempt: 1, MessageID: looptest.NewID(), Finish: stream.FinishToolCalls}),
		in(event.ToolProposed{CallID: call, Number: 1, Name: "pay", Arguments: "{}"}), in(event.ToolStarted{CallID: call, Attempt: 1, ArgumentsSHA256: digestOf("{}")}),
		in(event.ApprovalRequested{
			ApprovalID: approval, Kind: event.ApprovalOfOutcome, CallID: call, Name: "pay", Arguments: "{}", ArgumentsSHA256: digestOf("{}"), By: "on_unknown",
		}),
		in(event.RunSuspended{Reason: "approval", ApprovalIDs: []string{approval}}))
	got, err := s.GetApproval(t.Context(), looptest.Tenant, approval)
	if err != nil || got.Kind != event.ApprovalOfOutcome || got.RequestedBy != "on_unknown" || got.Decision != "" {
		t.Errorf("approval %+v, %v", got, err)
	}
	db.ShiftClock(t, 2*time.Hour)
	wantLines(t, "stuck", lines(t, db, `SELECT reason, why FROM agentd.stuck`), []string{"waiting_for_approval|nobody has said whether it has taken effect: pay"})
	appendAll(in(event.ApprovalDecided{ApprovalID: approval, CallID: call, Decision: event.DecisionHappened, ArgumentsSHA256: digestOf("{}")}))
	if got, err = s.GetApproval(t.Context(), looptest.Tenant, approval); err != nil || got.Decision != event.DecisionHappened {
		t.Errorf("answered approval %+v, %v", got, err)
	}
	wantLines(t, "tool_calls", lines(t, db, `SELECT status, attempt FROM agentd.tool_calls WHERE id = $1`, call), []string{string(loop.CallConfirmed) + "|1"})
}
