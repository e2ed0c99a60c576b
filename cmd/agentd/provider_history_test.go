package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
	"github.com/seed-2ca4966b/agentd/loop/model/openai"
	"github.com/seed-2ca4966b/agentd/loop/model/openai/openaitest"
	"github.com/seed-2ca4966b/agentd/store/storetest"
)

// slowCalls asks for a tool that never ends and for one that does.
var slowCalls = openaitest.Calls(
	openaitest.Call{ID: "call_1", Name: "slow", Arguments: "{}"}, openaitest.Call{ID: "call_2", Name: "get_time", Arguments: `{"zone":"UTC"}`},
)

// unanswered is a run whose calls have no results yet.
type unanswered struct {
	*stack
	provider *openaitest.Provider
	job      loop.Job
	// entered is closed when the tool that never ends has been entered.
	entered chan struct{}
}

func newUnanswered(t *testing.T) *unanswered {
	t.Helper()
	u := &unanswered{provider: openaitest.New(t, slowCalls), entered: make(chan struct{})}
	slow := looptest.Tool{Name: "slow", Run: func(ctx context.Context, _ loop.ToolInput) (loop.ToolOutput, error) {
		close(u.entered)
		<-ctx.Done()
		return loop.ToolOutput{}, ctx.Err()
	}}
	u.stack = newStack(t, storetest.New(t), providedBy(t, u.provider, openai.Config{}, append(newDesk().tools(), slow)...))
	u.job = u.Start(t, u.Session(t), "go")
	return u
}

func (u *unanswered) cancel(ctx context.Context) error {
	return u.Commands.CancelRun(ctx, loop.CancelRun{TenantID: looptest.Tenant, SessionID: u.job.SessionID, RunID: u.job.RunID, Actor: looptest.Tester})
}

// halfDone returns when one of two tools has its result and the other runs.
func (u *unanswered) halfDone(t *testing.T) {
	t.Helper()
	<-u.entered
	awaitRow(t, u.db, `SELECT id::text FROM agentd.tool_calls WHERE name = 'get_time' AND status = 'done'`)
}

// saysHelloTwice holds that the session goes on, and that the calls keep the
// one result that each of them got.
func (u *unanswered) saysHelloTwice(t *testing.T, want ...string) {
	t.Helper()
	for _, said := range []string{"hello", "hello again"} {
		u.provider.Answer(openaitest.Text("Hi."))
		j := u.Start(t, u.job.SessionID, said)
		if run := u.Advance(t, j); run.Status != loop.RunCompleted {
			t.Errorf("%s: the run is %s: %s", said, run.Status, run.Error)
		}
		list := u.provider.Requests()
		if got := pairs(list[len(list)-1].Chat); !slices.Equal(got, want) {
			t.Errorf("%s: the provider was sent %q, want %q", said, got, want)
		}
	}
	if n := scalar[int](t, u.db, `SELECT count(*) FROM agentd.events WHERE type = 'tool.result'`); n != len(want) {
		t.Errorf("%d results are stored, want %d", n, len(want))
	}
}

const (
	slowUnknown = "slow{} → outcome unknown: the tool was started and then interrupted before it answered. It may have taken effect. It was not run again."
	timeNoon    = `get_time{"zone":"UTC"} → noon {"zone":"UTC"}`
	notRun      = " → This call was not run: the run was cancelled first."
)

// TestCallsWithoutAnAnswerDoNotSpoilTheSession: whatever ended the run, the
// next request has one result per call.
func TestCallsWithoutAnAnswerDoNotSpoilTheSession(t *testing.T) {
	t.Parallel()
	t.Run("CancelledWhileOneRuns", func(t *testing.T) {
		t.Parallel()
		u := newUnanswered(t)
		run := u.advance(t, u.job)
		u.halfDone(t)
		if err := u.cancel(t.Context()); err != nil {
			t.Fatal(err)
		}
		run.wait(t)
		u.saysHelloTwice(t, slowUnknown, timeNoon)
	})
	t.Run("CancelledBeforeTheFirstStarts", func(t *testing.T) {
		t.Parallel()
		u := newUnanswered(t)
		u.checked(t, hooks.Hooks{BeforeToolCall: hooks.Named("canceller", "1", func(ctx context.Context, _ hooks.BeforeToolCall) (hooks.BeforeToolCallResult, error) {
			return hooks.BeforeToolCallResult{}, u.cancel(ctx)
		})})
		if run := u.Advance(t, u.job); run.Status != loop.RunCancelled {
			t.Fatalf("the run is %s", run.Status)
		}
		u.saysHelloTwice(t, "slow{}"+notRun, `get_time{"zone":"UTC"}`+notRun)
	})
	t.Run("ItsWorkerDiesWhileOneRuns", func(t *testing.T) {
		t.Parallel()
		u := newUnanswered(t)
		ctx, die := context.WithCancel(t.Context())
		worker, dead := looptest.NewID(), make(chan error, 1)
		go func() { dead <- u.Engine.Advance(ctx, u.job, loop.Holder{WorkerID: worker}) }()
		u.halfDone(t)
		die()
		if err := <-dead; err == nil {
			t.Error("the worker survived")
		}
		u.provider.Answer(openaitest.Text("Well."))
		j := released(t, u.Bench, u.job, worker)
		if run := u.Advance(t, j); run.Status != loop.RunCompleted {
			t.Errorf("the run is %s", run.Status)
		}
		u.saysHelloTwice(t, slowUnknown, timeNoon)
	})
}

// released takes a run away from a dead worker and returns its next job.
func released(t *testing.T, b *looptest.Bench, j loop.Job, worker string) loop.Job {
	t.Helper()
	if _, err := b.Commands.ReleaseDead(t.Context(), loop.Release{
		TenantID: looptest.Tenant, SessionID: j.SessionID, RunID: j.RunID, WorkerID: worker, Now: time.Now(), Actor: looptest.Tester,
	}); err != nil {
		t.Fatal(err)
	}
	j.Ticket = b.Run(t, j).Ticket
	return j
}

// TestCallsWithoutAnAnswerAfterAKill is the same with a process that is killed
// by kill -9, and another one that takes over.
func TestCallsWithoutAnAnswerAfterAKill(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	p := openaitest.New(t, openaitest.Calls(
		openaitest.Call{ID: "call_1", Name: toolCharge, Arguments: `{"hold":"` + holdAfter + `"}`},
		openaitest.Call{ID: "call_2", Name: "ping", Arguments: `{"message":"x"}`},
	), openaitest.Text("Well."), openaitest.Text("Hi."), openaitest.Text("Hi."))
	f.env = append(slices.DeleteFunc(f.env, func(v string) bool { return strings.HasPrefix(v, "AGENTD_SCRIPT=") }), "OPENAI_BASE_URL="+p.URL)
	victim := f.add(t)
	session := newSession(t, victim)
	run, _ := startRun(t, victim, session, "go")
	awaitEffect(t, f.effects, run)
	awaitRow(t, f.db, `SELECT id::text FROM agentd.tool_calls WHERE name = 'ping' AND status = 'done'`)
	f.kill(t, victim)
	heir := f.add(t)
	if status := f.awaitEnd(t, run); status != "completed" {
		t.Errorf("the run is %s", status)
	}
	for range 2 {
		again, _ := startRun(t, heir, session, "hello")
		if status := f.awaitEnd(t, again); status != "completed" {
			t.Errorf("the next run is %s", status)
		}
	}
	want := []string{`charge{"hold":"after"}` + strings.TrimPrefix(slowUnknown, "slow{}"), `ping{"message":"x"} → pong: x`}
	for _, r := range p.Requests()[1:] {
		if got := pairs(r.Chat); !slices.Equal(got, want) {
			t.Errorf("request %d has %q, want %q", r.N, got, want)
		}
	}
	if n := len(effects(t, f.effects, run)); n != 1 || p.Left() != 0 {
		t.Errorf("the tool took effect %d times, and %d answers were not asked for", n, p.Left())
	}
}

// TestCallIDsThatComeAgainAreTheProvidersOwnAffair: some number the calls of
// each round from 0, some give all the same id or none.
func TestCallIDsThatComeAgainAreTheProvidersOwnAffair(t *testing.T) {
	t.Parallel()
	const rounds = 4
	for name, id := range map[string]string{"Constant": "call_0", "None": "", "Prefixed": "tool:0"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := openaitest.New(t)
			var want []string
			for i := range rounds {
				zone := fmt.Sprintf(`{"zone":"Z%d"}`, i+1)
				// The second call of a round has the id of the first, too.
				p.Answer(openaitest.Calls(openaitest.Call{ID: id, Name: "get_time", Arguments: zone}, openaitest.Call{ID: id, Name: "lookup_order", Arguments: zone}))
				want = append(want, "get_time"+zone+" → noon "+zone, "lookup_order"+zone+" → order "+zone)
			}
			p.Answer(openaitest.Text("Done."))
			s, d := newProvided(t, p, openai.Config{})
			j := s.Start(t, s.Session(t), "go")
			if run := s.Advance(t, j); run.Status != loop.RunCompleted {
				t.Fatalf("the run is %s: %s", run.Status, run.Error)
			}
			if n := d.uses(j.SessionID); n != 2*rounds {
				t.Errorf("tools ran %d times, want %d", n, 2*rounds)
			}
			if got := pairs(p.Await(t, rounds+1).Chat); !slices.Equal(got, want) {
				t.Errorf("the provider was sent %q, want %q", got, want)
			}
		})
	}
}

// TestApprovalsOfCallsWithOneIDAreTheirOwn: a yes to a call is none to the next
// one, though the provider cannot tell them apart.
func TestApprovalsOfCallsWithOneIDAreTheirOwn(t *testing.T) {
	t.Parallel()
	p := openaitest.New(t)
	s, d := newProvided(t, p, openai.Config{})
	s.askingFor("get_time")
	var want []string
	var zones []string
	for i := range 4 {
		zone := fmt.Sprintf(`{"zone":"Z%d"}`, i+1)
		zones = append(zones, zone)
		p.Answer(openaitest.Calls(openaitest.Call{ID: "call_0", Name: "get_time", Arguments: zone}))
		want = append(want, "get_time"+zone+[]string{" → noon " + zone, " → This call was denied by a person. It was not run."}[i%2])
	}
	p.Answer(openaitest.Text("Done."))
	j := s.Start(t, s.Session(t), "go")
	s.Advance(t, j)
	for i, zone := range zones {
		s.wantOpen(t, j, zone)
		s.answer(t, j, zone, i%2 == 0)
		j.Ticket = s.Run(t, j).Ticket
		s.Advance(t, j)
	}
	if run := s.Run(t, j); run.Status != loop.RunCompleted || d.uses(j.SessionID) != 2 {
		t.Errorf("the run is %s, and tools ran %d times", run.Status, d.uses(j.SessionID))
	}
	if got := pairs(p.Await(t, 5).Chat); !slices.Equal(got, want) {
		t.Errorf("the provider was sent %q, want %q", got, want)
	}
}

// TestAConversationOfEmptyAndBlankTexts: an answer that is only calls, a tool
// that says nothing, an answer of a line break, a message that was not
// answered, an answer of nothing. What people said stays, in order.
func TestAConversationOfEmptyAndBlankTexts(t *testing.T) {
	t.Parallel()
	p := openaitest.New(t)
	s := newStack(t, storetest.New(t), providedBy(t, p, openai.Config{}, looptest.Says("quiet", "")))
	id := s.Session(t)
	say := func(said string, want loop.RunStatus, answers ...openaitest.Answer) {
		t.Helper()
		p.Answer(answers...)
		if run := s.Advance(t, s.Start(t, id, said)); run.Status != want || p.Left() != 0 {
			t.Errorf("%q: the run is %s, want it %s, and %d answers are left", said, run.Status, want, p.Left())
		}
	}
	say("hi", loop.RunCompleted, openaitest.Calls(openaitest.Call{ID: "t1", Name: "quiet", Arguments: ""}), openaitest.Text("\n"))
	say("one", loop.RunFailed, openaitest.Error(401, "invalid_request_error", "invalid_api_key", "not today"))
	say("two", loop.RunCompleted, openaitest.Text(""))
	if _, err := s.Commands.StartRun(t.Context(), loop.StartRun{TenantID: looptest.Tenant, SessionID: id, Text: " \t", Actor: looptest.Tester}); err == nil {
		t.Error("a blank message was taken")
	}
	say("three", loop.RunCompleted, openaitest.Text("Good."))
	list := p.Requests()
	var got []string
	for _, m := range list[len(list)-1].Chat.Messages {
		got = append(got, m.Role+" "+m.Text())
	}
	if want := []string{"user hi", "assistant ", "tool (no output)", "user one", "user two", "user three"}; !slices.Equal(got, want) {
		t.Errorf("the provider was sent %q, want %q", got, want)
	}
}
