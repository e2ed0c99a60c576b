package loop_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
)

// edit gives a call other arguments.
func edit(id, arguments string) loop.DecideApproval {
	return loop.DecideApproval{TenantID: looptest.Tenant, ApprovalID: id, Arguments: &arguments, Reason: "rather this", Actor: looptest.Tester}
}

// editable is a run whose call of pay waits for a person.
type editable struct {
	*looptest.Bench
	counted
	requests
	job loop.Job
	// revisions are what BeforeToolCall was asked about.
	revisions []string
	// exact is what BeforeExecute was asked about.
	exact []string
}

// newEditable makes a run whose hooks answer by the revision of the arguments
// that they are asked about.
func newEditable(t *testing.T, answers map[int]hooks.BeforeToolCallResult, permissions ...loop.Permission) *editable {
	t.Helper()
	e := &editable{}
	e.Bench = looptest.NewBench(looptest.NewLog(), strict(t, e.model(calls("pay"))), e.tool("pay"))
	permit(e.Bench, permissions...)
	e.Use(hooks.Hooks{
		BeforeToolCall: hooks.Named("guard", "1", func(_ context.Context, in hooks.BeforeToolCall) (hooks.BeforeToolCallResult, error) {
			e.revisions = append(e.revisions, fmt.Sprint(in.Revision, " ", in.Call.Arguments))
			if out, ok := answers[in.Revision]; ok {
				return out, nil
			}
			return hooks.BeforeToolCallResult{Action: hooks.ActionContinue}, nil
		}),
		BeforeExecute: func(_ context.Context, in hooks.BeforeExecute) (hooks.BeforeExecuteResult, error) {
			e.exact = append(e.exact, in.Call.Arguments)
			return hooks.BeforeExecuteResult{Action: hooks.ActionContinue}, nil
		},
	})
	e.job = e.Start(t, e.Session(t), "hi")
	if run := e.Advance(t, e.job); run.Status != loop.RunWaiting {
		t.Fatalf("run %+v; want it to wait", run)
	}
	return e
}

// edit answers the one open approval, and takes the run on.
func (e *editable) edit(t *testing.T, arguments string) loop.Run {
	t.Helper()
	if _, err := e.Commands.DecideApproval(t.Context(), edit(openApprovals(t, e.Bench, e.job)[0], arguments)); err != nil {
		t.Fatalf("edit: %v", err)
	}
	return e.Advance(t, next(t, e.Bench, e.job))
}

var askPay = loop.Permission{Tools: "pay", Mode: loop.PermissionAsk}

// odd are arguments whose bytes are easily lost on the way.
const odd = "{ \"n\": 9007199254740993.10, \"n\": 1e2, \"to\": \"<\\u0041&\\/>\u2028 \" }\n"

// TestWhatAPersonGivesIsWhatRunsToTheByte: once, after the hooks were asked about
// it at a position of its own, and the model is told.
func TestWhatAPersonGivesIsWhatRunsToTheByte(t *testing.T) {
	t.Parallel()
	asks := map[int]hooks.BeforeToolCallResult{1: {Action: hooks.ActionAsk}, 2: {Action: hooks.ActionAsk, Reason: hooks.Reason{Text: "still not sure"}}}
	for name, e := range map[string]*editable{
		"whom the permissions made ask": newEditable(t, nil, askPay),
		"whom a hook made ask, twice":   newEditable(t, asks),
	} {
		if run := e.edit(t, odd); run.Status != loop.RunCompleted {
			t.Fatalf("%s: run %+v", name, run)
		}
		events, s := checked(t, e.Bench, e.job.SessionID)
		if got := e.sorted(); !slices.Equal(got, []string{"pay " + odd}) || !slices.Equal(e.exact, []string{odd}) {
			t.Errorf("%s: ran %q, BeforeExecute saw %q", name, got, e.exact)
		}
		if want := []string{"1 {}", "2 " + odd}; !slices.Equal(e.revisions, want) {
			t.Errorf("%s: BeforeToolCall saw %q; want %q", name, e.revisions, want)
		}
		question, answer := only[event.ApprovalRequested](t, events), only[event.ApprovalDecided](t, events)
		if answer.Decision != event.DecisionEdited || answer.ArgumentsSHA256 != question.ArgumentsSHA256 || *answer.EditedArguments != odd ||
			answer.EditedSHA256 != digestOf(odd).SHA256 || answer.Reason != "rather this" {
			t.Errorf("%s: decided %+v", name, answer)
		}
		if start := only[event.ToolStarted](t, events); *start.Arguments != odd || start.ArgumentsSHA256 != digestOf(odd).SHA256 {
			t.Errorf("%s: started %+v", name, start)
		}
		if want := []string{"[The arguments of this call were changed to: " + odd + "]\npay ran"}; !slices.Equal(told(s), want) {
			t.Errorf("%s: the model is told %q; want %q", name, told(s), want)
		}
		// Its own call stays what it wrote.
		last := e.all[len(e.all)-1].Messages
		if call := last[len(last)-2].Parts[0].ToolCall; call == nil || call.Arguments != "{}" {
			t.Errorf("%s: sent %+v", name, last)
		}
		attempts := map[int]int{}
		for _, r := range ledger(e.Bench, e.job.SessionID) {
			if r.Gate == hooks.GateBeforeToolCall {
				attempts[r.Attempt]++
			}
		}
		if attempts[1] != 1 || attempts[2] != 1 {
			t.Errorf("%s: decisions by attempt %v; want one of each", name, attempts)
		}
	}
}

func TestAHookMayRefuseWhatAPersonGives(t *testing.T) {
	t.Parallel()
	e := newEditable(t, map[int]hooks.BeforeToolCallResult{2: {Action: hooks.ActionBlock, Reason: hooks.Reason{Code: "much", Text: "too much"}}}, askPay)
	if run := e.edit(t, `{"n":7}`); run.Status != loop.RunCompleted {
		t.Errorf("run %+v", run)
	}
	events, s := checked(t, e.Bench, e.job.SessionID)
	want := []string{"blocked [The arguments of this call were changed to: {\"n\":7}]\nThis call was blocked and not run: too much"}
	if got := told(s); !slices.Equal(got, want) || len(e.sorted()) != 0 {
		t.Errorf("told %q, ran %q; want %q", got, e.sorted(), want)
	}
	if b := only[event.ToolBlocked](t, events); b.By != string(hooks.GateBeforeToolCall) || b.ReasonCode != "much" {
		t.Errorf("blocked %+v", b)
	}
}

func TestAHookMayEndTheRunOverWhatAPersonGives(t *testing.T) {
	t.Parallel()
	e := newEditable(t, map[int]hooks.BeforeToolCallResult{2: {Action: hooks.ActionTerminate, Reason: hooks.Reason{Text: "enough"}}}, askPay)
	if run := e.edit(t, `{"n":7}`); run.Status != loop.RunCompleted || run.Reason != "terminated_by_hook" {
		t.Errorf("run %+v", run)
	}
	if checked(t, e.Bench, e.job.SessionID); len(e.sorted()) != 0 {
		t.Errorf("ran %q", e.sorted())
	}
}

// TestWhatAHookMakesOfAnEditIsAskedAboutAgain: nobody has said yes to it. What
// the person says then is an answer like any other.
func TestWhatAHookMakesOfAnEditIsAskedAboutAgain(t *testing.T) {
	t.Parallel()
	const given, made = `{"n":7}`, `{"n":8}`
	change := map[int]hooks.BeforeToolCallResult{2: {Action: hooks.ActionTransform, Arguments: new(made), Reason: hooks.Reason{Text: "one more"}}}
	for name, c := range map[string]struct {
		answer func(t *testing.T, e *editable, id string)
		ran    []string
		told   string
	}{
		"yes": {
			func(t *testing.T, e *editable, id string) { t.Helper(); decide(t, e.Bench, id, true) },
			[]string{"pay " + made}, "[The arguments of this call were changed to: {\"n\":8}]\npay ran",
		},
		"no": {
			func(t *testing.T, e *editable, id string) { t.Helper(); decide(t, e.Bench, id, false) },
			nil, "denied This call was denied by a person: said false. It was not run.",
		},
		"another edit": {
			func(t *testing.T, e *editable, id string) {
				t.Helper()
				if _, err := e.Commands.DecideApproval(t.Context(), edit(id, given)); err != nil {
					t.Fatal(err)
				}
			},
			[]string{"pay " + given}, "[The arguments of this call were changed to: {\"n\":7}]\npay ran",
		},
	} {
		e := newEditable(t, change, askPay)
		first := openApprovals(t, e.Bench, e.job)[0]
		if run := e.edit(t, given); run.Status != loop.RunWaiting || len(e.sorted()) != 0 {
			t.Fatalf("%s: run %+v, ran %q; want it to wait", name, run, e.sorted())
		}
		second := openApprovals(t, e.Bench, e.job)[0]
		all := payloads[event.ApprovalRequested](t, e.Events(t, e.job.SessionID))
		if q := all[len(all)-1]; len(all) != 2 || q.ApprovalID != second || second == first || q.Arguments != made || q.ArgumentsSHA256 != digestOf(made).SHA256 ||
			q.ChangedFrom == nil || *q.ChangedFrom != given || q.By != string(hooks.GateBeforeToolCall) || q.Reason != "one more" {
			t.Errorf("%s: asked %+v", name, q)
		}
		// The first answer stays what it is, to whoever gave it and to others.
		if out, err := e.Commands.DecideApproval(t.Context(), edit(first, given)); err != nil || !out.Repeated {
			t.Errorf("%s: repeated %+v, %v", name, out, err)
		}
		c.answer(t, e, second)
		if run := e.Advance(t, next(t, e.Bench, e.job)); run.Status != loop.RunCompleted {
			t.Errorf("%s: run %+v", name, run)
		}
		_, s := checked(t, e.Bench, e.job.SessionID)
		if got := told(s); !slices.Equal(got, []string{c.told}) || !slices.Equal(e.sorted(), c.ran) {
			t.Errorf("%s: told %q, ran %q; want %q, %q", name, got, e.sorted(), c.told, c.ran)
		}
	}
}

// TestAnEditBackToWhatTheModelWroteIsNoNews: the model is told nothing, since
// what ran is what it asked for.
func TestAnEditBackToWhatTheModelWroteIsNoNews(t *testing.T) {
	t.Parallel()
	e := newEditable(t, map[int]hooks.BeforeToolCallResult{1: {Action: hooks.ActionTransform, Arguments: new(`{"n":1}`)}}, askPay)
	if run := e.edit(t, `{}`); run.Status != loop.RunCompleted {
		t.Errorf("run %+v", run)
	}
	events, s := checked(t, e.Bench, e.job.SessionID)
	if start := only[event.ToolStarted](t, events); start.Arguments != nil || start.ArgumentsSHA256 != digestOf("{}").SHA256 {
		t.Errorf("started %+v", start)
	}
	if got := told(s); !slices.Equal(got, []string{"pay ran"}) || !slices.Equal(e.sorted(), []string{"pay {}"}) {
		t.Errorf("told %q, ran %q", got, e.sorted())
	}
}

// TestAnEditPassesEveryCheckAgain: of the worker that takes it up, whose agent
// may have become another one.
func TestAnEditPassesEveryCheckAgain(t *testing.T) {
	t.Parallel()
	const note = "[The arguments of this call were changed to: {\"n\":7}]\n"
	picky := looptest.Tool{Name: "pay", Run: looptest.Says("pay", "no").Run}
	for name, c := range map[string]struct {
		change func(*loop.Agent)
		want   string
	}{
		"the permission": {
			func(a *loop.Agent) { a.Permissions = []loop.Permission{{Tools: "*", Mode: loop.PermissionDeny}} },
			"blocked " + note + "This call was blocked and not run: The agent may not use this tool.",
		},
		"the tool":                     {func(a *loop.Agent) { a.Tools = nil }, "unknown_tool There is no tool called pay. Nothing was run."},
		"the schema":                   {func(a *loop.Agent) { a.Tools = []loop.Tool{strictTool{picky}} }, "invalid_arguments " + note + "The arguments are not valid, so nothing was run: n is not for today"},
		"a limit that is not exceeded": {func(a *loop.Agent) { a.Limits.ToolCalls = 1 }, note + "pay ran"},
		"still allows":                 {func(a *loop.Agent) { a.Permissions = nil }, note + "pay ran"},
	} {
		e := newEditable(t, nil, askPay)
		agent := e.Engine.Agents["demo"]
		c.change(&agent)
		e.Engine.Agents["demo"] = agent
		if run := e.edit(t, `{"n":7}`); run.Status != loop.RunCompleted && name != "the limit" {
			t.Errorf("%s: run %+v", name, run)
		}
		_, s := checked(t, e.Bench, e.job.SessionID)
		if got := told(s); !slices.Equal(got, []string{strings.TrimSpace(c.want)}) {
			t.Errorf("%s: told %q; want %q", name, got, c.want)
		}
	}
}

// strictTool refuses all arguments that are not empty.
type strictTool struct{ looptest.Tool }

func (s strictTool) Validate(arguments json.RawMessage) error {
	if len(arguments) > 2 {
		return errors.New("n is not for today")
	}
	return s.Tool.Validate(arguments)
}

func TestEditsThatAreRefusedLeaveNothing(t *testing.T) {
	t.Parallel()
	e := newEditable(t, nil, askPay)
	e.Commands.Tools["demo"] = []loop.Tool{strictTool{looptest.Says("pay", "no")}}
	id := openApprovals(t, e.Bench, e.job)[0]
	before := len(e.Events(t, e.job.SessionID))
	for arguments, problem := range map[string]string{
		"":                 "are not whole JSON",
		`{"n":`:            "are not whole JSON",
		"{\"n\":\"\xff\"}": "are not whole JSON",
		"{\"n\":\"\x00\"}": "are not whole JSON",
		"[1]":              "are no JSON object",
		"null":             "are no JSON object",
		"{}":               "are those that were asked about: approve them",
		`{"n":7}`:          "do not fit the tool: n is not for today",
		`{"n":"` + strings.Repeat("x", loop.MaxArguments) + `"}`: "have 262152 bytes: give at most 262144",
	} {
		_, err := e.Commands.DecideApproval(t.Context(), edit(id, arguments))
		var invalid *loop.InvalidError
		if !errors.As(err, &invalid) || invalid.Field != "arguments" || invalid.Problem != problem {
			t.Errorf("%.40q: %v; want %s", arguments, err, problem)
		}
	}
	if n := len(e.Events(t, e.job.SessionID)); n != before {
		t.Errorf("%d events were stored", n-before)
	}
	// Who does not know the tool leaves it to the worker.
	e.Commands.Tools = nil
	if run := e.edit(t, `{"n":7}`); run.Status != loop.RunCompleted {
		t.Errorf("run %+v", run)
	}
	var decided *loop.DecidedError
	for name, cmd := range map[string]loop.DecideApproval{
		"another edit":              edit(id, `{"n":8}`),
		"a yes":                     {TenantID: looptest.Tenant, ApprovalID: id, Approve: true, Actor: looptest.Tester},
		"an edit that could not be": edit(id, `{"n`),
	} {
		if _, err := e.Commands.DecideApproval(t.Context(), cmd); !errors.As(err, &decided) || decided.Decision != event.DecisionEdited {
			t.Errorf("%s after the edit: %v", name, err)
		}
	}
}

// TestAnEditOfWhatHappenedIsNoAnswer: there is nothing to change any more.
func TestAnEditOfWhatHappenedIsNoAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var o outside
		b, j := interrupted(t, loop.UnknownAsk, &o)
		b.Advance(t, j)
		id := openApprovals(t, b, j)[0]
		var invalid *loop.InvalidError
		if _, err := b.Commands.DecideApproval(t.Context(), edit(id, `{"n":1}`)); !errors.As(err, &invalid) || invalid.Field != "decision" {
			t.Errorf("%v; want the decision refused", err)
		}
		if expired, err := b.Commands.ExpireApproval(t.Context(), looptest.Tenant, id); err != nil || expired {
			t.Errorf("expired: %v, %v; want it to stay open", expired, err)
		}
	})
}

// TestCancelOfAnEditedCall: between the edit and its run.
func TestCancelOfAnEditedCall(t *testing.T) {
	t.Parallel()
	e := newEditable(t, nil, askPay)
	if _, err := e.Commands.DecideApproval(t.Context(), edit(openApprovals(t, e.Bench, e.job)[0], `{"n":7}`)); err != nil {
		t.Fatal(err)
	}
	if err := cancel(t, e.Bench, e.job); err != nil {
		t.Fatal(err)
	}
	_, s := checked(t, e.Bench, e.job.SessionID)
	if got := told(s); !slices.Equal(got, []string{"cancelled This call was not run: the run was cancelled first."}) || len(e.sorted()) != 0 {
		t.Errorf("told %q, ran %q", got, e.sorted())
	}
	goesOn(t, e.Bench, e.job.SessionID)
}
