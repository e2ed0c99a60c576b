package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/seed-2ca4966b/agentd/store/storetest"
)

// provider answers the first call with a tool call and the second with text.
func provider(t *testing.T, requests chan<- string) *httptest.Server {
	t.Helper()
	chunks := [][]string{
		{`{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"c1","function":{"name":"ping","arguments":"{\"message\":\"pa"}}]}}]}`,
			`{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"per\"}"}}]},"finish_reason":"tool_calls"}]}`},
		{`{"choices":[{"delta":{"content":"The tool "}}]}`, `{"choices":[{"delta":{"content":"works."},"finish_reason":"stop"}]}`},
	}
	calls := 0 // one at a time
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || calls == len(chunks) {
			http.Error(w, "unexpected", http.StatusBadRequest)
			return
		}
		requests <- r.URL.Path + " " + r.Header.Get("Authorization") + " " + string(body)
		w.Header().Set("Content-Type", "text/event-stream")
		for _, chunk := range chunks[calls] {
			fmt.Fprintf(w, "data: %s\n\n", chunk)
		}
		fmt.Fprint(w, "data: [DONE]\n\n")
		calls++
	}))
	t.Cleanup(server.Close)
	return server
}

func TestAModelAnswersWhenOneIsConfigured(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	requests := make(chan string, 2)
	s := startServe(t, db, []string{
		"OPENAI_BASE_URL=" + provider(t, requests).URL + "/v1", "OPENAI_API_KEY=sk-secret", "OPENAI_MODEL=tiny", "AGENTD_LOG_LEVEL=debug",
	})
	c := chat(t, s.url, strings.NewReader("does it work?\n"))
	if code := c.wait(t); code != 0 || c.out.String() != "The tool works.\n" {
		t.Fatalf("exit code %d, printed %q", code, c.out.String())
	}
	for range 2 {
		path, rest, _ := strings.Cut(<-requests, " ")
		key, body, _ := strings.Cut(strings.TrimPrefix(rest, "Bearer "), " ")
		var request struct {
			Model  string
			Stream bool
			Tools  []struct{ Function struct{ Name string } }
		}
		if err := json.Unmarshal([]byte(body), &request); err != nil {
			t.Fatal(err)
		}
		if path != "/v1/chat/completions" || key != "sk-secret" || request.Model != "tiny" || !request.Stream || len(request.Tools) != 7 {
			t.Errorf("request: %s %s %s", path, key, body)
		}
	}
	for _, secret := range []string{"sk-secret", "does it work", "paper"} {
		if strings.Contains(s.err.String(), secret) {
			t.Errorf("%q is in the log: %s", secret, s.err.String())
		}
	}
}
