package loop_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
)

// tells is what a tool does before it gives back something.
type tells func(ctx context.Context, say func(string))

// telling is a bench whose model calls the tool work, which does that.
func telling(t *testing.T, does tells, more ...loop.Tool) (*looptest.Bench, loop.Job) {
	t.Helper()
	work := looptest.Tool{Name: "work", Run: func(ctx context.Context, in loop.ToolInput) (loop.ToolOutput, error) {
		does(ctx, in.Progress)
		return loop.ToolOutput{Content: "worked"}, ctx.Err()
	}}
	names := []string{"work"}
	for _, tool := range more {
		names = append(names, tool.Spec().Name)
	}
	b := looptest.NewBench(looptest.NewLog(), strict(t, calls(names...)), append([]loop.Tool{work}, more...)...)
	j := b.Start(t, b.Session(t), "hi")
	return b, j
}

// saying is what the log has of it.
func saying(t *testing.T, events []event.Event) []string {
	t.Helper()
	var out []string
	for _, p := range payloads[event.ToolProgress](t, events) {
		line := fmt.Sprintf("%d.%d %s", p.Attempt, p.Number, p.Text)
		if p.Withheld {
			line += "withheld"
		}
		out = append(out, line)
	}
	return out
}

func TestOfManyThatAToolSaysSomeAreKept(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		does tells
		want []string
	}{
		"nothing": {func(context.Context, func(string)) {}, nil},
		"blank":   {func(_ context.Context, say func(string)) { say(""); say(" \n") }, nil},
		"once":    {func(_ context.Context, say func(string)) { say("half") }, []string{"1.1 half"}},
		"many at once, and the last": {func(_ context.Context, say func(string)) {
			say("0")
			synctest.Wait()
			for i := range 9 {
				say(fmt.Sprint(i + 1))
			}
		}, []string{"1.1 0", "1.10 9"}},
		"the newest when it is time": {func(ctx context.Context, say func(string)) {
			say("a")
			pause(ctx, 100*time.Millisecond)
			say("b")
			say("c")
			pause(ctx, 500*time.Millisecond)
			say("d")
			pause(ctx, 10*time.Second)
			say("e")
			pause(ctx, 10*time.Millisecond)
			say("f")
		}, []string{"1.1 a", "1.3 c", "1.4 d", "1.5 e", "1.6 f"}},
		"what is no text": {func(_ context.Context, say func(string)) { say("a\xffb\x00") }, []string{"1.1 a\uFFFDb\uFFFD"}},
		"what is too long": {func(_ context.Context, say func(string)) { say(strings.Repeat("é", 3000)) },
			[]string{"1.1 " + strings.Repeat("é", 2046) + "…"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b, j := telling(t, c.does)
				if run := b.Advance(t, j); run.Status != loop.RunCompleted {
					t.Errorf("run %+v", run)
				}
				events, s := checked(t, b, j.SessionID)
				if got := saying(t, events); !slices.Equal(got, c.want) {
					t.Errorf("said %q; want %q", got, c.want)
				}
				if got := told(s); !slices.Equal(got, []string{"worked"}) {
					t.Errorf("the model is told %q", got)
				}
				if len(c.want) == 0 && slices.Contains(looptest.Types(events), event.TypeToolProgress) {
					t.Errorf("events %v", looptest.Types(events))
				}
			})
		})
	}
}

// TestWhatAToolSaysIsDurableWhileItRuns, at most twice a second, also while a hook
// ponders over the output of another tool, and at most 100 times.
func TestWhatAToolSaysIsDurableWhileItRuns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var b *looptest.Bench
		var j loop.Job
		var seen []string
		var after func(string)
		b, j = telling(t, func(ctx context.Context, say func(string)) {
			for i := range 1000 {
				say(fmt.Sprint(i))
				pause(ctx, 103*time.Millisecond) // never at once with what is due
			}
			synctest.Wait()
			seen = saying(t, b.Events(t, j.SessionID))
			say("the end")
			after = say
		}, looptest.Says("other", "done"))
		b.Use(hooks.Hooks{AfterToolCall: hooks.Named("ponders", "1", func(ctx context.Context, _ hooks.AfterToolCall) (hooks.AfterToolCallResult, error) {
			pause(ctx, time.Minute)
			return hooks.AfterToolCallResult{Action: hooks.ActionContinue}, nil
		}, hooks.Only(hooks.Scope{Tools: []string{"other"}}), hooks.TimeLimit(time.Hour))})
		b.Advance(t, j)
		after("too late")
		events, _ := checked(t, b, j.SessionID)
		got := saying(t, events)
		if len(got) != 100 || len(seen) != 99 || got[0] != "1.1 0" || got[1] != "1.5 4" || got[98] != "1.476 475" || got[99] != "1.1001 the end" {
			t.Errorf("%d and then %d: %q", len(seen), len(got), got)
		}
		byThen := slices.Index(looptest.Types(events), event.TypeToolResult)
		if n := len(saying(t, events[:byThen])); n < 90 {
			t.Errorf("%d while the hook was asked", n)
		}
		if last := events[len(events)-1]; last.Type != event.TypeRunCompleted {
			t.Errorf("the last event is %s", last.Type)
		}
	})
}

// TestSeveralToolsSaySeveralThings from several goroutines, each in its own number.
func TestSeveralToolsSaySeveralThings(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		crowd := func(_ context.Context, say func(string)) {
			var all sync.WaitGroup
			for range 20 {
				all.Go(func() { say("x") })
			}
			all.Wait()
		}
		other := looptest.Tool{Name: "other", Run: func(ctx context.Context, in loop.ToolInput) (loop.ToolOutput, error) {
			crowd(ctx, in.Progress)
			pause(ctx, time.Hour)
			return loop.ToolOutput{}, nil
		}}
		b, j := telling(t, crowd, other)
		b.Advance(t, j)
		events, _ := checked(t, b, j.SessionID)
		last := map[string]int{}
		for _, p := range payloads[event.ToolProgress](t, events) {
			last[p.CallID] = p.Number
		}
		if len(last) != 2 {
			t.Errorf("said by %d tools", len(last))
		}
		for call, n := range last {
			if n != 20 {
				t.Errorf("the last thing that %s said is number %d", call, n)
			}
		}
	})
}

// TestWhatHooksAreToSeeIsWithheldBefore: a hook at AfterToolCall that is asked about the
// call, unless it is in shadow.
func TestWhatHooksAreToSeeIsWithheldBefore(t *testing.T) {
	t.Parallel()
	hidden, shown := []string{"1.1 withheld"}, []string{"1.1 my password"}
	for name, c := range map[string]struct {
		opts []hooks.Option
		want []string
	}{
		"asked":             {nil, hidden},
		"redacting":         {[]hooks.Option{hooks.Redacting()}, hidden},
		"of the tool":       {[]hooks.Option{hooks.Only(hooks.Scope{Tools: []string{"w*"}})}, hidden},
		"let through":       {[]hooks.Option{hooks.OnFailureOpen()}, hidden},
		"in shadow":         {[]hooks.Option{hooks.Shadow()}, shown},
		"of another tool":   {[]hooks.Option{hooks.Only(hooks.Scope{Tools: []string{"look"}})}, shown},
		"of another agent":  {[]hooks.Option{hooks.Only(hooks.Scope{Agents: []string{"other"}})}, shown},
		"of another tenant": {[]hooks.Option{hooks.Only(hooks.Scope{Tenants: []string{"other"}})}, shown},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, j := telling(t, func(_ context.Context, say func(string)) { say("my password") })
			b.Use(hooks.Hooks{AfterToolCall: hooks.Named("looks", "1", func(context.Context, hooks.AfterToolCall) (hooks.AfterToolCallResult, error) {
				return hooks.AfterToolCallResult{Action: hooks.ActionContinue}, nil
			}, c.opts...)})
			b.Advance(t, j)
			events, _ := checked(t, b, j.SessionID)
			if got := saying(t, events); !slices.Equal(got, c.want) {
				t.Errorf("said %q; want %q", got, c.want)
			}
		})
	}
}

// TestNobodyHearsAToolThatWasStopped: what is said after a cancel, and by a worker that
// has lost the run, is not in the log.
func TestNobodyHearsAToolThatWasStopped(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		stop func(t *testing.T, b *looptest.Bench, j loop.Job)
		err  error
	}{
		"a cancel": {func(t *testing.T, b *looptest.Bench, j loop.Job) {
			t.Helper()
			if err := cancel(t, b, j); err != nil {
				t.Fatal(err)
			}
		}, nil},
		"a lost lease": {func(t *testing.T, b *looptest.Bench, j loop.Job) {
			t.Helper()
			ok, err := b.Commands.ReleaseDead(t.Context(), loop.Release{
				TenantID: looptest.Tenant, SessionID: j.SessionID, RunID: j.RunID, WorkerID: b.Run(t, j).WorkerID, Now: time.Now(), Actor: looptest.Tester,
			})
			if err != nil || !ok {
				t.Fatal(ok, err)
			}
		}, loop.ErrLeaseLost},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b, j := telling(t, func(ctx context.Context, say func(string)) {
					say("before")
					<-ctx.Done()
					say("after")
				})
				done := make(chan error, 1)
				go func() { done <- b.Engine.Advance(t.Context(), j, loop.Holder{WorkerID: looptest.NewID()}) }()
				synctest.Wait()
				c.stop(t, b, j)
				if err := <-done; !errors.Is(err, c.err) {
					t.Errorf("advance: %v; want %v", err, c.err)
				}
				events, _ := checked(t, b, j.SessionID)
				if got := saying(t, events); !slices.Equal(got, []string{"1.1 before"}) {
					t.Errorf("said %q", got)
				}
			})
		})
	}
}
