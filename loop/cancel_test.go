package loop_test

import (
	"context"
	"errors"
	"reflect"
	"slices"
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

// cancelledNow checks that w ends within d and that its run is cancelled.
func cancelledNow(t *testing.T, b *looptest.Bench, j loop.Job, w *working, d time.Duration) ([]event.Event, loop.State) {
	t.Helper()
	begin := time.Now()
	if err := cancel(t, b, j); err != nil {
		t.Fatal(err)
	}
	if err := w.wait(t); err != nil {
		t.Errorf("the worker returned %v", err)
	}
	if took := time.Since(begin); took > d {
		t.Errorf("the cancel took %v; want at most %v", took, d)
	}
	if run := b.Run(t, j); run.Status != loop.RunCancelled || run.Reason != "enough" || run.WorkerID != "" {
		t.Errorf("run %+v; want it cancelled", run)
	}
	return checked(t, b, j.SessionID)
}

func TestCancelOfAQueuedRunIsOneAppend(t *testing.T) {
	t.Parallel()
	log := looptest.NewLog()
	b := looptest.NewBench(log, says("no"))
	j := b.Start(t, b.Session(t), "hi")
	var appends []loop.Append
	log.FailAppends(func(a loop.Append) error {
		appends = append(appends, a)
		return nil
	})
	if err := cancel(t, b, j); err != nil {
		t.Fatal(err)
	}
	if len(appends) != 1 || !reflect.DeepEqual(looptest.Types(appends[0].Events), []event.Type{event.TypeRunCancelRequested, event.TypeRunCancelled}) {
		t.Errorf("appends %+v; want one", appends)
	}
	if run := b.Advance(t, j); run.Status != loop.RunCancelled || run.Reason != "enough" || len(appends) != 1 {
		t.Errorf("run %+v after its job came, %d appends", run, len(appends))
	}
	goesOn(t, b, j.SessionID)
}

func TestCancelInAStalledStreamKeepsWhatWasShown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := looptest.NewBench(looptest.NewLog(), paced(stalls(nil, looptest.Reasoning("hm"), looptest.Text("once "), looptest.Text("upon"))))
		j := b.Start(t, b.Session(t), "hi")
		w := work(t, b, j)
		pause(t.Context(), time.Minute)
		events, s := cancelledNow(t, b, j, w, 0)
		got := only[event.AssistantStopped](t, events)
		want := []hooks.Part{{Type: hooks.PartReasoning, Text: "hm"}, {Type: hooks.PartText, Text: "once upon"}}
		if got.Reason != "cancelled" || got.FirstSeq != 8 || !reflect.DeepEqual(got.Parts, want) {
			t.Errorf("stopped %+v; want what was shown", got)
		}
		if m := s.Messages[1]; !m.Partial || m.ID != got.MessageID || m.Text() != "once upon" {
			t.Errorf("message %+v; want it partial", m)
		}
		var sent []string
		agent := b.Engine.Agents["demo"]
		agent.Model = looptest.Model(func(_ context.Context, req loop.ModelRequest, yield func(stream.Chunk, error) bool) {
			for _, m := range req.Messages {
				sent = append(sent, m.Text())
			}
			yield(looptest.Finish(stream.FinishStop), nil)
		})
		b.Engine.Agents["demo"] = agent
		b.Advance(t, b.Start(t, j.SessionID, "go on"))
		if want := []string{"hi", "once upon", "go on"}; !slices.Equal(sent, want) {
			t.Errorf("the next request has %q; want %q", sent, want)
		}
	})
}

func TestCancelBeforeAnythingWasShownLeavesNoMessage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := looptest.NewBench(looptest.NewLog(), stalls(nil))
		j := b.Start(t, b.Session(t), "hi")
		w := work(t, b, j)
		synctest.Wait()
		events, s := cancelledNow(t, b, j, w, 0)
		if got := only[event.AssistantStopped](t, events); got.MessageID != "" || len(got.Parts) != 0 || len(s.Messages) != 1 {
			t.Errorf("stopped %+v, messages %+v; want none", got, s.Messages)
		}
		goesOn(t, b, j.SessionID)
	})
}

func TestCancelLeavesBehindWhatDoesNotStop(t *testing.T) {
	t.Parallel()
	t.Run("Model", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			release := make(chan struct{})
			b := looptest.NewBench(looptest.NewLog(), stalls(release, looptest.Text("hm")))
			j := b.Start(t, b.Session(t), "hi")
			w := work(t, b, j)
			synctest.Wait()
			_, s := cancelledNow(t, b, j, w, time.Second)
			close(release)
			synctest.Wait()
			if _, after := checked(t, b, j.SessionID); after.LastSeq != s.LastSeq {
				t.Error("what was left behind wrote something")
			}
			goesOn(t, b, j.SessionID)
		})
	})
	t.Run("Tool", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			release := make(chan struct{})
			b := looptest.NewBench(looptest.NewLog(), calls("deaf"), blocks("deaf", release))
			j := b.Start(t, b.Session(t), "hi")
			w := work(t, b, j)
			synctest.Wait()
			_, s := cancelledNow(t, b, j, w, time.Second)
			close(release)
			synctest.Wait()
			if got := results(s); len(got) != 1 || got[0].Reason != hooks.ReasonOutcomeUnknown {
				t.Errorf("results %+v; want outcome unknown", got)
			}
			if _, after := checked(t, b, j.SessionID); after.LastSeq != s.LastSeq {
				t.Error("what was left behind wrote something")
			}
			goesOn(t, b, j.SessionID)
		})
	})
}

func TestCancelInToolsGivesEachCallItsResult(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		graceful := looptest.Tool{Name: "graceful", Run: func(ctx context.Context, _ loop.ToolInput) (loop.ToolOutput, error) {
			<-ctx.Done()
			return loop.ToolOutput{Content: "3 of 5 done"}, nil
		}}
		b := looptest.NewBench(looptest.NewLog(), calls("quick", "obeys", "graceful"), looptest.Says("quick", "done"), blocks("obeys", nil), graceful)
		j := b.Start(t, b.Session(t), "hi")
		w := work(t, b, j)
		synctest.Wait()
		_, s := cancelledNow(t, b, j, w, 0)
		var got []string
		for _, r := range results(s) {
			got = append(got, string(r.Reason)+"|"+r.Content[:min(11, len(r.Content))])
		}
		if want := []string{"|done", "outcome_unknown|outcome unk", "|3 of 5 done"}; !slices.Equal(got, want) {
			t.Errorf("results %q; want %q", got, want)
		}
		goesOn(t, b, j.SessionID)
	})
}

// TestCancelKeepsAFailureThatCameBeforeIt: a tool that failed by itself, while
// the engine waited for the log, has an outcome.
func TestCancelKeepsAFailureThatCameBeforeIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		fails := looptest.Tool{Name: "fails", Run: func(ctx context.Context, _ loop.ToolInput) (loop.ToolOutput, error) {
			pause(ctx, 2*time.Millisecond)
			return loop.ToolOutput{}, errors.New("disk full")
		}}
		b := looptest.NewBench(looptest.NewLog(), calls("quick", "fails", "obeys"), afterTime("quick", time.Millisecond, "done"), fails, blocks("obeys", nil))
		var slow sync.Once
		hooked(b, func(a loop.Append) {
			if has(a, event.TypeToolExecuted) {
				slow.Do(func() { pause(context.WithoutCancel(t.Context()), 10*time.Millisecond) })
			}
		})
		j := b.Start(t, b.Session(t), "hi")
		w := work(t, b, j)
		pause(t.Context(), 5*time.Millisecond)
		_, s := cancelledNow(t, b, j, w, 10*time.Millisecond)
		got := results(s)
		if len(got) != 3 || got[1].Reason != hooks.ReasonToolError || got[1].Content != "disk full" || got[2].Reason != hooks.ReasonOutcomeUnknown {
			t.Errorf("results %+v; want done, disk full, outcome unknown", got)
		}
	})
}

// TestCancelBeforeEveryAppend lets a cancel slip in ahead of each append of a
// run: it always ends cancelled, and the conversation always goes on.
func TestCancelBeforeEveryAppend(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		appends, _ := undisturbed(t)
		for n := 3; n <= len(appends); n++ {
			k := newTalk(t, looptest.NewLog())
			j := k.Start(t, k.Session(t), "hi")
			nth := 2
			hooked(k.Bench, func(loop.Append) {
				if nth++; nth == n {
					if err := cancel(t, k.Bench, j); err != nil {
						t.Error(err)
					}
				}
			})
			run := k.Advance(t, j)
			if run.Status != loop.RunCancelled || run.Reason != "enough" {
				t.Errorf("cancelled before append %d: run %+v", n, run)
			}
			events, _ := checked(t, k.Bench, j.SessionID)
			if asked := len(payloads[event.RunCancelRequested](t, events)); asked != 1 {
				t.Errorf("cancelled before append %d: asked %d times", n, asked)
			}
			k.Engine.Log = k.log
			goesOn(t, k.Bench, j.SessionID)
			if t.Failed() {
				t.Fatalf("cancelled before append %d", n)
			}
		}
	})
}

func TestCancelTwiceAndAfterTheEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		defer close(release)
		b := looptest.NewBench(looptest.NewLog(), stalls(release))
		j := b.Start(t, b.Session(t), "hi")
		w := work(t, b, j)
		synctest.Wait()
		for range 3 { // while the worker waits for its model
			if err := cancel(t, b, j); err != nil {
				t.Errorf("cancel: %v", err)
			}
		}
		if err := w.wait(t); err != nil {
			t.Error(err)
		}
		if err := cancel(t, b, j); err != nil {
			t.Errorf("cancel of a cancelled run: %v; want no error", err)
		}
		events, _ := checked(t, b, j.SessionID)
		only[event.RunCancelRequested](t, events)
		only[event.RunCancelled](t, events)
	})
	b := looptest.NewBench(looptest.NewLog(), says("hi"))
	j := b.Start(t, b.Session(t), "hi")
	b.Advance(t, j)
	before := len(b.Events(t, j.SessionID))
	if err := cancel(t, b, j); !errors.Is(err, loop.ErrRunEnded) {
		t.Errorf("cancel of a completed run: %v; want ErrRunEnded", err)
	}
	if n := len(b.Events(t, j.SessionID)); n != before {
		t.Errorf("%d events; want %d", n, before)
	}
}

func TestCancelOfARunThatNobodyHolds(t *testing.T) {
	t.Parallel()
	t.Run("InAModelCall", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			b := looptest.NewBench(looptest.NewLog(), stalls(nil, looptest.Text("once")))
			j := b.Start(t, b.Session(t), "hi")
			handedOver(t, b, j, time.Second)
			if err := cancel(t, b, j); err != nil {
				t.Fatal(err)
			}
			events, s := checked(t, b, j.SessionID)
			if r, _ := s.Run(j.RunID); r.Status != loop.RunCancelled || !s.Messages[1].Partial || s.Messages[1].Text() != "once" {
				t.Errorf("run %+v, messages %+v", r, s.Messages)
			}
			only[event.AssistantStopped](t, events)
			goesOn(t, b, j.SessionID)
		})
	})
	t.Run("WithOpenTools", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			b := looptest.NewBench(looptest.NewLog(), calls("quick", "slow"), looptest.Says("quick", "done"), blocks("slow", nil))
			j := b.Start(t, b.Session(t), "hi")
			handedOver(t, b, j, time.Second)
			if err := cancel(t, b, j); err != nil {
				t.Fatal(err)
			}
			_, s := checked(t, b, j.SessionID)
			if got := results(s); len(got) != 2 || got[0].Content != "done" || got[1].Reason != hooks.ReasonOutcomeUnknown {
				t.Errorf("results %+v; want done, outcome unknown", got)
			}
			goesOn(t, b, j.SessionID)
		})
	})
	t.Run("WithCallsThatWereNotStarted", func(t *testing.T) {
		t.Parallel()
		b := looptest.NewBench(looptest.NewLog(), says("no"))
		j := b.Start(t, b.Session(t), "hi")
		write(t, b, j, 1, event.RunStarted{WorkerID: "dead", Epoch: 1, Ticket: 1}, event.TurnStarted{},
			event.ModelRequested{Attempt: 1, Model: "m", MessageIDs: []string{}},
			event.AssistantCompleted{Attempt: 1, MessageID: looptest.NewID(), Finish: stream.FinishToolCalls, Parts: []hooks.Part{{Type: hooks.PartToolCall, ToolCall: &hooks.ToolCall{ID: "c1", Name: "look", Arguments: "{}"}}}},
			event.ToolProposed{CallID: "c1", Number: 1, Name: "look", Arguments: "{}"})
		buried(t, b, j, "dead")
		if err := cancel(t, b, j); err != nil {
			t.Fatal(err)
		}
		_, s := checked(t, b, j.SessionID)
		if got := results(s); len(got) != 1 || got[0].Reason != hooks.ReasonCancelled || !got[0].IsError {
			t.Errorf("results %+v; want that it was not run", got)
		}
		goesOn(t, b, j.SessionID)
	})
}

// TestCancelOutlivesItsWorker: the worker that was asked dies first.
func TestCancelOutlivesItsWorker(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := looptest.NewBench(looptest.NewLog(), stalls(nil, looptest.Text("once")))
		j := b.Start(t, b.Session(t), "hi")
		w := work(t, b, j)
		synctest.Wait()
		w.kill()
		_ = w.wait(t)
		if err := cancel(t, b, j); err != nil {
			t.Fatal(err)
		}
		ok, err := b.Commands.ReleaseDead(t.Context(), loop.Release{
			TenantID: looptest.Tenant, SessionID: j.SessionID, RunID: j.RunID, WorkerID: w.id, Now: time.Now(), Actor: looptest.Tester,
		})
		if !ok || err != nil {
			t.Fatalf("release: %v, %v", ok, err)
		}
		if run := b.Run(t, j); run.Status != loop.RunCancelled || run.Reason != "enough" {
			t.Errorf("run %+v; want it cancelled with the release, and no other worker asked", run)
		}
		_, s := checked(t, b, j.SessionID)
		if m := s.Messages[1]; !m.Partial || m.Text() != "once" {
			t.Errorf("message %+v; want what was shown", m)
		}
	})
}

// TestCancelIsSeenAfterAnOutage: the signal came while the log could not be
// read, and no other signal follows.
func TestCancelIsSeenAfterAnOutage(t *testing.T) {
	t.Parallel()
	for name, b := range map[string]func() *looptest.Bench{
		"in a model call": func() *looptest.Bench { return looptest.NewBench(looptest.NewLog(), stalls(nil)) },
		"in a tool": func() *looptest.Bench {
			return looptest.NewBench(looptest.NewLog(), calls("slow"), blocks("slow", nil))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := b()
				log := &deafLog{Log: b.Log.(*looptest.Log)}
				b.Engine.Log = log
				j := b.Start(t, b.Session(t), "hi")
				w := work(t, b, j)
				synctest.Wait()
				log.away.Store(true)
				if err := cancel(t, b, j); err != nil {
					t.Fatal(err)
				}
				pause(t.Context(), 3*time.Second)
				log.away.Store(false)
				pause(t.Context(), time.Second)
				if run := b.Run(t, j); run.Status != loop.RunCancelled {
					t.Errorf("a second after the outage the run is %s", run.Status)
				}
				w.kill()
				_ = w.wait(t)
			})
		})
	}
}

func TestCancelReasonIsMadeText(t *testing.T) {
	t.Parallel()
	b := looptest.NewBench(looptest.NewLog(), says("no"))
	j := b.Start(t, b.Session(t), "hi")
	err := b.Commands.CancelRun(t.Context(), loop.CancelRun{TenantID: looptest.Tenant, SessionID: j.SessionID, RunID: j.RunID, Reason: "a\x00b", Actor: looptest.Tester})
	if err != nil {
		t.Fatal(err)
	}
	events, _ := checked(t, b, j.SessionID)
	if got := only[event.RunCancelRequested](t, events); got.Reason != "a\uFFFDb" || !got.Sanitized {
		t.Errorf("requested %+v; want the mark", got)
	}
}
