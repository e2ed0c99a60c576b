package main

import (
	"bytes"
	"strings"
	"testing"

	agentdv1 "github.com/seed-2ca4966b/agentd/api/gen/agentd/v1"
	"github.com/seed-2ca4966b/agentd/loop/event"
)

// TestChatSaysHowFarAToolIs, in one line, and not what was withheld.
func TestChatSaysHowFarAToolIs(t *testing.T) {
	t.Parallel()
	var note, out bytes.Buffer
	pipe := &printView{err: &note}
	onScreen := &screenView{screen: &screen{out: &out, size: func() (int, int) { return 30, 24 }}, calls: map[string]event.ToolProposed{}}
	for _, e := range []event.Payload{
		event.ToolProposed{CallID: "c", Name: "work", Arguments: "{}"}, event.ToolProgress{CallID: "c", Attempt: 1, Number: 1, Text: "half of it\nis \x1b[2Jdone"},
		event.ToolProgress{CallID: "c", Attempt: 1, Number: 2, Withheld: true}, event.ToolProgress{CallID: "c", Attempt: 1, Number: 3, Text: strings.Repeat("x", 50)},
	} {
		pipe.show(e)
		onScreen.show(e)
	}
	if got := note.String(); pipe.text.Len() != 0 || strings.Contains(got, "\x1b") || !strings.HasPrefix(got, "work: half of it is ") || strings.Count(got, "\n") != 2 {
		t.Errorf("a pipe gets %q and is told %q", pipe.text.String(), got)
	}
	shown := strings.Split(strings.NewReplacer(dim, "", resetText, "").Replace(out.String()), "\n")
	if len(shown) != 3 || !strings.HasPrefix(shown[0], "· work: half of it is ") || shown[1] != "· work: "+strings.Repeat("x", 20)+"…" {
		t.Errorf("a terminal shows %q", shown)
	}
}

// TestExplainTellsWhoHasTakenToolsAway, and how far tools said they were.
func TestExplainTellsWhoHasTakenToolsAway(t *testing.T) {
	t.Parallel()
	decision := func(id, hook string) *agentdv1.Decision {
		return &agentdv1.Decision{
			Id: id, Gate: "BeforeToolCall", HookId: hook, HookVersion: "1", HookKind: "plugin", Turn: 1, Attempt: 1, ChainLength: 1, Subject: "c", ToolName: "work",
			EventSeq: 4, Outcome: "ok", FailurePolicy: "closed", Effective: true, Action: "continue", LatencyUs: 7,
		}
	}
	all := decided{list: []*agentdv1.Decision{decision("d1", "policy"), decision("d2", "other")}}
	events := []*agentdv1.Event{
		{Seq: 1, Type: "tool.proposed", DataJson: `{"call_id":"c","number":1,"name":"work","arguments":"{}"}`},
		{Seq: 2, Type: "tools.narrowed", DataJson: `{"required":true,"by":"earlier","decision_id":"d0","tools":["ping","work"]}`},
		{Seq: 3, Type: "tools.narrowed", DataJson: `{"required":true,"by":"policy","decision_id":"d1","tools":["ping"]}`},
		{Seq: 4, Type: "tool.started", DataJson: `{"call_id":"c","attempt":1}`},
		{Seq: 5, Type: "tool.progress", DataJson: `{"call_id":"c","attempt":1,"number":1,"text":"half"}`},
		{Seq: 6, Type: "tool.progress", DataJson: `{"call_id":"c","attempt":1,"number":4,"text":"","withheld":true}`},
	}
	var out bytes.Buffer
	run := &agentdv1.Run{Id: "r", SessionId: "s", Agent: "a", Status: agentdv1.RunStatus_RUN_STATUS_COMPLETED, Turns: 1}
	if err := explain(&out, run, events, all, false); err != nil {
		t.Fatal(err)
	}
	_, got, _ := strings.Cut(out.String(), "\n\n")
	const want = `  #1     tool.proposed        work {}
  #2     tools.narrowed       earlier leaves 2 tools: ping, work
? BeforeToolCall work {}
    2 hooks: continue [7µs at most]: policy, other
→ #3     tools.narrowed       policy leaves 1 tool: ping
→ #4     tool.started         work attempt 1
  #5     tool.progress        work attempt 1, 1: half
  #6     tool.progress        work attempt 1, 4: (withheld)
`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
