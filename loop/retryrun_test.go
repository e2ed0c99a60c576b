package loop_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
)

// again asks for the run of j to be taken up again.
func again(t testing.TB, b *looptest.Bench, j loop.Job) (loop.RetriedRun, error) {
	t.Helper()
	return b.Commands.RetryRun(t.Context(), loop.RetryRun{
		TenantID: looptest.Tenant, SessionID: j.SessionID, RunID: j.RunID, Actor: looptest.Tester,
	})
}

// retaken is again, which must be possible, and the new job.
func retaken(t testing.TB, b *looptest.Bench, j loop.Job) loop.Job {
	t.Helper()
	if got, err := again(t, b, j); err != nil || got.Repeated {
		t.Fatalf("retry: %+v, %v", got, err)
	}
	return next(t, b, j)
}

// second fails the second model call of a run as m does, and plays as calls
// does otherwise.
func second(m looptest.Model, names ...string) looptest.Model {
	n, rest := 0, calls(names...)
	return func(ctx context.Context, req loop.ModelRequest, yield func(stream.Chunk, error) bool) {
		if n++; n == 2 {
			m(ctx, req, yield)
			return
		}
		rest(ctx, req, yield)
	}
}

var errModel = &loop.ModelError{Message: "no"}

// waysToFail are the ways in which a run about "hi" may fail, each with what its
// model is sent when it is taken up again, and the turn in which it is.
var waysToFail = map[string]struct {
	fail func(t *testing.T, b *looptest.Bench, j loop.Job)
	sent []string
	turn int
}{
	"no agent": {func(t *testing.T, b *looptest.Bench, j loop.Job) {
		agents := b.Engine.Agents
		b.Engine.Agents = nil
		b.Advance(t, j)
		b.Engine.Agents = agents
	}, []string{"user hi"}, 1},
	"model error": {func(t *testing.T, b *looptest.Bench, j loop.Job) {
		play(b, fails(errModel))
		b.Advance(t, j)
	}, []string{"user hi"}, 2},
	"model error in an answer": {func(t *testing.T, b *looptest.Bench, j loop.Job) {
		play(b, fails(errModel, looptest.Text("on")))
		b.Advance(t, j)
	}, []string{"user hi"}, 2},
	"model error behind a turn": {func(t *testing.T, b *looptest.Bench, j loop.Job) {
		play(b, second(fails(errModel, looptest.Reasoning("hm"), looptest.Text("on")), "look", "look"))
		b.Advance(t, j)
	}, []string{"user hi", "assistant ", "tool seen", "tool seen"}, 3},
	"an answer without an end": {func(t *testing.T, b *looptest.Bench, j loop.Job) {
		play(b, second(fails(nil, looptest.Text("on")), "look"))
		b.Advance(t, j)
	}, []string{"user hi", "assistant ", "tool seen"}, 3},
	"given up in the middle of a call": {func(t *testing.T, b *looptest.Bench, j loop.Job) {
		poisoned(t, b, j)
	}, []string{"user hi", "assistant ", "tool outcome unknown: the tool was started and then interrupted before it answered. " +
		"It may have taken effect. It was not run again."}, 2},
	"given up in an answer": {func(t *testing.T, b *looptest.Bench, j loop.Job) {
		claimed(t, b, j, "dead", 1, event.TurnStarted{}, event.ModelRequested{Attempt: 1, Model: "m", MessageIDs: []string{}},
			event.AssistantDelta{Attempt: 1, Lane: stream.LaneText, BlockID: "0", Text: "on"})
		for release(t, b, j, "dead"); !b.Run(t, j).Status.Terminal(); release(t, b, j, "dead") {
			claimed(t, b, j, "dead", 1)
		}
	}, []string{"user hi"}, 2},
	"the limit of turns": {func(t *testing.T, b *looptest.Bench, j loop.Job) {
		play(b, calls("look"))
		limit(b, loop.Limits{Turns: 1})
		b.Advance(t, j)
		limit(b, loop.Limits{})
	}, []string{"user hi", "assistant ", "tool seen"}, 2},
}

// TestARunIsTakenUpWhereItFailed: as the same run, with the turns that it had
// finished, and a history that a strict provider takes.
func TestARunIsTakenUpWhereItFailed(t *testing.T) {
	t.Parallel()
	for name, c := range waysToFail {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := looptest.NewBench(looptest.NewLog(), says("ok"), looptest.Says("look", "seen"))
			id := b.Session(t)
			j := b.Start(t, id, "hi")
			c.fail(t, b, j)
			failed := b.Run(t, j)
			if failed.Status != loop.RunFailed {
				t.Fatalf("run %+v; want it failed", failed)
			}
			got, err := again(t, b, j)
			if want := (loop.RetriedRun{Seq: failed.EndedSeq}); err != nil || got != want {
				t.Fatalf("retry: %+v, %v; want %+v", got, err, want)
			}
			queued := b.Run(t, j)
			if queued.Status != loop.RunQueued || queued.Reason != "" || queued.Error != "" || !queued.EndedAt.IsZero() || queued.EndedSeq != 0 || queued.Takeovers != 0 {
				t.Errorf("queued %+v; want nothing left of the failure", queued)
			}
			j = next(t, b, j)
			var r requests
			play(b, strict(t, r.model(says("at last"))))
			run := b.Advance(t, j)
			if run.Status != loop.RunCompleted || run.Retries != 1 || run.AssistantMessageID != failed.AssistantMessageID {
				t.Errorf("run %+v; want it completed", run)
			}
			if got := sent(r.all[0]); len(r.all) != 1 || !slices.Equal(got, c.sent) || r.all[0].Turn != c.turn || r.all[0].Attempt != 1 {
				t.Errorf("the model was sent %q in turn %d; want %q in turn %d", got, r.all[0].Turn, c.sent, c.turn)
			}
			events, s := checked(t, b, id)
			if got := only[event.RunResumed](t, events[failed.EndedSeq:]); got.Cause != event.ResumeRetry {
				t.Errorf("resumed %+v; want for the retry", got)
			}
			for _, m := range s.Messages {
				if m.Partial || len(s.Messages) != len(c.sent)+1 {
					t.Errorf("the conversation is %+v; want %q and an answer", s.Messages, c.sent)
				}
			}
			goesOn(t, b, id)
		})
	}
}

func TestRetriesThatAreRefusedSayWhatToDo(t *testing.T) {
	t.Parallel()
	refused := func(name string, b *looptest.Bench, j loop.Job, why string) {
		t.Helper()
		before := len(b.Events(t, j.SessionID))
		_, err := again(t, b, j)
		var re *loop.RetryError
		if !errors.As(err, &re) || !errors.Is(err, loop.ErrNotRetryable) || re.RunID != j.RunID || !strings.Contains(err.Error(), why) {
			t.Errorf("%s: %v; want that it cannot be retried: %s", name, err, why)
		}
		if n := len(b.Events(t, j.SessionID)); n != before {
			t.Errorf("%s: %d events; want %d", name, n, before)
		}
	}
	for name, why := range map[string]string{
		"completed":                 "it is completed",
		"cancelled before it began": "it is cancelled",
		"refused by a check":        "a check refused it",
	} {
		b := looptest.NewBench(looptest.NewLog(), says("ok"), looptest.Says("look", "seen"))
		id := b.Session(t)
		ends[name](t, b, id)
		refused(name, b, loop.Job{TenantID: looptest.Tenant, SessionID: id, RunID: lastRun(t, b, id)}, why)
	}
	b := looptest.NewBench(looptest.NewLog(), fails(errModel))
	id := b.Session(t)
	old := b.Start(t, id, "hi")
	b.Advance(t, old)
	j := b.Start(t, id, "hi?")
	for _, of := range []loop.Job{old, j} {
		var busy *loop.BusyError
		if _, err := again(t, b, of); !errors.As(err, &busy) || busy.ActiveRunID != j.RunID {
			t.Errorf("with an active run: %v; want a BusyError for %s", err, j.RunID)
		}
	}
	b.Advance(t, j)
	refused("left behind", b, old, "the conversation has gone on without it")
	for _, where := range []loop.RetryRun{
		{TenantID: "other", SessionID: id, RunID: j.RunID}, {TenantID: looptest.Tenant, SessionID: b.Session(t), RunID: j.RunID},
		{TenantID: looptest.Tenant, SessionID: id, RunID: looptest.NewID()}, {TenantID: looptest.Tenant, SessionID: id, RunID: "nope"},
		{TenantID: looptest.Tenant, SessionID: "nope", RunID: j.RunID},
	} {
		if _, err := b.Commands.RetryRun(t.Context(), where); !errors.Is(err, loop.ErrNotFound) {
			t.Errorf("retry of %+v: %v; want ErrNotFound", where, err)
		}
	}
	if run := b.Advance(t, retaken(t, b, j)); run.Status != loop.RunFailed || run.Retries != 1 {
		t.Errorf("the last one, again: %+v", run)
	}
}

func lastRun(t testing.TB, b *looptest.Bench, sessionID string) string {
	t.Helper()
	h, err := b.Log.Head(t.Context(), looptest.Tenant, sessionID)
	if err != nil {
		t.Fatal(err)
	}
	return h.LastRunID
}

func TestARetryWhoseAnswerWasLostIsTheSameRetry(t *testing.T) {
	t.Parallel()
	b := looptest.NewBench(looptest.NewLog(), fails(errModel, looptest.Text("on")))
	log := b.Log.(*looptest.Log)
	j := b.Start(t, b.Session(t), "hi")
	failed := b.Advance(t, j)
	log.FailAppends(func(loop.Append) error { return loop.ErrUnavailable })
	if _, err := again(t, b, j); !errors.Is(err, loop.ErrUnavailable) {
		t.Errorf("in an outage: %v; want ErrUnavailable", err)
	}
	log.FailAppends(nil)
	log.LoseAcks(func(loop.Append) error { return loop.ErrUnavailable })
	if _, err := again(t, b, j); !errors.Is(err, loop.ErrUnavailable) {
		t.Errorf("without an answer: %v; want ErrUnavailable", err)
	}
	log.LoseAcks(nil)
	got, err := again(t, b, j)
	if want := (loop.RetriedRun{Seq: failed.EndedSeq, Repeated: true}); err != nil || got != want {
		t.Errorf("again: %+v, %v; want %+v", got, err, want)
	}
	jobs := len(log.Jobs())
	j = next(t, b, j)
	w := func() { // and while a worker has it
		if got, err := again(t, b, j); err != nil || !got.Repeated {
			t.Errorf("while it runs: %+v, %v; want that it is under way", got, err)
		}
	}
	play(b, func(ctx context.Context, req loop.ModelRequest, yield func(stream.Chunk, error) bool) {
		w()
		says("ok")(ctx, req, yield)
	})
	if run := b.Advance(t, j); run.Status != loop.RunCompleted || run.Retries != 1 || len(log.Jobs()) != jobs || jobs != 2 {
		t.Errorf("run %+v, %d jobs", run, len(log.Jobs()))
	}
	checked(t, b, j.SessionID)
}

// TestARetriedRunMayDieAndBeCancelledLikeAnyOther: what it is resumed for is
// what happened last, and its dead workers are counted anew.
func TestARetriedRunMayDieAndBeCancelledLikeAnyOther(t *testing.T) {
	t.Parallel()
	b := looptest.NewBench(looptest.NewLog(), says("ok"), looptest.Says("look", "seen"))
	j := b.Start(t, b.Session(t), "hi")
	poisoned(t, b, j)
	j = retaken(t, b, j)
	if ok, err := b.Commands.Requeue(t.Context(), j, "job_lost", looptest.Tester); !ok || err != nil {
		t.Fatalf("requeue: %v, %v", ok, err)
	}
	j = next(t, b, j)
	ctx, die := context.WithCancel(t.Context())
	play(b, func(context.Context, loop.ModelRequest, func(stream.Chunk, error) bool) { die() })
	worker := looptest.NewID()
	if err := b.Engine.Advance(ctx, j, loop.Holder{WorkerID: worker}); !errors.Is(err, context.Canceled) {
		t.Fatalf("the worker returned %v", err)
	}
	if run := b.Run(t, j); run.Takeovers != 0 || run.Retrying {
		t.Errorf("run %+v; want it held, with no dead worker behind it", run)
	}
	j = buried(t, b, j, worker)
	play(b, strict(t, says("at last")))
	if run := b.Advance(t, j); run.Status != loop.RunCompleted {
		t.Errorf("run %+v", run)
	}
	events, _ := checked(t, b, j.SessionID)
	var causes []event.ResumeCause
	for _, p := range payloads[event.RunResumed](t, events) {
		causes = append(causes, p.Cause)
	}
	if got, want := causes[len(causes)-2:], []event.ResumeCause{event.ResumeRetry, event.ResumeTakeover}; !slices.Equal(got, want) {
		t.Errorf("resumed for %v; want at last %v", causes, want)
	}

	b = looptest.NewBench(looptest.NewLog(), fails(errModel, looptest.Text("on")))
	j = b.Start(t, b.Session(t), "hi")
	b.Advance(t, j)
	j = retaken(t, b, j)
	if err := cancel(t, b, j); err != nil {
		t.Fatal(err)
	}
	if run := b.Advance(t, j); run.Status != loop.RunCancelled || run.Retries != 1 {
		t.Errorf("run %+v; want it cancelled", run)
	}
	goesOn(t, b, j.SessionID)
}

// TestACancelThatCameTooLateIsOver: the run had failed by then, and who takes it
// up again wants it to go on.
func TestACancelThatCameTooLateIsOver(t *testing.T) {
	t.Parallel()
	b := looptest.NewBench(looptest.NewLog(), fails(errModel, looptest.Text("on")))
	j := b.Start(t, b.Session(t), "hi")
	asked := false
	hooked(b, func(a loop.Append) {
		if has(a, event.TypeRunFailed) && !asked {
			asked = true
			if err := cancel(t, b, j); err != nil {
				t.Error(err)
			}
		}
	})
	if run := b.Advance(t, j); run.Status != loop.RunFailed || !run.CancelRequested {
		t.Fatalf("run %+v; want it failed, and asked to stop", run)
	}
	j = retaken(t, b, j)
	play(b, strict(t, says("ok")))
	if run := b.Advance(t, j); run.Status != loop.RunCompleted || run.CancelRequested || run.CancelReason != "" {
		t.Errorf("run %+v; want it completed", run)
	}
	checked(t, b, j.SessionID)
}

// TestARetryIsNoWayAroundALimit: it fails again, until somebody raises it. Turns
// that others stand in the place of do not count.
func TestARetryIsNoWayAroundALimit(t *testing.T) {
	t.Parallel()
	var c counted
	b := looptest.NewBench(looptest.NewLog(), second(fails(errModel, looptest.Text("on")), "look"), c.tool("look"))
	limit(b, loop.Limits{Turns: 2})
	j := b.Start(t, b.Session(t), "hi")
	if run := b.Advance(t, j); run.Reason != string(event.FailModel) {
		t.Fatalf("run %+v", run)
	}
	play(b, strict(t, insists(same)))
	j = retaken(t, b, j)
	if run := b.Advance(t, j); run.Reason != string(event.FailTurnLimit) || !strings.Contains(run.Error, "after 2 turns") || len(run.Turns) != 3 {
		t.Errorf("run %+v; want it ended by its limit", run)
	}
	play(b, uncalled(t))
	j = retaken(t, b, j)
	if run := b.Advance(t, j); run.Reason != string(event.FailTurnLimit) || len(run.Turns) != 3 {
		t.Errorf("run %+v; want it ended by its limit again", run)
	}
	limit(b, loop.Limits{Turns: 3})
	play(b, strict(t, says("ok")))
	j = retaken(t, b, j)
	if run := b.Advance(t, j); run.Status != loop.RunCompleted || len(c.sorted()) != 2 {
		t.Errorf("run %+v after %d calls", run, len(c.sorted()))
	}
	checked(t, b, j.SessionID)
}

// TestHooksOfARetriedRun: what was prepared stays, the start is told once, and
// each end is.
func TestHooksOfARetriedRun(t *testing.T) {
	t.Parallel()
	var d diary
	var r requests
	b := looptest.NewBench(looptest.NewLog(), second(fails(errModel, looptest.Text("on")), "look"), looptest.Says("look", "seen"))
	b.Use(hooks.Hooks{
		BeforeRunStart: hooks.Named("note", "1", func(context.Context, hooks.BeforeRunStart) (hooks.BeforeRunStartResult, error) {
			d.add("before run start")
			return hooks.BeforeRunStartResult{Action: hooks.ActionTransform, Append: []hooks.HiddenMessage{{Role: hooks.RoleUser, Text: "note"}}}, nil
		}),
		OnRunStart:  func(context.Context, hooks.RunStart) { d.add("run start") },
		OnTurnStart: func(_ context.Context, in hooks.TurnStart) { d.add("turn %d, resumed %v", in.Turn, in.Resumed) },
		OnTurnEnd:   func(_ context.Context, in hooks.TurnEnd) { d.add("end of turn %d", in.Turn) },
		OnRunEnd:    func(_ context.Context, in hooks.RunEnd) { d.add("run %s", in.Status) },
	})
	j := b.Start(t, b.Session(t), "hi")
	b.Advance(t, j)
	j = retaken(t, b, j)
	play(b, strict(t, r.model(says("ok"))))
	b.Advance(t, j)
	want := []string{
		"before run start", "run start", "turn 1, resumed false", "end of turn 1", "turn 2, resumed false", "run failed",
		"turn 3, resumed false", "end of turn 3", "run completed",
	}
	if !slices.Equal(d.lines, want) {
		t.Errorf("told %s\nwant %s", lines(d.lines), lines(want))
	}
	if got, want := sent(r.all[0]), []string{"user hi", "user note", "assistant ", "tool seen"}; !slices.Equal(got, want) {
		t.Errorf("the model was sent %q; want %q", got, want)
	}
	checked(t, b, j.SessionID)
}

// TestWhatWasAskedInVainIsAskedAgain: a run that failed between asking its hooks
// and acting asks them at other positions when it is taken up again, since
// every position is decided once.
func TestWhatWasAskedInVainIsAskedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := looptest.NewBench(looptest.NewLog(), says("ok"))
		id := b.Session(t)
		b.Use(hooks.Hooks{
			BeforeRunStart: hooks.Named("start", "1", func(context.Context, hooks.BeforeRunStart) (hooks.BeforeRunStartResult, error) {
				return hooks.BeforeRunStartResult{Action: hooks.ActionContinue}, nil
			}),
			TransformContext: hooks.Named("context", "1", func(context.Context, hooks.TransformContext) (hooks.TransformContextResult, error) {
				return hooks.TransformContextResult{Action: hooks.ActionContinue}, nil
			}),
		})
		// Somebody renames the session while the run's time runs out.
		var once sync.Once
		hooked(b, func(a loop.Append) {
			if !has(a, event.TypeModelRequested) {
				return
			}
			once.Do(func() {
				pause(t.Context(), time.Second)
				err := b.Commands.UpdateSession(t.Context(), loop.UpdateSession{
					TenantID: looptest.Tenant, SessionID: id, Title: new("x"), Actor: looptest.Tester,
				})
				if err != nil {
					t.Error(err)
				}
			})
		})
		limit(b, loop.Limits{RunTime: time.Second / 2})
		j := b.Start(t, id, "hi")
		if run := b.Advance(t, j); run.Reason != string(event.FailTimeout) || len(run.Turns) != 0 {
			t.Fatalf("run %+v; want its time over before its first turn", run)
		}
		limit(b, loop.Limits{})
		j = retaken(t, b, j)
		if run := b.Advance(t, j); run.Status != loop.RunCompleted {
			t.Errorf("run %+v", run)
		}
		checked(t, b, id)
		want := []string{"BeforeRunStart start continue void", "TransformContext context continue void", "BeforeRunStart start continue", "TransformContext context continue"}
		if got := rows(ledger(b, id)); !slices.Equal(got, want) {
			t.Errorf("ledger %s\nwant %s", lines(got), lines(want))
		}
	})
}

// TestAnOpenTurnGoesOnWithAFullCountOfAttempts: the run failed between two calls
// of one turn.
func TestAnOpenTurnGoesOnWithAFullCountOfAttempts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := 0
		b := looptest.NewBench(looptest.NewLog(), strict(t, failing(&n, with(busy(time.Second)), with(busy(0)))))
		retry(b, loop.Retry{Attempts: 2})
		limit(b, loop.Limits{RunTime: time.Second / 10})
		j := b.Start(t, b.Session(t), "hi")
		run := b.Advance(t, j)
		if turn, _ := run.Turn(); run.Reason != string(event.FailTimeout) || turn.Status != loop.TurnOpen || n != 1 {
			t.Fatalf("run %+v; want its time over while it waits for its provider", run)
		}
		limit(b, loop.Limits{})
		j = retaken(t, b, j)
		run = b.Advance(t, j)
		if turn, _ := run.Turn(); run.Status != loop.RunCompleted || turn.No != 1 || turn.Attempt != 3 || n != 3 {
			t.Errorf("run %+v after %d calls; want it completed in the same turn", run, n)
		}
		checked(t, b, j.SessionID)
	})
}
