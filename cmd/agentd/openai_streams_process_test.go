package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/seed-2ca4966b/agentd/store/storetest"
)

// chatRequest is what a provider is asked.
type chatRequest struct {
	Messages []struct {
		Role       string
		Content    string
		ToolCallID string `json:"tool_call_id"`
		ToolCalls  []struct {
			ID       string
			Function struct{ Name, Arguments string }
		} `json:"tool_calls"`
	}
}

// exchange is the last answer with tool calls in a request, and what follows
// it: "name(arguments) → content" per call, in the order of the calls.
func (r chatRequest) exchange() (list []string) {
	last := -1
	for i, m := range r.Messages {
		if m.Role == "assistant" && len(m.ToolCalls) > 0 {
			last = i
		}
	}
	if last < 0 {
		return nil
	}
	for i, call := range r.Messages[last].ToolCalls {
		said := call.Function.Name + "(" + call.Function.Arguments + ") → "
		if at := last + 1 + i; at < len(r.Messages) && r.Messages[at].Role == "tool" && r.Messages[at].ToolCallID == call.ID && call.ID != "" {
			said += r.Messages[at].Content
		}
		list = append(list, said)
	}
	return list
}

// recorded is a provider that answers with the bytes of these files, one per
// call, and hands on what it was asked.
func recorded(t *testing.T, edit *strings.Replacer, files ...string) (url string, asked <-chan chatRequest) {
	t.Helper()
	var streams []string
	for _, name := range files {
		stream, err := os.ReadFile(filepath.Join("..", "..", "loop", "model", "openai", name))
		if err != nil {
			t.Fatal(err)
		}
		streams = append(streams, edit.Replace(string(stream)))
	}
	requests := make(chan chatRequest, len(streams))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var request chatRequest
		if err == nil {
			err = json.NewDecoder(bytes.NewReader(body)).Decode(&request)
		}
		n := len(requests) // one call at a time
		if err != nil || n == len(streams) {
			t.Errorf("call %d: %v: %s", n, err, body)
			http.Error(w, "unexpected", http.StatusBadRequest)
			return
		}
		requests <- request
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, streams[n])
	}))
	t.Cleanup(server.Close)
	return server.URL + "/v1", requests
}

func TestAConversationWithAModelThatCallsTools(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	// The agent has a tool of that name, and the second stream uses the ids of
	// the first one once more, as some servers do.
	url, asked := recorded(t, strings.NewReplacer("lookup_order", "ping", "order_id", "message"),
		"testdata/parallel_calls.sse", "openaitest/testdata/no_index_sequential.sse", "openaitest/testdata/finish_and_done.sse")
	s := startServe(t, db, []string{"OPENAI_BASE_URL=" + url, "OPENAI_MODEL=tiny"})
	c := chat(t, s.url, strings.NewReader("what is the total?\n"))
	if code := c.wait(t); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	if got := c.out.String(); got != "Looking both up.The total is 42.\n" || got != completedTexts(t, db) {
		t.Errorf("printed %q, the log has %q", got, completedTexts(t, db))
	}

	first, second, third := <-asked, <-asked, <-asked
	if got := first.exchange(); got != nil {
		t.Errorf("the first request has calls: %q", got)
	}
	paired := func(got []string) bool {
		return len(got) == 2 && got[0] == `ping({"message":"A-17"}) → pong: A-17` &&
			strings.HasPrefix(got[1], `get_time({"zone":"UTC"}) → `) && strings.HasSuffix(got[1], " UTC (+00:00)")
	}
	for i, got := range [][]string{second.exchange(), third.exchange()} {
		if !paired(got) {
			t.Errorf("request %d has %q", i+2, got)
		}
	}
	var ids, roles []string
	for _, m := range third.Messages {
		roles = append(roles, m.Role)
		for _, call := range m.ToolCalls {
			ids = append(ids, call.ID)
		}
	}
	if slices.Sort(ids); len(slices.Compact(ids)) != 4 {
		t.Errorf("ids of four calls: %q", ids)
	}
	if got := strings.Join(roles, " "); got != "system user assistant tool tool assistant tool tool" {
		t.Errorf("roles: %s", got)
	}

	calls := scalar[string](t, db, `
		SELECT string_agg(turn_no || '.' || call_no || ' ' || name || ' ' || status || ' ' || success, ', ' ORDER BY turn_no, call_no) FROM agentd.tool_calls`)
	if calls != "1.1 ping done true, 1.2 get_time done true, 2.1 ping done true, 2.2 get_time done true" {
		t.Errorf("calls: %s", calls)
	}
	code, out, said := ofDatabase(db.URL)(t, "verify")
	if code != 0 || !strings.HasPrefix(out, "1 session, 1 run, 4 tool calls, ") || !strings.HasSuffix(out, ": 0 differences\n") {
		t.Errorf("verify: exit code %d, said %q, printed %q", code, said, out)
	}
}
