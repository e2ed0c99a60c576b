package main

import (
	"regexp"
	"strings"
	"testing"

	"github.com/seed-2ca4966b/agentd/store/storetest"
)

// wantTimes counts patterns in what a tour printed; -1 is at least once.
func wantTimes(t *testing.T, out string, counts map[string]int) {
	t.Helper()
	for pattern, want := range counts {
		if got := len(regexp.MustCompile(pattern).FindAllString(out, -1)); got != want && (want >= 0 || got == 0) {
			t.Errorf("%s is there %d times, want %d:\n%s", pattern, got, want, out)
		}
	}
}

func TestTourOfTheAPI(t *testing.T) {
	t.Parallel()
	needBash(t)
	s := startServe(t, storetest.New(t), []string{"AGENTD_DENY_TOOLS=nothing"})
	wantTimes(t, readmeBash(t, tour(t, document(t, "docs", "api.md"), "api-tour"), s.url), map[string]int{
		`"created":true`: 1, `"title":"Trip to Rome"`: -1, `"year":"2027"`: -1,
		`"type":"run.suspended"`: 2, `APPROVAL_STATUS_APPROVED`: 1, `"type":"tool.executed"`: 2,
		`"type":"messages.replaced"`: 1, `"replacedSeq":"\d+"`: -1, `"type":"run.cancelled","at".*"reason":"enough"`: 1,
		`"gate":"BeforeToolCall"`: -1, `"code":`: 0,
	})
}

func TestTourOfARetry(t *testing.T) {
	t.Parallel()
	needBash(t)
	db := storetest.New(t)
	s := startServe(t, db, []string{"AGENTD_SCRIPT=" + script(t, `{"fail": {"status": 400, "message": "away"}}`)})
	if code := chat(t, s.url, strings.NewReader("ping\n")).wait(t); code != exitFailure {
		t.Fatalf("chat: exit code %d", code)
	}
	run := awaitRow(t, db, `SELECT id::text FROM agentd.runs WHERE status = 'failed'`)
	out := readmeBash(t, tour(t, document(t, "docs", "api.md"), "retry-tour"), s.url, "R="+run)
	wantTimes(t, out, map[string]int{`^\{"after":"\d+"\}$`: 1})
	awaitRow(t, db, `SELECT 'x' FROM agentd.runs WHERE status = 'failed' AND retries = 1`)
}
