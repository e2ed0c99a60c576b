package loop_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
)

// limitedAsking is an asking run whose people have so long to answer, and the log's
// clock.
func limitedAsking(t *testing.T, timeout time.Duration) (a *askingRun, pass func(time.Duration)) {
	t.Helper()
	a = newAskingRun(t, hooks.Hooks{})
	hurry(a.Bench, timeout)
	now := time.Now()
	pass = func(d time.Duration) {
		now = now.Add(d)
		a.Log.(*looptest.Log).SetClock(t, now)
	}
	pass(0)
	a.Advance(t, a.job)
	return a, pass
}

// TestNobodyAnsweredInTime: that is neither a yes nor anybody's no, nothing runs,
// the model is told, and the run goes on.
func TestNobodyAnsweredInTime(t *testing.T) {
	t.Parallel()
	a, pass := limitedAsking(t, time.Second)
	ids := openApprovals(t, a.Bench, a.job)
	pass(time.Second - time.Millisecond)
	decide(t, a.Bench, ids[0], true)
	a.waits(t, 1)
	pass(2 * time.Millisecond)
	late := loop.DecideApproval{TenantID: looptest.Tenant, ApprovalID: ids[1], Approve: true, Actor: looptest.Tester}
	var decided *loop.DecidedError
	if _, err := a.Commands.DecideApproval(t.Context(), late); !errors.As(err, &decided) || decided.Decision != event.DecisionExpired || decided.By != event.System("approval_timeout") {
		t.Errorf("a late yes: %v", err)
	}
	late.Arguments = new(`{"n":7}`)
	if _, err := a.Commands.DecideApproval(t.Context(), late); !errors.As(err, &decided) || decided.Decision != event.DecisionExpired {
		t.Errorf("a late edit: %v", err)
	}
	// What came in time is an answer still.
	if again := decide(t, a.Bench, ids[0], true); !again.Repeated {
		t.Errorf("repeated: %+v", again)
	}
	if run := a.Advance(t, next(t, a.Bench, a.job)); run.Status != loop.RunCompleted {
		t.Errorf("run %+v", run)
	}
	events, s := checked(t, a.Bench, a.job.SessionID)
	want := []string{"p1 ran", "f1 ran", "expired This call needs a person's yes, and nobody answered in time. It was not run.", "f2 ran"}
	if got := told(s); !slices.Equal(got, want) || !slices.Equal(a.sorted(), []string{"f1 {}", "f2 {}", "p1 {}"}) {
		t.Errorf("told %q, ran %q; want %q", got, a.sorted(), want)
	}
	if all := payloads[event.ApprovalDecided](t, events); len(all) != 2 || all[1].Decision != event.DecisionExpired || all[1].ArgumentsSHA256 != digestOf("{}").SHA256 {
		t.Errorf("decided %+v", all)
	}
}

// TestTheSweeperNotesWhatHasExpired: before anybody comes too late.
func TestTheSweeperNotesWhatHasExpired(t *testing.T) {
	t.Parallel()
	a, pass := limitedAsking(t, time.Minute)
	ids := openApprovals(t, a.Bench, a.job)
	decide(t, a.Bench, ids[1], false)
	pass(time.Minute)
	for i, want := range []bool{true, false} {
		if done, err := a.Commands.ExpireApproval(t.Context(), looptest.Tenant, ids[0]); err != nil || done != want {
			t.Errorf("round %d: %v, %v; want %v", i, done, err, want)
		}
	}
	if done, err := a.Commands.ExpireApproval(t.Context(), looptest.Tenant, ids[1]); err != nil || done {
		t.Errorf("what was answered: %v, %v; want it left alone", done, err)
	}
	if _, err := a.Commands.ExpireApproval(t.Context(), "other", ids[0]); !errors.Is(err, loop.ErrNotFound) {
		t.Errorf("another tenant's: %v", err)
	}
	if run := a.Advance(t, next(t, a.Bench, a.job)); run.Status != loop.RunCompleted {
		t.Errorf("run %+v", run)
	}
	checked(t, a.Bench, a.job.SessionID)
}

// TestWithoutALimitPeopleHaveForEver, and so it is with a limit of nothing.
func TestWithoutALimitPeopleHaveForEver(t *testing.T) {
	t.Parallel()
	a, pass := limitedAsking(t, 0)
	pass(10 * 365 * 24 * time.Hour)
	a.waits(t, 2)
	for _, q := range payloads[event.ApprovalRequested](t, a.Events(t, a.job.SessionID)) {
		if q.TimeoutMS != 0 {
			t.Errorf("asked %+v", q)
		}
	}
	for _, id := range openApprovals(t, a.Bench, a.job) {
		decide(t, a.Bench, id, true)
	}
	if run := a.Advance(t, next(t, a.Bench, a.job)); run.Status != loop.RunCompleted {
		t.Errorf("run %+v", run)
	}
}

// TestATimeoutBelowAMillisecondIsOne: a setting never means its opposite.
func TestATimeoutBelowAMillisecondIsOne(t *testing.T) {
	t.Parallel()
	a, _ := limitedAsking(t, time.Nanosecond)
	for _, q := range payloads[event.ApprovalRequested](t, a.Events(t, a.job.SessionID)) {
		if q.TimeoutMS != 1 {
			t.Errorf("asked %+v", q)
		}
	}
}

// TestExpiryOfARunWhoseStoredStateIsBroken ends it, as any other word would.
func TestExpiryOfARunWhoseStoredStateIsBroken(t *testing.T) {
	t.Parallel()
	a, _ := limitedAsking(t, time.Second)
	id := openApprovals(t, a.Bench, a.job)[0]
	a.Commands.Log = badLog{a.Log}
	if done, err := a.Commands.ExpireApproval(t.Context(), looptest.Tenant, id); err != nil || !done {
		t.Errorf("%v, %v; want the run ended", done, err)
	}
	if run := a.Run(t, a.job); run.Status != loop.RunFailed || run.Reason != string(event.FailBadState) {
		t.Errorf("run %+v", run)
	}
	checked(t, a.Bench, a.job.SessionID)
}

// badLog cannot read what is stored of runs.
type badLog struct{ loop.Log }

func (l badLog) Load(ctx context.Context, tenantID, sessionID, runID string) (loop.State, error) {
	s, err := l.Log.Load(ctx, tenantID, sessionID, runID)
	return s, errors.Join(err, &loop.BadStateError{Seq: 3, Problem: "it is torn"})
}
