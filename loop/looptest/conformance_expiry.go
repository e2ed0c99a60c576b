package looptest

import (
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
)

// The part of the conformance suite that is about the time to answer, which the
// log counts by its own clock.

// clocked is a log whose clock a test stops.
type clocked interface {
	SetClock(t testing.TB, at time.Time)
}

// answerTime is how long there is time to answer in these tests.
const answerTime = time.Second

// asking starts a run that waits for one approval, asked for at the time at.
func asking(t *testing.T, log loop.Log, at time.Time) (b *Bench, j loop.Job, approvalID string) {
	t.Helper()
	clock, ok := log.(clocked)
	if !ok {
		t.Fatalf("the clock of %T cannot be stopped", log)
	}
	clock.SetClock(t, at)
	b = NewBench(log, Answers(
		Answer(ToolCall("x", "pay", `{"n": 1}`), Finish(stream.FinishToolCalls)),
		Answer(Text("ok"), Finish(stream.FinishStop)),
	), Says("pay", "paid"))
	agent := b.Engine.Agents["demo"]
	agent.Permissions = []loop.Permission{{Tools: "*", Mode: loop.PermissionAsk}}
	agent.ApprovalTimeout = answerTime
	b.Engine.Agents["demo"] = agent
	j = b.Start(t, b.Session(t), "go")
	run := b.Advance(t, j)
	if run.Status != loop.RunWaiting {
		t.Fatalf("the run is %s; want it to wait", run.Status)
	}
	return b, j, run.Turns[0].Calls[0].ApprovalID
}

// noon is a time that the clocks of logs keep to the microsecond.
func noon() time.Time { return time.Now().UTC().Truncate(time.Second) }

func testExpiry(t *testing.T, log loop.Log) {
	for name, c := range map[string]struct {
		at   time.Duration
		want event.ApprovalDecision
	}{
		"a millisecond before": {answerTime - time.Millisecond, event.DecisionApproved},
		"at the moment":        {answerTime, event.DecisionExpired},
		"a millisecond after":  {answerTime + time.Millisecond, event.DecisionExpired},
		"days after":           {72 * time.Hour, event.DecisionExpired},
	} {
		start := noon()
		b, j, id := asking(t, log, start)
		log.(clocked).SetClock(t, start.Add(c.at))
		yes := loop.DecideApproval{TenantID: Tenant, ApprovalID: id, Approve: true, Actor: Tester}
		_, err := b.Commands.DecideApproval(t.Context(), yes)
		var decided *loop.DecidedError
		switch late := errors.As(err, &decided); {
		case c.want == event.DecisionApproved && err != nil:
			t.Errorf("%s: %v; want it taken", name, err)
		case c.want == event.DecisionExpired && (!late || decided.Decision != c.want || decided.By.Kind != event.ActorSystem):
			t.Errorf("%s: %v; want that it has expired", name, err)
		}
		if j.Ticket++; b.Advance(t, j).Status != loop.RunCompleted {
			t.Errorf("%s: the run is %+v", name, b.Run(t, j))
		}
		call := b.Run(t, j).Turns[0].Calls[0]
		if call.Decision != c.want || (call.Attempt > 0) != (c.want == event.DecisionApproved) {
			t.Errorf("%s: the call is %+v; want it %s", name, call, c.want)
		}
		conversation(t, b, j)
		if _, again := b.Commands.DecideApproval(t.Context(), yes); !reflect.DeepEqual(again, err) {
			t.Errorf("%s: asked again: %v; want %v", name, again, err)
		}
	}
}

// testExpiredAppend: the deadline is part of the append's own condition, and
// behind the others.
func testExpiredAppend(t *testing.T, log loop.Log) {
	start := noon()
	b, j, id := asking(t, log, start)
	call := b.Run(t, j).Turns[0].Calls[0]
	h, err := log.Head(t.Context(), Tenant, j.SessionID)
	if err != nil {
		t.Fatal(err)
	}
	yes := func() loop.Append {
		e, err := event.New(event.Scope{SessionID: j.SessionID, RunID: j.RunID, Turn: 1, At: time.Now(), Actor: Tester}, event.ApprovalDecided{
			ApprovalID: id, CallID: call.ID, Decision: event.DecisionApproved, ArgumentsSHA256: call.ArgumentsSHA256,
		})
		if err != nil {
			t.Fatal(err)
		}
		return loop.Append{ID: NewID(), TenantID: Tenant, SessionID: j.SessionID, Expected: h.LastSeq, Events: []event.Event{e}, Answers: id}
	}
	late, inTime := yes(), yes()
	log.(clocked).SetClock(t, start.Add(answerTime))
	if _, err := log.Append(t.Context(), late); !errors.Is(err, loop.ErrExpired) {
		t.Errorf("too late: %v; want ErrExpired", err)
	}
	stale := late
	stale.Expected--
	if _, err := log.Append(t.Context(), stale); !errors.Is(err, loop.ErrConflict) {
		t.Errorf("too late, on an old seq: %v; want ErrConflict", err)
	}
	if now, err := log.Head(t.Context(), Tenant, j.SessionID); err != nil || now.LastSeq != h.LastSeq {
		t.Errorf("head %+v, %v; want nothing written", now, err)
	}
	log.(clocked).SetClock(t, start.Add(answerTime-time.Microsecond))
	if _, err := log.Append(t.Context(), inTime); err != nil {
		t.Errorf("in time: %v", err)
	}
	log.(clocked).SetClock(t, start.Add(answerTime))
	if _, err := log.Append(t.Context(), inTime); err != nil {
		t.Errorf("what was written in time, again: %v", err)
	}
	conversation(t, b, j)
}
