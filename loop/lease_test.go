package loop_test

import (
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
)

// claimed appends a claim of j by hand, as the worker with that id, together
// with what the worker did before it died.
func claimed(t *testing.T, b *looptest.Bench, j loop.Job, worker string, turn int, did ...event.Payload) {
	t.Helper()
	run := b.Run(t, j)
	h, err := b.Log.Head(t.Context(), looptest.Tenant, j.SessionID)
	if err != nil {
		t.Fatal(err)
	}
	var claim event.Payload = event.RunStarted{WorkerID: worker, Epoch: h.Epoch + 1, Ticket: run.Ticket}
	if run.Started {
		claim = event.RunResumed{WorkerID: worker, Epoch: h.Epoch + 1, Ticket: run.Ticket, Cause: event.ResumeTakeover}
	}
	write(t, b, j, turn, append([]event.Payload{claim}, did...)...)
}

// release is what a sweeper asks for at the time at.
func release(t *testing.T, b *looptest.Bench, j loop.Job, worker string) bool {
	t.Helper()
	ok, err := b.Commands.ReleaseDead(t.Context(), loop.Release{
		TenantID: looptest.Tenant, SessionID: j.SessionID, RunID: j.RunID, WorkerID: worker, Now: at, Actor: looptest.Tester,
	})
	if err != nil {
		t.Fatal(err)
	}
	return ok
}

func TestRunThatKillsItsWorkersWaitsLongerAndThenFails(t *testing.T) {
	t.Parallel()
	log := looptest.NewLog()
	b := looptest.NewBench(log, says("hi"))
	j := b.Start(t, b.Session(t), "hi")
	for n, wait := range []time.Duration{0, time.Second, 2 * time.Second, 4 * time.Second} {
		claimed(t, b, j, "w", 1)
		jobs := len(log.Jobs())
		before := b.Run(t, j)
		if !release(t, b, j, "w") {
			t.Fatal("nothing was released")
		}
		run := b.Run(t, j)
		if run.Status != loop.RunQueued || run.WorkerID != "" || run.Takeovers != n+1 || run.Ticket != before.Ticket+1 || run.Epoch != before.Epoch+1 {
			t.Errorf("death %d: run %+v", n+1, run)
		}
		if wait == 0 {
			if run.NotBefore != nil || len(log.Jobs()) != jobs+1 {
				t.Errorf("death %d: not before %v, %d new jobs; want one at once", n+1, run.NotBefore, len(log.Jobs())-jobs)
			}
			next(t, b, j)
			continue
		}
		if run.NotBefore == nil || !run.NotBefore.Equal(at.Add(wait)) || len(log.Jobs()) != jobs {
			t.Errorf("death %d: not before %v, %d new jobs; want none before %v", n+1, run.NotBefore, len(log.Jobs())-jobs, wait)
		}
	}
	claimed(t, b, j, "w", 1)
	jobs := len(log.Jobs())
	release(t, b, j, "w")
	if run := b.Run(t, j); run.Status != loop.RunFailed || run.Reason != string(event.FailPoisoned) || run.Error == "" || len(log.Jobs()) != jobs {
		t.Errorf("death 5: run %+v, %d new jobs; want it poisoned", run, len(log.Jobs())-jobs)
	}
	goesOn(t, b, j.SessionID)
}

func TestPoisonedRunClosesWhatIsOpen(t *testing.T) {
	t.Parallel()
	request := []event.Payload{event.TurnStarted{}, event.ModelRequested{Attempt: 1, Model: "m", MessageIDs: []string{}}}
	call := &hooks.ToolCall{ID: "c1", Name: "look", Arguments: "{}"}
	answer := append(append([]event.Payload{}, request...),
		event.AssistantCompleted{Attempt: 1, MessageID: "a", Finish: stream.FinishToolCalls, Parts: []hooks.Part{{Type: hooks.PartToolCall, ToolCall: call}}},
		event.ToolProposed{CallID: "c1", Number: 1, Name: "look", Arguments: "{}"})
	for name, c := range map[string]struct {
		did   []event.Payload
		check func(t *testing.T, events []event.Event, s loop.State)
	}{
		"a model call": {append(append([]event.Payload{}, request...), event.AssistantDelta{Attempt: 1, Lane: stream.LaneText, BlockID: "0", Text: "once"}),
			func(t *testing.T, events []event.Event, s loop.State) {
				if got := only[event.AssistantStopped](t, events); got.Reason != "poisoned" || !s.Messages[1].Partial || s.Messages[1].Text() != "once" {
					t.Errorf("stopped %+v, messages %+v", got, s.Messages)
				}
			}},
		"a started tool": {append(answer, event.ToolStarted{CallID: "c1", Attempt: 1}),
			func(t *testing.T, _ []event.Event, s loop.State) {
				if got := results(s); len(got) != 1 || got[0].Reason != hooks.ReasonOutcomeUnknown {
					t.Errorf("results %+v; want outcome unknown", got)
				}
			}},
		"a proposed call": {answer,
			func(t *testing.T, _ []event.Event, s loop.State) {
				if got := results(s); len(got) != 1 || got[0].Reason != hooks.ReasonCancelled {
					t.Errorf("results %+v; want that it was not run", got)
				}
			}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := looptest.NewBench(looptest.NewLog(), says("hi"))
			j := b.Start(t, b.Session(t), "hi")
			claimed(t, b, j, "w", 1, c.did[0])
			write(t, b, j, 1, c.did[1:]...)
			release(t, b, j, "w")
			run := b.Run(t, j)
			for run.Status == loop.RunQueued {
				claimed(t, b, j, "w", 1)
				release(t, b, j, "w")
				run = b.Run(t, j)
			}
			if run.Reason != string(event.FailPoisoned) {
				t.Errorf("run %+v; want it poisoned", run)
			}
			events, s := checked(t, b, j.SessionID)
			if n := len(payloads[event.RunReleased](t, events)); n != 5 {
				t.Errorf("poisoned after %d deaths; want 5", n)
			}
			c.check(t, events, s)
			goesOn(t, b, j.SessionID)
		})
	}
}

func TestFinishedStepForgivesEarlierDeaths(t *testing.T) {
	t.Parallel()
	b := looptest.NewBench(looptest.NewLog(), says("hi"))
	j := b.Start(t, b.Session(t), "hi")
	for range 4 {
		claimed(t, b, j, "w", 1)
		release(t, b, j, "w")
	}
	claimed(t, b, j, "w", 1, event.TurnStarted{})
	write(t, b, j, 1, event.ModelRequested{Attempt: 1, Model: "m", MessageIDs: []string{}})
	if run := b.Run(t, j); run.Takeovers != 4 {
		t.Errorf("%d takeovers with nothing finished; want 4", run.Takeovers)
	}
	write(t, b, j, 1, event.AssistantCompleted{Attempt: 1, MessageID: "a", Parts: []hooks.Part{}, Finish: stream.FinishToolCalls},
		event.ToolProposed{CallID: "c1", Number: 1, Name: "look", Arguments: "{}"})
	if run := b.Run(t, j); run.Takeovers != 0 {
		t.Errorf("%d takeovers after an answer; want 0", run.Takeovers)
	}
	release(t, b, j, "w")
	if run := b.Run(t, j); run.Status != loop.RunQueued || run.Takeovers != 1 || run.NotBefore != nil {
		t.Errorf("run %+v; want it queued at once", run)
	}
	claimed(t, b, j, "w", 1, event.ToolStarted{CallID: "c1", Attempt: 1})
	write(t, b, j, 1, event.ToolExecuted{CallID: "c1", Attempt: 1, Success: true})
	if run := b.Run(t, j); run.Takeovers != 0 {
		t.Errorf("%d takeovers after a tool; want 0", run.Takeovers)
	}
}

func TestShutdownsDoNotPoison(t *testing.T) {
	t.Parallel()
	b := looptest.NewBench(looptest.NewLog(), says("hi"))
	j := b.Start(t, b.Session(t), "hi")
	leaving := make(chan struct{})
	close(leaving)
	for range 12 {
		if err := b.Engine.Advance(t.Context(), j, loop.Holder{WorkerID: "w", Leaving: leaving}); err != nil {
			t.Fatal(err)
		}
		j = next(t, b, j)
	}
	if run := b.Advance(t, j); run.Status != loop.RunCompleted || run.Takeovers != 0 {
		t.Errorf("run %+v; want it completed", run)
	}
}

func TestReleaseOfWhatTheDeadWorkerDoesNotHold(t *testing.T) {
	t.Parallel()
	b := looptest.NewBench(looptest.NewLog(), says("hi"))
	j := b.Start(t, b.Session(t), "hi")
	if release(t, b, j, "w") {
		t.Error("a queued run was released")
	}
	claimed(t, b, j, "w2", 1)
	last := len(b.Events(t, j.SessionID))
	if release(t, b, j, "w") || len(b.Events(t, j.SessionID)) != last {
		t.Error("a run that somebody else holds was released")
	}
	if !release(t, b, j, "w2") || release(t, b, j, "w2") {
		t.Error("want it released once")
	}
	b.Advance(t, next(t, b, j))
	if release(t, b, j, "w2") {
		t.Error("a run that has ended was released")
	}
	_, err := b.Commands.ReleaseDead(t.Context(), loop.Release{TenantID: looptest.Tenant, SessionID: j.SessionID, RunID: looptest.NewID(), Now: at})
	if !errors.Is(err, loop.ErrNotFound) {
		t.Errorf("release of a run that never was: %v; want ErrNotFound", err)
	}
}

func TestReleaseSaysFromWhomAndWhy(t *testing.T) {
	t.Parallel()
	b := looptest.NewBench(looptest.NewLog(), says("hi"))
	j := b.Start(t, b.Session(t), "hi")
	claimed(t, b, j, "w", 1)
	release(t, b, j, "w")
	events, _ := checked(t, b, j.SessionID)
	want := event.RunReleased{Cause: event.ReleaseWorkerDead, WorkerID: "w", Epoch: 2, Ticket: 2}
	if got := only[event.RunReleased](t, events); !reflect.DeepEqual(got, want) {
		t.Errorf("released %+v; want %+v", got, want)
	}
	if e := events[len(events)-1]; e.Actor != looptest.Tester {
		t.Errorf("actor %+v", e.Actor)
	}
}

func TestRequeueMovesTheTicket(t *testing.T) {
	t.Parallel()
	log := looptest.NewLog()
	b := looptest.NewBench(log, says("hi"))
	j := b.Start(t, b.Session(t), "hi")
	requeue := func(j loop.Job) bool {
		ok, err := b.Commands.Requeue(t.Context(), j, "job_lost", looptest.Tester)
		if err != nil {
			t.Fatal(err)
		}
		return ok
	}
	if !requeue(j) {
		t.Fatal("a queued run was not queued again")
	}
	fresh := next(t, b, j)
	if fresh.Ticket != 2 {
		t.Errorf("ticket %d; want 2", fresh.Ticket)
	}
	events, _ := checked(t, b, j.SessionID)
	if got := payloads[event.RunQueued](t, events)[1]; got.Cause != "job_lost" {
		t.Errorf("queued %+v", got)
	}
	jobs := len(log.Jobs())
	if requeue(j) || len(log.Jobs()) != jobs || len(b.Events(t, j.SessionID)) != len(events) {
		t.Error("a stale ticket was queued again")
	}
	if run := b.Advance(t, j); run.Status != loop.RunQueued {
		t.Errorf("the stale job made the run %s", run.Status)
	}
	if run := b.Advance(t, fresh); run.Status != loop.RunCompleted {
		t.Errorf("run %+v", run)
	}
	if requeue(fresh) {
		t.Error("a run that has ended was queued again")
	}
}

func TestRequeueEndsTheDelay(t *testing.T) {
	t.Parallel()
	b := looptest.NewBench(looptest.NewLog(), says("hi"))
	j := b.Start(t, b.Session(t), "hi")
	for range 2 {
		claimed(t, b, j, "w", 1)
		release(t, b, j, "w")
	}
	j.Ticket = b.Run(t, j).Ticket
	if _, err := b.Commands.Requeue(t.Context(), j, "due", looptest.Tester); err != nil {
		t.Fatal(err)
	}
	if run := b.Run(t, j); run.NotBefore != nil {
		t.Errorf("run %+v; want no delay", run)
	}
	if run := b.Advance(t, next(t, b, j)); run.Status != loop.RunCompleted {
		t.Errorf("run %+v", run)
	}
}
