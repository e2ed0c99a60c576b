package main

import (
	"net/http"
	"strings"
	"testing"

	"github.com/seed-2ca4966b/agentd/store/storetest"
)

// TestMetricsOfRealProcesses: an API with a key, and a worker that is measured on a
// port of its own. What was said is in neither's figures.
func TestMetricsOfRealProcesses(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	const secret = "xyzzy-4711"
	key := "AGENTD_API_KEY=sesame"
	s := startServe(t, db, []string{key}, "--roles", "api")
	answers := script(t, `{"text": "`+secret+`"}, {"tool": {"name": "get_time", "arguments": {}}}`, `{"text": "done"}`)
	w := startServe(t, db, []string{"AGENTD_SCRIPT=" + answers, "AGENTD_PROVIDER_METRICS=1", "AGENTD_METRICS_LISTEN=127.0.0.1:0"}, "--roles", "worker")
	scrape := w.await(t, &w.err, `msg="serving metrics" url=(\S+)`)

	if code, body := get(t, s.url+"/metrics"); code != http.StatusUnauthorized || strings.Contains(body, "go_goroutines") {
		t.Errorf("of the API without its key: %d %s", code, body)
	}
	if code, body := getWithKey(t, s.url+"/metrics", "sesame"); code != http.StatusOK || !strings.Contains(body, "\ngo_goroutines ") || strings.Contains(body, "agentd_provider_") {
		t.Errorf("of the API with its key: %d %s", code, body)
	}
	if code, _ := get(t, w.url+"/metrics"); code != http.StatusNotFound {
		t.Errorf("of the worker beside its port: %d", code)
	}
	c := start(t, options{env: []string{"AGENTD_URL=" + s.url, key}, stdin: strings.NewReader(secret + "\n")}, "chat")
	if code := c.wait(t); code != 0 {
		t.Errorf("chat: exit code %d", code)
	}
	code, body := get(t, scrape)
	for _, want := range []string{
		`agentd_provider_completions_total{class="tool_calls"} 1`, `agentd_provider_completions_total{class="stop"} 1`,
		`agentd_provider_request_duration_seconds_count{result="completed"} 2`, `agentd_provider_first_event_seconds_count 2`,
		`agentd_provider_errors_total{class="rate_limit"} 0`,
	} {
		if code != http.StatusOK || !strings.Contains(body, "\n"+want+"\n") {
			t.Errorf("%d, no %s in\n%s", code, want, body)
		}
	}
	for _, no := range []string{secret, "get_time", "demo", "scripted", "sesame", "default"} {
		if strings.Contains(body, no) {
			t.Errorf("%q is in\n%s", no, body)
		}
	}
}
