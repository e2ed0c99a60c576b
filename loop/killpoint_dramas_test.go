package loop_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
)

// drama is a conversation, and what its client asks for.
type drama struct {
	name string
	// plot is the name in more words.
	plot        string
	model       looptest.Model
	tools       []prop
	permissions []loop.Permission
	// timeout is how long people have to answer, 0 for ever.
	timeout time.Duration
	// slow is a gate whose hooks are always asked about durable facts only.
	slow hooks.Gate
	// leaves is what the hook at BeforeToolCall leaves the run of its tools; nil is all.
	leaves []string
	// observer sees the answers, if it has an id. There is one other model.
	observer stream.Registration
	// before happens while nobody dies.
	before func(t *testing.T, k *staged)
	// acts are asked for one after the other: when no worker is at work on the
	// run, or when nothing happens any more.
	acts []act
}

// act is a request of a client. Asked again, it is the same request.
type act func(t *testing.T, k *staged) error

// prop is a tool.
type prop struct {
	name       string
	idempotent bool
	takes      time.Duration
	// says is how far the tool says it is, a second after each other.
	says []string
}

const forever = 1000 * time.Hour

var dramas = []drama{
	{
		name: "text", plot: "A message, and an answer in three parts.",
		model: speaks, acts: []act{starts("hi")},
	},
	{
		name: "two parallel tools", plot: "`again` is idempotent, `once` is not. Both take effect at once; `again` returns first.",
		model: asksFor("again", "once"), acts: []act{starts("hi")},
		tools: []prop{{name: "again", idempotent: true, takes: 5 * time.Millisecond}, {name: "once", takes: 10 * time.Millisecond}},
	},
	{
		name: "a tool whose output a hook checks", plot: "`pay` is not idempotent, and the hook at `AfterToolCall` is not pure: that the tool ran is durable before it is asked.",
		model: asksFor("pay"), acts: []act{starts("hi")},
		tools: []prop{{name: "pay", takes: 5 * time.Millisecond}}, slow: hooks.GateAfterToolCall,
	},
	{
		name: "tools that a hook takes away", plot: "The hook at `BeforeToolCall` leaves the run only `look`; in the next turn the model calls `pay` all the same.",
		model: asksInTurn("look", "pay"), acts: []act{starts("hi")}, leaves: []string{"look"},
		tools: []prop{{name: "look", takes: 5 * time.Millisecond}, {name: "pay"}},
	},
	{
		name: "a tool that says how far it is", plot: "`again` is idempotent, and says so twice.",
		model: asksFor("again"), acts: []act{starts("hi")},
		tools: []prop{{name: "again", idempotent: true, takes: 5 * time.Millisecond, says: []string{"half", "nearly"}}},
	},
	{
		name: "a tool that a person approves", plot: "`pay` is not idempotent.",
		model: asksFor("pay"), acts: []act{starts("hi"), decides(true)},
		tools: []prop{{name: "pay", takes: 5 * time.Millisecond}}, permissions: []loop.Permission{{Tools: "pay", Mode: loop.PermissionAsk}},
	},
	{
		name: "a tool that a person denies", plot: "The same call, and the other answer.",
		model: asksFor("pay"), acts: []act{starts("hi"), decides(false)},
		tools: []prop{{name: "pay", takes: 5 * time.Millisecond}}, permissions: []loop.Permission{{Tools: "pay", Mode: loop.PermissionAsk}},
	},
	{
		name: "a tool whose arguments a person edits", plot: "The same call; what runs is what the person gave, which the hooks see first.",
		model: asksFor("pay"), acts: []act{starts("hi"), editsCall},
		tools: []prop{{name: "pay", takes: 5 * time.Millisecond}}, permissions: []loop.Permission{{Tools: "pay", Mode: loop.PermissionAsk}},
	},
	{
		name: "a person who does not answer in time", plot: "The same call; a sweeper notes that the time is over.",
		model: asksFor("pay"), acts: []act{starts("hi"), expires}, timeout: time.Hour,
		tools: []prop{{name: "pay", takes: 5 * time.Millisecond}}, permissions: []loop.Permission{{Tools: "pay", Mode: loop.PermissionAsk}},
	},
	{
		name: "a cancel in an answer", plot: "The model says “once upon” and then nothing more.",
		model: stalls(nil, looptest.Text("once "), looptest.Text("upon")), acts: []act{starts("hi"), cancels},
	},
	{
		// Only a tool that may be repeated is still at work after a death.
		name: "a cancel in a tool", plot: "`once` is not idempotent and has returned; `slow` is, and is at work when the cancel comes.",
		model: asksFor("once", "slow"), acts: []act{starts("hi"), cancels},
		tools: []prop{{name: "once", takes: 5 * time.Millisecond}, {name: "slow", idempotent: true, takes: forever}},
	},
	{
		name: "a cancel while a person is asked", plot: "Nobody decides about `pay`.",
		model: asksFor("pay"), acts: []act{starts("hi"), cancels},
		tools: []prop{{name: "pay", takes: 5 * time.Millisecond}}, permissions: []loop.Permission{{Tools: "pay", Mode: loop.PermissionAsk}},
	},
	{
		name: "a message that is edited", plot: "“hi” was answered, and “hello” takes its place (`replace_from`).",
		model: speaks, acts: []act{edits},
		before: func(t *testing.T, k *staged) {
			t.Helper()
			k.Advance(t, k.Start(t, k.id, "hi"))
		},
	},
	{
		name: "a failed run that is taken up again", plot: "The provider breaks off in the middle of the answer, which fails the run; then somebody retries it.",
		model: breaksOff, acts: []act{starts("hi"), retries},
	},
	{
		name: "an answer that an observer stops", plot: "“so far” was shown; the policy is to end the turn.",
		model: strays, acts: []act{starts("hi")}, observer: straying(stream.StopEndTurn),
	},
	{
		name: "a model that is asked again", plot: "The same answer; the policy is to ask again, with a notice.",
		model: strays, acts: []act{starts("hi")}, observer: straying(stream.StopRetry),
	},
}

// similar are dramas in which nothing becomes of a death that is not in the others.
var similar = []drama{
	{
		name: "an answer that an observer stops, so that the run fails", plot: "The same answer, and then somebody retries the run; the model keeps to the point.",
		model: strays, acts: []act{starts("hi"), retries}, observer: straying(stream.StopFail),
	},
	{
		name: "another model that is asked", plot: "The same answer; the policy is to fall back to the agent's next model.",
		model: strays, acts: []act{starts("hi")}, observer: straying(stream.StopFallback),
	},
}

// speaks answers with text.
var speaks = looptest.Answers(looptest.Answer(looptest.Text("hello "), looptest.Text("there"), looptest.Finish(stream.FinishStop)))

// strays says in each answer of a run's first turn what it should not.
func strays(ctx context.Context, req loop.ModelRequest, yield func(stream.Chunk, error) bool) {
	if req.Turn > 1 || req.Messages[len(req.Messages)-1].Text() != "hi" {
		speaks(ctx, req, yield)
		return
	}
	fails(nil, looptest.Text("so "), looptest.Text("far"), looptest.Text("forbidden"), looptest.Text("and more"))(ctx, req, yield)
}

// straying stops what strays, and emits something with its first piece.
func straying(policy stream.StopPolicy) stream.Registration {
	r := watches("watch", ofText(func(c stream.Chunk) stream.Verdict {
		switch c.Text {
		case "forbidden":
			return stream.Stop("it strays")
		case "so ":
			return stream.Emit("lengths", []byte(`{"bytes":3}`))
		}
		return stream.Continue()
	}))
	r.OnStop = policy
	return r
}

// asksInTurn is a model that calls one of the tools in each turn.
func asksInTurn(tools ...string) looptest.Model {
	var answers [][]stream.Chunk
	for _, n := range tools {
		answers = append(answers, looptest.Answer(looptest.Text("let me see"), looptest.ToolCall("p-"+n, n, `{}`), looptest.Finish(stream.FinishToolCalls)))
	}
	return looptest.Answers(append(answers, looptest.Answer(looptest.Text("done"), looptest.Finish(stream.FinishStop)))...)
}

// asksFor is a model that says something, calls the tools, and says that it is
// done.
func asksFor(tools ...string) looptest.Model {
	first := []any{looptest.Text("let me see")}
	for _, n := range tools {
		first = append(first, looptest.ToolCall("p-"+n, n, `{}`))
	}
	return looptest.Answers(
		looptest.Answer(append(first, looptest.Finish(stream.FinishToolCalls))...),
		looptest.Answer(looptest.Text("all done"), looptest.Finish(stream.FinishStop)),
	)
}

// breaksOff fails in the middle of each answer of a run's first turn.
func breaksOff(ctx context.Context, req loop.ModelRequest, yield func(stream.Chunk, error) bool) {
	if req.Turn > 1 || req.Messages[len(req.Messages)-1].Text() != "hi" {
		speaks(ctx, req, yield)
		return
	}
	fails(errModel, looptest.Text("hel"))(ctx, req, yield)
}

func starts(text string) act {
	return func(t *testing.T, k *staged) error {
		t.Helper()
		return k.start(t, loop.StartRun{Text: text, IdempotencyKey: "key"})
	}
}

// edits takes back the first message of the conversation.
func edits(t *testing.T, k *staged) error {
	t.Helper()
	return k.start(t, loop.StartRun{Text: "hello", ReplaceFrom: k.first(t), IdempotencyKey: "key"})
}

// first is the message that the session's first run answers.
func (k *staged) first(t *testing.T) string {
	t.Helper()
	for _, e := range k.Events(t, k.id) {
		if e.RunID != "" {
			return k.Run(t, loop.Job{SessionID: k.id, RunID: e.RunID}).MessageID
		}
	}
	t.Fatal("the session has no run")
	return ""
}

func (k *staged) start(t *testing.T, cmd loop.StartRun) error {
	t.Helper()
	cmd.TenantID, cmd.SessionID, cmd.Actor = looptest.Tenant, k.id, looptest.Tester
	run, err := k.Commands.StartRun(t.Context(), cmd)
	if err == nil {
		k.job = job(k.id, run)
	}
	return err
}

// decides answers the one approval of the run.
func decides(yes bool) act {
	return func(t *testing.T, k *staged) error {
		t.Helper()
		_, err := k.Commands.DecideApproval(t.Context(), loop.DecideApproval{
			TenantID: looptest.Tenant, ApprovalID: k.open(t), Approve: yes, Reason: "said a person", Actor: looptest.Tester,
		})
		return err
	}
}

// editsCall lets it run with other arguments.
func editsCall(t *testing.T, k *staged) error {
	t.Helper()
	_, err := k.Commands.DecideApproval(t.Context(), edit(k.open(t), `{"n":7}`))
	return err
}

// expires waits until the time to answer is over, and notes it.
func expires(t *testing.T, k *staged) error {
	t.Helper()
	id := k.open(t)
	pause(t.Context(), k.drama.timeout)
	_, err := k.Commands.ExpireApproval(t.Context(), looptest.Tenant, id)
	return err
}

// open is the one approval of the run, which the next request is about, too.
func (k *staged) open(t *testing.T) string {
	t.Helper()
	if k.approval == "" {
		open := openApprovals(t, k.Bench, k.job)
		if len(open) != 1 {
			t.Fatalf("%d approvals are open, and the run is %+v", len(open), k.Run(t, k.job))
		}
		k.approval = open[0]
	}
	return k.approval
}

func cancels(t *testing.T, k *staged) error {
	t.Helper()
	return cancel(t, k.Bench, k.job)
}

func retries(t *testing.T, k *staged) error {
	t.Helper()
	got, err := again(t, k.Bench, k.job)
	if err == nil && got.Seq == 0 {
		return errors.New("the retry does not say from where to watch")
	}
	return err
}
