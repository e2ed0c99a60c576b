package loop_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
)

// spoken lists who said what in the conversation.
func spoken(s loop.State) []string {
	var out []string
	for _, m := range s.Messages {
		line := string(m.Role) + " " + m.Text()
		for _, p := range m.Parts {
			if p.ToolCall != nil {
				line += p.ToolCall.Name
			}
			if p.ToolResult != nil {
				line += string(p.ToolResult.Reason)
			}
		}
		if m.Partial {
			line += " (partial)"
		}
		out = append(out, line)
	}
	return out
}

// TestAMessageInterruptsARunInAnyState: it is in one append with the cancel, its
// run begins before all others when the active one has ended, and what that has
// said stays, or is rolled back.
func TestAMessageInterruptsARunInAnyState(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		model looptest.Model
		tools loop.PermissionMode
		// begin brings the run to where it is interrupted.
		begin func(t *testing.T, b *looptest.Bench, j loop.Job) (wait func())
		// atOnce says that the run ends in the append that interrupts it.
		atOnce bool
		keeps  []string
	}{
		"queued": {says("hi"), "", func(*testing.T, *looptest.Bench, loop.Job) func() { return func() {} }, true, nil},
		"in an answer": {stalls(nil, looptest.Text("once "), looptest.Text("upon")), "", inBackground, false,
			[]string{"assistant once upon (partial)"}},
		"in a tool": {calls("waits"), "", inBackground, false, []string{"assistant waits", "tool outcome_unknown"}},
		"waiting for people": {calls("waits"), loop.PermissionAsk, func(t *testing.T, b *looptest.Bench, j loop.Job) func() {
			b.Advance(t, j)
			return func() {}
		}, true, []string{"assistant waits", "tool cancelled"}},
		"on a worker that has died": {stalls(nil), "", func(t *testing.T, b *looptest.Bench, j loop.Job) func() {
			claimed(t, b, j, "w", 1)
			return func() { release(t, b, j, "w") }
		}, false, nil},
	} {
		for _, policy := range []event.Policy{event.PolicyInterrupt, event.PolicyRollback} {
			t.Run(name+" "+string(policy), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					log := looptest.NewLog()
					b := looptest.NewBench(log, paced(c.model), blocks("waits", nil))
					if c.tools != "" {
						permit(b, loop.Permission{Tools: "*", Mode: c.tools})
					}
					ends := map[string]int{}
					b.Commands.Hooks.OnRunEnd = func(_ context.Context, e hooks.RunEnd) { ends[e.RunID]++ }
					b.Engine.Hooks.OnRunEnd = b.Commands.Hooks.OnRunEnd
					id := b.Session(t)
					first := b.Start(t, id, "one")
					third := b.Say(t, id, "three", event.PolicyEnqueue)
					wait := c.begin(t, b, first)
					var appends []loop.Append
					log.FailAppends(func(a loop.Append) error {
						appends = append(appends, a)
						return nil
					})
					second := b.Say(t, id, "two", policy)
					wait()
					log.FailAppends(nil)
					if a := appends[0]; !has(a, event.TypeRunCancelRequested) || !has(a, event.TypeRunCreated) || has(a, event.TypeRunCancelled) != c.atOnce {
						t.Errorf("the interrupt is %v; want the cancel and the new run in one append", looptest.Types(a.Events))
					}
					if r := b.Run(t, first); r.Status != loop.RunCancelled || ends[first.RunID] != 1 {
						t.Errorf("the first run is %s, its end was told %d times", r.Status, ends[first.RunID])
					}
					if r := b.Run(t, second); r.Status != loop.RunQueued || b.Run(t, third).Status != loop.RunEnqueued {
						t.Errorf("the second run is %s; want it next", r.Status)
					}
					agent := b.Engine.Agents["demo"]
					agent.Model, agent.Permissions = strict(t, says("as you wish")), nil
					b.Engine.Agents["demo"] = agent
					b.Advance(t, second)
					b.Advance(t, third)
					_, s := checked(t, b, id)
					want := []string{"user two", "assistant as you wish", "user three", "assistant as you wish"}
					if policy == event.PolicyInterrupt {
						want = slices.Concat([]string{"user one"}, c.keeps, want)
					}
					if got := spoken(s); !slices.Equal(got, want) {
						t.Errorf("the conversation is %q; want %q", got, want)
					}
				})
			})
		}
	}
}

// inBackground works on j until it says nothing more.
func inBackground(t *testing.T, b *looptest.Bench, j loop.Job) func() {
	w := work(t, b, j)
	pause(t.Context(), time.Minute)
	return func() {
		if err := w.wait(t); err != nil {
			t.Error(err)
		}
	}
}

// TestAnInterruptIsWholeOrNotThere: whatever becomes of its append, the cancel
// and the message are there together.
func TestAnInterruptIsWholeOrNotThere(t *testing.T) {
	t.Parallel()
	for _, policy := range []event.Policy{event.PolicyInterrupt, event.PolicyRollback} {
		b, start := commands(t)
		id := b.Session(t)
		first := b.Start(t, id, "one")
		claimed(t, b, first, "w", 1)
		before := len(b.Events(t, id))
		log := b.Log.(*looptest.Log)
		request := loop.StartRun{SessionID: id, Text: "two", Policy: policy, IdempotencyKey: "k"}
		log.FailAppends(func(loop.Append) error { return loop.ErrUnavailable })
		if _, err := start(request); !errors.Is(err, loop.ErrUnavailable) || len(b.Events(t, id)) != before || b.Run(t, first).CancelRequested {
			t.Errorf("%s: %v; want nothing stored", policy, err)
		}
		log.FailAppends(nil)
		log.LoseAcks(func(loop.Append) error { return loop.ErrUnavailable })
		if _, err := start(request); !errors.Is(err, loop.ErrUnavailable) || !b.Run(t, first).CancelRequested {
			t.Errorf("%s: %v; want the run cancelled", policy, err)
		}
		log.LoseAcks(nil)
		after := len(b.Events(t, id))
		run, err := start(request)
		if err != nil || !run.Repeated || !run.Enqueued || len(b.Events(t, id)) != after {
			t.Errorf("%s, again: %+v, %v; want the run that is there", policy, run, err)
		}
	}
}

func TestAnInterruptOfARunThatIsToStop(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		before, policy event.Policy // "" is a cancel
		asks           int
		reason         string
		kept           bool
	}{
		"interrupt after a cancel":     {"", event.PolicyInterrupt, 1, "enough", true},
		"rollback after a cancel":      {"", event.PolicyRollback, 2, "enough", false},
		"rollback after an interrupt":  {event.PolicyInterrupt, event.PolicyRollback, 2, "interrupted by a new message", false},
		"interrupt after a rollback":   {event.PolicyRollback, event.PolicyInterrupt, 1, "rolled back by a new message", false},
		"rollback after a rollback":    {event.PolicyRollback, event.PolicyRollback, 1, "rolled back by a new message", false},
		"interrupt after an interrupt": {event.PolicyInterrupt, event.PolicyInterrupt, 1, "interrupted by a new message", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := looptest.NewBench(looptest.NewLog(), says("hi"))
			id := b.Session(t)
			first := b.Start(t, id, "one")
			claimed(t, b, first, "w", 1)
			if c.before == "" {
				if err := cancel(t, b, first); err != nil {
					t.Fatal(err)
				}
			} else {
				b.Say(t, id, "two", c.before)
			}
			b.Say(t, id, "three", c.policy)
			release(t, b, first, "w")
			events, s := checked(t, b, id)
			r := b.Run(t, first)
			if n := len(payloads[event.RunCancelRequested](t, events)); n != c.asks || r.Status != loop.RunCancelled || r.Reason != c.reason {
				t.Errorf("asked to stop %d times, ended %s for %q; want %d and %q", n, r.Status, r.Reason, c.asks, c.reason)
			}
			want := []string{"user three"}
			if c.kept {
				want = []string{"user one", "user three"}
			}
			if got := spoken(s); !slices.Equal(got, want) {
				t.Errorf("the conversation is %q; want %q", got, want)
			}
		})
	}
}

// TestWhatIsRolledBackStaysSo: also if the run ends in another way, if the
// message that rolled it back is taken back, and if somebody wants it retried.
func TestWhatIsRolledBackStaysSo(t *testing.T) {
	t.Parallel()
	b := looptest.NewBench(looptest.NewLog(), says("hi"))
	id := b.Session(t)
	b.Advance(t, b.Start(t, id, "zero"))
	first := b.Start(t, id, "one")
	claimed(t, b, first, "w", 1)
	second := b.Say(t, id, "two", event.PolicyRollback)
	if err := cancel(t, b, second); err != nil {
		t.Fatal(err)
	}
	if err := fail(t, b, first, "it hangs"); err != nil {
		t.Fatal(err)
	}
	_, s := checked(t, b, id)
	if got, want := spoken(s), []string{"user zero", "assistant hi"}; !slices.Equal(got, want) {
		t.Errorf("the conversation is %q; want %q", got, want)
	}
	_, err := b.Commands.RetryRun(t.Context(), loop.RetryRun{TenantID: looptest.Tenant, SessionID: id, RunID: first.RunID, Actor: looptest.Tester})
	var refused *loop.RetryError
	if !errors.As(err, &refused) || refused.Problem != "its messages have left the conversation: start a new run instead" {
		t.Errorf("retry: %v; want it refused", err)
	}
	goesOn(t, b, id)
}

// TestADeathAfterAnInterruptLosesNothing: the worker that is to stop its run dies
// in any of its appends from then on.
func TestADeathAfterAnInterruptLosesNothing(t *testing.T) {
	t.Parallel()
	for _, policy := range []event.Policy{event.PolicyInterrupt, event.PolicyRollback} {
		for _, written := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s written=%v", policy, written), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					for n, survived := 1, false; !survived; n++ {
						k := newTalk(t, looptest.NewLog())
						id := k.Session(t)
						first := k.Start(t, id, "one")
						ctx, die := context.WithCancel(t.Context())
						left, asked := n, false
						kill := func(a loop.Append) error {
							if asked = asked || has(a, event.TypeRunCancelRequested); !asked || a.Epoch == 0 {
								return nil
							}
							if left--; left == 0 {
								die()
								return errDead
							}
							return nil
						}
						if written {
							k.log.LoseAcks(kill)
						} else {
							k.log.FailAppends(kill)
						}
						done := make(chan struct{})
						go func() {
							defer close(done)
							k.settle(ctx, t, id)
						}()
						pause(t.Context(), 3*time.Millisecond) // in the middle of the answer
						second := k.Say(t, id, "two", policy)
						<-done
						die()
						survived = left > 0
						k.log.LoseAcks(nil)
						k.log.FailAppends(nil)
						k.settle(t.Context(), t, id)
						_, s := checked(t, k.Bench, id)
						status := []loop.RunStatus{k.Run(t, first).Status, k.Run(t, second).Status}
						if want := []loop.RunStatus{loop.RunCancelled, loop.RunCompleted}; !reflect.DeepEqual(status, want) {
							t.Errorf("dead in append %d: runs %v; want %v", n, status, want)
						}
						if got, want := s.Messages[0].Text(), map[event.Policy]string{event.PolicyInterrupt: "one", event.PolicyRollback: "two"}[policy]; got != want {
							t.Errorf("dead in append %d: the conversation begins with %q; want %q", n, got, want)
						}
					}
				})
			})
		}
	}
}
