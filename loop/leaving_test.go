package loop_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
)

// TestLeavingFinishesTheStep closes Leaving ahead of each append: the step that
// is under way ends as if nothing were, the run is handed over with a job, and
// the next worker ends it with nothing done twice.
func TestLeavingFinishesTheStep(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		appends, whole := undisturbed(t)
		for n := 3; n <= len(appends); n++ {
			k := newTalk(t, looptest.NewLog())
			j := k.Start(t, k.Session(t), "hi")
			leaving := make(chan struct{})
			nth := 2
			hooked(k.Bench, func(loop.Append) {
				if nth++; nth == n {
					close(leaving)
				}
			})
			if err := k.Engine.Advance(t.Context(), j, loop.Holder{WorkerID: "w1", Leaving: leaving}); err != nil {
				t.Fatal(err)
			}
			k.Engine.Log = k.log
			run := k.Run(t, j)
			if run.Status.Terminal() {
				// The last step was the end.
				k.finish(t, whole, j.SessionID)
				continue
			}
			if run.Status != loop.RunQueued || run.ReleasedFor != event.ReleaseShutdown || run.Takeovers != 0 {
				t.Fatalf("left before append %d: run %+v", n, run)
			}
			if turn, _ := run.Turn(); turn.Status == loop.TurnCalling {
				t.Errorf("left before append %d in the middle of a model call", n)
			}
			k.Advance(t, next(t, k.Bench, j))
			events, _ := checked(t, k.Bench, j.SessionID)
			if r := only[event.RunResumed](t, events); r.Cause != event.ResumeRelease {
				t.Errorf("resumed %+v; want after a release", r)
			}
			if len(payloads[event.AssistantDiscarded](t, events)) != 0 || k.effects.Load() != 1 || len(k.asked) != 2 {
				t.Errorf("left before append %d: something was done twice: %v", n, looptest.Types(events))
			}
			k.finish(t, whole, j.SessionID)
			if t.Failed() {
				t.Fatalf("left before append %d", n)
			}
		}
	})
}

func TestLeavingWorkerHandsOnWhatItTakesUp(t *testing.T) {
	t.Parallel()
	b := looptest.NewBench(looptest.NewLog(), says("hi"))
	j := b.Start(t, b.Session(t), "hi")
	leaving := make(chan struct{})
	close(leaving)
	if err := b.Engine.Advance(t.Context(), j, loop.Holder{WorkerID: "w", Leaving: leaving}); err != nil {
		t.Fatal(err)
	}
	if run := b.Run(t, j); run.Status != loop.RunQueued || run.Epoch != 2 || len(run.Turns) != 0 {
		t.Errorf("run %+v; want it queued again, with no turn begun", run)
	}
	if run := b.Advance(t, next(t, b, j)); run.Status != loop.RunCompleted {
		t.Errorf("run %+v", run)
	}
}

func TestLeavingWorkerStillWritesTheEnd(t *testing.T) {
	t.Parallel()
	leaving := make(chan struct{})
	model := looptest.Model(func(ctx context.Context, req loop.ModelRequest, yield func(stream.Chunk, error) bool) {
		close(leaving)
		says("hi")(ctx, req, yield)
	})
	b := looptest.NewBench(looptest.NewLog(), model)
	j := b.Start(t, b.Session(t), "hi")
	if err := b.Engine.Advance(t.Context(), j, loop.Holder{WorkerID: "w", Leaving: leaving}); err != nil {
		t.Fatal(err)
	}
	if run := b.Run(t, j); run.Status != loop.RunCompleted {
		t.Errorf("run %+v; want it completed and not handed over", run)
	}
}

func TestInterruptStopsTheStep(t *testing.T) {
	t.Parallel()
	t.Run("ModelCallIsMadeAgainElsewhere", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			b := looptest.NewBench(looptest.NewLog(), stalls(nil, looptest.Text("once")))
			j := b.Start(t, b.Session(t), "hi")
			begin := time.Now()
			j = handedOver(t, b, j, time.Second)
			if took := time.Since(begin); took != time.Second {
				t.Errorf("the interrupt took %v", took-time.Second)
			}
			agent := b.Engine.Agents["demo"]
			agent.Model = says("twice")
			b.Engine.Agents["demo"] = agent
			b.Advance(t, j)
			events, s := checked(t, b, j.SessionID)
			if got := s.Messages[1]; got.Text() != "twice" || got.Partial {
				t.Errorf("answer %+v", got)
			}
			only[event.AssistantDiscarded](t, events)
			if rel := only[event.RunReleased](t, events); rel.Cause != event.ReleaseShutdown {
				t.Errorf("released %+v", rel)
			}
		})
	})
	t.Run("ToolsAreRunAgainIfTheyMayBe", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			var runs atomic.Int64
			again := looptest.Tool{Name: "again", Idempotent: true, Run: func(ctx context.Context, _ loop.ToolInput) (loop.ToolOutput, error) {
				if runs.Add(1) == 1 {
					<-ctx.Done()
				}
				return loop.ToolOutput{Content: "seen"}, ctx.Err()
			}}
			graceful := looptest.Tool{Name: "graceful", Run: func(ctx context.Context, _ loop.ToolInput) (loop.ToolOutput, error) {
				<-ctx.Done()
				return loop.ToolOutput{Content: "3 of 5 done"}, nil
			}}
			b := looptest.NewBench(looptest.NewLog(), strict(t, calls("again", "once", "graceful")), again, blocks("once", nil), graceful)
			j := b.Start(t, b.Session(t), "hi")
			b.Advance(t, handedOver(t, b, j, time.Second))
			_, s := checked(t, b, j.SessionID)
			got := results(s)
			if len(got) != 3 || got[0].Content != "seen" || got[1].Reason != hooks.ReasonOutcomeUnknown || got[2].Content != "3 of 5 done" || runs.Load() != 2 {
				t.Errorf("results %+v, %d runs; want seen, outcome unknown, 3 of 5 done", got, runs.Load())
			}
		})
	})
}

// lostLease ends w's lease from outside and checks that w stops at once and
// that nothing of it is stored after.
func lostLease(t *testing.T, b *looptest.Bench, j loop.Job, w *working) {
	t.Helper()
	begin := time.Now()
	buried(t, b, j, w.id)
	last := len(b.Events(t, j.SessionID))
	if err := w.wait(t); !errors.Is(err, loop.ErrLeaseLost) {
		t.Errorf("the worker returned %v; want ErrLeaseLost", err)
	}
	if took := time.Since(begin); took > time.Second {
		t.Errorf("the worker took %v to notice", took)
	}
	if events, _ := checked(t, b, j.SessionID); len(events) != last {
		t.Errorf("it wrote %v after the lease was gone", looptest.Types(events[last:]))
	}
}

func TestLostLeaseStopsTheWorker(t *testing.T) {
	t.Parallel()
	t.Run("InAModelCall", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			b := looptest.NewBench(looptest.NewLog(), stalls(nil, looptest.Text("once")))
			j := b.Start(t, b.Session(t), "hi")
			w := work(t, b, j)
			synctest.Wait()
			lostLease(t, b, j, w)
		})
	})
	t.Run("InATool", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			var ended atomic.Bool
			tool := looptest.Tool{Name: "slow", Run: func(ctx context.Context, _ loop.ToolInput) (loop.ToolOutput, error) {
				<-ctx.Done()
				pause(t.Context(), 100*time.Millisecond)
				ended.Store(true)
				return loop.ToolOutput{Content: "done"}, nil
			}}
			b := looptest.NewBench(looptest.NewLog(), calls("slow"), tool)
			j := b.Start(t, b.Session(t), "hi")
			w := work(t, b, j)
			synctest.Wait()
			lostLease(t, b, j, w)
			if !ended.Load() {
				t.Error("the engine did not wait for the tool that it stopped")
			}
		})
	})
	t.Run("WithoutASignal", func(t *testing.T) {
		t.Parallel()
		for _, at := range []event.Type{event.TypeAssistantDelta, event.TypeAssistantCompleted, event.TypeToolExecuted, event.TypeRunCompleted} {
			synctest.Test(t, func(t *testing.T) {
				b := looptest.NewBench(looptest.NewLog(), paced(calls("look")), afterTime("look", time.Second, "seen"))
				j := b.Start(t, b.Session(t), "hi")
				id, last := looptest.NewID(), 0
				var once sync.Once
				hooked(b, func(a loop.Append) {
					if has(a, at) {
						once.Do(func() {
							buried(t, b, j, id)
							last = len(b.Events(t, j.SessionID))
						})
					}
				})
				b.Engine.Log = mute{b.Engine.Log}
				if err := b.Engine.Advance(t.Context(), j, loop.Holder{WorkerID: id}); !errors.Is(err, loop.ErrLeaseLost) {
					t.Errorf("at %s: %v; want ErrLeaseLost", at, err)
				}
				if events, _ := checked(t, b, j.SessionID); len(events) != last {
					t.Errorf("at %s: it wrote %v after the lease was gone", at, looptest.Types(events[last:]))
				}
			})
		}
	})
}

// stubborn is a log whose appends do not look at their context, as in a
// committer that writes for many.
type stubborn struct{ loop.Log }

func (l stubborn) Append(ctx context.Context, a loop.Append) (loop.Appended, error) {
	return l.Log.Append(context.WithoutCancel(ctx), a)
}

// TestDeadWorkerSaysNothingOfWhatItsDeathBroke: the model call or the tool ends
// with the worker's context while the engine waits for the log. That is no
// failure of theirs, and nothing is written.
func TestDeadWorkerSaysNothingOfWhatItsDeathBroke(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		bench func() *looptest.Bench
		at    event.Type // the append that is slow
	}{
		"a model call": {func() *looptest.Bench {
			return looptest.NewBench(looptest.NewLog(), stalls(nil, looptest.Text("once")))
		}, event.TypeAssistantDelta},
		"a tool": {func() *looptest.Bench {
			return looptest.NewBench(looptest.NewLog(), calls("quick", "slow"), looptest.Says("quick", "done"), blocks("slow", nil))
		}, event.TypeToolExecuted},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for range 20 { // either of two ready channels may be read first
				synctest.Test(t, func(t *testing.T) {
					b := c.bench()
					hooked(b, func(a loop.Append) {
						if has(a, c.at) {
							pause(context.WithoutCancel(t.Context()), 10*time.Millisecond)
						}
					})
					b.Engine.Log = stubborn{b.Engine.Log}
					j := b.Start(t, b.Session(t), "hi")
					w := work(t, b, j)
					pause(t.Context(), 5*time.Millisecond)
					w.kill()
					if err := w.wait(t); !errors.Is(err, context.Canceled) {
						t.Errorf("the killed worker returned %v", err)
					}
					events, _ := checked(t, b, j.SessionID)
					if last := events[len(events)-1].Type; last != c.at && last != event.TypeToolResult || len(payloads[event.ToolExecuted](t, events)) > 1 {
						t.Errorf("the log ends with %v", looptest.Types(events)[4:])
					}
				})
			}
		})
	}
}

// mute is a log that never signals.
type mute struct{ loop.Log }

func (mute) Watch(string) (<-chan int64, func()) { return nil, func() {} }

func TestNothingToAdvance(t *testing.T) {
	t.Parallel()
	b := looptest.NewBench(looptest.NewLog(), says("hi"))
	id := b.Session(t)
	j := b.Start(t, id, "hi")
	other := b.Start(t, b.Session(t), "hi")
	with := func(change func(*loop.Job)) loop.Job {
		k := j
		change(&k)
		return k
	}
	for name, c := range map[string]struct {
		job  loop.Job
		want error
	}{
		"a stale ticket":           {with(func(k *loop.Job) { k.Ticket = 0 }), nil},
		"a ticket of the future":   {with(func(k *loop.Job) { k.Ticket = 2 }), nil},
		"another session's run":    {with(func(k *loop.Job) { k.RunID = other.RunID }), loop.ErrNotFound},
		"a run that never was":     {with(func(k *loop.Job) { k.RunID = looptest.NewID() }), loop.ErrNotFound},
		"a session that never was": {with(func(k *loop.Job) { k.SessionID = looptest.NewID() }), loop.ErrNotFound},
		"a foreign tenant":         {with(func(k *loop.Job) { k.TenantID = "other" }), loop.ErrNotFound},
	} {
		if err := b.Engine.Advance(t.Context(), c.job, loop.Holder{WorkerID: "w"}); !errors.Is(err, c.want) {
			t.Errorf("%s: %v; want %v", name, err, c.want)
		}
	}
	if n := len(b.Events(t, id)); n != 4 {
		t.Errorf("%d events; want 4", n)
	}
	b.Advance(t, j)
	last := len(b.Events(t, id))
	if err := b.Engine.Advance(t.Context(), j, loop.Holder{WorkerID: "w"}); err != nil || len(b.Events(t, id)) != last {
		t.Errorf("the job of a run that has ended: %v, %d events; want nothing", err, len(b.Events(t, id)))
	}
}

// meetLog lets n readers load the same state before any of them goes on.
type meetLog struct {
	loop.Log
	all *sync.WaitGroup
}

func (l meetLog) Load(ctx context.Context, tenantID, sessionID, runID string) (loop.State, error) {
	s, err := l.Log.Load(ctx, tenantID, sessionID, runID)
	l.all.Done()
	l.all.Wait()
	return s, err
}

func TestOfManyWhoClaimOneWins(t *testing.T) {
	t.Parallel()
	for name, set := range map[string]hooks.Hooks{
		"with the first step": {},
		"in an append of its own": {OnRunStart: func(context.Context, hooks.RunStart) {
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const workers = 8
			var asked atomic.Int64
			model := looptest.Model(func(ctx context.Context, req loop.ModelRequest, yield func(stream.Chunk, error) bool) {
				asked.Add(1)
				says("hi")(ctx, req, yield)
			})
			b := looptest.NewBench(looptest.NewLog(), model)
			b.Engine.Hooks = set
			j := b.Start(t, b.Session(t), "hi")
			var all, ended sync.WaitGroup
			all.Add(workers)
			b.Engine.Log = meetLog{b.Log, &all}
			for range workers {
				ended.Go(func() {
					if err := b.Engine.Advance(t.Context(), j, loop.Holder{WorkerID: looptest.NewID()}); err != nil {
						t.Errorf("advance: %v; want nil from winner and losers", err)
					}
				})
			}
			ended.Wait()
			events, s := checked(t, b, j.SessionID)
			only[event.RunStarted](t, events)
			if r, _ := s.Run(j.RunID); r.Status != loop.RunCompleted || asked.Load() != 1 {
				t.Errorf("run %+v, asked %d times", r, asked.Load())
			}
		})
	}
}

// TestEveryAppendCarriesItsLease: but for the claim, which has none yet.
func TestEveryAppendCarriesItsLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		appends, _ := undisturbed(t)
		for i, a := range appends {
			if want := int64(min(1, max(0, i-2))); a.Epoch != want {
				t.Errorf("append %d (%v) goes out under epoch %d; want %d", i+1, looptest.Types(a.Events), a.Epoch, want)
			}
		}
	})
}

// TestClaimIsPlannedAgainAfterAMessage: a conflict that has nothing to do with
// the run costs it nothing.
func TestClaimIsPlannedAgainAfterAMessage(t *testing.T) {
	t.Parallel()
	b := looptest.NewBench(looptest.NewLog(), says("hi"))
	j := b.Start(t, b.Session(t), "hi")
	var once sync.Once
	hooked(b, func(loop.Append) {
		once.Do(func() {
			write(t, b, j, 0, event.MessageCreated{MessageID: "m", Role: hooks.RoleUser, Parts: []hooks.Part{{Type: hooks.PartText, Text: "and"}}})
		})
	})
	if run := b.Advance(t, j); run.Status != loop.RunCompleted {
		t.Errorf("run %+v", run)
	}
	events, _ := checked(t, b, j.SessionID)
	if ids := only[event.ModelRequested](t, events).MessageIDs; !slices.Contains(ids, "m") {
		t.Errorf("the model was sent %v; want the message too", ids)
	}
}
