package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/seed-2ca4966b/agentd/store/storetest"
)

// modelRequest is a request of a model call, as far as tests of observers look at it.
type modelRequest struct {
	Model    string
	Messages []struct {
		Role    string
		Content string
	}
}

func (a modelRequest) last() (role, content string) {
	m := a.Messages[len(a.Messages)-1]
	return m.Role, m.Content
}

// speaking is a provider that answers with the pieces that say gives it.
func speaking(t *testing.T, requests chan<- modelRequest, say func(modelRequest) []string) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var a modelRequest
		if err := json.NewDecoder(r.Body).Decode(&a); err != nil || len(a.Messages) == 0 {
			http.Error(w, "unexpected", http.StatusBadRequest)
			return
		}
		requests <- a
		w.Header().Set("Content-Type", "text/event-stream")
		for _, piece := range say(a) {
			text, _ := json.Marshal(piece) // a text always encodes
			fmt.Fprintf(w, "data: {\"choices\":[{\"delta\":{\"content\":%s}}]}\n\n", text)
		}
		fmt.Fprint(w, "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n")
	}))
	t.Cleanup(s.Close)
	return s
}

// TestObserversOfTheConfigActOnAnswers: a call that a model writes into its text
// runs, secrets are taken out of all that is said, a refusal has the next model
// asked, and all of it ends with the next load.
func TestObserversOfTheConfigActOnAnswers(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	path := filepath.Join(t.TempDir(), "agentd.yaml")
	replaceConfig(t, path, `
hooks:
  - redact: {patterns: email}
observers:
  - normalize_tool_dialect:
  - redact: {patterns: email}
  - halt_on_pattern:
    on_stop: fallback
  - metrics:
`)
	requests := make(chan modelRequest, 9)
	model := speaking(t, requests, func(a modelRequest) []string {
		switch role, content := a.last(); {
		case role == "tool":
			return []string{"The tool works, e", "ve@exam", "ple.net."}
		case strings.Contains(content, "call") && role == "user":
			return []string{"Let me look. <to", "ol name='ping'>{\"mess", "age\":\"paper} for ada\\u00", "40example.net\"}</", "tool>"}
		case a.Model == "tiny":
			return []string{"Well. I can", "not help with ", "that."}
		}
		return []string{"With pleasure."}
	})
	s := startServe(t, db, []string{"AGENTD_CONFIG=" + path, "OPENAI_BASE_URL=" + model.URL, "OPENAI_MODEL=tiny", "AGENTD_FALLBACK_MODELS=second"})
	s.await(t, &s.err, `hooks are loaded".*(observers=4)`)

	if c := chat(t, s.url, strings.NewReader("please call bob@example.net\n")); c.wait(t) != 0 || !strings.Contains(c.out.String(), "The tool works, [redacted].") {
		t.Errorf("chat printed %q", c.out.String())
	}
	if _, content := (<-requests).last(); content != "please call [redacted]" {
		t.Errorf("the model is asked %s", content)
	}
	if role, content := (<-requests).last(); role != "tool" || !strings.Contains(content, "paper} for [redacted]") {
		t.Errorf("the model is told %s: %s", role, content)
	}
	for query, want := range map[string]string{
		`SELECT payload ->> 'name' || ' ' || (payload ->> 'arguments') FROM agentd.events WHERE type = 'tool.proposed'`:                                                `ping {"message":"paper} for [redacted]"}`,
		`SELECT payload -> 'parts' -> 0 ->> 'text' || (payload ->> 'finish') FROM agentd.events WHERE type = 'assistant.completed' ORDER BY at LIMIT 1`:                "Let me look. tool_calls",
		`SELECT string_agg(hook_id || ' ' || gate || ' ' || action, ', ' ORDER BY ledger_seq) FROM agentd.hook_decisions WHERE turn_no = 1 AND hook_kind = 'observer'`: "normalize-tool-dialect OnEnd transform, redact OnEnd transform, halt-on-pattern OnEnd continue, metrics OnEnd continue",
		`SELECT string_agg(channel || ' ' || (envelope ->> 'tool_calls'), ', ' ORDER BY seq) FROM agentd.emissions`:                                                    "metrics 1, metrics 0",
	} {
		if got := awaitRow(t, db, query); got != want {
			t.Errorf("%s: %s, want %s", query, got, want)
		}
	}

	if c := chat(t, s.url, strings.NewReader("please help\n")); c.wait(t) != 0 || !strings.Contains(c.out.String(), "With pleasure.") || strings.Contains(c.out.String(), "not help") {
		t.Errorf("chat printed %q", c.out.String())
	}
	first, second := <-requests, <-requests
	if role, content := second.last(); first.Model != "tiny" || second.Model != "second" || role != "system" || !strings.Contains(content, "reads like a refusal") {
		t.Errorf("%s is asked first, then %s with %s: %s", first.Model, second.Model, role, content)
	}
	if got := awaitRow(t, db, `SELECT concat_ws(' ', observer, policy, followed_by, next_model) FROM agentd.stopped`); got != "halt-on-pattern fallback turn.started second" {
		t.Errorf("stopped: %s", got)
	}

	replaceConfig(t, path, "observers:\n  - metrics:\n")
	s.signal(t, syscall.SIGHUP)
	s.await(t, &s.err, `hooks are loaded".*cause=signal.*(observers=1)`)
	if c := chat(t, s.url, strings.NewReader("please call\n")); c.wait(t) != 0 || !strings.Contains(c.out.String(), `<tool name='ping'>{"message":"paper} for ada\u0040example.net"}</tool>`) {
		t.Errorf("without the observer chat printed %q", c.out.String())
	}
	const changes = `SELECT string_agg(hook_id || ' ' || change, ', ' ORDER BY hook_id) FROM agentd.hook_changes WHERE cause = 'signal' AND gate IN ('OnEnd', 'BeforeInput')`
	if got, want := awaitRow(t, db, changes), "halt-on-pattern removed, normalize-tool-dialect removed, redact removed, redact removed"; got != want {
		t.Errorf("changed: %s, want %s", got, want)
	}
	for _, text := range []string{"paper", "refus", "pleasure", "example.net"} {
		if strings.Contains(s.err.String(), text) {
			t.Errorf("%q is in the log: %s", text, s.err.String())
		}
	}
}
