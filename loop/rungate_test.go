package loop_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
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

// requests keeps what a model was sent.
type requests struct {
	mu  sync.Mutex
	all []loop.ModelRequest
}

func (r *requests) model(m looptest.Model) looptest.Model {
	return func(ctx context.Context, req loop.ModelRequest, yield func(stream.Chunk, error) bool) {
		r.mu.Lock()
		r.all = append(r.all, req)
		r.mu.Unlock()
		m(ctx, req, yield)
	}
}

// sent says what the messages of a request are.
func sent(req loop.ModelRequest) []string {
	var out []string
	for _, m := range req.Messages {
		text := m.Text()
		for _, p := range m.Parts {
			if p.ToolResult != nil {
				text = p.ToolResult.Content
			}
		}
		out = append(out, string(m.Role)+" "+text)
	}
	return out
}

func TestRunStartGateShapesTheRun(t *testing.T) {
	t.Parallel()
	system := "be brief"
	var r requests
	var seen hooks.BeforeRunStart
	var d diary
	b := looptest.NewBench(looptest.NewLog(), strict(t, calls("look")), looptest.Says("look", "seen"), blocks("gone", nil))
	agent := b.Engine.Agents["demo"]
	agent.System = "be verbose"
	b.Engine.Agents["demo"] = agent
	id := b.Session(t)
	b.Advance(t, b.Start(t, id, "one"))
	play(b, strict(t, r.model(calls("look", "gone"))))
	b.Use(hooks.Hooks{
		BeforeRunStart: func(_ context.Context, in hooks.BeforeRunStart) (hooks.BeforeRunStartResult, error) {
			d.add("BeforeRunStart")
			seen = in
			return hooks.BeforeRunStartResult{
				Action: hooks.ActionTransform, System: &system, Tools: &[]string{"look"},
				Append: []hooks.HiddenMessage{{Role: hooks.RoleSystem, Text: "it is Sunday"}, {Role: hooks.RoleUser, Text: "(be\x00 kind)"}},
			}, nil
		},
		OnRunStart: func(context.Context, hooks.RunStart) { d.add("OnRunStart") },
	})
	j := b.Start(t, id, "two")
	if run := b.Advance(t, j); run.Status != loop.RunCompleted {
		t.Fatalf("run %+v", run)
	}
	events, s := checked(t, b, id)
	if seen.System != "be verbose" || !reflect.DeepEqual(seen.Tools, []string{"look", "gone"}) || seen.RunID != j.RunID || seen.Agent != "demo" || seen.Messages[len(seen.Messages)-1].Text() != "two" {
		t.Errorf("the hook saw %+v", seen)
	}
	if !reflect.DeepEqual(d.lines, []string{"BeforeRunStart", "OnRunStart"}) {
		t.Errorf("%q; want the gate once, before the notification", d.lines)
	}
	before := []string{"user one", "assistant ", "tool seen", "assistant done"}
	for i, req := range r.all {
		got := sent(req)
		at := slices.Index(got, "user two")
		if req.System != system || len(req.Tools) != 1 || req.Tools[0].Name != "look" || !slices.Equal(got[:len(before)], before) ||
			!slices.Equal(got[at+1:at+3], []string{"system it is Sunday", "user (be\uFFFD kind)"}) {
			t.Errorf("request %d: system %q, tools %+v, messages %q", i+1, req.System, req.Tools, got)
		}
	}
	if len(r.all) != 2 || len(r.all[1].Messages) != len(r.all[0].Messages)+3 {
		t.Errorf("%d requests; want the hidden messages in front of the turn in both", len(r.all))
	}
	for _, m := range s.Messages {
		if strings.Contains(m.Text(), "Sunday") {
			t.Errorf("a hidden message is in the conversation: %+v", m)
		}
	}
	res := results(s)
	if last := res[len(res)-1]; last.Reason != hooks.ReasonUnknownTool || !strings.Contains(last.Content, "There is no tool called gone") {
		t.Errorf("the narrowed tool gave %+v; want it unknown", last)
	}
	p := only[event.RunPrepared](t, events)
	for i, req := range payloads[event.ModelRequested](t, events)[2:] {
		if !reflect.DeepEqual(req.Tools, []string{"look"}) || !slices.Contains(req.MessageIDs, p.Messages[0].MessageID) || req.Messages != nil {
			t.Errorf("model.requested %d: %+v", i+1, req)
		}
	}
	if rec := ledger(b, id); len(rec) != 1 || rec[0].Subject != j.RunID || rec[0].Turn != 0 || rec[0].Attempt != 1 || !slices.Equal(rec[0].FieldsChanged, []string{"system", "hidden", "tools"}) {
		t.Errorf("ledger %v", rows(rec))
	}
	r.all = nil
	quiet(b)
	play(b, strict(t, r.model(says("ok"))))
	b.Advance(t, b.Start(t, id, "three"))
	if got := fmt.Sprintf("%q %q", r.all[0].System, sent(r.all[0])); strings.Contains(got, "Sunday") || strings.Contains(got, "brief") || len(r.all[0].Tools) != 2 {
		t.Errorf("the next run was sent %s and tools %v; want nothing of it", got, r.all[0].Tools)
	}
}

// TestRunStartGateIsAskedOncePerRun: other workers take the run up again, after
// a crash in the model call and in the tools.
func TestRunStartGateIsAskedOncePerRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		var r requests
		b := looptest.NewBench(looptest.NewLog(), r.model(stalls(nil, looptest.Text("once"))), blocks("slow", nil))
		system := "be brief"
		b.Use(hooks.Hooks{BeforeRunStart: func(context.Context, hooks.BeforeRunStart) (hooks.BeforeRunStartResult, error) {
			asked++
			return hooks.BeforeRunStartResult{Action: hooks.ActionTransform, System: &system}, nil
		}})
		j := b.Start(t, b.Session(t), "hi")
		w := work(t, b, j)
		synctest.Wait()
		w.kill()
		_ = w.wait(t)
		play(b, strict(t, r.model(calls("slow"))))
		w2 := work(t, b, buried(t, b, j, w.id))
		synctest.Wait()
		w2.kill()
		_ = w2.wait(t)
		if run := b.Advance(t, buried(t, b, j, w2.id)); run.Status != loop.RunCompleted {
			t.Errorf("run %+v", run)
		}
		checked(t, b, j.SessionID)
		if rec := ledger(b, j.SessionID); asked != 1 || len(rec) != 1 || len(r.all) != 3 {
			t.Errorf("asked %d times, ledger %v, %d requests; want one decision", asked, rows(rec), len(r.all))
		}
		for i, req := range r.all {
			if req.System != system {
				t.Errorf("request %d has the system prompt %q", i+1, req.System)
			}
		}
	})
}

func TestRunStartGateBlocks(t *testing.T) {
	t.Parallel()
	var d diary
	b := looptest.NewBench(looptest.NewLog(), uncalled(t))
	all := d.hooks(b)
	all.BeforeRunStart = hooks.Named("budget", "1", func(context.Context, hooks.BeforeRunStart) (hooks.BeforeRunStartResult, error) {
		return hooks.BeforeRunStartResult{Action: hooks.ActionBlock, Reason: hooks.Reason{Code: "budget", Text: "nothing left\x00"}}, nil
	})
	b.Use(all)
	j := b.Start(t, b.Session(t), "hi")
	run := b.Advance(t, j)
	if run.Status != loop.RunFailed || run.Reason != string(event.FailBlocked) || run.Error != "nothing left\uFFFD" || len(run.Turns) != 0 {
		t.Errorf("run %+v; want it blocked before its first turn", run)
	}
	events, _ := checked(t, b, j.SessionID)
	if want := []string{"run failed blocked after run.failed"}; !reflect.DeepEqual(d.lines, want) {
		t.Errorf("notifications %q; want %q", d.lines, want)
	}
	if rec := ledger(b, j.SessionID); len(rec) != 1 || rec[0].EventSeq != events[len(events)-1].Seq || rec[0].Action != hooks.ActionBlock || rec[0].ReasonCode != "budget" || rec[0].Epoch != 1 {
		t.Errorf("ledger %v", rows(rec))
	}
	goesOnWithout(t, b, j.SessionID, "nothing left")
}

// reword replaces the text of each user message.
func reword(in []hooks.Message, text string) *[]hooks.Message {
	for i := range in {
		if in[i].Role == hooks.RoleUser {
			in[i].Parts = []hooks.Part{{Type: hooks.PartText, Text: text}}
		}
	}
	return &in
}

// TestContextGateIsAskedPerAttempt: what it returns is what is sent, and what
// the log says was sent; the conversation stays as it is.
func TestContextGateIsAskedPerAttempt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var r requests
		var seen []hooks.TransformContext
		b := looptest.NewBench(looptest.NewLog(), strict(t, r.model(stalls(nil, looptest.Text("once")))), looptest.Says("look", "seen"))
		b.Use(hooks.Hooks{TransformContext: func(_ context.Context, in hooks.TransformContext) (hooks.TransformContextResult, error) {
			seen = append(seen, in)
			if in.Turn == 2 {
				return hooks.TransformContextResult{Action: hooks.ActionContinue}, nil
			}
			return hooks.TransformContextResult{Action: hooks.ActionTransform, Messages: reword(in.Messages, fmt.Sprintf("attempt %d\x00", in.Attempt))}, nil
		}})
		j := b.Start(t, b.Session(t), "hi")
		w := work(t, b, j)
		synctest.Wait()
		w.kill()
		_ = w.wait(t)
		play(b, strict(t, r.model(calls("look"))))
		if run := b.Advance(t, buried(t, b, j, w.id)); run.Status != loop.RunCompleted {
			t.Errorf("run %+v", run)
		}
		events, s := checked(t, b, j.SessionID)
		if s.Messages[0].Text() != "hi" {
			t.Errorf("the conversation was changed: %+v", s.Messages[0])
		}
		var got [][]string
		for _, req := range r.all {
			got = append(got, sent(req))
		}
		if want := [][]string{{"user attempt 1\uFFFD"}, {"user attempt 2\uFFFD"}, {"user hi", "assistant ", "tool seen"}}; !reflect.DeepEqual(got, want) {
			t.Errorf("sent %q; want %q", got, want)
		}
		for i, req := range payloads[event.ModelRequested](t, events) {
			if i == 2 && req.Messages != nil || i < 2 && !reflect.DeepEqual(req.Messages, r.all[i].Messages) {
				t.Errorf("model.requested %d says %+v; sent was %+v", i+1, req.Messages, r.all[i].Messages)
			}
			if len(req.MessageIDs) != len(r.all[i].Messages) || req.MessageIDs[0] != s.Messages[0].ID {
				t.Errorf("model.requested %d has the ids %v", i+1, req.MessageIDs)
			}
		}
		if len(seen) != 3 || seen[0].Messages[0].ID != s.Messages[0].ID || seen[2].Turn != 2 || seen[2].Attempt != 1 || seen[1].Attempt != 2 {
			t.Errorf("the hook saw %+v", seen)
		}
		want := []string{"TransformContext anonymous/1 transform", "TransformContext anonymous/1 transform", "TransformContext anonymous/1 continue"}
		if rec := ledger(b, j.SessionID); !slices.Equal(rows(rec), want) || rec[1].Attempt != 2 || rec[1].Subject != "1" || rec[2].Subject != "2" {
			t.Errorf("ledger %q; want %q", rows(rec), want)
		}
	})
}

// TestContextGateMayNotBreakTheHistory: what no provider would take fails the
// hook, and the run is blocked.
func TestContextGateMayNotBreakTheHistory(t *testing.T) {
	t.Parallel()
	drop := func(role hooks.Role) func([]hooks.Message) []hooks.Message {
		return func(in []hooks.Message) []hooks.Message {
			return slices.DeleteFunc(in, func(m hooks.Message) bool { return m.Role == role })
		}
	}
	for name, change := range map[string]func([]hooks.Message) []hooks.Message{
		"a result without its call": drop(hooks.RoleAssistant),
		"a call without its result": drop(hooks.RoleTool),
		"nothing":                   func([]hooks.Message) []hooks.Message { return []hooks.Message{} },
		"nothing that is said":      func(in []hooks.Message) []hooks.Message { return *reword(in[:1], " ") },
		"a result twice":            func(in []hooks.Message) []hooks.Message { return append(in, in[2]) },
		"somebody in between":       func(in []hooks.Message) []hooks.Message { return slices.Insert(in, 2, in[0]) },
		"a call by the user": func(in []hooks.Message) []hooks.Message {
			in[1].Role = hooks.RoleUser
			return in
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var r requests
			b := looptest.NewBench(looptest.NewLog(), strict(t, r.model(calls("look"))), looptest.Says("look", "seen"))
			b.Use(hooks.Hooks{TransformContext: hooks.Named("compact", "1", func(_ context.Context, in hooks.TransformContext) (hooks.TransformContextResult, error) {
				if in.Turn == 1 {
					return hooks.TransformContextResult{Action: hooks.ActionContinue}, nil
				}
				out := change(in.Messages)
				return hooks.TransformContextResult{Action: hooks.ActionTransform, Messages: &out}, nil
			})})
			j := b.Start(t, b.Session(t), "hi")
			run := b.Advance(t, j)
			if run.Status != loop.RunFailed || run.Reason != string(event.FailBlocked) || !strings.Contains(run.Error, "compact") || len(r.all) != 1 {
				t.Errorf("run %+v after %d requests; want it blocked by the check", run, len(r.all))
			}
			checked(t, b, j.SessionID)
			want := []string{"TransformContext compact continue", "TransformContext compact block unappliable"}
			if got := rows(ledger(b, j.SessionID)); !slices.Equal(got, want) {
				t.Errorf("ledger %q; want %q", got, want)
			}
			goesOnWithout(t, b, j.SessionID, "compact")
		})
	}
}

func TestContextGateBlocks(t *testing.T) {
	t.Parallel()
	var r requests
	b := looptest.NewBench(looptest.NewLog(), r.model(calls("look")), looptest.Says("look", "seen"))
	b.Use(hooks.Hooks{TransformContext: func(_ context.Context, in hooks.TransformContext) (hooks.TransformContextResult, error) {
		if in.Turn == 1 {
			return hooks.TransformContextResult{Action: hooks.ActionContinue}, nil
		}
		return hooks.TransformContextResult{Action: hooks.ActionBlock}, nil
	}})
	j := b.Start(t, b.Session(t), "hi")
	run := b.Advance(t, j)
	if run.Status != loop.RunFailed || run.Reason != string(event.FailBlocked) || run.Error == "" || len(r.all) != 1 {
		t.Errorf("run %+v after %d requests; want it blocked in turn 2", run, len(r.all))
	}
	events, _ := checked(t, b, j.SessionID)
	if rec := ledger(b, j.SessionID); len(rec) != 2 || rec[1].Turn != 2 || rec[1].EventSeq != events[len(events)-1].Seq {
		t.Errorf("ledger %v", rows(rec))
	}
	goesOnWithout(t, b, j.SessionID, "no secret")
}

// TestHiddenMessagesKeepTheirIDsOverAConflict: the step that prepares the run is
// planned twice, its hooks are asked once.
func TestHiddenMessagesKeepTheirIDsOverAConflict(t *testing.T) {
	t.Parallel()
	b := looptest.NewBench(looptest.NewLog(), strict(t, says("hi")))
	asked := 0
	b.Use(hooks.Hooks{
		BeforeRunStart: func(context.Context, hooks.BeforeRunStart) (hooks.BeforeRunStartResult, error) {
			asked++
			return hooks.BeforeRunStartResult{Action: hooks.ActionTransform, Append: []hooks.HiddenMessage{{Role: hooks.RoleUser, Text: "psst"}}}, nil
		},
		TransformContext: func(context.Context, hooks.TransformContext) (hooks.TransformContextResult, error) {
			asked++
			return hooks.TransformContextResult{Action: hooks.ActionContinue}, nil
		},
	})
	j := b.Start(t, b.Session(t), "hi")
	var once sync.Once
	hooked(b, func(a loop.Append) {
		if has(a, event.TypeRunPrepared) {
			once.Do(func() { write(t, b, j, 0, event.MessageCreated{MessageID: "m", Role: hooks.RoleUser}) })
		}
	})
	b.Advance(t, j)
	events, _ := checked(t, b, j.SessionID)
	hidden := only[event.RunPrepared](t, events).Messages[0].MessageID
	if ids := only[event.ModelRequested](t, events).MessageIDs; !slices.Contains(ids, hidden) || asked != 2 {
		t.Errorf("the model was sent %v, asked %d times; want %s among them and each gate once", ids, asked, hidden)
	}
}

// TestDecisionsOfAStepThatACancelMadeImpossible are kept, without effect, with
// the end of the run.
func TestDecisionsOfAStepThatACancelMadeImpossible(t *testing.T) {
	t.Parallel()
	for gate, typ := range map[hooks.Gate]event.Type{
		hooks.GateBeforeRunStart: event.TypeRunPrepared, hooks.GateTransformContext: event.TypeModelRequested, hooks.GateBeforeExecute: event.TypeToolStarted,
		hooks.GateAfterToolCall: event.TypeToolResult,
	} {
		t.Run(string(gate), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var d diary
				b := looptest.NewBench(looptest.NewLog(), calls("pay"), looptest.Says("pay", "paid"))
				h := d.gates("pay")
				h.TransformContext = func(context.Context, hooks.TransformContext) (hooks.TransformContextResult, error) {
					return hooks.TransformContextResult{Action: hooks.ActionContinue}, nil
				}
				system := "be brief"
				h.BeforeRunStart = func(context.Context, hooks.BeforeRunStart) (hooks.BeforeRunStartResult, error) {
					return hooks.BeforeRunStartResult{Action: hooks.ActionTransform, System: &system}, nil
				}
				b.Use(h)
				j := b.Start(t, b.Session(t), "hi")
				var once sync.Once
				hooked(b, func(a loop.Append) {
					if has(a, typ) {
						once.Do(func() {
							if err := cancel(t, b, j); err != nil {
								t.Error(err)
							}
						})
					}
				})
				if run := b.Advance(t, j); run.Status != loop.RunCancelled {
					t.Errorf("run %+v", run)
				}
				events, _ := checked(t, b, j.SessionID)
				void, kept := 0, 0
				for _, r := range ledger(b, j.SessionID) {
					switch {
					case r.Gate == gate && gate == hooks.GateAfterToolCall && r.Effective: // the result is stored all the same
						kept++
					case r.EventSeq == events[len(events)-1].Seq && !r.Effective:
						void++
					case !r.Effective || r.Gate == gate && r.Gate != hooks.GateTransformContext:
						t.Errorf("row %+v", r.Row)
					}
				}
				want := map[hooks.Gate]int{hooks.GateBeforeRunStart: 2, hooks.GateTransformContext: 2, hooks.GateBeforeExecute: 2}[gate]
				if void != want || (kept == 1) != (gate == hooks.GateAfterToolCall) {
					t.Errorf("%d decisions without effect, %d kept; want %d: %v", void, kept, want, rows(ledger(b, j.SessionID)))
				}
			})
		})
	}
}

// TestDeadlineOfTheWorkerVoidsTheAnswer: a worker that is told to stop while a
// hook thinks writes nothing, and the next one asks again.
func TestDeadlineOfTheWorkerVoidsTheAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var ids []string
		asked := 0
		b := looptest.NewBench(looptest.NewLog(), says("hi"))
		b.Use(hooks.Hooks{TransformContext: func(ctx context.Context, in hooks.TransformContext) (hooks.TransformContextResult, error) {
			if asked++; asked == 1 {
				pause(ctx, time.Second)
			}
			ids = append(ids, fmt.Sprint(in.RunID, in.Turn, in.Attempt))
			return hooks.TransformContextResult{Action: hooks.ActionBlock}, nil
		}})
		j := b.Start(t, b.Session(t), "hi")
		w := work(t, b, j)
		synctest.Wait()
		w.kill()
		if err := w.wait(t); !errors.Is(err, context.Canceled) {
			t.Errorf("the killed worker returned %v", err)
		}
		synctest.Wait()
		events, _ := checked(t, b, j.SessionID)
		if last := events[len(events)-1].Type; last != event.TypeRunStarted || len(ledger(b, j.SessionID)) != 0 {
			t.Errorf("the log ends with %s, ledger %v; want only the claim", last, rows(ledger(b, j.SessionID)))
		}
		if run := b.Advance(t, buried(t, b, j, w.id)); run.Reason != string(event.FailBlocked) {
			t.Errorf("run %+v", run)
		}
		if asked != 2 || len(ids) != 2 || ids[0] != ids[1] {
			t.Errorf("asked %d times at %v; want twice at the same position", asked, ids)
		}
		checked(t, b, j.SessionID)
	})
}

// uncalled is a model that nobody may call.
func uncalled(t *testing.T) looptest.Model {
	return func(context.Context, loop.ModelRequest, func(stream.Chunk, error) bool) {
		t.Error("the model was called")
	}
}
