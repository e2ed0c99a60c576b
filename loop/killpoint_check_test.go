package loop_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
)

// check looks at what holds wherever the process died, and says what became of
// the run.
func (k *staged) check(t *testing.T, whole, events []event.Event) killRow {
	t.Helper()
	checked(t, k.Bench, k.id)
	unknown := k.unknown(t, events)
	k.checkEnd(t, whole, events, unknown)
	k.checkEffects(t, events)
	k.checkCalls(t, events)
	k.checkDecisions(t, events, unknown)
	k.checkTexts(t, events)
	told := k.told()
	later := k.goOn(t, events)
	if told == "" {
		told = "no further call; the next message comes behind " + later
	}
	return killRow{written: k.written, killOutcome: killOutcome{
		resume: k.resumed(t, events, unknown), seen: k.seen(whole, events), told: told, end: ended(whole, events, unknown),
	}}
}

// unknown are the tools that may not be run again and whose outcome died with
// the process, each with the reason that its result has to give: it was started
// and has no outcome in the log, or it ran and its output is not there.
func (k *staged) unknown(t *testing.T, events []event.Event) map[string]hooks.ResultReason {
	t.Helper()
	out := map[string]hooks.ResultReason{}
	names := toolNames(t, events)
	for _, e := range events[:k.cut()] {
		tool := names[field[string](t, e, "call_id")]
		switch e.Type {
		case event.TypeToolStarted:
			out[tool] = hooks.ReasonOutcomeUnknown
		case event.TypeToolExecuted:
			out[tool] = hooks.ReasonOutputLost
		case event.TypeToolResult:
			delete(out, tool)
		default:
		}
	}
	for _, p := range k.drama.tools {
		if p.idempotent {
			delete(out, p.name)
		}
	}
	return out
}

// checkEnd: the log is the undisturbed one, up to attempts and to the outcomes
// that nobody knows.
func (k *staged) checkEnd(t *testing.T, whole, events []event.Event, unknown map[string]hooks.ResultReason) {
	t.Helper()
	got, want := upToAttempts(t, events, unknown), upToAttempts(t, whole, unknown)
	if !slices.Equal(got, want) {
		t.Errorf("the log is not the undisturbed one\n got %s\nwant %s", strings.Join(got, "\n     "), strings.Join(want, "\n     "))
	}
	names := toolNames(t, events)
	for _, p := range payloads[event.ToolResult](t, events) {
		if want, ok := unknown[names[p.CallID]]; ok && (p.Reason != want || !p.IsError) {
			t.Errorf("the result of %s is %+v, want %s", names[p.CallID], p, want)
		}
	}
}

// checkEffects: a tool that may not be repeated took effect once at most, and
// once if it has an outcome; one that may be is entered under one id.
func (k *staged) checkEffects(t *testing.T, events []event.Event) {
	t.Helper()
	names, effects := toolNames(t, events), map[string]int{}
	for _, e := range k.entered {
		if effects[e.tool]++; names[e.call] != e.tool {
			t.Errorf("%s was entered with call %s, which the log does not have", e.tool, e.call)
		}
	}
	for _, p := range k.drama.tools {
		if !p.idempotent && effects[p.name] > 1 {
			t.Errorf("%s took effect %d times", p.name, effects[p.name])
		}
	}
	for _, p := range payloads[event.ToolExecuted](t, events) {
		if effects[names[p.CallID]] == 0 {
			t.Errorf("%s was executed and never entered", names[p.CallID])
		}
	}
	for _, p := range payloads[event.ApprovalDecided](t, events) {
		if loop.StatusAfter(p.Decision) == loop.CallDenied && effects[names[p.CallID]] > 0 {
			t.Errorf("%s was %s and took effect", names[p.CallID], p.Decision)
		}
	}
	for _, e := range k.entered {
		if want := finalOf(t, events, e.call); e.arguments != want {
			t.Errorf("%s was entered with %s; want %s", e.tool, e.arguments, want)
		}
	}
}

// finalOf is what a person gave a call, or else what the model wrote.
func finalOf(t *testing.T, events []event.Event, call string) string {
	t.Helper()
	for _, p := range payloads[event.ApprovalDecided](t, events) {
		if p.CallID == call && p.EditedArguments != nil {
			return *p.EditedArguments
		}
	}
	return "{}"
}

// attemptOf is one call of the model.
type attemptOf struct {
	run     string
	turn, n int
}

// checkCalls: no attempt is made twice, and none after an answer that was
// durable when the process died.
func (k *staged) checkCalls(t *testing.T, events []event.Event) {
	t.Helper()
	answered, made := map[attemptOf]bool{}, map[attemptOf]bool{}
	for _, e := range events[:k.cut()] {
		if e.Type == event.TypeAssistantCompleted || e.Type == event.TypeAssistantStopped {
			answered[attemptOf{e.RunID, e.Turn, 0}] = true
		}
	}
	for _, r := range k.requests {
		a := attemptOf{r.RunID, r.Turn, r.Attempt}
		if made[a] {
			t.Errorf("turn %d, attempt %d was requested twice", r.Turn, r.Attempt)
		}
		made[a] = true
		if a.n = 0; r.after && answered[a] {
			t.Errorf("turn %d was answered, and requested again", r.Turn)
		}
	}
}

// checkDecisions: no hook is asked again for what was recorded, nor about an
// output that is lost, the ledger has each decision once, and a person is asked
// and answers once per call.
func (k *staged) checkDecisions(t *testing.T, events []event.Event, unknown map[string]hooks.ResultReason) {
	t.Helper()
	durable := recorded(k.durable)
	for _, a := range k.asked {
		if a.after && a.gate == hooks.GateAfterToolCall && len(unknown) == len(k.drama.tools) {
			t.Errorf("a hook was asked about an output that is lost: %v", unknown)
		}
		if a.after && durable[a.decision] > 0 {
			t.Errorf("%s had decided %s, and was asked again", a.gate, a.decision)
		}
	}
	for id, n := range recorded(ledger(k.Bench, k.id)) {
		if n != 1 {
			t.Errorf("decision %s is recorded %d times", id, n)
		}
	}
	requests, answers := map[string]int{}, map[string]int{}
	for _, p := range payloads[event.ApprovalRequested](t, events) {
		requests[p.CallID]++
	}
	for _, p := range payloads[event.ApprovalDecided](t, events) {
		answers[p.CallID]++
	}
	for call, n := range requests {
		if n != 1 || answers[call] > 1 {
			t.Errorf("a person was asked %d times and answered %d times about one call", n, answers[call])
		}
	}
}

var anyTag = regexp.MustCompile(`\[[0-9a-f]{12}\.\d+\.\d+\]`)

// checkTexts: a message has text of its own attempt and of no other, and the
// model is sent nothing that was discarded.
func (k *staged) checkTexts(t *testing.T, events []event.Event) {
	t.Helper()
	void := map[string]bool{}
	for _, e := range events {
		p, err := event.Decode(e)
		if err != nil {
			t.Fatal(err)
		}
		var parts []hooks.Part
		attempt := 0
		switch p := p.(type) {
		case event.AssistantDiscarded:
			void[tag(e.RunID, e.Turn, p.Attempt)] = true
		case event.AssistantCompleted:
			parts, attempt = p.Parts, p.Attempt
		case event.AssistantStopped:
			parts, attempt = p.Parts, p.Attempt
		}
		if len(parts) > 0 {
			text := hooks.Message{Parts: parts}.Text()
			if tags := anyTag.FindAllString(text, -1); len(tags) != 1 || tags[0] != tag(e.RunID, e.Turn, attempt) {
				t.Errorf("attempt %d of turn %d says %q", attempt, e.Turn, text)
			}
		}
	}
	for _, r := range k.requests {
		for _, m := range r.Messages {
			for _, tag := range anyTag.FindAllString(m.Text(), -1) {
				if void[tag] {
					t.Errorf("turn %d, attempt %d is sent %q, which was discarded", r.Turn, r.Attempt, m.Text())
				}
			}
		}
	}
}

// goOn says two more messages in the session: both requests are valid, and the
// results stay what they were. It returns what the model is told.
func (k *staged) goOn(t *testing.T, events []event.Event) string {
	t.Helper()
	play(k.Bench, k.model(t, speaks))
	first := len(k.requests)
	for _, text := range []string{"hello", "hello"} {
		if run := k.Advance(t, k.Start(t, k.id, text)); run.Status != loop.RunCompleted {
			t.Errorf("the next run is %+v", run)
		}
	}
	now := payloads[event.ToolResult](t, k.Events(t, k.id))
	if before := payloads[event.ToolResult](t, events); len(now) != len(before) {
		t.Errorf("%d results, and %d after two more messages", len(before), len(now))
	}
	messages := k.requests[first].Messages
	return conversation(messages[:len(messages)-1])
}

func toolNames(t *testing.T, events []event.Event) map[string]string {
	t.Helper()
	names := map[string]string{}
	for _, p := range payloads[event.ToolProposed](t, events) {
		names[p.CallID] = p.Name
	}
	return names
}

// ofAttempts are the fields that tell attempts, leases and sessions apart.
var ofAttempts = []string{
	"attempt", "epoch", "ticket", "worker_id", "first_seq", "message_id", "assistant_message_id", "from_message_id",
	"call_id", "approval_id", "request_sha256", "id", "session_id", "ledger_seq", "ledger_head",
}

// upToAttempts tells a log without what belongs to attempts: voided answers, second
// starts of tools, take-overs and whoever did it. What tools that ran side by
// side did is in the order of its lines, and of tools with an unknown outcome
// nothing is told but that they were started.
func upToAttempts(t *testing.T, events []event.Event, unknown map[string]hooks.ResultReason) (lines []string) {
	t.Helper()
	names, void, runs := toolNames(t, events), map[attemptOf]bool{}, map[string]int{}
	for _, e := range events {
		attempt := field[int](t, e, "attempt")
		switch e.Type {
		case event.TypeAssistantDiscarded:
			void[attemptOf{e.RunID, e.Turn, attempt}] = true
		case event.TypeToolExecuted:
			runs[names[field[string](t, e, "call_id")]] = attempt
		default:
		}
	}
	tools := 0 // lines at the end that are about tools
	for _, e := range events {
		call := names[field[string](t, e, "call_id")]
		switch e.Type {
		case event.TypeRunReleased, event.TypeAssistantDiscarded:
			continue
		case event.TypeRunResumed:
			if field[string](t, e, "cause") == string(event.ResumeTakeover) {
				continue
			}
		case event.TypeRunQueued:
			if field[string](t, e, "cause") == "job_lost" {
				continue
			}
		case event.TypeModelRequested, event.TypeAssistantDelta, event.TypeEmission:
			if void[attemptOf{e.RunID, e.Turn, field[int](t, e, "attempt")}] {
				continue
			}
		case event.TypeToolStarted:
			if field[int](t, e, "attempt") > 1 {
				continue
			}
		case event.TypeToolProgress, event.TypeToolExecuted, event.TypeToolResult:
			if unknown[call] != "" || e.Type != event.TypeToolResult && field[int](t, e, "attempt") < runs[call] {
				continue
			}
		default:
		}
		lines = append(lines, fmt.Sprintf("%s turn %d %s %s", e.Type, e.Turn, call, anyTag.ReplaceAllString(content(t, e), "")))
		if tools++; call == "" {
			tools = 0
		}
		slices.Sort(lines[len(lines)-tools:])
	}
	return lines
}

// content is the payload of e without the fields that tell attempts apart.
func content(t *testing.T, e event.Event) string {
	t.Helper()
	var v any
	if err := json.Unmarshal(e.Payload, &v); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(withoutAttempts(v))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func withoutAttempts(v any) any {
	switch v := v.(type) {
	case map[string]any:
		maps.DeleteFunc(v, func(name string, _ any) bool { return slices.Contains(ofAttempts, name) })
		for name := range v {
			v[name] = withoutAttempts(v[name])
		}
	case []any:
		for i := range v {
			v[i] = withoutAttempts(v[i])
		}
	case string:
		if len(v) == 36 && strings.Count(v, "-") == 4 {
			return "id"
		}
	}
	return v
}

// field is a member of e's payload, or its zero value.
func field[V any](t *testing.T, e event.Event, name string) (v V) {
	t.Helper()
	var all map[string]json.RawMessage
	if err := json.Unmarshal(e.Payload, &all); err != nil {
		t.Fatal(err)
	}
	if raw, ok := all[name]; ok {
		if err := json.Unmarshal(raw, &v); err != nil {
			t.Fatalf("%s of %s: %v", name, e.Type, err)
		}
	}
	return v
}
