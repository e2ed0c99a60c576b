package main

import (
	"strings"
	"syscall"
	"testing"

	"github.com/seed-2ca4966b/agentd/store/storetest"
)

// TestAPluginTakesToolsAway: from the next turn on the model is not told of them and its
// calls are of tools that there are not, also in another process, after the first was
// killed.
func TestAPluginTakesToolsAway(t *testing.T) {
	t.Parallel()
	dirs, db := newPluginDirs(t), storetest.New(t)
	dirs.put(t, "desk", "1", "tool")
	dirs.put(t, "policy", "1", "narrow")
	const write, open = `{"tool": {"name": "memory_write", "arguments": {"key": "k", "content": "c"}}}`, `{"tool": {"name": "desk__open", "arguments": {"title": "x"}}}`
	env := func(second string) []string {
		return append(dirs.env(), "AGENTD_TOOL_PERMISSIONS=", "AGENTD_SCRIPT="+script(t, write+", "+open, second+open, `{"text": "done"}`))
	}
	s := startServe(t, db, env(`{"delay": "1m"}, `))
	run, _ := startRun(t, s, newSession(t, s), "hi")
	awaitRow(t, db, `SELECT type FROM agentd.events WHERE type = 'model.requested' AND turn_no = 2`)
	s.signal(t, syscall.SIGKILL)
	s = startServe(t, db, env(""))
	awaitRow(t, db, `SELECT status FROM agentd.runs WHERE id = '`+run+`' AND status = 'completed'`)

	for what, c := range map[string]struct{ query, want string }{
		"who, and how many times": {
			`SELECT string_agg(concat_ws(' ', payload ->> 'by', payload ->> 'required', turn_no, payload ->> 'call_id'), ', ') FROM agentd.events WHERE type = 'tools.narrowed'`,
			"policy true 1",
		},
		"what is left": {
			`SELECT string_agg(tool, ' ') FROM agentd.events, json_array_elements_text(payload -> 'tools') AS tool WHERE type = 'tools.narrowed' AND NOT tool LIKE 'memory%'`,
			"ping",
		},
		"the decision is in the same append": {
			`SELECT concat_ws(' ', d.hook_id, d.gate, e.append_id = n.append_id) FROM agentd.events n JOIN agentd.hook_decisions d ON d.decision_id::text = n.payload ->> 'decision_id'
				JOIN agentd.events e ON e.session_id = d.session_id AND e.seq = d.event_seq WHERE n.type = 'tools.narrowed'`,
			"policy BeforeToolCall t",
		},
		"what models were told of": {
			`SELECT string_agg(concat_ws(' ', turn_no, payload ->> 'attempt', payload ->> 'tools' LIKE '%desk__open%', payload ->> 'tools' LIKE '%memory_write%'), ', ' ORDER BY seq)
				FROM agentd.events WHERE type = 'model.requested'`,
			"1 1 t t, 2 1 f t, 2 2 f t, 3 1 f t",
		},
		"results": {
			`SELECT string_agg(concat_ws(' ', payload ->> 'name', payload ->> 'reason'), ', ' ORDER BY seq) FROM agentd.events WHERE type = 'tool.result' AND payload ->> 'name' = 'desk__open'`,
			"desk__open, desk__open unknown_tool",
		},
		"progress": {
			`SELECT string_agg(concat_ws(' ', payload ->> 'attempt', payload ->> 'number', payload ->> 'text'), ', ' ORDER BY seq) FROM agentd.events WHERE type = 'tool.progress'`,
			"1 1 half",
		},
	} {
		if got := scalar[string](t, db, c.query); got != c.want {
			t.Errorf("%s: %q; want %q", what, got, c.want)
		}
	}
	if code, out, stderr := here(t, "explain", run, "--url", s.url); code != 0 || !strings.Contains(out, "tools.narrowed       policy leaves ") || !strings.Contains(out, "tool.progress        desk__open attempt 1, 1: half") {
		t.Errorf("explain: %d, %s%s", code, out, stderr)
	}
}
