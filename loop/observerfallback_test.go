package loop_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
)

// TestAFallbackIsAskedAtItsOwnPriceAndGates: hooks see the request of the model that
// answers, and that one is sent it.
func TestAFallbackIsAskedAtItsOwnPriceAndGates(t *testing.T) {
	t.Parallel()
	first, second := &looptest.Provider{Plays: says("no")}, &looptest.Provider{Plays: says("well")}
	b := looptest.NewBench(looptest.NewLog(), first)
	withFallbacks(b, second, 1)
	var seen []string
	b.Use(hooks.Hooks{BeforeProviderHeaders: hooks.Named("h", "1", func(_ context.Context, in hooks.BeforeProviderHeaders) (hooks.BeforeProviderHeadersResult, error) {
		seen = append(seen, in.Model)
		return hooks.BeforeProviderHeadersResult{Action: hooks.ActionContinue}, nil
	})})
	b.Observe(t, halting(stream.StopFallback))
	j := b.Start(t, b.Session(t), "hi")
	b.Advance(t, j)
	events, _ := checked(t, b, j.SessionID)
	if !slices.Equal(seen, []string{"test-model", "second"}) || len(first.Sent()) != 1 || len(second.Sent()) != 1 || !strings.Contains(second.Sent()[0].Body, `"model":"second"`) {
		t.Errorf("hooks saw %q; the first was sent %d requests, the second %+v", seen, len(first.Sent()), second.Sent())
	}
	if p := only[event.AssistantCompleted](t, events); p.Cost == nil || p.Cost.InputPrice != 1 {
		t.Errorf("it costs %+v", p.Cost)
	}
}

// TestAWorkerWithFewerModelsEndsARunThatHasFallenBack, wherever the run stands.
func TestAWorkerWithFewerModelsEndsARunThatHasFallenBack(t *testing.T) {
	t.Parallel()
	for name, at := range map[string]event.Type{"before it is asked": event.TypeAssistantStopped, "in its answer": event.TypeModelRequested} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			log := looptest.NewLog()
			b := looptest.NewBench(log, says("no"))
			withFallbacks(b, says("well"), 1)
			b.Use(hooks.Hooks{TransformContext: hooks.Named("asks", "1", func(context.Context, hooks.TransformContext) (hooks.TransformContextResult, error) {
				return hooks.TransformContextResult{Action: hooks.ActionContinue}, nil
			})})
			b.Observe(t, halting(stream.StopFallback))
			j := b.Start(t, b.Session(t), "hi")
			ctx, die := context.WithCancel(t.Context())
			defer die()
			stops := 0
			log.LoseAcks(func(a loop.Append) error {
				for _, e := range a.Events {
					if e.Type == event.TypeAssistantStopped {
						stops++
					}
				}
				if stops > 0 && a.Events[len(a.Events)-1].Type == at {
					die()
					return errDead
				}
				return nil
			})
			if err := b.Engine.Advance(ctx, j, loop.Holder{WorkerID: "w1"}); err == nil {
				t.Fatal("the worker has not died")
			}
			log.LoseAcks(nil)
			if _, err := b.Commands.ReleaseDead(t.Context(), loop.Release{
				TenantID: looptest.Tenant, SessionID: j.SessionID, RunID: j.RunID, WorkerID: "w1", Now: b.Commands.Now(), Actor: looptest.Tester,
			}); err != nil {
				t.Fatal(err)
			}
			agent := b.Engine.Agents["demo"]
			agent.Fallbacks = nil
			b.Engine.Agents["demo"] = agent
			j.Ticket = b.Run(t, j).Ticket
			run := b.Advance(t, j)
			checked(t, b, j.SessionID)
			if run.Status != loop.RunFailed || run.Reason != string(event.FailStopped) || !strings.Contains(run.Error, "no further model") {
				t.Errorf("the run is %+v", run)
			}
		})
	}
}

// TestAStoppedAnswerInWhosePlaceAnotherStandsHasNoNotice: the run was taken up again
// before the model could be told.
func TestAStoppedAnswerInWhosePlaceAnotherStandsHasNoNotice(t *testing.T) {
	t.Parallel()
	var asked []loop.ModelRequest
	b := looptest.NewBench(looptest.NewLog(), strict(t, func(ctx context.Context, req loop.ModelRequest, yield func(stream.Chunk, error) bool) {
		asked = append(asked, req)
		says("fine")(ctx, req, yield)
	}))
	late := watches("late", func() looptest.Observer {
		return func(c stream.Chunk) stream.Verdict {
			if c.Kind == stream.KindFinish && len(asked) == 1 {
				return stream.Stop("it was too long")
			}
			return stream.Continue()
		}
	})
	late.OnStop = stream.StopRetry
	b.Observe(t, late)
	limited := b.Engine.Agents["demo"]
	free := limited
	limited.Limits.Tokens = 5 // the first answer takes 8
	b.Engine.Agents["demo"] = limited
	j := b.Start(t, b.Session(t), "hi")
	if run := b.Advance(t, j); run.Reason != string(event.FailTokenLimit) {
		t.Fatalf("the run is %+v", run)
	}
	b.Engine.Agents["demo"] = free
	if _, err := again(t, b, j); err != nil {
		t.Fatal(err)
	}
	j.Ticket = b.Run(t, j).Ticket
	run := b.Advance(t, j)
	checked(t, b, j.SessionID)
	if got := toldIn(asked[1]); run.Status != loop.RunCompleted || !slices.Equal(got, []string{"user: hi"}) {
		t.Errorf("the run is %+v, and the model was told %q", run, got)
	}
}

func TestATurnLimitBehindAStopSaysSo(t *testing.T) {
	t.Parallel()
	b := looptest.NewBench(looptest.NewLog(), says("no"))
	agent := b.Engine.Agents["demo"]
	agent.Limits.Turns = 1
	b.Engine.Agents["demo"] = agent
	b.Observe(t, halting(stream.StopRetry))
	j := b.Start(t, b.Session(t), "hi")
	run := b.Advance(t, j)
	checked(t, b, j.SessionID)
	if run.Reason != string(event.FailTurnLimit) || !strings.Contains(run.Error, "and the last answer was stopped by halts") {
		t.Errorf("the run is %+v", run)
	}
}
