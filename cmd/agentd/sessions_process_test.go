package main

import (
	"strings"
	"syscall"
	"testing"

	agentdv1 "github.com/seed-2ca4966b/agentd/api/gen/agentd/v1"
	"github.com/seed-2ca4966b/agentd/store/storetest"
)

// TestAFailedRunIsRetriedAndItsSessionIsShown: the model is away, and back when
// somebody asks for the run again.
func TestAFailedRunIsRetriedAndItsSessionIsShown(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	away := startServe(t, db, []string{"AGENTD_SCRIPT=" + script(t, `{"fail": {"status": 400, "message": "away"}}`)})
	if code := chat(t, away.url, strings.NewReader("ping\n"), "--session", "trip").wait(t); code != exitFailure {
		t.Fatalf("chat: exit code %d", code)
	}
	away.signal(t, syscall.SIGTERM)
	away.wait(t)
	run := awaitRow(t, db, `SELECT id::text FROM agentd.runs WHERE status = 'failed'`)
	session := awaitRow(t, db, `SELECT id::text FROM agentd.sessions`)
	s := startServe(t, db, nil)
	patience := "1m"
	agentd := func(want int, args ...string) string {
		t.Helper()
		code, out, said := ofServer(s.url, patience)(t, args...)
		if code != want {
			t.Errorf("%v: exit code %d, said %s", args, code, said)
		}
		return out + said
	}
	wantIn := func(text string, parts ...string) {
		t.Helper()
		for _, part := range parts {
			if !strings.Contains(text, part) {
				t.Errorf("no %q in\n%s", part, text)
			}
		}
	}
	wantIn(agentd(0, "sessions", "title", "trip", "To Oslo\tand back"), "session "+session+": To Oslo and back")
	c := dial(t, s.url)
	if _, err := c.UpdateSession(t.Context(), &agentdv1.UpdateSessionRequest{SessionId: session, Metadata: map[string]string{"team": "a\x1bb"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.CreateSession(t.Context(), &agentdv1.CreateSessionRequest{User: "ada", ExternalId: "empty"}); err != nil {
		t.Fatal(err)
	}

	wantIn(agentd(0, "runs", "retry", run), "the run is queued again")
	awaitRow(t, db, `SELECT 'x' FROM agentd.runs WHERE status = 'completed' AND retries = 1`)
	wantIn(agentd(1, "runs", "retry", run), "the run cannot be retried: it is completed")
	wantIn(agentd(1, "runs", "cancel", run, "--reason", "late"), "the run has already ended")
	wantIn(agentd(0, "runs", run), "retries:", "completed")

	shown := agentd(0, "sessions", "show", "trip")
	wantIn(shown, "session:        "+session, "title:          To Oslo and back", "metadata team:  a\uFFFDb", "active run:     -", "\nuser, ", "→ ping {", "\ntool, ", "The tool answered: ")
	if strings.Contains(shown, "cut off") {
		t.Errorf("what was replaced is shown:\n%s", shown)
	}
	list := agentd(0, "sessions")
	wantIn(list, "SESSION ", session+"  To Oslo and back  -     trip", "ada   empty")
	for want, args := range map[int][]string{3: {}, 2: {"--user", "ada"}, 1: {"--active"}} {
		if out := agentd(0, append([]string{"sessions"}, args...)...); strings.Count(out, "\n") != want {
			t.Errorf("%v: want %d lines:\n%s", args, want, out)
		}
	}
	wantIn(agentd(0, "sessions", "list", "--search", "oslo TO"), session)
	if out := agentd(0, "sessions", "--limit", "1"); strings.Count(out, "\n") != 2 {
		t.Errorf("--limit 1:\n%s", out)
	}
	wantIn(agentd(2, "sessions", "--limit", "0"), "--limit 0")
	wantIn(agentd(0, "sessions", "title", "trip", ""), "no title")
	for _, args := range [][]string{{"show", "nobody's"}, {"title", "nobody's", "x"}} {
		wantIn(agentd(1, append([]string{"sessions"}, args...)...), `there is no session "nobody's"`)
	}
	wantIn(agentd(1, "sessions", "title", "trip", strings.Repeat("x", 201)), "title: has 201 characters")
	s.signal(t, syscall.SIGTERM)
	s.wait(t)
	patience = "50ms"
	for _, args := range [][]string{{"sessions"}, {"sessions", "show", session}, {"sessions", "title", session, "x"}, {"runs", "retry", run}, {"runs", "cancel", run}} {
		wantIn(agentd(1, args...), "has not answered for 50ms")
	}
	wantIn(agentd(1, "sessions", "--url", "nowhere"), "no server to talk to")
}

func TestRunsCancelStopsARun(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	hold, open := gate(t)
	s := startServe(t, db, []string{"AGENTD_SCRIPT=" + script(t, `{"text": "so far"}, `+hold+`, {"text": " and further"}`)})
	t.Cleanup(open)
	c := chat(t, s.url, strings.NewReader("go\n"))
	run := awaitRow(t, db, `SELECT run_id::text FROM agentd.events WHERE type = 'assistant.delta'`)
	code, out, said := ofServer(s.url, "1m")(t, "runs", "cancel", run, "--reason", "enough")
	if code != 0 || out != "the run is told to stop\n" || said != "" {
		t.Errorf("exit code %d, printed %q, said %q", code, out, said)
	}
	if code := c.wait(t); code != exitFailure || !strings.Contains(c.err.String(), "the run was cancelled: enough") {
		t.Errorf("chat: exit code %d, said %s", code, c.err.String())
	}
}
