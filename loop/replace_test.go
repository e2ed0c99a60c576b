package loop_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
)

// instead starts a run that takes the place of a message.
func instead(t testing.TB, b *looptest.Bench, sessionID, from, text string) (loop.StartedRun, error) {
	t.Helper()
	return b.Commands.StartRun(t.Context(), loop.StartRun{
		TenantID: looptest.Tenant, SessionID: sessionID, ReplaceFrom: from, Text: text, Actor: looptest.Tester,
	})
}

// job is the first job of a run.
func job(sessionID string, run loop.StartedRun) loop.Job {
	return loop.Job{TenantID: looptest.Tenant, SessionID: sessionID, RunID: run.RunID, Ticket: 1}
}

// ends are the ways in which a run about "hi" may be over. Each uses the agent
// of b as it likes.
var ends = map[string]func(t *testing.T, b *looptest.Bench, sessionID string){
	"completed": func(t *testing.T, b *looptest.Bench, id string) {
		play(b, calls("look", "look"))
		b.Advance(t, b.Start(t, id, "hi"))
	},
	"failed with an answer that was cut off": func(t *testing.T, b *looptest.Bench, id string) {
		play(b, fails(&loop.ModelError{Message: "no"}, looptest.Text("on")))
		b.Advance(t, b.Start(t, id, "hi"))
	},
	"failed without an answer": func(t *testing.T, b *looptest.Bench, id string) {
		play(b, fails(&loop.ModelError{Message: "no"}))
		b.Advance(t, b.Start(t, id, "hi"))
	},
	"cancelled in an answer": func(t *testing.T, b *looptest.Bench, id string) {
		play(b, paced(stalls(nil, looptest.Text("on"))))
		j := b.Start(t, id, "hi")
		w := work(t, b, j)
		synctest.Wait()
		cancelledNow(t, b, j, w, 0)
	},
	"cancelled before it began": func(t *testing.T, b *looptest.Bench, id string) {
		if err := cancel(t, b, b.Start(t, id, "hi")); err != nil {
			t.Fatal(err)
		}
	},
	"cancelled while people were asked": func(t *testing.T, b *looptest.Bench, id string) {
		play(b, calls("look", "look"))
		permit(b, loop.Permission{Tools: "*", Mode: loop.PermissionAsk})
		j := b.Start(t, id, "hi")
		b.Advance(t, j)
		permit(b)
		if err := cancel(t, b, j); err != nil {
			t.Fatal(err)
		}
	},
	"refused by a check": func(t *testing.T, b *looptest.Bench, id string) {
		b.Use(hooks.Hooks{BeforeRunStart: hooks.Named("no", "1", func(context.Context, hooks.BeforeRunStart) (hooks.BeforeRunStartResult, error) {
			return hooks.BeforeRunStartResult{Action: hooks.ActionBlock, Reason: hooks.Reason{Code: "no", Text: "no"}}, nil
		})})
		b.Advance(t, b.Start(t, id, "hi"))
		b.Use(hooks.Hooks{})
	},
	"given up in the middle of a call": func(t *testing.T, b *looptest.Bench, id string) {
		poisoned(t, b, b.Start(t, id, "hi"))
	},
}

// poisoned kills worker after worker in the middle of a tool call that may not
// be made again.
func poisoned(t *testing.T, b *looptest.Bench, j loop.Job) {
	t.Helper()
	call := hooks.ToolCall{ID: looptest.NewID(), Name: "look", Arguments: "{}"}
	claimed(t, b, j, "dead", 1, event.TurnStarted{}, event.ModelRequested{Attempt: 1, Model: "m", MessageIDs: []string{}},
		event.AssistantCompleted{Attempt: 1, MessageID: looptest.NewID(), Finish: "tool_calls", Parts: []hooks.Part{{Type: hooks.PartToolCall, ToolCall: &call}}},
		event.ToolProposed{CallID: call.ID, Number: 1, Name: "look", Arguments: "{}"}, event.ToolStarted{CallID: call.ID, Attempt: 1})
	for {
		release(t, b, j, "dead")
		run := b.Run(t, j)
		if run.Status.Terminal() {
			return
		}
		write(t, b, j, 0, event.RunResumed{WorkerID: "dead", Epoch: run.Epoch + 1, Ticket: run.Ticket, Cause: event.ResumeTakeover})
	}
}

// TestReplacingAfterEveryEnd replaces each message of a run that ended in some
// way: the next request is a history that a strict provider takes, without a
// trace of it.
func TestReplacingAfterEveryEnd(t *testing.T) {
	t.Parallel()
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				for at := 0; ; at++ {
					b := looptest.NewBench(looptest.NewLog(), says("good morning"), looptest.Says("look", "seen"))
					id := b.Session(t)
					b.Advance(t, b.Start(t, id, "before"))
					end(t, b, id)
					_, s := checked(t, b, id)
					own := s.Messages[2:]
					if at == len(own) {
						return
					}
					var r requests
					play(b, strict(t, r.model(says("as you wish"))))
					run, err := instead(t, b, id, own[at].ID, "")
					if err != nil {
						t.Fatal(err)
					}
					if got := b.Advance(t, job(id, run)); got.Status != loop.RunCompleted || got.MessageID != run.MessageID {
						t.Errorf("run %+v", got)
					}
					if got, want := sent(r.all[0]), []string{"user before", "assistant good morning", "user hi"}; !slices.Equal(got, want) {
						t.Errorf("replacing message %d: the model was sent %q; want %q", at, got, want)
					}
					events, _ := checked(t, b, id)
					want := event.MessagesReplaced{FromMessageID: own[0].ID}
					for _, m := range own {
						want.MessageIDs = append(want.MessageIDs, m.ID)
					}
					if got := only[event.MessagesReplaced](t, events); !reflect.DeepEqual(got, want) {
						t.Errorf("replaced %+v; want %+v", got, want)
					}
				}
			})
		})
	}
}

func TestAnEditSaysSomethingElse(t *testing.T) {
	t.Parallel()
	var r requests
	b := looptest.NewBench(looptest.NewLog(), strict(t, r.model(says("hello"))))
	id := b.Session(t)
	b.Advance(t, b.Start(t, id, "hi"))
	b.Advance(t, b.Start(t, id, "more"))
	_, s := checked(t, b, id)
	run, err := instead(t, b, id, s.Messages[0].ID, "good\x00 day")
	if err != nil {
		t.Fatal(err)
	}
	events := b.Events(t, id)[run.Seq:]
	if got, want := looptest.Types(events), []event.Type{event.TypeMessagesReplaced, event.TypeMessageCreated, event.TypeRunCreated, event.TypeRunQueued}; !slices.Equal(got, want) {
		t.Errorf("appended %v; want %v", got, want)
	}
	for _, e := range events {
		if e.RunID != run.RunID || e.Actor != looptest.Tester {
			t.Errorf("event %+v; want it in the new run, by its actor", e)
		}
	}
	b.Advance(t, job(id, run))
	if got, want := sent(r.all[2]), []string{"user good\uFFFD day"}; !slices.Equal(got, want) {
		t.Errorf("the model was sent %q; want %q", got, want)
	}
	goesOn(t, b, id)
}

func TestWhatCannotBeReplacedIsNamed(t *testing.T) {
	t.Parallel()
	b := looptest.NewBench(looptest.NewLog(), says("hello"))
	id, other := b.Session(t), b.Session(t)
	b.Advance(t, b.Start(t, id, "hi"))
	b.Advance(t, b.Start(t, other, "hi"))
	_, old := checked(t, b, id)
	_, foreign := checked(t, b, other)
	run, err := instead(t, b, id, old.Messages[0].ID, "")
	if err != nil {
		t.Fatal(err)
	}
	b.Advance(t, job(id, run))
	_, s := checked(t, b, id)
	before := len(b.Events(t, id))
	for name, c := range map[string]struct{ from, text, field, says string }{
		"unknown":               {looptest.NewID(), "", "replace_from", "names no message of the conversation"},
		"no id":                 {"nope", "", "replace_from", "names no message"},
		"of another session":    {foreign.Messages[0].ID, "", "replace_from", "names no message"},
		"replaced":              {old.Messages[0].ID, "", "replace_from", "names no message"},
		"an answer to that":     {old.Messages[1].ID, "", "replace_from", "names no message"},
		"an answer with a text": {s.Messages[1].ID, "other", "text", "must be empty"},
		"a blank text":          {s.Messages[0].ID, " \n", "text", "is empty"},
	} {
		_, err := instead(t, b, id, c.from, c.text)
		var invalid *loop.InvalidError
		if !errors.As(err, &invalid) || invalid.Field != c.field || !strings.Contains(invalid.Problem, c.says) {
			t.Errorf("%s: %v; want %s: %s", name, err, c.field, c.says)
		}
	}
	if n := len(b.Events(t, id)); n != before {
		t.Errorf("%d events after refused requests; want %d", n, before)
	}
	b.Start(t, id, "more")
	if _, err := instead(t, b, id, s.Messages[0].ID, ""); !errors.Is(err, loop.ErrBusy) {
		t.Errorf("on a busy session: %v; want ErrBusy", err)
	}
	log := lost{b.Log.(*looptest.Log)}
	b.Commands.Log = log
	if _, err := instead(t, b, id, s.Messages[0].ID, ""); !errors.Is(err, loop.ErrUnavailable) {
		t.Errorf("in an outage: %v; want ErrUnavailable", err)
	}
}

// lost is a log whose conversation cannot be read.
type lost struct{ *looptest.Log }

func (lost) Tail(context.Context, string, string, string) (loop.Tail, error) {
	return loop.Tail{}, loop.ErrUnavailable
}

func TestTheGateIsAskedAboutWhatIsSaidAgain(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answer hooks.BeforeInputResult
		err    error
		says   []string
	}{
		"let through": {hooks.BeforeInputResult{Action: hooks.ActionContinue}, nil, []string{"hi"}},
		"reworded":    {hooks.BeforeInputResult{Action: hooks.ActionTransform, Text: new("hello")}, nil, []string{"hello"}},
		"refused":     {hooks.BeforeInputResult{Action: hooks.ActionBlock, Reason: hooks.Reason{Code: "no"}}, loop.ErrBlocked, []string{"hi", "ok"}},
		"handled":     {hooks.BeforeInputResult{Action: hooks.ActionHandled, Reply: "noon"}, nil, []string{"hi", "ok"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := looptest.NewBench(looptest.NewLog(), says("ok"))
			id := b.Session(t)
			b.Advance(t, b.Start(t, id, "hi"))
			_, s := checked(t, b, id)
			var asked []string
			b.Use(hooks.Hooks{BeforeInput: hooks.Named("input", "1", func(_ context.Context, in hooks.BeforeInput) (hooks.BeforeInputResult, error) {
				asked = append(asked, in.Text)
				return c.answer, nil
			})})
			if _, err := instead(t, b, id, s.Messages[1].ID, ""); !errors.Is(err, c.err) {
				t.Errorf("%v; want %v", err, c.err)
			}
			_, s = checked(t, b, id)
			var got []string
			for _, m := range s.Messages {
				got = append(got, m.Text())
			}
			if !slices.Equal(asked, []string{"hi"}) || !slices.Equal(got, c.says) || len(ledger(b, id)) != 1 {
				t.Errorf("asked about %q, the conversation is %q; want hi and %q", asked, got, c.says)
			}
		})
	}
}

func TestTheKeyOfARequestCoversWhatItReplaces(t *testing.T) {
	t.Parallel()
	b := looptest.NewBench(looptest.NewLog(), says("ok"))
	id := b.Session(t)
	b.Advance(t, b.Start(t, id, "hi"))
	b.Advance(t, b.Start(t, id, "more"))
	_, s := checked(t, b, id)
	start := func(from, text string) (loop.StartedRun, error) {
		return b.Commands.StartRun(t.Context(), loop.StartRun{
			TenantID: looptest.Tenant, SessionID: id, ReplaceFrom: from, Text: text, IdempotencyKey: "k", Actor: looptest.Tester,
		})
	}
	first, err := start(s.Messages[2].ID, "")
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // while it is queued, and when it has ended
		again, err := start(s.Messages[2].ID, "")
		want := first
		want.Repeated = true
		if err != nil || again != want {
			t.Errorf("again: %+v, %v; want %+v", again, err, want)
		}
		for _, c := range [][2]string{{s.Messages[2].ID, "more"}, {s.Messages[3].ID, ""}, {"", "more"}, {"", ""}} {
			if _, err := start(c[0], c[1]); !errors.Is(err, loop.ErrKeyReused) && !errors.Is(err, loop.ErrInvalid) {
				t.Errorf("another request %q: %v; want ErrKeyReused", c, err)
			}
		}
		b.Advance(t, job(id, first))
	}
	if events, _ := checked(t, b, id); len(payloads[event.MessagesReplaced](t, events)) != 1 {
		t.Errorf("replaced more than once: %v", looptest.Types(events))
	}
}

func TestTheAgentThatAnsweredAnswersAgain(t *testing.T) {
	t.Parallel()
	b, start := commands(t)
	b.Engine.Agents["other"] = b.Engine.Agents["demo"]
	id := b.Session(t)
	run, err := start(loop.StartRun{SessionID: id, Agent: "other", Text: "hi"})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ asked, want string }{{"", "other"}, {"demo", "demo"}, {"other", "other"}, {"", "other"}} {
		b.Advance(t, job(id, run))
		if run, err = start(loop.StartRun{SessionID: id, Agent: c.asked, ReplaceFrom: run.MessageID}); err != nil {
			t.Fatal(err)
		}
		if got := b.Run(t, job(id, run)); got.Agent != c.want {
			t.Errorf("asked for %q: agent %s; want %s", c.asked, got.Agent, c.want)
		}
	}
	b.Advance(t, job(id, run))
	b.Commands.Agents = []string{"demo"}
	_, err = start(loop.StartRun{SessionID: id, ReplaceFrom: run.MessageID})
	var invalid *loop.InvalidError
	if !errors.As(err, &invalid) || invalid.Field != "agent" {
		t.Errorf("an agent that is gone: %v; want the field agent named", err)
	}
}

// TestHiddenMessagesGoWithTheirRun: what a hook added to a run that was replaced
// is in no context any more.
func TestHiddenMessagesGoWithTheirRun(t *testing.T) {
	t.Parallel()
	var r requests
	b := looptest.NewBench(looptest.NewLog(), strict(t, r.model(says("ok"))))
	n := 0
	b.Use(hooks.Hooks{BeforeRunStart: hooks.Named("note", "1", func(context.Context, hooks.BeforeRunStart) (hooks.BeforeRunStartResult, error) {
		n++
		return hooks.BeforeRunStartResult{Action: hooks.ActionTransform, Append: []hooks.HiddenMessage{{Role: hooks.RoleUser, Text: fmt.Sprint("note ", n)}}}, nil
	})})
	id := b.Session(t)
	b.Advance(t, b.Start(t, id, "hi"))
	_, s := checked(t, b, id)
	run, err := instead(t, b, id, s.Messages[1].ID, "")
	if err != nil {
		t.Fatal(err)
	}
	b.Advance(t, job(id, run))
	if got, want := sent(r.all[1]), []string{"user hi", "user note 2"}; !slices.Equal(got, want) {
		t.Errorf("the model was sent %q; want %q", got, want)
	}
}
