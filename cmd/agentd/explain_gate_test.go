package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	agentdv1 "github.com/seed-2ca4966b/agentd/api/gen/agentd/v1"
)

// manyRules are the decisions of a gate with 50 rules, of which three do
// something and one is a shadow, and the rules.
func manyRules() decided {
	all := decided{hooks: hooksByName{}}
	add := func(d *agentdv1.Decision, text string) {
		d.Gate, d.Turn, d.Attempt, d.ChainLength, d.EventSeq, d.HookSetDigest, d.HookVersion = "BeforeToolCall", 1, 1, 50, 3, "set", "1"
		d.LedgerSeq, d.LatencyUs = uint64(len(all.list)+1), uint64(len(all.list)+1)
		if d.GetOutcome() == "" {
			d.Outcome = "ok"
		}
		if d.GetFailurePolicy() == "" {
			d.FailurePolicy, d.Effective = "closed", true
		}
		all.list = append(all.list, d)
		h := &agentdv1.Hook{HookSetDigest: "set", Gate: d.GetGate(), Id: d.GetHookId(), Version: "1", Kind: "rule", Text: text}
		all.hooks[hookKey{"set", h.GetGate(), h.GetId(), "1", ""}] = h
	}
	for i := range 46 {
		add(&agentdv1.Decision{HookId: fmt.Sprintf("rule-%d", i+1), Action: "continue", RuleId: fmt.Sprintf("rule-%d", i+1)}, `{"block":"no"}`)
	}
	add(&agentdv1.Decision{HookId: "quiet", Action: "continue", FailurePolicy: "shadow"}, `{"when":"true"}`)
	add(&agentdv1.Decision{HookId: "cap", Action: "transform", FieldsChanged: []string{"arguments"}, PatchJson: `[{"op":"replace"}]`},
		`{"id":"cap","gate":"BeforeToolCall","tools":["refund"],"when":"call.arguments.amount > 50","transform":{"arguments":{"amount":50}}}`)
	add(&agentdv1.Decision{HookId: "soft", Action: "transform", FieldsChanged: []string{"arguments"}, PatchJson: `[{"op":"add"}]`, FailurePolicy: "shadow"}, "")
	add(&agentdv1.Decision{HookId: "hard", Action: "block", ReasonCode: "rule.block", Reason: "too much", Outcome: "timeout", FailurePolicy: "shadow"}, `{"when":"x`)
	return all
}

// TestExplainStaysReadableWithManyRules: those without an objection share a line.
func TestExplainStaysReadableWithManyRules(t *testing.T) {
	t.Parallel()
	told := func(each bool) string {
		var out bytes.Buffer
		run := &agentdv1.Run{Id: "r", SessionId: "s", Agent: "a", Status: agentdv1.RunStatus_RUN_STATUS_COMPLETED, Turns: 1}
		if err := explain(&out, run, []*agentdv1.Event{{Seq: 3, Type: "tool.started"}}, manyRules(), each); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	const want = `run r of session s
agent a: completed, 1 turn, 50 decisions

? BeforeToolCall turn 1 attempt 1
    cap@1: transform arguments [48µs]
      rule: tools: ["refund"]; when: call.arguments.amount > 50; transform: {"arguments":{"amount":50}}
      changed: [{"op":"replace"}]
    soft@1: would transform arguments (shadow) [49µs]
      would have changed: [{"op":"add"}]
    hard@1: would block (failed: timeout) (shadow), rule.block: too much [50µs]
      rule: {"when":"x
    47 hooks: continue [47µs at most]: rule-1, rule-2, rule-3, rule-4, rule-5, rule-6, rule-7, rule-8, rule-9, rule-10, rule-11, rule-12, rule-13, rule-14, rule-15, rule-16, rule…
→ #3     tool.started
`
	if got := told(false); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if got := told(true); strings.Count(got, "\n") != 3+1+50+49+2+1 || !strings.Contains(got, "\n    rule-7@1: continue, rule rule-7 [7µs]\n      rule: block: no\n") ||
		!strings.Contains(got, "\n    quiet@1: would continue (shadow) [47µs]\n") {
		t.Errorf("each hook:\n%s", got)
	}
}

// TestExplainTellsEachGateWithTheArgumentsThatItWasHanded: those that a hook has
// made, and then those that a person has, not what the model wrote.
func TestExplainTellsEachGateWithTheArgumentsThatItWasHanded(t *testing.T) {
	t.Parallel()
	happened := func(seq uint64, kind, data string) *agentdv1.Event {
		return &agentdv1.Event{Seq: seq, Type: kind, DataJson: data}
	}
	decided := decided{}
	asked := func(gate string, attempt uint32, seq uint64, patch string) {
		decided.list = append(decided.list, &agentdv1.Decision{
			Gate: gate, Subject: "c", ToolName: "pay", HookId: "h", Turn: 1, Attempt: attempt, EventSeq: seq, Action: "continue", Outcome: "ok", Effective: true, ChainLength: 1, PatchJson: patch,
		})
	}
	asked("BeforeToolCall", 1, 2, `[{"op":"replace","path":"/call/arguments","value":"{\"n\":2}"}]`)
	asked("BeforeToolCall", 2, 5, `[{"op":"replace","path":"/call/arguments","sha256":"x"}]`)
	asked("BeforeExecute", 1, 5, "")
	asked("AfterToolCall", 1, 7, `{`)
	var out bytes.Buffer
	err := explain(&out, &agentdv1.Run{}, []*agentdv1.Event{
		happened(1, "tool.proposed", `{"call_id":"c","name":"pay","arguments":"{\"n\":1}"}`),
		happened(2, "approval.requested", `{"approval_id":"a","call_id":"c","arguments":"{\"n\":2}"}`),
		happened(3, "approval.decided", `{"approval_id":"a","approved":true,"edited_arguments":"{\"n\":3}"}`),
		happened(5, "tool.started", `{"call_id":"c","attempt":1,"arguments":"{\"n\":4}"}`),
		happened(7, "tool.result", `{"call_id":"c"}`),
	}, decided, false)
	if err != nil {
		t.Fatal(err)
	}
	var gates []string
	for line := range strings.Lines(out.String()) {
		if strings.HasPrefix(line, "? ") {
			gates = append(gates, strings.TrimSpace(line[2:]))
		}
	}
	const want = `BeforeToolCall pay {"n":1}; BeforeToolCall pay {"n":3}; BeforeExecute pay {"n":3}; AfterToolCall pay {"n":4}`
	if got := strings.Join(gates, "; "); got != want {
		t.Errorf("got  %s\nwant %s\n%s", got, want, out.String())
	}
}

func TestLedgerShowsTextsAndChangesOnce(t *testing.T) {
	t.Parallel()
	all := manyRules()
	all.list = append(all.list[46:], all.list[47])
	var out bytes.Buffer
	if err := printTexts(&out, all); err != nil {
		t.Fatal(err)
	}
	const want = `
quiet@1 at BeforeToolCall: rule: when: true
cap@1 at BeforeToolCall: rule: tools: ["refund"]; when: call.arguments.amount > 50; transform: {"arguments":{"amount":50}}
hard@1 at BeforeToolCall: rule: {"when":"x
row 48 changed: [{"op":"replace"}]
row 49 would have changed: [{"op":"add"}]
row 48 changed: [{"op":"replace"}]
`
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
	out.Reset()
	if err := printTexts(&out, decided{list: all.list[:1]}); err != nil || out.Len() != 0 {
		t.Errorf("of a server that knows no texts: %q, %v", out.String(), err)
	}
}

func TestTextOfAHookThatIsNoRuleIsItsConfig(t *testing.T) {
	t.Parallel()
	if got := textLine(&agentdv1.Hook{Kind: "host", Text: "rm\nwipe"}); got != "config: rm wipe" {
		t.Errorf("%q", got)
	}
}

// TestExplainTellsWhatObserversDid: in numbers, and who stopped the answer.
func TestExplainTellsWhatObserversDid(t *testing.T) {
	t.Parallel()
	var all decided
	add := func(gate, hook, action, annotations string, effective bool) *agentdv1.Decision {
		d := &agentdv1.Decision{
			Gate: gate, HookId: hook, HookVersion: "1", HookKind: "observer", Turn: 1, Attempt: 1, ChainLength: 4, Subject: "1", EventSeq: 4, Outcome: "ok",
			FailurePolicy: "open", Effective: effective, Action: action, AnnotationsJson: annotations, LatencyUs: 7,
		}
		all.list = append(all.list, d)
		return d
	}
	add(onEnd, "redact", "transform", `{"chunks":12,"bytes":340,"bytes_out":300,"amended":4,"emitted":0,"held":0,"throttled":0,"paused_ms":0,"lanes":["reasoning","text"]}`, true).
		FieldsChanged = []string{"reasoning", "text"}
	add(onEnd, "metrics", "continue", `{"chunks":1,"bytes":1,"bytes_out":1,"emitted":1,"held":2,"throttled":3,"paused_ms":60}`, true)
	add(onEnd, "quiet", "continue", `{"chunks":1,"bytes":1,"bytes_out":1}`, true)
	add(onEnd, "silent", "continue", `{"chunks":1,"bytes":1,"bytes_out":1}`, true)
	stop := add(onChunk, "refusals", "stop", `{"chunk":7,"accepted":5,"policy":"retry"}`, true)
	stop.ReasonCode, stop.Reason = "observer.stop", "it refuses"
	add(onChunk, "newer", "stop", `no JSON`, false)
	events := []*agentdv1.Event{
		{Seq: 1, Type: "model.requested", DataJson: `{"attempt":1,"model":"m","message_ids":["a"]}`},
		{Seq: 2, Type: "emission", DataJson: `{"attempt":1,"observer":"metrics","channel":"metrics","envelope":{"n":1},"chunk":6}`},
		{Seq: 3, Type: "assistant.stopped", DataJson: `{"attempt":1,"message_id":"b","parts":[{"type":"text","text":"I can"}],"reason":"stopped","observer":"refusals","chunk":7,"accepted":5,"policy":"retry"}`},
		{Seq: 4, Type: "turn.completed", DataJson: `{}`},
		{Seq: 5, Type: "assistant.stopped", DataJson: `{"attempt":1,"message_id":"","parts":null,"reason":"cancelled"}`},
	}
	var out bytes.Buffer
	run := &agentdv1.Run{Id: "r", SessionId: "s", Agent: "a", Status: agentdv1.RunStatus_RUN_STATUS_COMPLETED, Turns: 1}
	if err := explain(&out, run, events, all, false); err != nil {
		t.Fatal(err)
	}
	const want = `run r of session s
agent a: completed, 1 turn, 6 decisions

  #1     model.requested      m attempt 1, 1 message
  #2     emission             metrics on metrics: {"n":1}
? OnEnd turn 1 attempt 1
    redact@1: transform reasoning,text; 12 chunks of 340 bytes, 300 went on, amended 4 times [7µs]
    metrics@1: continue; 1 chunk of 1 byte, emitted 1 times, held 2 times, throttled 3 times, reading paused 60 ms [7µs]
    2 hooks: continue [7µs at most]: quiet, silent
? OnChunk turn 1 attempt 1
    refusals@1: stop, observer.stop: it refuses; at chunk 7 behind 5 bytes, then retry [7µs]
    newer@1: stop (without effect) [7µs]
→ #3     assistant.stopped    stopped by refusals at chunk 7 behind 5 bytes, then retry: I can
  #4     turn.completed
  #5     assistant.stopped    cancelled:
`
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
}
