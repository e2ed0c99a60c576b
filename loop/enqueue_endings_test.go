package loop_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
)

// ending is a way in which an active run ends.
type ending struct {
	model looptest.Model
	// prepare changes the bench before the run is started.
	prepare func(b *looptest.Bench)
	// end brings the run to its end.
	end    func(t *testing.T, b *looptest.Bench, j loop.Job)
	status loop.RunStatus
	reason string
}

func advances(t *testing.T, b *looptest.Bench, j loop.Job) { b.Advance(t, j) }

// endings are all of them.
func endings() map[string]ending {
	broken := looptest.Model(func(_ context.Context, _ loop.ModelRequest, yield func(stream.Chunk, error) bool) {
		yield(stream.Chunk{}, &loop.ModelError{Message: "no"})
	})
	stop := func(t *testing.T, b *looptest.Bench, j loop.Job) {
		if err := cancel(t, b, j); err != nil {
			t.Error(err)
		}
	}
	asks := func(b *looptest.Bench) { permit(b, loop.Permission{Tools: "look", Mode: loop.PermissionAsk}) }
	return map[string]ending{
		"completed":                    {says("hi"), nil, advances, loop.RunCompleted, "stop"},
		"failed":                       {broken, nil, advances, loop.RunFailed, "model_error"},
		"cancelled while it is queued": {says("hi"), nil, stop, loop.RunCancelled, "enough"},
		"cancelled while it runs": {stalls(nil, looptest.Text("once")), nil, func(t *testing.T, b *looptest.Bench, j loop.Job) {
			w := work(t, b, j)
			pause(t.Context(), time.Minute)
			stop(t, b, j)
			if err := w.wait(t); err != nil {
				t.Error(err)
			}
		}, loop.RunCancelled, "enough"},
		"cancelled while it waits": {calls("look"), asks, func(t *testing.T, b *looptest.Bench, j loop.Job) {
			b.Advance(t, j)
			stop(t, b, j)
		}, loop.RunCancelled, "enough"},
		"cancelled under a dead worker": {stalls(nil), nil, func(t *testing.T, b *looptest.Bench, j loop.Job) {
			claimed(t, b, j, "w", 1)
			stop(t, b, j)
			release(t, b, j, "w")
		}, loop.RunCancelled, "enough"},
		"poisoned": {stalls(nil), nil, func(t *testing.T, b *looptest.Bench, j loop.Job) {
			for range 5 {
				claimed(t, b, j, "w", 1)
				release(t, b, j, "w")
			}
		}, loop.RunFailed, "poisoned"},
		"out of time":              {stalls(nil), func(b *looptest.Bench) { limit(b, loop.Limits{RunTime: time.Minute}) }, advances, loop.RunFailed, "timeout"},
		"out of turns":             {calls("look"), func(b *looptest.Bench) { limit(b, loop.Limits{Turns: 1}) }, advances, loop.RunFailed, "turn_limit"},
		"of an agent that is gone": {says("hi"), func(b *looptest.Bench) { b.Commands.Agents = []string{"gone", "demo"} }, advances, loop.RunFailed, "unknown_agent"},
		"ended by force": {says("hi"), nil, func(t *testing.T, b *looptest.Bench, j loop.Job) {
			claimed(t, b, j, "w", 1)
			if err := fail(t, b, j, "it hangs"); err != nil {
				t.Error(err)
			}
		}, loop.RunFailed, "forced"},
		"refused by a hook": {says("hi"), func(b *looptest.Bench) {
			b.Engine.Hooks = hooks.Hooks{BeforeRunStart: hooks.Named("no", "1", func(_ context.Context, in hooks.BeforeRunStart) (hooks.BeforeRunStartResult, error) {
				if len(in.Messages) == 1 {
					return hooks.BeforeRunStartResult{Action: hooks.ActionBlock, Reason: hooks.Reason{Code: "no"}}, nil
				}
				return hooks.BeforeRunStartResult{Action: hooks.ActionContinue}, nil
			})}
			b.Engine.Asker = &hooks.Asker{HookSet: b.Engine.Hooks.Set().Digest}
		}, advances, loop.RunFailed, "blocked"},
	}
}

// TestEveryEndOfARunBeginsTheNextOne: in the same append, with a job, and once.
func TestEveryEndOfARunBeginsTheNextOne(t *testing.T) {
	t.Parallel()
	for name, c := range endings() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				log := looptest.NewLog()
				b := looptest.NewBench(log, paced(c.model), looptest.Says("look", "seen"))
				if c.prepare != nil {
					c.prepare(b)
				}
				id := b.Session(t)
				first := b.Start(t, id, "one")
				b.Commands.Agents = []string{"demo"}
				second, third := b.Say(t, id, "two", event.PolicyEnqueue), b.Say(t, id, "three", event.PolicyEnqueue)
				var last loop.Append
				log.FailAppends(func(a loop.Append) error {
					last = a
					return nil
				})
				c.end(t, b, first)
				if r := b.Run(t, first); r.Status != c.status || r.Reason != c.reason {
					t.Fatalf("the run ended %s %q; want %s %q", r.Status, r.Reason, c.status, c.reason)
				}
				n := len(last.Events)
				if n < 2 || last.Events[n-2].RunID != first.RunID || last.Events[n-1].RunID != second.RunID || last.Events[n-1].Type != event.TypeRunQueued {
					t.Errorf("the last append is %v; want the end of the one and the beginning of the other", looptest.Types(last.Events))
				}
				if !slices.Equal(last.Jobs, []loop.Job{second}) {
					t.Errorf("its jobs are %v; want %v", last.Jobs, second)
				}
				if r := b.Run(t, third); r.Status != loop.RunEnqueued {
					t.Errorf("the third run is %s; want it enqueued", r.Status)
				}
				agent := b.Engine.Agents["demo"]
				agent.Model, agent.Limits = strict(t, says("as you wish")), loop.Limits{}
				b.Engine.Agents["demo"] = agent
				for _, j := range []loop.Job{second, third} {
					if r := b.Advance(t, j); r.Status != loop.RunCompleted {
						t.Errorf("run %+v; want it completed", r)
					}
				}
				_, s := checked(t, b, id)
				var said []string
				for _, m := range s.Messages {
					if m.Role == hooks.RoleUser {
						said = append(said, m.Text())
					}
				}
				if want := []string{"one", "two", "three"}; !slices.Equal(said, want) {
					t.Errorf("the user said %q; want %q", said, want)
				}
			})
		})
	}
}
