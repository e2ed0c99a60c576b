package audit_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/audit"
	"github.com/seed-2ca4966b/agentd/loop/event"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
	"github.com/seed-2ca4966b/agentd/proctest"
)

func TestMain(m *testing.M) { proctest.Main(m) }

// written is a log, and the decisions beside it.
type written struct {
	events    []event.Event
	decisions []audit.Decision
}

// good is a log with most of what there is: two parallel calls, one of which a
// person approves, which is interrupted and found to have happened; and a second
// run that was enqueued meanwhile.
func good(t *testing.T) (w written) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		log := looptest.NewLog()
		pay := looptest.Tool{Name: "pay", Run: func(ctx context.Context, _ loop.ToolInput) (loop.ToolOutput, error) {
			<-ctx.Done()
			return loop.ToolOutput{}, ctx.Err()
		}}
		b := looptest.NewBench(log, looptest.Answers(
			looptest.Answer(looptest.Reasoning("hm"), looptest.Text("let me see"), looptest.ToolCall("a", "look", `{}`),
				looptest.ToolCall("b", "pay", `{"n":1}`), looptest.Finish(stream.FinishToolCalls)),
			looptest.Answer(looptest.Text("done"), looptest.Finish(stream.FinishStop)),
		), looptest.Says("look", "seen"), pay)
		agent := b.Engine.Agents["demo"]
		agent.Permissions = []loop.Permission{{Tools: "pay", Mode: loop.PermissionAsk}}
		agent.OnUnknown = loop.UnknownAsk
		b.Engine.Agents["demo"] = agent
		b.Use(hooks.Hooks{TransformContext: func(context.Context, hooks.TransformContext) (hooks.TransformContextResult, error) {
			return hooks.TransformContextResult{Action: hooks.ActionContinue}, nil
		}})
		j := b.Start(t, b.Session(t), "hi")
		_, err := b.Commands.StartRun(t.Context(), loop.StartRun{
			TenantID: looptest.Tenant, SessionID: j.SessionID, Text: "and then", Policy: event.PolicyEnqueue, Actor: looptest.Tester,
		})
		if err != nil {
			t.Fatal(err)
		}
		b.Advance(t, j)
		j = decide(t, b, j, "")
		leave := make(chan struct{})
		done := make(chan error)
		go func() { done <- b.Engine.Advance(t.Context(), j, loop.Holder{WorkerID: "w", Interrupt: leave}) }()
		synctest.Wait()
		close(leave)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		j.Ticket = b.Run(t, j).Ticket
		b.Advance(t, j)
		j = decide(t, b, j, event.DecisionHappened)
		if run := b.Advance(t, j); run.Status != loop.RunCompleted {
			t.Fatalf("run %+v", run)
		}
		jobs := log.Jobs()
		j = jobs[len(jobs)-1]
		b.Advance(t, j)
		j = decide(t, b, j, event.DecisionDenied)
		if run := b.Advance(t, j); run.Status != loop.RunCompleted {
			t.Fatalf("run %+v", run)
		}
		w.events = b.Events(t, j.SessionID)
		for _, r := range log.Ledger(j.SessionID) {
			w.decisions = append(w.decisions, audit.DecisionOf(r))
		}
	})
	return w
}

// decide answers the one open question of j's run, and returns the next job.
func decide(t *testing.T, b *looptest.Bench, j loop.Job, outcome event.ApprovalDecision) loop.Job {
	t.Helper()
	turn, _ := b.Run(t, j).Turn()
	cmd := loop.DecideApproval{TenantID: looptest.Tenant, ApprovalID: turn.Calls[1].ApprovalID, Approve: true, Outcome: outcome, Actor: looptest.Tester}
	if outcome == event.DecisionDenied {
		cmd.Approve, cmd.Outcome = false, ""
	}
	if _, err := b.Commands.DecideApproval(t.Context(), cmd); err != nil {
		t.Fatal(err)
	}
	j.Ticket = b.Run(t, j).Ticket
	return j
}

// edit changes the nth event with a payload of type P, counted from 0.
func edit[P event.Payload](n int, change func(e *event.Event, p *P)) func(*written) {
	return func(w *written) {
		for i, e := range w.events {
			p, _ := event.Decode(e)
			q, ok := p.(P)
			if !ok {
				continue
			}
			if n--; n >= 0 {
				continue
			}
			change(&w.events[i], &q)
			w.events[i].Payload, _ = json.Marshal(q)
			return
		}
		panic("there is no such event")
	}
}

// without drops the nth event of a type; renumbered closes the hole.
func without(typ event.Type, n int, renumbered bool) func(*written) {
	return func(w *written) {
		w.events = slices.DeleteFunc(w.events, func(e event.Event) bool {
			if e.Type != typ {
				return false
			}
			n--
			return n == -1
		})
		for i := range w.events {
			if renumbered {
				w.events[i].Seq = int64(i + 1)
			}
		}
	}
}

func until(typ event.Type) func(*written) {
	return func(w *written) {
		at := slices.IndexFunc(w.events, func(e event.Event) bool { return e.Type == typ })
		w.events = w.events[:at+1]
		w.decisions = slices.DeleteFunc(w.decisions, func(d audit.Decision) bool { return d.EventSeq > int64(at+1) })
	}
}

// idOf finds a member of the nth event of a type.
func idOf(w *written, typ event.Type, name string, n int) string {
	for _, e := range w.events {
		if e.Type == typ {
			if n--; n < 0 {
				var all map[string]any
				_ = json.Unmarshal(e.Payload, &all)
				return all[name].(string)
			}
		}
	}
	return ""
}

func TestAGoodLogBreaksNoRule(t *testing.T) {
	t.Parallel()
	w := good(t)
	for _, v := range audit.Check(w.events, w.decisions) {
		t.Error(v)
	}
	// Retention removes deltas, and with them what decisions named.
	w.decisions[0].EventSeq = 0
	for i, e := range w.events {
		if e.Type == event.TypeAssistantDelta && w.decisions[0].EventSeq == 0 {
			w.decisions[0].EventSeq = int64(i + 1)
		}
	}
	w.events = slices.DeleteFunc(w.events, func(e event.Event) bool { return e.Type == event.TypeAssistantDelta })
	for _, v := range audit.Check(w.events, w.decisions) {
		t.Errorf("without deltas: %v", v)
	}
}

func TestEachBrokenRuleIsNamed(t *testing.T) {
	t.Parallel()
	whole := good(t)
	other := event.System("worker:somebody else")
	for name, c := range map[string]struct {
		rule   audit.Rule
		says   string
		broken func(*written)
	}{
		"a hole":                {audit.RuleSeq, "does not follow", without(event.TypeTurnStarted, 0, false)},
		"a seq twice":           {audit.RuleSeq, "does not follow", func(w *written) { w.events[2].Seq = 2 }},
		"an event is not there": {audit.RuleTransition, "does not allow", without(event.TypeTurnStarted, 0, true)},
		"it cannot be read":     {audit.RuleTransition, "decode", func(w *written) { w.events[3].Payload = json.RawMessage(`[]`) }},
		"nobody hands over":     {audit.RuleQueue, "behind no run", until(event.TypeRunCompleted)},
		"claimed for another":   {audit.RuleLease, "claims the run for worker", edit(0, func(e *event.Event, _ *event.RunStarted) { e.Actor = other })},
		"written by another":    {audit.RuleLease, "holds the run", edit(0, func(e *event.Event, _ *event.ToolExecuted) { e.Actor = other })},
		"released from another": {audit.RuleLease, "is released", edit(0, func(_ *event.Event, p *event.RunReleased) { p.WorkerID = "x" })},
		"a message twice": {audit.RuleIdentity, "message", func(w *written) {
			edit(0, func(_ *event.Event, p *event.AssistantCompleted) {
				p.MessageID = idOf(w, event.TypeMessageCreated, "message_id", 0)
			})(w)
		}},
		"a call twice":             {audit.RuleIdentity, "call", again(event.TypeToolProposed, "call_id", 0, 2)},
		"an approval twice":        {audit.RuleIdentity, "approval", again(event.TypeApprovalRequested, "approval_id", 0, 2)},
		"another text":             {audit.RuleAnswer, "texts", edit(0, func(_ *event.Event, p *event.AssistantDelta) { p.Text += "!" })},
		"another first delta":      {audit.RuleAnswer, "first delta", edit(0, func(_ *event.Event, p *event.AssistantCompleted) { p.FirstSeq++ })},
		"other arguments proposed": {audit.RuleAnswer, "another one", edit(0, func(_ *event.Event, p *event.ToolProposed) { p.Arguments = `{"x":1}` })},
		"a call is not proposed":   {audit.RuleAnswer, "not proposed", without(event.TypeToolProposed, 1, true)},
		"a call too many":          {audit.RuleAnswer, "no such call", edit(0, func(_ *event.Event, p *event.AssistantCompleted) { p.Parts = p.Parts[:3] })},
		"another conversation":     {audit.RuleRequest, "other messages", edit(1, func(_ *event.Event, p *event.ModelRequested) { p.MessageIDs = p.MessageIDs[1:] })},
		"a result is missing":      {audit.RuleRequest, "has no result", sent(func(m []hooks.Message) []hooks.Message { return m[:3] })},
		"a result in between":      {audit.RuleRequest, "is missing", sent(func(m []hooks.Message) []hooks.Message { return append(m[:3], m[0]) })},
		"results in another order": {audit.RuleRequest, "turn it is not", sent(func(m []hooks.Message) []hooks.Message { m[2], m[3] = m[3], m[2]; return m })},
		"an attempt is left out":   {audit.RuleAttempt, "number 1", edit(0, func(_ *event.Event, p *event.ToolStarted) { p.Attempt = 2 })},
		"executed in another":      {audit.RuleAttempt, "started last", edit(0, func(_ *event.Event, p *event.ToolExecuted) { p.Attempt = 2 })},
		"started with others":      {audit.RuleArguments, "digest", edit(0, func(_ *event.Event, p *event.ToolStarted) { p.ArgumentsSHA256 = "00" })},
		"asked about others":       {audit.RuleArguments, "digest", edit(0, func(_ *event.Event, p *event.ApprovalRequested) { p.Arguments = `{"n":2}` })},
		"answered about others":    {audit.RuleArguments, "shown", edit(0, func(_ *event.Event, p *event.ApprovalDecided) { p.ArgumentsSHA256 = "00" })},
		"not as approved":          {audit.RuleArguments, "approved", edit(1, func(_ *event.Event, p *event.ToolStarted) { s := `{"n":9}`; p.Arguments, p.ArgumentsSHA256 = &s, "" })},
		"another reason":           {audit.RuleResult, "reason", edit(0, func(_ *event.Event, p *event.ToolResult) { p.Reason = hooks.ReasonOutcomeUnknown })},
		"denied for nobody":        {audit.RuleResult, "reason", edit(3, func(_ *event.Event, p *event.ToolResult) { p.Reason = hooks.ReasonCancelled })},
		"another tool":             {audit.RuleResult, "another tool", edit(0, func(_ *event.Event, p *event.ToolResult) { p.Name = "pay" })},
		"nobody was asked":         {audit.RuleApproval, "nobody was asked", edit(0, func(_ *event.Event, p *event.ApprovalDecided) { p.ApprovalID = "x" })},
		"open in the end":          {audit.RuleApproval, "run ends", edit(2, func(_ *event.Event, p *event.ApprovalDecided) { p.ApprovalID = "x" })},
		"answered twice": {audit.RuleApproval, "an answer already", func(w *written) {
			edit(1, func(_ *event.Event, p *event.ApprovalDecided) {
				p.ApprovalID = idOf(w, event.TypeApprovalRequested, "approval_id", 0)
			})(w)
		}},
		"answered for another": {audit.RuleApproval, "another call", func(w *written) {
			edit(2, func(_ *event.Event, p *event.ApprovalDecided) {
				p.ApprovalID = idOf(w, event.TypeApprovalRequested, "approval_id", 1)
			})(w)
		}},
		"who may not answer":  {audit.RuleApproval, "may not", edit(0, func(_ *event.Event, p *event.ApprovalRequested) { p.Approvers = []string{"ops"} })},
		"expired for nothing": {audit.RuleApproval, "no end to its time", edit(2, func(_ *event.Event, p *event.ApprovalDecided) { p.Decision = event.DecisionExpired })},
		"other edited bytes": {audit.RuleArguments, "digest", edit(2, func(_ *event.Event, p *event.ApprovalDecided) {
			s := `{"n":2}`
			p.Decision, p.EditedArguments, p.EditedSHA256 = event.DecisionEdited, &s, "00"
		})},
		"expired and said to be denied":   {audit.RuleResult, "reason", edit(2, func(_ *event.Event, p *event.ApprovalDecided) { p.Decision = event.DecisionExpired })},
		"cancelled and said to be denied": {audit.RuleResult, "reason", edit(2, func(_ *event.Event, p *event.ApprovalDecided) { p.Decision = event.DecisionCancelled })},
		"nobody said what happened":       {audit.RuleResult, "reason", edit(1, func(_ *event.Event, p *event.ApprovalDecided) { p.Decision = event.DecisionCancelled })},
		"waits for another":               {audit.RuleApproval, "waits for", edit(0, func(_ *event.Event, p *event.RunSuspended) { p.ApprovalIDs = nil })},
		"decided twice":                   {audit.RuleDecision, "twice", func(w *written) { w.decisions[1].ID = w.decisions[0].ID }},
		"decided before":                  {audit.RuleDecision, "before that", func(w *written) { slices.Reverse(w.decisions) }},
		"decided for nothing":             {audit.RuleDecision, "no such event", func(w *written) { w.decisions[len(w.decisions)-1].EventSeq = 999 }},
		"another run":                     {audit.RuleDecision, "is about run", func(w *written) { w.decisions[0].RunID = "x" }},
		"before the claim":                {audit.RuleDecision, "not claimed", func(w *written) { w.decisions[0].EventSeq = 4 }},
		"another lease":                   {audit.RuleDecision, "had the run under", func(w *written) { w.decisions[0].Epoch++ }},
		"a shadow has an effect":          {audit.RuleDecision, "a shadow", func(w *written) { w.decisions[0].Shadow = true }},
		"a shadow opens":                  {audit.RuleDecision, "a shadow", func(w *written) { d := &w.decisions[0]; d.Shadow, d.Effective, d.FailedOpen = true, false, true }},
		"of no run":                       {audit.RuleDecision, "a worker recorded it", func(w *written) { w.decisions[0].RunID = "" }},
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			w := written{slices.Clone(whole.events), slices.Clone(whole.decisions)}
			c.broken(&w)
			found := audit.Check(w.events, w.decisions)
			named := func(v audit.Violation) bool {
				return v.Rule == c.rule && strings.Contains(v.String(), c.says) && strings.Contains(v.String(), string(v.Rule))
			}
			if !slices.ContainsFunc(found, named) {
				t.Errorf("%v; want %s, %q", found, c.rule, c.says)
			}
		})
	}
}

// again gives the mth thing of a kind the id of the nth, wherever it is named.
func again(typ event.Type, name string, n, m int) func(*written) {
	return func(w *written) {
		from, to := idOf(w, typ, name, m), idOf(w, typ, name, n)
		for i, e := range w.events {
			w.events[i].Payload = json.RawMessage(strings.ReplaceAll(string(e.Payload), from, to))
		}
	}
}

// sent has hooks change what the second model call was sent.
func sent(change func([]hooks.Message) []hooks.Message) func(*written) {
	return func(w *written) {
		var s loop.State
		edit(1, func(e *event.Event, p *event.ModelRequested) {
			s = loop.FoldAll(s, w.events[:e.Seq-1])
			p.Messages = change(slices.Clone(s.Messages))
		})(w)
	}
}
