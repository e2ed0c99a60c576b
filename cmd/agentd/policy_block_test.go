package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/hooks/webhook"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
	"github.com/seed-2ca4966b/agentd/store/storetest"
)

// sundays denies one tool.
var sundays = callPolicy{
	id: "sundays", phase: hooks.PhaseValidate,
	rule: `code: sunday, when: call.name == "two", block: not allowed on Sundays`,
	says: func(in hooks.BeforeToolCall) hooks.BeforeToolCallResult {
		if in.Call.Name != "two" {
			return hooks.BeforeToolCallResult{Action: hooks.ActionContinue}
		}
		return hooks.BeforeToolCallResult{Action: hooks.ActionBlock, Reason: hooks.Reason{Code: "sunday", Text: "not allowed on Sundays"}}
	},
}

// TestADeniedCallAmongOthersIsAnsweredWithItsReason, and the others run. A model that
// does not listen comes to an end that says why.
func TestADeniedCallAmongOthersIsAnsweredWithItsReason(t *testing.T) {
	t.Parallel()
	s := newStack(t, storetest.New(t))
	for _, k := range policyKinds {
		h := k.make(t, sundays)
		p := s.newPoliced(t, h, [2]string{"one", `{"n":1}`}, [2]string{"two", `{"n":2}`}, [2]string{"three", `{"n":3}`})
		if run := p.goes(); run.Status != loop.RunCompleted {
			t.Errorf("%s: the run is %s", k.kind, run.Status)
		}
		told := p.toldAt(1)
		if len(told) != 3 || told[0].Content != "one ran" || told[0].IsError || told[2].Content != "three ran" || told[2].IsError ||
			told[1].Content != "This call was blocked and not run: not allowed on Sundays" || !told[1].IsError || told[1].Reason != hooks.ReasonBlocked {
			t.Errorf("%s: the model is told %+v", k.kind, told)
		}
		facts := stored(t, s.db, p.job.SessionID)
		denied := only[event.ToolBlocked](t, facts)
		for _, started := range decoded[event.ToolStarted](t, facts) {
			if started.CallID == denied.CallID {
				t.Errorf("%s: the denied call is said to have started", k.kind)
			}
		}
		ran := p.all()
		slices.Sort(ran)
		rows := rowsAt(t, s.db, p.job.SessionID, "hook_kind, tool_name, action, outcome, reason_code")
		want := []string{" one continue ok", " two block ok sunday", " three continue ok"}
		for i := range want {
			want[i] = string(k.kind) + want[i]
		}
		if !slices.Equal(ran, []string{`{"n":1}`, `{"n":3}`}) || !slices.Equal(rows, want) {
			t.Errorf("%s: ran %q, ledger %q; want %q", k.kind, ran, rows, want)
		}

		limit := rounds(5, 50)
		p = s.policing(t, h, looptest.Answers(looptest.Answer(looptest.ToolCall("again", "two", `{"n":2}`), looptest.Finish(stream.FinishToolCalls))), map[string]bool{"two": true})
		agent := p.Engine.Agents["demo"]
		agent.Limits.RepeatedCalls = limit
		p.Engine.Agents["demo"] = agent
		run := p.goes()
		failed := only[event.RunFailed](t, stored(t, s.db, p.job.SessionID))
		if run.Status != loop.RunFailed || failed.Reason != event.FailRepeatedCalls || !strings.Contains(failed.Error, "called two with the same arguments") ||
			len(p.requests()) != limit || len(p.all()) != 0 {
			t.Errorf("%s: the run is %s (%+v) after %d requests, the tool ran with %q", k.kind, run.Status, failed, len(p.requests()), p.all())
		}
	}
}

// secretInput is what must not be said, and goes nowhere.
const secretInput = "charge the card 4929-7777-secret"

// inputPolicies refuse it once they are released; asked tells of a question about
// it. A rule has nothing to wait for.
func inputPolicies(t *testing.T, asked chan<- struct{}, release <-chan struct{}) map[hooks.Kind]hooks.Hooks {
	t.Helper()
	says := func(in hooks.BeforeInput) hooks.BeforeInputResult {
		if !strings.Contains(in.Text, "4929") {
			return hooks.BeforeInputResult{Action: hooks.ActionContinue}
		}
		asked <- struct{}{}
		<-release
		return hooks.BeforeInputResult{Action: hooks.ActionBlock, Reason: hooks.Reason{Code: "card", Text: "No cards here."}}
	}
	patient := hooks.TimeLimit(unhurried)
	url := receive(t, func(in hooks.BeforeInput) any {
		r := says(in)
		return map[string]any{"action": r.Action, "reason": r.Reason}
	})
	cfg := webhookConfig(t, "input", url, patient)
	cfg.Gates = []hooks.Gate{hooks.GateBeforeInput}
	w, err := webhook.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	return map[hooks.Kind]hooks.Hooks{
		hooks.KindGo: {BeforeInput: hooks.Named("input", "1", func(_ context.Context, in hooks.BeforeInput) (hooks.BeforeInputResult, error) { return says(in), nil }, patient)},
		hooks.KindRule: configured1(t, `rules: [{id: input, gate: BeforeInput, timeout: 30s, code: card, when: 'text.contains("4929")', block: No cards here.}]
`),
		hooks.KindWebhook: w.Hooks(),
	}
}

// TestAMessageThatIsRefusedStartsNothing: however long a policy thinks, nobody goes
// on meanwhile, and what was refused is nowhere afterwards.
func TestAMessageThatIsRefusedStartsNothing(t *testing.T) {
	t.Parallel()
	s := newStack(t, storetest.New(t))
	asked, release := make(chan struct{}, 1), make(chan struct{})
	sum := sha256.Sum256([]byte(secretInput))
	for kind, h := range inputPolicies(t, asked, release) {
		// A model that charges as soon as it is asked.
		p := s.newPoliced(t, h, [2]string{"charge", "{}"})
		session := p.Session(t)
		started := make(chan error, 1)
		go func() {
			_, err := p.Commands.StartRun(t.Context(), loop.StartRun{TenantID: looptest.Tenant, SessionID: session, Text: secretInput, Actor: looptest.Tester})
			started <- err
		}()
		if kind != hooks.KindRule {
			<-asked
			if n := scalar[int](t, s.db, `SELECT count(*) FROM agentd.runs WHERE session_id = $1`, session); n != 0 || len(p.requests()) != 0 {
				t.Errorf("%s: while it is asked there are %d runs and %d requests", kind, n, len(p.requests()))
			}
			release <- struct{}{}
		}
		if err := <-started; !errors.Is(err, loop.ErrBlocked) {
			t.Errorf("%s: %v; want it blocked", kind, err)
		}
		blocked := only[event.InputBlocked](t, stored(t, s.db, session))
		if blocked.Input.SHA256 != hex.EncodeToString(sum[:]) || blocked.Input.Bytes != int64(len(secretInput)) || blocked.ReasonCode != "card" || blocked.Reason != "No cards here." {
			t.Errorf("%s: %+v", kind, blocked)
		}
		if rows := rowsAt(t, s.db, session, "gate, hook_id, hook_kind, action, outcome, reason_code, subject"); !slices.Equal(rows, []string{
			"BeforeInput input " + string(kind) + " block ok card " + blocked.InputID}) {
			t.Errorf("%s: ledger %q", kind, rows)
		}
		p.job = p.Start(t, session, "never mind")
		p.Advance(t, p.job)
		text, err := json.Marshal(p.requests())
		if err != nil || len(p.requests()) != 2 || strings.Contains(string(text), "4929") {
			t.Errorf("%s: sent %s, %v", kind, text, err)
		}
		if n := scalar[int](t, s.db, `SELECT count(*) FROM agentd.runs WHERE session_id = $1`, session); n != 1 {
			t.Errorf("%s: %d runs", kind, n)
		}
	}
	for _, table := range []string{"events", "messages", "hook_payloads", "hook_decisions", "runs"} {
		if n := scalar[int](t, s.db, `SELECT count(*) FROM agentd.`+table+` AS x WHERE x::text LIKE '%4929%'`); n != 0 {
			t.Errorf("%d rows of %s have the text", n, table)
		}
	}
}
