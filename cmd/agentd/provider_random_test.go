package main

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
	"github.com/seed-2ca4966b/agentd/loop/model/openai"
	"github.com/seed-2ca4966b/agentd/loop/model/openai/openaitest"
)

// TestALongSessionInARoughWorldIsAlwaysValid: denials, cancels, deaths of
// workers, and a provider that says odd things, at random. The provider fails
// the test with the first request that it would refuse.
func TestALongSessionInARoughWorldIsAlwaysValid(t *testing.T) {
	t.Parallel()
	turns, seeds := roughTurns, []uint64{1, 2, 3}
	if underRace {
		turns, seeds = 120, seeds[:1]
	}
	for _, seed := range seeds {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			newRoughSession(t, seed).play(t, turns)
		})
	}
}

// roughTurns is how long such a session is at full size.
const roughTurns = 500

// roughSession is a session on a log in memory, so that many turns take little
// time.
type roughSession struct {
	*looptest.Bench
	chaos    *chaos
	provider *openaitest.Provider
	id       string
	// last is the user message of the last run.
	last string
}

func newRoughSession(t *testing.T, seed uint64) *roughSession {
	t.Helper()
	s := &roughSession{chaos: newChaos(seed), provider: openaitest.New(t)}
	s.provider.Respond(s.chaos.answer)
	m, err := openai.New(openai.Config{BaseURL: s.provider.URL})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	log := looptest.NewLog()
	s.Bench = looptest.NewBench(log, m, s.chaos.tools()...)
	s.Use(s.chaos.hooks())
	agent := s.Engine.Agents["demo"]
	agent.Permissions, agent.Limits = s.chaos.permissions(), loop.Limits{Turns: 8}
	agent.Retry = loop.Retry{Attempts: 2, MaxWait: time.Millisecond}
	s.Engine.Agents["demo"] = agent
	s.id = s.Session(t)
	log.FailAppends(s.chaos.append)
	log.LoseAcks(s.chaos.append)
	return s
}

func (s *roughSession) play(t *testing.T, turns int) {
	t.Helper()
	var j loop.Job
	var events []event.Event
	seen := map[any]int{}
	for seen[event.TypeTurnStarted] < turns && !t.Failed() {
		j = s.begin(t, j)
		for run := s.Run(t, j); !run.Status.Terminal(); run = s.Run(t, j) {
			s.step(t, j, run)
			j.Ticket = s.Run(t, j).Ticket
		}
		events = s.Events(t, s.id)
		clear(seen)
		for _, e := range events {
			seen[e.Type]++
		}
	}
	t.Logf("%d turns, %d runs, %d model calls, %d events", seen[event.TypeTurnStarted], seen[event.TypeRunCreated], len(s.provider.Requests()), len(events))
	if err := looptest.CheckLog(events); err != nil {
		t.Error(err)
	}
	for _, e := range events {
		p, err := event.Decode(e)
		if err != nil {
			t.Fatal(err)
		}
		if r, ok := p.(event.ToolResult); ok {
			seen[r.Reason]++
		}
	}
	if turns < roughTurns {
		return
	}
	// A world in which some of this never happens in all that time is not rough.
	for _, want := range []any{
		event.TypeRunCompleted, event.TypeRunFailed, event.TypeRunCancelled, event.TypeRunReleased, event.TypeAssistantDiscarded,
		event.TypeAssistantStopped, event.TypeApprovalDecided, event.TypeToolBlocked, hooks.ReasonOutcomeUnknown, hooks.ReasonCancelled,
		hooks.ReasonDenied, hooks.ReasonInvalidArguments, hooks.ReasonUnknownTool,
	} {
		if seen[want] == 0 {
			t.Errorf("never seen: %s", want)
		}
	}
}

// begin starts the next run: by a new message, by an old one said again, or by
// a failed run taken up again.
func (s *roughSession) begin(t *testing.T, last loop.Job) loop.Job {
	t.Helper()
	if s.last != "" && s.chaos.one(10) {
		_, err := s.Commands.RetryRun(t.Context(), loop.RetryRun{TenantID: looptest.Tenant, SessionID: s.id, RunID: last.RunID, Actor: looptest.Tester})
		var refused *loop.RetryError
		if err == nil {
			last.Ticket = s.Run(t, last).Ticket
			return last
		}
		if !errors.As(err, &refused) {
			t.Fatal(err)
		}
	}
	cmd := loop.StartRun{TenantID: looptest.Tenant, SessionID: s.id, Text: "go on", Actor: looptest.Tester}
	if s.last != "" && s.chaos.one(15) {
		cmd.ReplaceFrom = s.last
	}
	run, err := s.Commands.StartRun(t.Context(), cmd)
	if err != nil {
		t.Fatal(err)
	}
	s.last = run.MessageID
	return loop.Job{TenantID: looptest.Tenant, SessionID: s.id, RunID: run.RunID, Ticket: 1}
}

// step takes a run one lease or one decision further.
func (s *roughSession) step(t *testing.T, j loop.Job, run loop.Run) {
	t.Helper()
	switch run.Status {
	case loop.RunQueued:
		s.lease(t, j)
	case loop.RunRunning:
		released(t, s.Bench, j, run.WorkerID)
	case loop.RunWaiting:
		s.decide(t, j, run)
	default:
		t.Fatalf("the run is %s", run.Status)
	}
}

// lease lets a fresh worker advance the run until it is done or dead.
func (s *roughSession) lease(t *testing.T, j loop.Job) {
	t.Helper()
	ctx, die := context.WithCancel(t.Context())
	defer die()
	s.chaos.arm(die, func() { _ = s.cancel(j) }) // too late is no failure
	err := s.Engine.Advance(ctx, j, loop.Holder{WorkerID: looptest.NewID()})
	s.chaos.arm(nil, nil)
	if err != nil && !errors.Is(err, errKilled) && !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
}

func (s *roughSession) cancel(j loop.Job) error {
	return s.Commands.CancelRun(context.Background(), loop.CancelRun{TenantID: looptest.Tenant, SessionID: s.id, RunID: j.RunID, Actor: looptest.Tester})
}

// decide answers what a run waits for, or cancels it.
func (s *roughSession) decide(t *testing.T, j loop.Job, run loop.Run) {
	t.Helper()
	if s.chaos.one(6) {
		if err := s.cancel(j); err != nil {
			t.Fatal(err)
		}
		return
	}
	turn, _ := run.Turn()
	for _, c := range turn.Calls {
		if c.Status != loop.CallAwaiting {
			continue
		}
		if _, err := s.Commands.DecideApproval(t.Context(), loop.DecideApproval{
			TenantID: looptest.Tenant, ApprovalID: c.ApprovalID, Approve: s.chaos.one(2), Actor: looptest.Tester,
		}); err != nil {
			t.Fatal(err)
		}
	}
}
