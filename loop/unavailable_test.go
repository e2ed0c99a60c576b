package loop_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
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

// TestUnavailableLogIsAskedAgain lets each append of a run fail some times,
// before or after it was written: nothing is missing, and nothing is there
// twice.
func TestUnavailableLogIsAskedAgain(t *testing.T) {
	t.Parallel()
	for _, written := range []bool{false, true} {
		for _, times := range []int{1, 3} {
			t.Run(fmt.Sprintf("written=%v times=%d", written, times), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					appends, whole := undisturbed(t)
					for n := 3; n <= len(appends); n++ {
						k := newTalk(t, looptest.NewLog())
						j := k.Start(t, k.Session(t), "hi")
						seen := map[string]int{} // how often an append was tried
						fail := func(a loop.Append) error {
							seen[a.ID]++
							if len(seen) == n-2 && seen[a.ID] <= times {
								return fmt.Errorf("database is away: %w", loop.ErrUnavailable)
							}
							return nil
						}
						if written {
							k.log.LoseAcks(fail)
						} else {
							k.log.FailAppends(fail)
						}
						run := k.Advance(t, j)
						events, s := checked(t, k.Bench, j.SessionID)
						if run.Status != loop.RunCompleted || !reflect.DeepEqual(essence(s), expected(whole, false)) {
							t.Fatalf("append %d failed: run %+v\n got %q", n, run, essence(s))
						}
						// Text that arrived meanwhile may share an event.
						if got, want := notDeltas(events), notDeltas(whole); !reflect.DeepEqual(got, want) {
							t.Fatalf("append %d failed:\n got %v\nwant %v", n, got, want)
						}
						if k.effects.Load() != 1 || len(k.asked) != 2 {
							t.Fatalf("append %d failed: %d effects, model calls %v", n, k.effects.Load(), k.asked)
						}
					}
				})
			})
		}
	}
}

func notDeltas(events []event.Event) []event.Type {
	var out []event.Type
	for _, e := range events {
		if e.Type != event.TypeAssistantDelta {
			out = append(out, e.Type)
		}
	}
	return out
}

func TestUnavailableLogIsAskedUntilTheWorkerStops(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		log := looptest.NewLog()
		b := looptest.NewBench(log, says("hi"))
		j := b.Start(t, b.Session(t), "hi")
		var tries atomic.Int64
		log.FailAppends(func(loop.Append) error {
			tries.Add(1)
			return loop.ErrUnavailable
		})
		w := work(t, b, j)
		pause(t.Context(), 10*time.Second)
		if n := tries.Load(); n < 10 || n > 30 {
			t.Errorf("%d tries in 10 s; want a pause that grows to a second", n)
		}
		w.kill()
		if err := w.wait(t); !errors.Is(err, context.Canceled) {
			t.Errorf("the killed worker returned %v", err)
		}
	})
}

// deafLog is a log whose reads fail while away is set.
type deafLog struct {
	*looptest.Log
	away atomic.Bool
	// asked counts the reads that failed.
	asked atomic.Int64
}

func (l *deafLog) refuse() error {
	if l.away.Load() {
		l.asked.Add(1)
		return fmt.Errorf("read: %w", loop.ErrUnavailable)
	}
	return nil
}

func (l *deafLog) Load(ctx context.Context, tenantID, sessionID, runID string) (loop.State, error) {
	if err := l.refuse(); err != nil {
		return loop.State{}, err
	}
	return l.Log.Load(ctx, tenantID, sessionID, runID)
}

func (l *deafLog) Events(ctx context.Context, tenantID, sessionID string, after int64, limit int) ([]event.Event, error) {
	if err := l.refuse(); err != nil {
		return nil, err
	}
	return l.Log.Events(ctx, tenantID, sessionID, after, limit)
}

// TestOutageOfReads: a log that cannot be read for a while costs a run time
// and nothing else, whatever the engine wanted to read.
func TestOutageOfReads(t *testing.T) {
	t.Parallel()
	t.Run("BeforeTheClaim", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			log := &deafLog{Log: looptest.NewLog()}
			b := looptest.NewBench(log, says("hi"))
			j := b.Start(t, b.Session(t), "hi")
			log.away.Store(true)
			w := work(t, b, j)
			pause(t.Context(), 5*time.Second)
			log.away.Store(false)
			if err := w.wait(t); err != nil || b.Run(t, j).Status != loop.RunCompleted || log.asked.Load() < 2 {
				t.Errorf("%v, run %+v", err, b.Run(t, j))
			}
		})
	})
	t.Run("AfterAConflict", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			log := &deafLog{Log: looptest.NewLog()}
			model := looptest.Model(func(ctx context.Context, _ loop.ModelRequest, yield func(stream.Chunk, error) bool) {
				pause(ctx, time.Second)
				_ = yield(looptest.Text("hi"), nil) && yield(looptest.Finish(stream.FinishStop), nil)
			})
			b := looptest.NewBench(log, model)
			j := b.Start(t, b.Session(t), "hi")
			w := work(t, b, j)
			synctest.Wait()
			log.away.Store(true)
			write(t, b, j, 0, event.MessageCreated{MessageID: looptest.NewID(), Role: "user"})
			pause(t.Context(), 5*time.Second)
			log.away.Store(false)
			if err := w.wait(t); err != nil || b.Run(t, j).Status != loop.RunCompleted || log.asked.Load() < 2 {
				t.Errorf("%v, run %+v", err, b.Run(t, j))
			}
			checked(t, b, j.SessionID)
		})
	})
	t.Run("UntilTheWorkerStops", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			log := &deafLog{Log: looptest.NewLog()}
			b := looptest.NewBench(log, says("hi"))
			j := b.Start(t, b.Session(t), "hi")
			log.away.Store(true)
			w := work(t, b, j)
			pause(t.Context(), time.Second)
			w.kill()
			if err := w.wait(t); !errors.Is(err, context.Canceled) {
				t.Errorf("the killed worker returned %v", err)
			}
		})
	})
}

// TestOtherErrorOfTheLogIsReturned: what is not an outage is not asked again.
func TestOtherErrorOfTheLogIsReturned(t *testing.T) {
	t.Parallel()
	log := looptest.NewLog()
	b := looptest.NewBench(log, says("hi"))
	j := b.Start(t, b.Session(t), "hi")
	broken := errors.New("disk is full of bees")
	log.FailAppends(func(loop.Append) error { return broken })
	if err := b.Engine.Advance(t.Context(), j, loop.Holder{WorkerID: "w"}); !errors.Is(err, broken) {
		t.Errorf("%v; want the log's own error", err)
	}
}

// pagedLog gives events one by one, and nothing to read behind the first.
type pagedLog struct {
	*looptest.Log
	paged atomic.Bool
	pages atomic.Int64
}

func (l *pagedLog) Head(ctx context.Context, tenantID, sessionID string) (loop.Head, error) {
	if l.pages.Load() > 0 {
		return loop.Head{}, fmt.Errorf("read: %w", loop.ErrUnavailable)
	}
	return l.Log.Head(ctx, tenantID, sessionID)
}

func (l *pagedLog) Events(ctx context.Context, tenantID, sessionID string, after int64, limit int) ([]event.Event, error) {
	if l.paged.Load() {
		l.pages.Add(1)
		limit = 1
	}
	return l.Log.Events(ctx, tenantID, sessionID, after, limit)
}

// TestALeaseThatIsGoneIsKnownFromThePageThatSaysSo: the outage that keeps a
// worker from reading on does not keep it from stopping.
func TestALeaseThatIsGoneIsKnownFromThePageThatSaysSo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		log := &pagedLog{Log: looptest.NewLog()}
		b := looptest.NewBench(log, looptest.Model(func(ctx context.Context, _ loop.ModelRequest, yield func(stream.Chunk, error) bool) {
			pause(ctx, time.Second)
			_ = yield(looptest.Text("hi"), nil) && yield(looptest.Finish(stream.FinishStop), nil)
		}))
		j := b.Start(t, b.Session(t), "hi")
		w := work(t, b, j)
		synctest.Wait()
		log.paged.Store(true)
		begin := time.Now()
		err := b.Commands.FailRun(t.Context(), loop.FailRun{
			TenantID: looptest.Tenant, SessionID: j.SessionID, RunID: j.RunID, Reason: "it hangs", Actor: looptest.Tester,
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := w.wait(t); !errors.Is(err, loop.ErrLeaseLost) || !time.Now().Equal(begin) || log.pages.Load() != 1 {
			t.Errorf("%v after %v and %d pages", err, time.Since(begin), log.pages.Load())
		}
	})
}

// staleLog lets others append between the head and the events that a worker
// reads, once, and is away for the read behind that.
type staleLog struct {
	*looptest.Log
	meanwhile func()
	away      bool
}

func (l *staleLog) Head(ctx context.Context, tenantID, sessionID string) (loop.Head, error) {
	if l.away {
		l.away = false
		return loop.Head{}, fmt.Errorf("read: %w", loop.ErrUnavailable)
	}
	h, err := l.Log.Head(ctx, tenantID, sessionID)
	if f := l.meanwhile; f != nil {
		l.meanwhile = nil
		f()
		l.away = true
	}
	return h, err
}

// TestDecisionsOfOthersAreKnownWithTheirEvents: an outage between the two would
// let the worker write decisions beside those of others instead of behind them.
func TestDecisionsOfOthersAreKnownWithTheirEvents(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		log := &staleLog{Log: looptest.NewLog()}
		b := looptest.NewBench(log, paced(calls("look")), looptest.Says("look", "seen"))
		b.Use(hooks.Hooks{
			BeforeInput: func(context.Context, hooks.BeforeInput) (hooks.BeforeInputResult, error) {
				return hooks.BeforeInputResult{Action: hooks.ActionContinue}, nil
			},
			TransformContext: func(context.Context, hooks.TransformContext) (hooks.TransformContextResult, error) {
				return hooks.TransformContextResult{Action: hooks.ActionContinue}, nil
			},
		})
		j := b.Start(t, b.Session(t), "hi")
		reject := func() {
			other := *b.Commands
			other.Log = log.Log
			cmd := loop.StartRun{TenantID: looptest.Tenant, SessionID: j.SessionID, Text: "and?", Actor: looptest.Tester}
			if _, err := other.StartRun(t.Context(), cmd); !errors.Is(err, loop.ErrBusy) {
				t.Errorf("a message for a busy session: %v", err)
			}
		}
		w := work(t, b, j)
		synctest.Wait()
		log.meanwhile = reject
		reject() // wakes the worker
		if err := w.wait(t); err != nil || b.Run(t, j).Status != loop.RunCompleted {
			t.Errorf("%v, run %+v", err, b.Run(t, j))
		}
		checked(t, b, j.SessionID)
		if n := len(ledger(b, j.SessionID)); n != 5 {
			t.Errorf("%d decisions; want those about three messages and two model calls", n)
		}
	})
}

// TestWhatWentThroughLongAgoIsNoLeave: a worker that is cut off while it starts a
// tool learns that its append was written when it is back. By then somebody else
// has the run and has told the model that nobody knows: the tool is not entered.
func TestWhatWentThroughLongAgoIsNoLeave(t *testing.T) {
	t.Parallel()
	for name, claims := range map[string]bool{"UnderItsLease": false, "AsItTakesTheRun": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { cutOffAtAStart(t, claims) })
		})
	}
}

// cutOffAtAStart: the start is in the append of the claim, or in one of its own.
func cutOffAtAStart(t *testing.T, claims bool) {
	t.Helper()
	log := looptest.NewLog()
	var entered atomic.Int64
	b := looptest.NewBench(log, calls("once"), looptest.Tool{Name: "once", Run: func(context.Context, loop.ToolInput) (loop.ToolOutput, error) {
		entered.Add(1)
		return loop.ToolOutput{Content: "ran"}, nil
	}})
	id := b.Session(t)
	j := b.Start(t, id, "hi")
	if claims {
		permit(b, loop.Permission{Tools: "once", Mode: loop.PermissionAsk})
		b.Advance(t, j)
		_, err := b.Commands.DecideApproval(t.Context(), loop.DecideApproval{
			TenantID: looptest.Tenant, ApprovalID: openApprovals(t, b, j)[0], Approve: true, Actor: looptest.Tester,
		})
		if err != nil {
			t.Fatal(err)
		}
		j = next(t, b, j)
	}
	var away atomic.Bool
	away.Store(true)
	var lost atomic.Value
	log.LoseAcks(func(a loop.Append) error {
		starts := slices.ContainsFunc(a.Events, func(e event.Event) bool { return e.Type == event.TypeToolStarted })
		if starts {
			lost.CompareAndSwap(nil, a.ID)
		}
		if away.Load() && lost.Load() == a.ID {
			return loop.ErrUnavailable
		}
		return nil
	})
	cut := work(t, b, j)
	pause(t.Context(), 4*time.Second)
	if run := b.Advance(t, buried(t, b, j, cut.id)); run.Status != loop.RunCompleted {
		t.Fatalf("run %+v", run)
	}
	away.Store(false)
	if err := cut.wait(t); !errors.Is(err, loop.ErrLeaseLost) {
		t.Errorf("the worker that was cut off returned %v", err)
	}
	if n := entered.Load(); n != 0 {
		t.Errorf("the tool was entered %d times", n)
	}
	events, _ := checked(t, b, id)
	if p := only[event.ToolResult](t, events); p.Reason != hooks.ReasonOutcomeUnknown {
		t.Errorf("result %+v", p)
	}
}
