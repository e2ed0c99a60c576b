package loop_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"regexp"
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

// talk is a run with text, two parallel tools of which one may be run twice,
// and a final answer, together with what it did to the world.
type talk struct {
	*looptest.Bench
	log *looptest.Log

	mu sync.Mutex
	// asked counts the model calls by turn and attempt.
	asked map[[2]int]int
	// effects counts what the tool that is not idempotent did.
	effects atomic.Int64
	// called has the ids under which each tool was entered.
	called map[string]map[string]int
}

func newTalk(t *testing.T, log *looptest.Log) *talk {
	k := &talk{log: log, asked: map[[2]int]int{}, called: map[string]map[string]int{}}
	answers := looptest.Answers(
		looptest.Answer(
			looptest.Reasoning("hm"), looptest.Text("let me "), looptest.Text("look"),
			looptest.ToolCall("a", "again", `{"n": 1}`), looptest.ToolCall("b", "once", `{"n": 2}`), looptest.Finish(stream.FinishToolCalls),
		),
		looptest.Answer(looptest.Text("all "), looptest.Text("done"), looptest.Finish(stream.FinishStop)),
	)
	model := func(ctx context.Context, req loop.ModelRequest, yield func(stream.Chunk, error) bool) {
		k.mu.Lock()
		k.asked[[2]int{req.Turn, req.Attempt}]++
		k.mu.Unlock()
		// Each attempt says its number first, so that a mix would show.
		tag := looptest.Text(fmt.Sprintf("[%d]", req.Attempt))
		if yield(tag, nil) {
			answers(ctx, req, yield)
		}
	}
	tool := func(name string, idempotent bool, takes time.Duration) looptest.Tool {
		return looptest.Tool{Name: name, Idempotent: idempotent, Run: func(ctx context.Context, in loop.ToolInput) (loop.ToolOutput, error) {
			k.mu.Lock()
			if k.called[name] == nil {
				k.called[name] = map[string]int{}
			}
			k.called[name][in.CallID]++
			k.mu.Unlock()
			if name == "once" {
				k.effects.Add(1)
			}
			pause(ctx, takes)
			return loop.ToolOutput{Content: name + " ran"}, ctx.Err()
		}}
	}
	k.Bench = looptest.NewBench(log, strict(t, paced(model)), tool("again", true, 5*time.Millisecond), tool("once", false, 10*time.Millisecond))
	return k
}

// undisturbed plays the talk once and returns its appends and its log.
func undisturbed(t *testing.T) (appends []loop.Append, events []event.Event) {
	t.Helper()
	k := newTalk(t, looptest.NewLog())
	k.log.FailAppends(func(a loop.Append) error {
		appends = append(appends, a)
		return nil
	})
	id := k.Session(t)
	k.Advance(t, k.Start(t, id, "hi"))
	events, _ = checked(t, k.Bench, id)
	return appends, events
}

var attemptTag = regexp.MustCompile(`^\[\d+\]`)

// essence is what a user and the model see of a session: no ids, attempts,
// epochs or times.
func essence(s loop.State) []string {
	names := map[string]string{}
	var out []string
	for _, m := range s.Messages {
		for _, p := range m.Parts {
			line := fmt.Sprintf("%s partial=%v %s %q", m.Role, m.Partial, p.Type, attemptTag.ReplaceAllString(p.Text, ""))
			if c := p.ToolCall; c != nil {
				names[c.ID] = c.Name
				line += fmt.Sprintf(" call %s %s %s", c.ProviderID, c.Name, c.Arguments)
			}
			if r := p.ToolResult; r != nil {
				line += fmt.Sprintf(" result of %s: %q error=%v %s", names[r.CallID], r.Content, r.IsError, r.Reason)
			}
			out = append(out, line)
		}
	}
	for _, r := range s.Runs {
		out = append(out, fmt.Sprintf("run %s %s %q agent=%s worker=%q", r.Status, r.Reason, r.Error, r.Agent, r.WorkerID))
		for _, t := range r.Turns {
			out = append(out, fmt.Sprintf("turn %d %s %s %+v open=%v", t.No, t.Status, t.Finish, t.Usage, t.Shown.Blocks()))
			for _, c := range t.Calls {
				out = append(out, fmt.Sprintf("call %d %s %s %s success=%v %s", c.Number, c.Name, c.Arguments, c.Status, c.Success, c.Reason))
			}
		}
	}
	return out
}

// expected is the essence of the undisturbed talk, or of one whose tool that
// is not idempotent was started and left without an outcome.
func expected(whole []event.Event, unknown bool) []string {
	return expectedOf(loop.FoldAll(loop.State{}, whole), unknown)
}

func expectedOf(whole loop.State, unknown bool) []string {
	out := essence(whole)
	if !unknown {
		return out
	}
	lost := map[string]string{
		`tool partial=false tool_result "" result of once: "once ran" error=false `: `tool partial=false tool_result "" result of once: ` +
			`"outcome unknown: the tool was started and then interrupted before it answered. It may have taken effect. It was not run again." error=true outcome_unknown`,
		`call 2 once {"n": 2} done success=true `: `call 2 once {"n": 2} done success=false outcome_unknown`,
	}
	for i, line := range out {
		if l, ok := lost[line]; ok {
			out[i] = l
			delete(lost, line)
		}
	}
	if len(lost) > 0 {
		panic(fmt.Sprintf("the undisturbed talk has no %v in %q", lost, out))
	}
	return out
}

// finish takes the run of a log whose worker died as far as it goes, and
// checks what must hold however it died.
func (k *talk) finish(t *testing.T, whole []event.Event, sessionID string) {
	t.Helper()
	events := k.Events(t, sessionID)
	j := loop.Job{TenantID: looptest.Tenant, SessionID: sessionID, RunID: events[3].RunID, Ticket: 1}
	run := k.Run(t, j)
	if run.Status == loop.RunRunning {
		j = buried(t, k.Bench, j, run.WorkerID)
	}
	unknown := startedWithoutOutcome(t, events, "once")
	before := len(events)
	ended := k.Advance(t, j)
	if ended.Status != loop.RunCompleted {
		t.Fatalf("run %+v; want it completed", ended)
	}
	events, s := checked(t, k.Bench, sessionID)
	if got, want := essence(s), expected(whole, unknown); !reflect.DeepEqual(got, want) {
		t.Errorf("the run ended otherwise than the undisturbed one\n got %q\nwant %q", got, want)
	}
	if run.Status.Terminal() && len(events) != before {
		t.Errorf("something was added to a run that had ended: %v", looptest.Types(events[before:]))
	}
	for call, n := range k.asked {
		if n != 1 {
			t.Errorf("turn %d attempt %d was asked %d times", call[0], call[1], n)
		}
	}
	if n := k.effects.Load(); n > 1 {
		t.Errorf("the tool that is not idempotent took effect %d times", n)
	}
	if ids := k.called["again"]; len(ids) > 1 {
		t.Errorf("one call of the idempotent tool came under the ids %v", ids)
	}
}

// startedWithoutOutcome reports whether the log ends with that tool's call
// started and not executed.
func startedWithoutOutcome(t *testing.T, events []event.Event, name string) bool {
	t.Helper()
	calls := map[string]bool{}
	for _, p := range payloads[event.ToolProposed](t, events) {
		calls[p.CallID] = p.Name == name
	}
	open := false
	for _, p := range payloads[event.ToolStarted](t, events) {
		open = open || calls[p.CallID]
	}
	for _, p := range payloads[event.ToolExecuted](t, events) {
		open = open && !calls[p.CallID]
	}
	return open
}

// TestResumeFromEveryPrefix rebuilds the log as it was after each append and
// lets another worker go on. What had been shown or done before is in the log
// only.
func TestResumeFromEveryPrefix(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		appends, whole := undisturbed(t)
		// Two commands, the claim, 4 deltas, the answer, a tool, another one
		// with the next call, 3 deltas, the end.
		if len(appends) != 14 {
			t.Fatalf("%d appends: %v", len(appends), looptest.Types(whole))
		}
		for n := 2; n <= len(appends); n++ {
			k := newTalk(t, looptest.NewLog())
			answered := map[int]bool{}
			for _, a := range appends[:n] {
				if _, err := k.log.Append(t.Context(), a); err != nil {
					t.Fatal(err)
				}
				for _, e := range a.Events {
					if e.Type == event.TypeToolStarted {
						k.effects.Store(1) // at worst, it had its effect
					}
					if e.Type == event.TypeAssistantCompleted {
						answered[e.Turn] = true
					}
				}
			}
			k.finish(t, whole, whole[0].SessionID)
			for call := range k.asked {
				if answered[call[0]] {
					t.Errorf("after append %d: turn %d was answered, and asked again", n, call[0])
				}
			}
			if t.Failed() {
				t.Fatalf("with the first %d appends, which end with %s", n, appends[n-1].Events[len(appends[n-1].Events)-1].Type)
			}
		}
	})
}

var errDead = errors.New("the worker is dead")

// TestResumeAfterADeathInEveryAppend kills the worker in the middle of each of
// its appends, before or after it was written, while its tools and its model
// call are under way.
func TestResumeAfterADeathInEveryAppend(t *testing.T) {
	t.Parallel()
	for _, written := range []bool{false, true} {
		t.Run(fmt.Sprintf("written=%v", written), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				appends, whole := undisturbed(t)
				for n := 3; n <= len(appends); n++ {
					k := newTalk(t, looptest.NewLog())
					j := k.Start(t, k.Session(t), "hi")
					ctx, die := context.WithCancel(t.Context())
					nth := 2
					kill := func(loop.Append) error {
						if nth++; nth == n {
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
					if err := k.Engine.Advance(ctx, j, loop.Holder{WorkerID: looptest.NewID()}); err == nil {
						t.Fatalf("the worker did not die in append %d", n)
					}
					k.log.LoseAcks(nil)
					k.log.FailAppends(nil)
					k.finish(t, whole, j.SessionID)
					if t.Failed() {
						t.Fatalf("dead in append %d", n)
					}
				}
			})
		})
	}
}

// TestResumeAfterDeathUponDeath kills each worker in the first append that
// ends a step of its own: nothing that was finished is lost or done again.
func TestResumeAfterDeathUponDeath(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, whole := undisturbed(t)
		k := newTalk(t, looptest.NewLog())
		j := k.Start(t, k.Session(t), "hi")
		deaths := 0
		for ; deaths < 100; deaths++ {
			ctx, die := context.WithCancel(t.Context())
			steps := 0
			k.log.LoseAcks(func(a loop.Append) error {
				if steps++; !a.Deltas && steps > 1 {
					die()
					return errDead
				}
				return nil
			})
			worker := looptest.NewID()
			err := k.Engine.Advance(ctx, j, loop.Holder{WorkerID: worker})
			die()
			k.log.LoseAcks(nil)
			if run := k.Run(t, j); err == nil || run.Status.Terminal() {
				break
			}
			j = buried(t, k.Bench, j, worker)
		}
		if deaths != 2 {
			t.Errorf("%d workers died with the answer and the tool's outcome in their hands; want 2", deaths)
		}
		// The first one died before it entered the tools.
		_, s := checked(t, k.Bench, j.SessionID)
		if got, want := essence(s), expected(whole, true); !reflect.DeepEqual(got, want) {
			t.Errorf("after %d deaths\n got %q\nwant %q", deaths, got, want)
		}
		if n := k.effects.Load(); n != 0 {
			t.Errorf("the tool that is not idempotent took effect %d times", n)
		}
	})
}

func TestResume(t *testing.T) {
	t.Parallel()
	t.Run("ToolStartedWithoutOutcomeIsNotRunAgain", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			var entered atomic.Int64
			tool := looptest.Tool{Name: "pay", Run: func(ctx context.Context, _ loop.ToolInput) (loop.ToolOutput, error) {
				entered.Add(1)
				<-ctx.Done()
				return loop.ToolOutput{}, ctx.Err()
			}}
			b := looptest.NewBench(looptest.NewLog(), strict(t, calls("pay")), tool)
			j := b.Start(t, b.Session(t), "hi")
			w := work(t, b, j)
			synctest.Wait()
			w.kill()
			if err := w.wait(t); !errors.Is(err, context.Canceled) {
				t.Errorf("the killed worker returned %v", err)
			}
			b.Advance(t, buried(t, b, j, w.id))
			_, s := checked(t, b, j.SessionID)
			got := results(s)
			if len(got) != 1 || got[0].Reason != hooks.ReasonOutcomeUnknown || !got[0].IsError || entered.Load() != 1 {
				t.Errorf("results %+v, entered %d times; want outcome unknown, once", got, entered.Load())
			}
		})
	})
	t.Run("IdempotentToolIsRunAgainUnderTheSameCallID", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			var inputs []loop.ToolInput
			tool := looptest.Tool{Name: "look", Idempotent: true, Run: func(ctx context.Context, in loop.ToolInput) (loop.ToolOutput, error) {
				if inputs = append(inputs, in); len(inputs) == 1 {
					<-ctx.Done()
				}
				return loop.ToolOutput{Content: "seen"}, ctx.Err()
			}}
			b := looptest.NewBench(looptest.NewLog(), strict(t, calls("look")), tool)
			j := b.Start(t, b.Session(t), "hi")
			w := work(t, b, j)
			synctest.Wait()
			w.kill()
			_ = w.wait(t)
			b.Advance(t, buried(t, b, j, w.id))
			_, s := checked(t, b, j.SessionID)
			if got := results(s); len(got) != 1 || got[0].Content != "seen" {
				t.Errorf("results %+v", got)
			}
			if len(inputs) != 2 || inputs[0].CallID != inputs[1].CallID || inputs[0].Attempt != 1 || inputs[1].Attempt != 2 {
				t.Errorf("inputs %+v; want one call id, attempts 1 and 2", inputs)
			}
		})
	})
	t.Run("ExecutedToolWhoseOutputWasLostIsNotRunAgain", func(t *testing.T) {
		t.Parallel()
		b := looptest.NewBench(looptest.NewLog(), strict(t, calls("pay")), looptest.Tool{Name: "pay", Run: func(context.Context, loop.ToolInput) (loop.ToolOutput, error) {
			t.Error("the tool was run again")
			return loop.ToolOutput{}, nil
		}})
		id := b.Session(t)
		j := b.Start(t, id, "hi")
		call := hooks.ToolCall{ID: looptest.NewID(), Name: "pay", Arguments: "{}"}
		write(t, b, j, 1, event.RunStarted{WorkerID: "dead", Epoch: 1, Ticket: 1}, event.TurnStarted{},
			event.ModelRequested{Attempt: 1, Model: "m", MessageIDs: []string{}},
			event.AssistantCompleted{Attempt: 1, MessageID: looptest.NewID(), Finish: stream.FinishToolCalls, Parts: []hooks.Part{{Type: hooks.PartToolCall, ToolCall: &call}}},
			event.ToolProposed{CallID: call.ID, Number: 1, Name: "pay", Arguments: "{}"},
			event.ToolStarted{CallID: call.ID, Attempt: 1}, event.ToolExecuted{CallID: call.ID, Attempt: 1, Success: true})
		if run := b.Advance(t, buried(t, b, j, "dead")); run.Status != loop.RunCompleted {
			t.Errorf("run %+v", run)
		}
		_, s := checked(t, b, id)
		if got := results(s); len(got) != 1 || got[0].Reason != hooks.ReasonOutputLost || !got[0].IsError {
			t.Errorf("results %+v; want output lost", got)
		}
	})
	t.Run("CutAnswerIsDiscardedAndAskedAgain", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			model := looptest.Model(func(ctx context.Context, req loop.ModelRequest, yield func(stream.Chunk, error) bool) {
				if !yield(looptest.Text(fmt.Sprintf("attempt %d", req.Attempt)), nil) {
					return
				}
				if req.Attempt == 1 {
					<-ctx.Done()
					yield(stream.Chunk{}, ctx.Err())
					return
				}
				yield(looptest.Finish(stream.FinishStop), nil)
			})
			b := looptest.NewBench(looptest.NewLog(), strict(t, model))
			j := b.Start(t, b.Session(t), "hi")
			w := work(t, b, j)
			synctest.Wait()
			w.kill()
			_ = w.wait(t)
			b.Advance(t, buried(t, b, j, w.id))
			events, s := checked(t, b, j.SessionID)
			if got := s.Messages[len(s.Messages)-1].Text(); got != "attempt 2" {
				t.Errorf("answer %q; want only the second attempt", got)
			}
			if d := only[event.AssistantDiscarded](t, events); d.Attempt != 1 {
				t.Errorf("discarded %+v", d)
			}
			if r := only[event.RunResumed](t, events); r.Cause != event.ResumeTakeover || r.Epoch != 3 {
				t.Errorf("resumed %+v; want a takeover under epoch 3", r)
			}
		})
	})
}

// write appends payloads of j's run by hand, at the end of the log.
func write(t testing.TB, b *looptest.Bench, j loop.Job, turn int, ps ...event.Payload) {
	t.Helper()
	h, err := b.Log.Head(t.Context(), looptest.Tenant, j.SessionID)
	if err != nil {
		t.Fatal(err)
	}
	a := loop.Append{ID: looptest.NewID(), TenantID: looptest.Tenant, SessionID: j.SessionID, Expected: h.LastSeq}
	for _, p := range ps {
		e, err := event.New(event.Scope{SessionID: j.SessionID, RunID: j.RunID, Turn: turn, At: at, Actor: looptest.Tester}, p)
		if err != nil {
			t.Fatal(err)
		}
		a.Events = append(a.Events, e)
	}
	if _, err := b.Log.Append(t.Context(), a); err != nil {
		t.Fatalf("append %s: %v", ps[0].EventType(), err)
	}
}
