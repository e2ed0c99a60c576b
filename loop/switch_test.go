package loop_test

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
)

// marked is a set of which each hook says continue under the set's name, after
// each has been called.
func marked(name string, each func()) loop.InForce {
	h := hooks.Hooks{
		BeforeInput:      marking[hooks.BeforeInput](name, each, hooks.BeforeInputResult{Action: hooks.ActionContinue}),
		BeforeRunStart:   marking[hooks.BeforeRunStart](name, each, hooks.BeforeRunStartResult{Action: hooks.ActionContinue}),
		TransformContext: marking[hooks.TransformContext](name, each, hooks.TransformContextResult{Action: hooks.ActionContinue}),
		BeforeToolCall:   marking[hooks.BeforeToolCall](name, each, hooks.BeforeToolCallResult{Action: hooks.ActionContinue}),
		BeforeExecute:    marking[hooks.BeforeExecute](name, each, hooks.BeforeExecuteResult{Action: hooks.ActionContinue}),
		AfterToolCall:    marking[hooks.AfterToolCall](name, each, hooks.AfterToolCallResult{Action: hooks.ActionContinue}),
	}
	return loop.InForce{Hooks: h, Asker: &hooks.Asker{HookSet: h.Set().Digest}}
}

func marking[In hooks.Input[In, Out], Out hooks.Result](name string, each func(), out Out) hooks.Func[In, Out] {
	return hooks.Named(name, "1", func(context.Context, In) (Out, error) {
		each()
		return out, nil
	})
}

// switched is a bench on which hooks may be put.
func switched(b *looptest.Bench, f loop.InForce) *loop.Switch {
	s := loop.NewSwitch(f)
	b.Commands.Switch, b.Engine.Switch = s, s
	return s
}

// askedByItsLease checks that each decision was made by a hook of the set that the
// lease of its time has pinned, and returns the sets that were.
func askedByItsLease(t *testing.T, b *looptest.Bench, sessionID string, sets ...loop.InForce) []string {
	t.Helper()
	events, _ := checked(t, b, sessionID)
	var pinned []string
	at := map[int64]string{} // the set that the lease of each event has
	now := ""
	for _, e := range events {
		p, err := event.Decode(e)
		if err != nil {
			t.Fatal(err)
		}
		switch p := p.(type) {
		case event.RunStarted:
			now, pinned = p.HookSet, append(pinned, p.HookSet)
		case event.RunResumed:
			now, pinned = p.HookSet, append(pinned, p.HookSet)
		}
		at[e.Seq] = now
	}
	for _, r := range ledger(b, sessionID) {
		if r.Gate != hooks.GateBeforeInput && r.HookSetDigest != at[r.EventSeq] {
			t.Errorf("%s of set %s in a lease that has pinned %s", r.Gate, r.HookSetDigest, at[r.EventSeq])
		}
		i := slices.IndexFunc(sets, func(f loop.InForce) bool { return f.Asker.HookSet == r.HookSetDigest })
		if i < 0 || sets[i].Hooks.Set().Hooks[0].ID != r.HookID {
			t.Errorf("hook %s is none of the set that is named", r.HookID)
		}
	}
	return pinned
}

// TestALeaseIsAskedByTheSetThatItBeganWith, however often others are put in force
// meanwhile, and the next one by the newest. What was decided is not asked again.
func TestALeaseIsAskedByTheSetThatItBeganWith(t *testing.T) {
	t.Parallel()
	var c counted
	b := looptest.NewBench(looptest.NewLog(), strict(t, calls("pay")), c.tool("pay"))
	permit(b, loop.Permission{Tools: "*", Mode: loop.PermissionAsk})
	none := marked("none", func() { t.Error("a set is asked that was in force for no lease") })
	s := switched(b, none)
	last := marked("last", func() {})
	second := marked("second", func() { s.Put(last) })
	first := marked("first", func() { s.Put(none); s.Put(second) })
	s.Put(first)

	j := b.Start(t, b.Session(t), "hi")
	if now := s.Now(); now.Asker != second.Asker {
		t.Fatal("the message was asked about by nobody")
	}
	s.Put(first)
	if run := b.Advance(t, j); run.Status != loop.RunWaiting || run.HookSet != first.Asker.HookSet {
		t.Fatalf("run %+v", run)
	}
	decide(t, b, openApprovals(t, b, j)[0], true)
	if run := b.Advance(t, next(t, b, j)); run.Status != loop.RunCompleted || run.HookSet != second.Asker.HookSet {
		t.Fatalf("run %+v", run)
	}
	if got, want := askedByItsLease(t, b, j.SessionID, first, second), []string{first.Asker.HookSet, second.Asker.HookSet}; !slices.Equal(got, want) {
		t.Errorf("leases of sets %q, want %q", got, want)
	}
	if got, want := rows(ledger(b, j.SessionID)), []string{
		"BeforeInput first continue", "BeforeRunStart first continue", "TransformContext first continue", "BeforeToolCall first continue",
		"BeforeExecute second continue", "AfterToolCall second continue", "TransformContext second continue",
	}; !slices.Equal(got, want) {
		t.Errorf("ledger %q, want %q", got, want)
	}
	if now := s.Now(); now.Asker != last.Asker {
		t.Error("what was put last is not in force")
	}
}

// TestHooksAreSwitchedWhileRunsGoOn: with many runs at once and another set in
// force after each asking, no lease is asked by two.
func TestHooksAreSwitchedWhileRunsGoOn(t *testing.T) {
	t.Parallel()
	var c counted
	b := looptest.NewBench(looptest.NewLog(), calls("pay"), c.tool("pay"))
	var ended atomic.Int64
	var s *loop.Switch
	var sets []loop.InForce
	var asked atomic.Int64
	put := func() { s.Put(sets[int(asked.Add(1))%len(sets)]) }
	for _, name := range []string{"a", "b", "c"} {
		f := marked(name, put)
		f.Hooks.OnRunEnd = func(context.Context, hooks.RunEnd) { ended.Add(1) }
		sets = append(sets, f)
	}
	s = switched(b, sets[0])
	const sessions, runs = 8, 4
	var talking sync.WaitGroup
	for range sessions {
		id := b.Session(t)
		talking.Go(func() {
			for range runs {
				if run := b.Advance(t, b.Start(t, id, "hi")); run.Status != loop.RunCompleted {
					t.Errorf("run %+v", run)
				}
			}
			if got := askedByItsLease(t, b, id, sets...); len(got) != runs {
				t.Errorf("%d leases", len(got))
			}
		})
	}
	talking.Wait()
	if n := ended.Load(); n != sessions*runs {
		t.Errorf("the end of %d runs was told", n)
	}
}

func TestNoSwitchAndAnEmptyOneAskNobody(t *testing.T) {
	t.Parallel()
	b := looptest.NewBench(looptest.NewLog(), says("x"))
	b.Use(marked("ignored", func() { t.Error("it is asked") }).Hooks)
	b.Commands.Switch, b.Engine.Switch = &loop.Switch{}, &loop.Switch{}
	if run := b.Advance(t, b.Start(t, b.Session(t), "hi")); run.Status != loop.RunCompleted || run.HookSet != "" {
		t.Errorf("run %+v", run)
	}
}
