package main

import (
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"testing"

	"github.com/seed-2ca4966b/agentd/loop"
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

func TestDocumentedLimitsOfTheServerHold(t *testing.T) {
	t.Parallel()
	s := newServer(nil, slog.New(slog.DiscardHandler))
	text := document(t, "docs", "api.md")
	for _, row := range []string{
		fmt.Sprintf("| the head of a request (of a call by GET, its message is in it) | %d KiB | 431 |", s.MaxHeaderBytes>>10),
		fmt.Sprintf("| until the head has arrived | %.0f s |", s.ReadHeaderTimeout.Seconds()),
		fmt.Sprintf("| until the whole request has arrived | %.0f s | 408 ", s.ReadTimeout.Seconds()),
		fmt.Sprintf("| until an answer has left | %.0f s |", s.WriteTimeout.Seconds()),
		fmt.Sprintf("| a connection on which nothing is asked | %.0f min |", s.IdleTimeout.Minutes()),
		fmt.Sprintf("| `user` | %d bytes |", loop.MaxUser),
		fmt.Sprintf("| `metadata` | %d keys of %d bytes, values of %d bytes |", loop.MaxMetadataKeys, loop.MaxMetadataKey, loop.MaxMetadataValue),
		fmt.Sprintf("`title`, `query` | %d characters |", loop.MaxTitle),
	} {
		if !strings.Contains(text, row) {
			t.Errorf("docs/api.md does not say: %s", row)
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
